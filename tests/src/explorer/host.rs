//! A worker's machine: the engine with its containers, the clock that counts suspend, the file with the lease. All of it
//! outlives the worker's process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use common::clock::{BootInstant, Clock};
use common::ids::NodeName;
use common::spec::OnDisconnect;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, BoxStream};
use tokio::sync::mpsc;
use worker::runtime::{Container, ContainerRequest, ContainerState, EngineInfo, Hint, Runtime, RuntimeError};
use worker::{Found, Keeper};

use super::bus::{Asked, SharedBus};
use super::who::Who;

/// What an engine answers.
#[derive(Debug, Clone)]
pub(super) enum Answered {
    Done,
    Containers(Vec<Container>),
    Container(Box<Container>),
}

/// See the module. Clones are the same machine.
#[derive(Clone)]
pub(super) struct Host {
    who: Who,
    bus: SharedBus,
    /// On the clock that counts suspend.
    now: Arc<AtomicU64>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    containers: BTreeMap<String, Container>,
    /// Until when a worker here last counted on nobody else running its pods.
    lease: Option<u64>,
    /// What of that is in the file.
    lease_file: Option<u64>,
    /// The file lags behind by one write.
    slow_disk: bool,
    hints: Vec<mpsc::UnboundedSender<Hint>>,
    /// The engine says that nothing runs: the next so many times it is asked.
    blind: u32,
}

