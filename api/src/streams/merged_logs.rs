//! Merges the logs of several pods by time. Each node merges the logs of its own pods (see the lines of
//! `store`); this module merges the nodes' answers.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use futures_util::future::join_all;
use model::ids::{NodeName, PodId, ServiceName};
use model::stream::log_line::{LineSplitter, LogLine};
use model::stream::log_merge::LogMerge;
use store::{LinesRequest, LogChunk, LoggedPod, Store, StoreError};

/// Time for which a followed line waits for older lines of other nodes.
const HOLD: Duration = Duration::from_millis(800);
/// Interval of locating the pods of followed services.
const PLACES_INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of a silent node. A node without new lines reports every 5 s.
const NODE_TIMEOUT: Duration = Duration::from_secs(12);
/// Delay before a node that ended its answer is asked again while logs are followed.
const RETRY_INTERVAL: Duration = Duration::from_secs(3);
const MAX_POLL: Duration = Duration::from_millis(400);

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
    /// Request to each node, except for its id and pods.
    request: LinesRequest,
    nodes: BTreeMap<NodeName, NodeLog>,
    merge: LogMerge<NodeName, MergedItem>,
    places_at: Instant,
    marks: Vec<String>,
    is_open: bool,
    poll: Duration,
}

struct NodeLog {
    id: String,
    pods: Vec<LoggedPod>,
    position: String,
    splitter: LineSplitter,
    last_time: u64,
    heard_at: Instant,
    retry_at: Option<Instant>,
    has_ended: bool,
    /// True if its first selected pod appeared while logs were followed.
    is_new: bool,
}

impl NodeLog {
    fn new(pods: Vec<LoggedPod>, last_time: u64) -> Self {
        Self {
            id: uuid::Uuid::new_v4().to_string(),
            pods,
            position: "0".to_owned(),
            splitter: LineSplitter::default(),
            last_time,
            heard_at: Instant::now(),
            retry_at: None,
            has_ended: false,
            is_new: false,
        }
    }
}

