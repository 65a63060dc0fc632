//! Merges the nodes' answers, each of which merges the logs of that node's pods.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use model::ids::{NodeName, PodId, ServiceName};
use model::stream::channel::Frame;
use model::stream::log_line::{LineSplitter, LogLine};
use model::stream::log_merge::LogMerge;
use store::{ChannelError, LinesRequest, LoggedPod, NodeAnswer, NodeQuestion, Store, StoreError};

/// A followed line waits for older lines of other nodes.
const HOLD: Duration = Duration::from_millis(800);
/// Followed services may get pods on other nodes.
const PLACES_INTERVAL: Duration = Duration::from_secs(2);
/// A node without new lines reports every 5 s.
const NODE_TIMEOUT: Duration = Duration::from_secs(12);
const RETRY_INTERVAL: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Default)]
pub(crate) struct LogSelection {
    pub(crate) services: Vec<ServiceName>,
    pub(crate) pods: Vec<PodId>,
    pub(crate) nodes: Vec<NodeName>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MergedItem {
    Line(NodeName, LogLine),
    Mark(String),
}

type Places = BTreeMap<NodeName, Vec<LoggedPod>>;

pub(crate) struct MergedLogs {
    store: Store,
    selection: LogSelection,
    /// Without the pods of a node.
    request: LinesRequest,
    nodes: BTreeMap<NodeName, NodeLog>,
    merge: LogMerge<NodeName, MergedItem>,
    places_at: Instant,
    marks: Vec<String>,
    is_open: bool,
}

struct NodeLog {
    answer: NodeAnswer,
    pods: Vec<LoggedPod>,
    splitter: LineSplitter,
    last_time: u64,
    retry_at: Option<Instant>,
    has_ended: bool,
}

impl MergedLogs {
    pub(crate) async fn open(
        store: Store,
        selection: LogSelection,
        request: LinesRequest,
    ) -> Result<Self, StoreError> {
        let mut logs = Self {
            merge: LogMerge::new(request.follow.then_some(HOLD)),
            places_at: Instant::now() + PLACES_INTERVAL,
            nodes: BTreeMap::new(),
            marks: Vec::new(),
            is_open: false,
            store,
            selection,
            request,
        };
        let places = logs.places().await?;
        logs.ask(places).await?;
        logs.is_open = true;
        Ok(logs)
    }

    async fn places(&self) -> Result<Places, StoreError> {
        let mut ids = self.selection.pods.clone();
        let mut slots_of = HashMap::new();
        for service in &self.selection.services {
            match self.store.slots(service).await {
                Ok(slots) => {
                    ids.extend(slots.iter().map(|(_, id)| id.clone()));
                    slots_of.extend(slots.into_iter().map(|(slot, id)| (id, (service, slot))));
                }
                Err(error) if error.is_broken_key() => {}
                Err(error) => return Err(error),
            }
        }
        let mut places: Places = self.selection.nodes.iter().map(|node| (node.clone(), Vec::new())).collect();
        for (id, record) in ids.iter().zip(self.store.pods(&ids).await?) {
            let Ok(Some(record)) = record else { continue };
            // A void slot names a pod of another service.
            if slots_of.get(id).is_some_and(|(service, slot)| !record.is_of(service, *slot)) {
                continue;
            }
            let Some(node) = record.node else { continue };
            let pod = LoggedPod { id: id.clone(), name: format!("{}-{}", record.name, record.replica) };
            places.entry(node).or_default().push(pod);
        }
        if self.request.previous {
            let all: Vec<LoggedPod> = places.values().flatten().cloned().collect();
            places.values_mut().for_each(|pods| pods.clone_from(&all));
        }
        Ok(places)
    }

    /// Workers find new pods of a service by themselves.
    async fn ask(&mut self, places: Places) -> Result<(), StoreError> {
        for (node, pods) in places {
            let known = self.nodes.get(&node);
            let follows_services = !self.selection.services.is_empty();
            let is_news =
                known.is_none_or(|known| known.has_ended && known.retry_at.is_none() && known.pods != pods);
            if is_news && (known.is_none() || follows_services) {
                let is_new = self.is_open && known.is_none();
                let last_time = known.map_or(0, |known| known.last_time);
                self.ask_node(node, pods, last_time, is_new).await?;
            }
        }
        Ok(())
    }

    /// `is_new`: the node got its first selected pod while logs were followed.
    async fn ask_node(
        &mut self,
        node: NodeName,
        pods: Vec<LoggedPod>,
        last_time: u64,
        is_new: bool,
    ) -> Result<(), StoreError> {
        let request = request_of(&self.request, &pods, last_time, is_new);
        let answer = self.store.ask(&node, NodeQuestion::Lines(request)).await?;
        self.merge.begin(node.clone());
        let splitter = LineSplitter::default();
        let log = NodeLog { answer, pods, splitter, last_time, retry_at: None, has_ended: false };
        self.nodes.insert(node, log);
        Ok(())
    }

