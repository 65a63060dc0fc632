//! The reports of this host's workers: a table of pods for each node.
//!
//! A worker's pods run on while it restarts, so its table stays until the next session's complete one.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use model::ids::{AssignmentId, Incarnation, NodeName, PodId, ServiceName};
use model::network::endpoint::{Endpoint, EndpointState};
use model::network::handover::{Gateway, LocalPod};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::gates::Gates;
use crate::take_over::{Former, PodsOfNodes};

/// Longer than an outage of Redis, without which a restarted worker has no session.
pub(crate) const ROWS_KEPT: Duration = Duration::from_secs(15 * 60);

/// A host has one for each cluster.
const MAX_GATEWAYS: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(pub(crate) u64);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("another connection speaks for this node since, or none has said hello")]
pub(crate) struct NotSpeaker;

pub struct Workers {
    gates: Arc<Gates>,
    /// Set while the former process finishes its connections. Its gates follow these.
    former: OnceLock<Former>,
    nodes: Mutex<HashMap<NodeName, NodeTable>>,
    version: watch::Sender<u64>,
    /// `None` if nothing is saved.
    saved: watch::Sender<Option<u64>>,
    speaking: watch::Sender<BTreeSet<NodeName>>,
    /// They stay while the worker is away, like its pods.
    gateways: watch::Sender<BTreeSet<Gateway>>,
}

#[derive(Default)]
struct NodeTable {
    speaker: Option<Speaker>,
    silent_since: Option<Instant>,
    pods: HashSet<AssignmentId>,
    /// Parts of an incomplete list.
    begun: Vec<LocalPod>,
}

struct Speaker {
    connection: ConnectionId,
    incarnation: Incarnation,
}