impl MergedLogs {
    /// Asks all nodes with selected pods.
    ///
    /// # Errors
    /// See [`StoreError`].
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
            poll: Store::LOG_POLL,
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
        for (id, record) in ids.iter().zip(self.store.pods_each(&ids).await?) {
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
            // A pod of this name may have run on any of them.
            let all: Vec<LoggedPod> = places.values().flatten().cloned().collect();
            places.values_mut().for_each(|pods| pods.clone_from(&all));
        }
        Ok(places)
    }

    /// Asks new nodes, and asks ended nodes with changed pods again: workers find new pods of a service by
    /// themselves.
    async fn ask(&mut self, places: Places) -> Result<(), StoreError> {
        for (node, pods) in places {
            let known = self.nodes.get(&node);
            let follows_services = !self.selection.services.is_empty();
            let is_news =
                known.is_none_or(|known| known.has_ended && known.retry_at.is_none() && known.pods != pods);
            if is_news && (known.is_none() || follows_services) {
                let mut log = NodeLog::new(pods, known.map_or(0, |known| known.last_time));
                log.is_new = self.is_open && known.is_none();
                self.ask_node(node, log).await?;
            }
        }
        Ok(())
    }

    async fn ask_node(&mut self, node: NodeName, log: NodeLog) -> Result<(), StoreError> {
        let request = request_of(&self.request, &log);
        self.store.request_lines(&node, &request).await?;
        self.merge.begin(node.clone());
        self.nodes.insert(node, log);
        Ok(())
    }

    /// Returns new items, possibly none; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Vec<MergedItem>> {
        let mut items: Vec<MergedItem> =
            std::mem::take(&mut self.marks).into_iter().map(MergedItem::Mark).collect();
        self.read_all().await;
        self.keep_asking().await;
        let now = Instant::now();
        while let Some(item) = self.merge.pop(now) {
            items.push(item);
        }
        if !items.is_empty() {
            self.poll = Store::LOG_POLL;
            return Some(items);
        }
        if self.marks.is_empty() && !self.request.follow && self.merge.is_done() {
            return None;
        }
        if self.is_over() {
            return None;
        }
        tokio::time::sleep(self.poll).await;
        self.poll = (self.poll * 5 / 4).min(MAX_POLL);
        Some(items)
    }

    /// Returns true if no more lines will come although logs are followed: only pods were named, and all have
    /// ended.
    fn is_over(&self) -> bool {
        self.selection.services.is_empty()
            && self.marks.is_empty()
            && self.merge.is_done()
            && self.nodes.values().all(|log| log.has_ended && log.retry_at.is_none())
    }

    async fn read_all(&mut self) {
        let open: Vec<(&NodeName, &NodeLog)> = self.nodes.iter().filter(|(_, log)| !log.has_ended).collect();
        let reads = open.into_iter().map(|(node, log)| {
            let store = self.store.clone();
            async move { (node.clone(), store.read_log(&log.id, &log.position).await) }
        });
        let read: Vec<_> = join_all(reads).await;
        for (node, reply) in read {
            match reply {
                Ok((chunks, position)) => self.take(&node, chunks, position),
                // Redis is unavailable; the node times out after a while.
                Err(error) => tracing::debug!(%node, %error, "lines could not be read"),
            }
        }
    }

    fn take(&mut self, node: &NodeName, chunks: Vec<LogChunk>, position: String) {
        let Some(log) = self.nodes.get_mut(node) else { return };
        log.position = position;
        let now = Instant::now();
        if !chunks.is_empty() {
            log.heard_at = now;
        }
        for chunk in chunks {
            match chunk {
                LogChunk::Output(bytes) => {
                    for line in log.splitter.add(&bytes) {
                        let item = read_line(node, &line);
                        if let MergedItem::Line(_, line) = &item {
                            log.last_time = log.last_time.max(line.time);
                        }
                        // A mark is placed where it arrived.
                        self.merge.push(node, log.last_time, item, now);
                    }
                }
                LogChunk::End(why) => {
                    log.has_ended = true;
                    self.merge.end(node);
                    if !why.is_empty() {
                        self.marks.push(format!("node {node}: {why}"));
                        log.retry_at = self.request.follow.then(|| now + RETRY_INTERVAL);
                    }
                }
            }
        }
        if !log.has_ended && log.heard_at.elapsed() > NODE_TIMEOUT {
            log.has_ended = true;
            log.heard_at = now;
            self.merge.end(node);
            let seconds = NODE_TIMEOUT.as_secs();
            self.marks.push(format!(
                "node {node} has sent nothing for {seconds} s: its worker does not run, or is of an earlier version"
            ));
            log.retry_at = self.request.follow.then(|| now + RETRY_INTERVAL);
        }
    }

    async fn keep_asking(&mut self) {
        let now = Instant::now();
        if !self.request.follow || now < self.places_at {
            return;
        }
        self.places_at = now + PLACES_INTERVAL;
        // Failures are retried at the next interval.
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
                drop(self.ask_node(node, NodeLog::new(pods, former.last_time)).await);
            }
        }
        drop(self.ask(places).await);
    }
}

/// Returns the request to a node. A tail applies to initial containers: a node asked before continues, and
/// pods that came later are read completely.
fn request_of(request: &LinesRequest, log: &NodeLog) -> LinesRequest {
    let request = LinesRequest { id: log.id.clone(), pods: log.pods.clone(), ..request.clone() };
    match log.last_time {
        0 if !log.is_new => request,
        last_time => {
            let after = request.after.into_iter().chain((last_time > 0).then_some(last_time)).max();
            LinesRequest { tail: None, after, ..request }
        }
    }
}

fn read_line(node: &NodeName, line: &Bytes) -> MergedItem {
    match LogLine::decode(line) {
        Some(line) => MergedItem::Line(node.clone(), line),
        None => MergedItem::Mark(String::from_utf8_lossy(line).into_owned()),
    }
}

impl Drop for MergedLogs {
    fn drop(&mut self) {
        let (store, nodes) = (self.store.clone(), std::mem::take(&mut self.nodes));
        // Otherwise the workers notice only half a minute later.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                for log in nodes.values() {
                    drop(store.end_log(&log.id).await);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nodes_that_had_pods_at_the_beginning_are_asked_for_last_lines() {
        let request = LinesRequest { tail: Some(5), after: Some(7), ..LinesRequest::default() };
        let log = |last_time, is_new| NodeLog { is_new, ..NodeLog::new(Vec::new(), last_time) };
        for (log, tail, after) in [
            (log(0, false), Some(5), Some(7)),
            (log(0, true), None, Some(7)),
            (log(30, false), None, Some(30)),
            (log(3, false), None, Some(7)),
        ] {
            let asked = request_of(&request, &log);
            assert_eq!((asked.tail, asked.after), (tail, after));
        }
        let first = request_of(&LinesRequest::default(), &log(0, true));
        assert_eq!((first.tail, first.after), (None, None));
    }
}