    /// Items may be empty; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Vec<MergedItem>> {
        let mut items: Vec<MergedItem> =
            std::mem::take(&mut self.marks).into_iter().map(MergedItem::Mark).collect();
        self.read_all();
        self.keep_asking().await;
        let now = Instant::now();
        while let Some(item) = self.merge.pop(now) {
            items.push(item);
        }
        if !items.is_empty() {
            return Some(items);
        }
        if self.marks.is_empty() && !self.request.follow && self.merge.is_done() {
            return None;
        }
        if self.is_over() {
            return None;
        }
        tokio::time::sleep(POLL).await;
        Some(items)
    }

    /// Only pods were named, and all have ended.
    fn is_over(&self) -> bool {
        self.selection.services.is_empty()
            && self.marks.is_empty()
            && self.merge.is_done()
            && self.nodes.values().all(|log| log.has_ended && log.retry_at.is_none())
    }

    fn read_all(&mut self) {
        let now = Instant::now();
        for (node, log) in self.nodes.iter_mut().filter(|(_, log)| !log.has_ended) {
            let end = loop {
                match log.answer.arrived() {
                    None if log.answer.silence() <= NODE_TIMEOUT => break None,
                    None | Some(Err(ChannelError::PeerGone)) => {
                        let seconds = NODE_TIMEOUT.as_secs();
                        break Some(format!(
                            "node {node} has sent nothing for {seconds} s: its worker does not run"
                        ));
                    }
                    Some(Ok(Frame::Output(bytes))) => {
                        for line in log.splitter.add(&bytes) {
                            let item = read_line(node, &line);
                            if let MergedItem::Line(_, line) = &item {
                                log.last_time = log.last_time.max(line.time);
                            }
                            self.merge.push(node, log.last_time, item, now);
                        }
                    }
                    Some(Ok(Frame::Exit(_))) => break Some(String::new()),
                    Some(Ok(Frame::Failed(why))) => break Some(format!("node {node}: {why}")),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => break Some(format!("node {node}: {error}")),
                }
            };
            let Some(why) = end else { continue };
            log.has_ended = true;
            self.merge.end(node);
            if !why.is_empty() {
                self.marks.push(why);
                log.retry_at = self.request.follow.then(|| now + RETRY_INTERVAL);
            }
        }
    }

    async fn keep_asking(&mut self) {
        let now = Instant::now();
        if !self.request.follow || now < self.places_at {
            return;
        }
        self.places_at = now + PLACES_INTERVAL;
        let Ok(places) = self.places().await else { return };
        let due: Vec<NodeName> = self
            .nodes
            .iter()
            .filter(|(_, log)| log.retry_at.is_some_and(|at| now >= at))
            .map(|(node, _)| node.clone())
            .collect();
        for node in due {
            let Some(former) = self.nodes.remove(&node) else { continue };
            let pods = places.get(&node).cloned().unwrap_or_default();
            if !pods.is_empty() {
                drop(self.ask_node(node, pods, former.last_time, false).await);
            }
        }
        drop(self.ask(places).await);
    }
}

/// A tail applies to initial containers: later pods are read completely, and a node that was asked before
/// continues.
fn request_of(request: &LinesRequest, pods: &[LoggedPod], last_time: u64, is_new: bool) -> LinesRequest {
    let request = LinesRequest { pods: pods.to_vec(), ..request.clone() };
    if last_time == 0 && !is_new {
        return request;
    }
    let after = request.after.into_iter().chain((last_time > 0).then_some(last_time)).max();
    LinesRequest { tail: None, after, ..request }
}

fn read_line(node: &NodeName, line: &Bytes) -> MergedItem {
    match LogLine::decode(line) {
        Some(line) => MergedItem::Line(node.clone(), line),
        None => MergedItem::Mark(String::from_utf8_lossy(line).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nodes_that_had_pods_at_the_beginning_are_asked_for_last_lines() {
        let request = LinesRequest { tail: Some(5), after: Some(7), ..LinesRequest::default() };
        for (last_time, is_new, tail, after) in [
            (0, false, Some(5), Some(7)),
            (0, true, None, Some(7)),
            (30, false, None, Some(30)),
            (3, false, None, Some(7)),
        ] {
            let asked = request_of(&request, &[], last_time, is_new);
            assert_eq!((asked.tail, asked.after), (tail, after));
        }
        let first = request_of(&LinesRequest::default(), &[], 0, true);
        assert_eq!((first.tail, first.after), (None, None));
    }
}
