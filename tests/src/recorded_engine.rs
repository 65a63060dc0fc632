//! A simulated engine that records the calls for each pod, and the pauses of each node.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::sim::{SimOptions, SimRuntime};
use engine::{
    Container, ContainerRequest, EngineInfo, EngineVolume, ExecResult, Hint, Identity, RegistryLogins,
    Runtime, RuntimeError,
};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use model::ids::{NodeName, PodId};
use model::spec::{Port, PullPolicy, StopSignal};
use parking_lot::{Mutex, MutexGuard};

use crate::invariants::Running;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Started,
    Restarted,
    Stopped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineAct {
    pub pod: PodId,
    /// `<node>/<container>`
    pub handle: String,
    pub act: Act,
}

/// Clones are the same engine.
#[derive(Clone)]
pub struct RecordedEngine {
    inner: SimRuntime,
    record: Arc<Mutex<CallRecord>>,
    node: Option<NodeName>,
}

#[derive(Default)]
struct CallRecord {
    pods: HashMap<String, PodId>,
    acts: Vec<EngineAct>,
    pings: BTreeMap<NodeName, Pings>,
}

struct Pings {
    last: Instant,
    longest_pause: Duration,
}

impl RecordedEngine {
    pub(crate) fn new() -> Self {
        Self { inner: SimRuntime::new(SimOptions::default()), record: Arc::default(), node: None }
    }

    pub(crate) fn of_node(&self, node: &NodeName) -> Self {
        Self { node: Some(node.clone()), ..self.clone() }
    }

    pub fn forget_pauses(&self) {
        let now = Instant::now();
        self.lock().pings.values_mut().for_each(|pings| *pings = Pings::at(now));
    }

    /// Includes the current pause.
    pub fn longest_pauses(&self) -> BTreeMap<NodeName, Duration> {
        let longest = |pings: &Pings| pings.longest_pause.max(pings.last.elapsed());
        self.lock().pings.iter().map(|(node, pings)| (node.clone(), longest(pings))).collect()
    }

    pub fn sim(&self) -> &SimRuntime {
        &self.inner
    }

    pub async fn containers(&self, nodes: &[NodeName]) -> Vec<Running> {
        let mut running = Vec::new();
        for node in nodes {
            let listed = self.inner.list(node).await.unwrap();
            let live = listed.into_iter().filter(|container| container.state.may_run());
            running.extend(live.map(|Container { pod, assignment, .. }| Running {
                pod: pod.to_string(),
                assignment: assignment.to_string(),
                node: node.to_string(),
            }));
        }
        running
    }

    pub fn len(&self) -> usize {
        self.lock().acts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn acts_since(&self, start: usize) -> Vec<EngineAct> {
        self.lock().acts[start..].to_vec()
    }

    fn lock(&self) -> MutexGuard<'_, CallRecord> {
        self.record.lock()
    }

    fn note(&self, handle: &str, act: Act) {
        let mut record = self.lock();
        if let Some(pod) = record.pods.get(handle).cloned() {
            tracing::info!(%pod, container = handle, "the engine: {act:?}");
            record.acts.push(EngineAct { pod, handle: handle.to_owned(), act });
        }
    }
}

impl Pings {
    fn at(now: Instant) -> Self {
        Self { last: now, longest_pause: Duration::ZERO }
    }

    fn note(&mut self, now: Instant) {
        self.longest_pause = self.longest_pause.max(now - self.last);
        self.last = now;
    }
}

impl Runtime for RecordedEngine {
    fn ping(&self) -> BoxFuture<'_, Result<EngineInfo, RuntimeError>> {
        if let Some(node) = &self.node {
            let now = Instant::now();
            self.lock().pings.entry(node.clone()).or_insert_with(|| Pings::at(now)).note(now);
        }
        self.inner.ping()
    }

    fn list<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>> {
        self.inner.list(node)
    }

    fn ensure_image<'a>(
        &'a self,
        image: &'a str,
        policy: PullPolicy,
        logins: &'a Arc<dyn RegistryLogins>,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.inner.ensure_image(image, policy, logins)
    }

    fn run<'a>(&'a self, request: &'a ContainerRequest) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        Box::pin(async move {
            let container = self.inner.run(request).await?;
            self.lock().pods.insert(container.handle.clone(), container.pod.clone());
            self.note(&container.handle, Act::Started);
            Ok(container)
        })
    }

    fn signal<'a>(&'a self, handle: &'a str, signal: StopSignal) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.inner.signal(handle, signal)
    }

    fn volumes<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<EngineVolume>, RuntimeError>> {
        self.inner.volumes(node)
    }

    fn remove_volume<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        self.inner.remove_volume(handle)
    }

    fn has_sandboxes(&self) -> bool {
        self.inner.has_sandboxes()
    }

    fn run_sandbox<'a>(
        &'a self,
        identity: &'a Identity,
        ports: &'a [Port],
    ) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        self.inner.run_sandbox(identity, ports)
    }

    fn halt<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.inner.halt(handle, grace)
    }

    fn restart<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.note(handle, Act::Restarted);
        self.inner.restart(handle)
    }

    fn stop<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.note(handle, Act::Stopped);
        self.inner.stop(handle, grace)
    }

    fn logs<'a>(
        &'a self,
        handle: &'a str,
        tail: usize,
        follow: bool,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>> {
        self.inner.logs(handle, tail, follow)
    }

    fn exec<'a>(
        &'a self,
        handle: &'a str,
        command: &'a [String],
        limit: Duration,
    ) -> BoxFuture<'a, Result<ExecResult, RuntimeError>> {
        self.inner.exec(handle, command, limit)
    }

    fn hints<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Hint>, RuntimeError>> {
        self.inner.hints(node)
    }
}