impl Workers {
    pub fn new(gates: Arc<Gates>) -> Self {
        Self {
            gates,
            former: OnceLock::new(),
            nodes: Mutex::default(),
            version: watch::Sender::new(0),
            saved: watch::Sender::new(None),
            speaking: watch::Sender::default(),
            gateways: watch::Sender::default(),
        }
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub(crate) fn note_saved(&self, version: Option<u64>) {
        self.saved.send_replace(version);
    }

    pub(crate) fn until_saved(&self) -> impl Future<Output = ()> + use<> {
        let (version, mut saved) = (*self.version.borrow(), self.saved.subscribe());
        async move {
            let is_saved = |saved: &Option<u64>| saved.is_none_or(|saved| saved >= version);
            let _ended = saved.wait_for(is_saved).await;
        }
    }

    pub(crate) fn speaking(&self) -> watch::Receiver<BTreeSet<NodeName>> {
        self.speaking.subscribe()
    }

    pub fn gateways(&self) -> watch::Receiver<BTreeSet<Gateway>> {
        self.gateways.subscribe()
    }

    pub(crate) fn add_gateway(&self, gateway: Gateway) {
        self.gateways.send_if_modified(|gateways| {
            let is_full = gateways.len() >= MAX_GATEWAYS && !gateways.contains(&gateway);
            if is_full {
                tracing::warn!(
                    "this host has more than {MAX_GATEWAYS} networks of pods: in the one behind {} no pod reaches a \
                     service by name",
                    gateway.address
                );
            }
            !is_full && gateways.insert(gateway)
        });
    }

    pub(crate) fn keep_in_step(&self, former: Former) {
        let _only_once = self.former.set(former);
    }

    pub(crate) fn former(&self) -> Option<Former> {
        self.former.get().cloned()
    }

    pub(crate) fn set_gate(&self, pod: LocalPod) {
        if let Some(former) = self.former.get() {
            former.set(pod.clone());
        }
        self.gates.set(pod);
    }

    pub(crate) fn remove_gate(&self, assignment: &AssignmentId) {
        if let (Some(former), Some(row)) = (self.former.get(), self.gates.row(assignment)) {
            former.remove(row.pod, row.assignment);
        }
        self.gates.remove(assignment);
    }

    pub fn insert_saved(&self, saved: PodsOfNodes) {
        let mut nodes = self.nodes.lock();
        for (node, pods) in saved {
            let table = nodes.entry(node).or_default();
            table.silent_since = Some(Instant::now());
            for pod in pods {
                table.pods.insert(pod.assignment.clone());
                self.gates.set(pod);
            }
        }
    }

    pub(crate) fn rows(&self) -> PodsOfNodes {
        let nodes = self.nodes.lock();
        let rows = |table: &NodeTable| table.pods.iter().filter_map(|pod| self.gates.row(pod)).collect();
        nodes.iter().map(|(node, table)| (node.clone(), rows(table))).collect()
    }

    pub fn gates(&self) -> &Arc<Gates> {
        &self.gates
    }

    pub fn nodes(&self) -> BTreeSet<NodeName> {
        self.nodes.lock().keys().cloned().collect()
    }

    pub fn serving(&self, services: &BTreeSet<ServiceName>) -> Vec<(ServiceName, Endpoint)> {
        let endpoint = |(node, row): (NodeName, LocalPod)| {
            let service = row.service.filter(|service| row.open && services.contains(service))?;
            let state = if row.ready { EndpointState::Ready } else { EndpointState::Running };
            let (pod, replica, assignment) = (row.pod, row.replica, row.assignment);
            Some((service, Endpoint { pod, replica, node, assignment, state }))
        };
        let rows = self.rows().into_iter();
        let rows = rows.flat_map(|(node, rows)| rows.into_iter().map(move |row| (node.clone(), row)));
        rows.filter_map(endpoint).collect()
    }

    pub(crate) fn hello(&self, connection: ConnectionId, node: &NodeName, incarnation: Incarnation) {
        let mut nodes = self.nodes.lock();
        let table = nodes.entry(node.clone()).or_default();
        // The later of two connections speaks, whatever the order in which their messages are read.
        if table.speaker.as_ref().is_some_and(|speaker| speaker.connection > connection) {
            return;
        }
        tracing::info!(%node, %incarnation, "the worker speaks to this proxy");
        table.speaker = Some(Speaker { connection, incarnation });
        table.silent_since = None;
        table.begun.clear();
        self.speaking.send_if_modified(|nodes| nodes.insert(node.clone()));
    }

    pub(crate) fn disconnected(&self, connection: ConnectionId, node: &NodeName) {
        let mut nodes = self.nodes.lock();
        let Ok(table) = speaking(&mut nodes, connection, node) else { return };
        if let Some(Speaker { incarnation, .. }) = table.speaker.take() {
            tracing::info!(%node, %incarnation, "the worker speaks no more; its pods stay where they are");
        }
        table.silent_since = Some(Instant::now());
        self.speaking.send_if_modified(|nodes| nodes.remove(node));
    }

    pub(crate) fn replace(
        &self,
        connection: ConnectionId,
        node: &NodeName,
        pods: Vec<LocalPod>,
        more: bool,
    ) -> Result<(), NotSpeaker> {
        let mut nodes = self.nodes.lock();
        let table = speaking(&mut nodes, connection, node)?;
        table.begun.extend(pods);
        if more {
            return Ok(());
        }
        let pods = std::mem::take(&mut table.begun);
        let now: HashSet<AssignmentId> = pods.iter().map(|pod| pod.assignment.clone()).collect();
        for gone in table.pods.difference(&now) {
            self.remove_gate(gone);
        }
        table.pods = now;
        for pod in pods {
            self.set_gate(pod);
        }
        self.note_change();
        Ok(())
    }

    pub(crate) fn set(
        &self,
        connection: ConnectionId,
        node: &NodeName,
        pod: LocalPod,
    ) -> Result<(), NotSpeaker> {
        let mut nodes = self.nodes.lock();
        let table = speaking(&mut nodes, connection, node)?;
        table.pods.insert(pod.assignment.clone());
        self.set_gate(pod);
        self.note_change();
        Ok(())
    }

    pub(crate) fn remove(
        &self,
        connection: ConnectionId,
        node: &NodeName,
        assignment: &AssignmentId,
    ) -> Result<(), NotSpeaker> {
        let mut nodes = self.nodes.lock();
        let table = speaking(&mut nodes, connection, node)?;
        if table.pods.remove(assignment) {
            self.remove_gate(assignment);
            self.note_change();
        }
        Ok(())
    }

    /// For any connection: a wrongly refused request can go to another pod, a wrongly admitted one is lost.
    pub(crate) fn close(
        &self,
        pod: &PodId,
        assignment: &AssignmentId,
        within: Duration,
    ) -> (u64, Option<oneshot::Receiver<u64>>) {
        let before = self.former.get().map(|former| former.close(pod.clone(), assignment.clone(), within));
        let in_flight = self.gates.close(pod, assignment);
        self.note_change();
        (in_flight, before)
    }

    pub(crate) fn expire(&self, now: Instant) {
        let mut nodes = self.nodes.lock();
        let is_expired = |table: &NodeTable| {
            table.silent_since.is_some_and(|since| now.duration_since(since) >= ROWS_KEPT)
        };
        let before = nodes.len();
        nodes.retain(|node, table| {
            if !is_expired(table) {
                return true;
            }
            let pods = table.pods.len();
            tracing::warn!(
                %node, pods,
                "no worker has spoken for this node in {} minutes: where its pods are is not known any more, and \
                 nothing is sent to them before a worker says so again",
                ROWS_KEPT.as_secs() / 60
            );
            for pod in &table.pods {
                if let (Some(former), Some(row)) = (self.former.get(), self.gates.row(pod)) {
                    drop(former.close(row.pod, row.assignment, ROWS_KEPT));
                }
                self.gates.forget(pod);
            }
            false
        });
        if nodes.len() != before {
            self.note_change();
        }
    }

    fn note_change(&self) {
        self.version.send_modify(|version| *version += 1);
    }
}

fn speaking<'a>(
    nodes: &'a mut HashMap<NodeName, NodeTable>,
    connection: ConnectionId,
    node: &NodeName,
) -> Result<&'a mut NodeTable, NotSpeaker> {
    let table = nodes.get_mut(node).ok_or(NotSpeaker)?;
    let is_speaker = table.speaker.as_ref().is_some_and(|speaker| speaker.connection == connection);
    if is_speaker { Ok(table) } else { Err(NotSpeaker) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::local_pod;

    struct Host {
        gates: Arc<Gates>,
        workers: Workers,
    }

    impl Host {
        fn new() -> Self {
            let gates = Arc::new(Gates::default());
            Self { workers: Workers::new(gates.clone()), gates }
        }

        fn hello(&self, connection: u64, name: &str) {
            let incarnation = Incarnation::new(format!("i{connection}")).unwrap();
            self.workers.hello(ConnectionId(connection), &node(name), incarnation);
        }

        fn replace(&self, connection: u64, name: &str, pods: &[&str]) -> Result<(), NotSpeaker> {
            let pods = pods.iter().map(|pod| local_pod(pod)).collect();
            self.workers.replace(ConnectionId(connection), &node(name), pods, false)
        }

        fn open(&self) -> String {
            let is_open = |name: &&str| {
                let LocalPod { pod, assignment, .. } = local_pod(name);
                self.gates.enter(&pod, &assignment).is_ok()
            };
            ["a", "b", "c", "d", "e"].into_iter().filter(is_open).collect()
        }
    }

    fn node(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    #[tokio::test]
    async fn each_node_has_its_own_table() {
        let host = Host::new();
        host.hello(1, "n1");
        host.hello(2, "n2");
        host.replace(1, "n1", &["a", "b"]).unwrap();
        host.replace(2, "n2", &["c"]).unwrap();
        assert_eq!(host.open(), "abc");
        host.replace(1, "n1", &["b"]).unwrap();
        assert_eq!(host.open(), "bc");
    }

    #[tokio::test]
    async fn a_list_in_several_parts_replaces_when_it_is_complete() {
        let host = Host::new();
        host.hello(1, "n");
        host.replace(1, "n", &["a"]).unwrap();
        let speaker = ConnectionId(1);
        host.workers.replace(speaker, &node("n"), vec![local_pod("b")], true).unwrap();
        assert_eq!(host.open(), "a");
        host.workers.replace(speaker, &node("n"), vec![local_pod("c")], false).unwrap();
        assert_eq!(host.open(), "bc");
    }

    #[tokio::test]
    async fn what_a_worker_said_stands_until_its_next_session_has_said_all() {
        let host = Host::new();
        host.hello(1, "n");
        host.replace(1, "n", &["a", "b"]).unwrap();
        host.workers.disconnected(ConnectionId(1), &node("n"));
        assert_eq!(host.open(), "ab");
        host.hello(2, "n");
        assert_eq!(host.open(), "ab");
        host.replace(2, "n", &["b"]).unwrap();
        assert_eq!(host.open(), "b");
    }

    #[tokio::test]
    async fn a_session_that_another_has_replaced_changes_nothing() {
        let host = Host::new();
        host.hello(1, "n");
        host.hello(2, "n");
        assert_eq!(host.replace(1, "n", &["a"]), Err(NotSpeaker));
        assert_eq!(host.workers.set(ConnectionId(1), &node("n"), local_pod("a")), Err(NotSpeaker));
        host.replace(2, "n", &["b"]).unwrap();
        host.hello(1, "n");
        host.workers.disconnected(ConnectionId(1), &node("n"));
        host.workers.set(ConnectionId(2), &node("n"), local_pod("c")).unwrap();
        assert_eq!(host.open(), "bc");
    }

    #[tokio::test(start_paused = true)]
    async fn pods_of_a_worker_that_does_not_come_back_are_forgotten_and_nothing_is_cut() {
        let host = Host::new();
        host.hello(1, "n");
        host.replace(1, "n", &["a"]).unwrap();
        let pass = host.gates.enter(&local_pod("a").pod, &local_pod("a").assignment).unwrap();
        host.workers.disconnected(ConnectionId(1), &node("n"));
        let now = Instant::now();
        host.workers.expire(now + ROWS_KEPT - Duration::from_secs(1));
        assert_eq!(host.open(), "a");
        host.workers.expire(now + ROWS_KEPT);
        assert_eq!(host.open(), "");
        assert!(futures_util::poll!(Box::pin(pass.cut())).is_pending());
    }

    #[tokio::test]
    async fn what_was_saved_is_served_before_a_worker_speaks_and_a_closed_gate_stays_closed() {
        let host = Host::new();
        host.hello(1, "n");
        host.replace(1, "n", &["a", "b"]).unwrap();
        let _ = host.workers.close(&local_pod("b").pod, &local_pod("b").assignment, Duration::ZERO);
        let next = Host::new();
        next.workers.insert_saved(host.workers.rows());
        assert_eq!(next.open(), "a");
        next.hello(1, "n");
        next.replace(1, "n", &["c"]).unwrap();
        assert_eq!(next.open(), "c");
    }
}