impl Host {
    pub(super) fn new(who: Who, bus: SharedBus, slow_disk: bool) -> Self {
        let state = State { slow_disk, ..State::default() };
        Self { who, bus, now: Arc::default(), state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The machine's clock is this now.
    pub(super) fn set_clock(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }

    fn clock(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Whether a worker here counts on nobody else running its pods.
    pub(super) fn is_leased(&self) -> bool {
        self.state().lease.is_some_and(|deadline| self.clock() < deadline)
    }

    /// Until when, on the machine's clock.
    pub(super) fn lease(&self) -> Option<u64> {
        self.state().lease
    }

    pub(super) fn containers(&self) -> Vec<Container> {
        self.state().containers.values().cloned().collect()
    }

    /// Those whose processes run.
    pub(super) fn running(&self) -> Vec<Container> {
        let mut containers = self.containers();
        containers.retain(|container| container.state == ContainerState::Running);
        containers
    }

    /// Reboots: its containers end, and the lease is of a boot before.
    pub(super) fn reboot(&self) {
        let mut state = self.state();
        *state = State { slow_disk: state.slow_disk, ..State::default() };
    }

    /// The next look of its worker at its containers shows none.
    pub(super) fn blind(&self) {
        self.state().blind = 1;
    }

    /// A container ends by itself, or vanishes.
    pub(super) fn lose(&self, handle: &str, code: Option<i64>) {
        let mut state = self.state();
        match code {
            Some(code) => {
                if let Some(container) = state.containers.get_mut(handle) {
                    container.state = ContainerState::Exited { code, out_of_memory: false };
                }
            }
            None => drop(state.containers.remove(handle)),
        }
        state.hint();
    }

    /// Carries out a call. `started`: a container that is made is also started.
    pub(super) fn carry_out(&self, asked: &Asked, started: bool) -> Result<Answered, RuntimeError> {
        let mut state = self.state();
        match asked {
            Asked::Ping => Ok(Answered::Done),
            Asked::List if state.blind > 0 => {
                state.blind -= 1;
                Ok(Answered::Containers(Vec::new()))
            }
            Asked::List => Ok(Answered::Containers(state.containers.values().cloned().collect())),
            Asked::Image(image) if image.starts_with("missing") => {
                Err(RuntimeError::Image(format!("{image} is in no registry")))
            }
            Asked::Image(_) => Ok(Answered::Done),
            Asked::Run(request) => Ok(Answered::Container(Box::new(state.run(request, started)))),
            Asked::Restart(handle) => match state.containers.get_mut(handle) {
                Some(container) => {
                    container.state = ContainerState::Running;
                    state.hint();
                    Ok(Answered::Done)
                }
                None => Err(RuntimeError::NotFound(handle.clone())),
            },
            Asked::Stop(handle, _) => {
                state.containers.remove(handle);
                state.hint();
                Ok(Answered::Done)
            }
        }
    }

    async fn ask(&self, asked: Asked) -> Result<Answered, RuntimeError> {
        let gone = || RuntimeError::Engine("the engine is gone".to_owned());
        self.bus.call(self.who, asked).await.unwrap_or_else(|_| Err(gone()))
    }

    async fn tell(&self, asked: Asked) -> Result<(), RuntimeError> {
        self.ask(asked).await.map(drop)
    }
}

impl State {
    fn run(&mut self, request: &ContainerRequest, started: bool) -> Container {
        let identity = &request.identity;
        let handle = identity.container_name();
        let container = self.containers.entry(handle.clone()).or_insert_with(|| Container {
            handle,
            pod: identity.pod.clone(),
            assignment: identity.assignment.clone(),
            on_disconnect: identity.on_disconnect,
            grace: identity.grace,
            state: ContainerState::Created,
            address: String::new(),
        });
        if started {
            container.state = ContainerState::Running;
        }
        let container = container.clone();
        self.hint();
        container
    }

    fn hint(&mut self) {
        self.hints.retain(|reader| reader.send(Hint::default()).is_ok());
    }
}

impl Clock for Host {
    fn now(&self) -> BootInstant {
        BootInstant { millis: self.clock() }
    }
}

impl Keeper for Host {
    fn found(&self) -> Found {
        match self.state().lease_file {
            Some(millis) => Found::Deadline(BootInstant { millis }),
            None => Found::Nothing("no lease".to_owned()),
        }
    }

    fn keep(&self, deadline: BootInstant) {
        let mut state = self.state();
        let before = state.lease.replace(deadline.millis);
        state.lease_file = if state.slow_disk { before } else { Some(deadline.millis) };
    }
}

impl Runtime for Host {
    fn ping(&self) -> BoxFuture<'_, Result<EngineInfo, RuntimeError>> {
        let info = EngineInfo { runtime: "explored", version: String::new() };
        self.tell(Asked::Ping).map(|done| done.map(|()| info)).boxed()
    }

    fn list<'a>(&'a self, _node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>> {
        async {
            match self.ask(Asked::List).await? {
                Answered::Containers(containers) => Ok(containers),
                other => Err(RuntimeError::Failed(format!("{other:?}"))),
            }
        }
        .boxed()
    }

    fn ensure_image<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.tell(Asked::Image(image.to_owned())).boxed()
    }

    fn run<'a>(&'a self, request: &'a ContainerRequest) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        async {
            match self.ask(Asked::Run(Box::new(request.clone()))).await? {
                Answered::Container(container) => Ok(*container),
                other => Err(RuntimeError::Failed(format!("{other:?}"))),
            }
        }
        .boxed()
    }

    fn restart<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.tell(Asked::Restart(handle.to_owned())).boxed()
    }

    fn stop<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.tell(Asked::Stop(handle.to_owned(), grace.as_millis() as u64)).boxed()
    }

    fn logs<'a>(
        &'a self,
        handle: &'a str,
        _tail: usize,
        _follow: bool,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>> {
        async move { Err(RuntimeError::NotFound(handle.to_owned())) }.boxed()
    }

    fn hints<'a>(
        &'a self,
        _node: &'a NodeName,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Hint>, RuntimeError>> {
        let (reader, hints) = mpsc::unbounded_channel();
        self.state().hints.push(reader);
        let hints = stream::unfold(hints, async |mut hints| Some((hints.recv().await?, hints)));
        async move { Ok(hints.boxed()) }.boxed()
    }
}

/// Whether a pod must never run twice.
pub(super) fn never_twice(container: &Container) -> bool {
    container.on_disconnect == OnDisconnect::Stop
}
