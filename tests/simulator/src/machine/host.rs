//! The host of a worker. It outlives the worker's process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use daemon::clock::{BootInstant, Clock};
use engine::{
    Container, ContainerRequest, ContainerState, EngineInfo, EngineVolume, ExecResult, Hint, Identity,
    RegistryLogins, Runtime, RuntimeError, VolumeOwner,
};
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt, join_all};
use futures_util::stream::{self, BoxStream};
use model::ids::{ClusterId, HolderId, NodeName, PodId, VolumeName};
use model::service::volume::{VolumeClaim, VolumeScope};
use model::spec::{ContainerSpec, OnDisconnect, Port, PullPolicy};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;
use tokio::time::Instant;
use worker::{IdentityStore, LeaseGrant, LeaseStore, OtherLease, SavedLease};

use crate::machine::bus::{EngineReply, HostCall, SharedBus};
use crate::machine::process_id::ProcessId;
use crate::workload::images::{is_broken, is_sick};

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CheckAnswers {
    pub(crate) has_passed: bool,
    failed_in_a_row: u32,
    pub(crate) most_failed: u32,
}

const CHECK_LIMIT: Duration = Duration::from_secs(5);

/// Clones are the same host.
#[derive(Clone)]
pub(crate) struct SimulatedHost {
    process: ProcessId,
    bus: SharedBus,
    /// The clock that counts suspend, in milliseconds.
    now: Arc<AtomicU64>,
    state: Arc<Mutex<HostState>>,
}

#[derive(Default)]
struct HostState {
    containers: BTreeMap<String, Container>,
    /// Until its deadline no other node may run its pods.
    lease: Option<LeaseGrant>,
    lease_file: Option<LeaseGrant>,
    cluster: Option<ClusterId>,
    /// Lost in a reboot.
    holder: Option<HolderId>,
    /// The lease file lags by one write.
    has_slow_disk: bool,
    hint_senders: Vec<mpsc::UnboundedSender<Hint>>,
    engine_id: String,
    volumes: BTreeMap<VolumeName, EngineVolume>,
    /// Next listings that are empty whatever runs.
    empty_listings: u32,
    broken: BTreeSet<String>,
    sick: BTreeSet<String>,
    /// On the clock that counts suspend.
    ill_until: BTreeMap<String, u64>,
    checks: BTreeMap<String, CheckAnswers>,
}

impl SimulatedHost {
    pub(crate) fn new(process: ProcessId, bus: SharedBus, has_slow_disk: bool) -> Self {
        let state = HostState { has_slow_disk, engine_id: format!("{process}"), ..HostState::default() };
        Self { process, bus, now: Arc::default(), state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, HostState> {
        self.state.lock()
    }

    pub(crate) fn set_clock(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }

    fn clock(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(crate) fn knows_cluster(&self) -> bool {
        self.state().cluster.is_some()
    }

    pub(crate) fn cluster(&self) -> Option<ClusterId> {
        self.state().cluster.clone()
    }

    pub(crate) fn has_lease(&self) -> bool {
        self.state().lease.as_ref().is_some_and(|lease| self.clock() < lease.deadline.millis)
    }

    pub(crate) fn lease_deadline(&self) -> Option<u64> {
        self.state().lease.as_ref().map(|lease| lease.deadline.millis)
    }

    pub(crate) fn containers(&self) -> Vec<Container> {
        self.state().containers.values().cloned().collect()
    }

    pub(crate) fn name(&self) -> String {
        self.process.name()
    }

    pub(crate) fn running(&self) -> Vec<Container> {
        let mut containers = self.containers();
        containers.retain(|container| container.state == ContainerState::Running);
        containers
    }

    pub(crate) fn reboot(&self) {
        let mut state = self.state();
        let cluster = state.cluster.take();
        let (volumes, engine_id) = (std::mem::take(&mut state.volumes), std::mem::take(&mut state.engine_id));
        *state = HostState {
            has_slow_disk: state.has_slow_disk,
            cluster,
            engine_id,
            volumes,
            ..HostState::default()
        };
    }

    pub(crate) fn replace_machine(&self) {
        self.reboot();
        let mut state = self.state();
        (state.cluster, state.volumes) = (None, BTreeMap::new());
        state.engine_id.push('+');
    }

    pub(crate) fn engine_id(&self) -> String {
        self.state().engine_id.clone()
    }

    pub(crate) fn runs(&self, pod: &str) -> bool {
        let is_it = |container: &Container| {
            container.pod.as_str() == pod && container.state == ContainerState::Running
        };
        self.state().containers.values().any(is_it)
    }

    pub(crate) fn make_ill(&self, handle: &str, millis: u64) {
        let until = self.clock() + millis;
        self.state().ill_until.insert(handle.to_owned(), until);
    }

    pub(crate) fn check_answers(&self, pod: &str, assignment: &str) -> Option<CheckAnswers> {
        let state = self.state();
        let is_it = |container: &&Container| {
            container.pod.as_str() == pod && container.assignment.as_str() == assignment
        };
        let container = state.containers.values().find(is_it)?;
        Some(state.checks.get(&container.handle).copied().unwrap_or_default())
    }

    pub(crate) fn has_volume(&self, name: &VolumeName) -> bool {
        self.state().volumes.contains_key(name)
    }

    pub(crate) fn hide_containers_once(&self) {
        self.state().empty_listings = 1;
    }

    pub(crate) fn end_container(&self, handle: &str, code: Option<i64>) {
        let mut state = self.state();
        match code {
            Some(code) => {
                if let Some(container) = state.containers.get_mut(handle) {
                    container.state = ContainerState::Exited { code, out_of_memory: false };
                }
            }
            None => drop(state.containers.remove(handle)),
        }
        state.send_hint();
    }

    pub(crate) fn execute(&self, call: &HostCall, starts: bool) -> Result<EngineReply, RuntimeError> {
        let mut state = self.state();
        match call {
            HostCall::Ping => Ok(EngineReply::Done),
            HostCall::List if state.empty_listings > 0 => {
                state.empty_listings -= 1;
                Ok(EngineReply::Containers(Vec::new()))
            }
            HostCall::List => Ok(EngineReply::Containers(state.containers.values().cloned().collect())),
            HostCall::Image(image) if image.starts_with("missing") => {
                Err(RuntimeError::Image(format!("{image} is not in any registry")))
            }
            HostCall::Image(_) => Ok(EngineReply::Done),
            HostCall::Run(request) => Ok(EngineReply::Container(Box::new(state.run(request, starts)))),
            HostCall::Restart(handle) => {
                let restarted = state_after_start(state.broken.contains(handle));
                let Some(container) = state.containers.get_mut(handle) else {
                    return Err(RuntimeError::NotFound(handle.clone()));
                };
                container.state = restarted;
                state.send_hint();
                Ok(EngineReply::Done)
            }
            HostCall::Halt(handle) => {
                if let Some(container) = state.containers.get_mut(handle) {
                    container.state = ContainerState::Exited { code: 143, out_of_memory: false };
                }
                state.send_hint();
                Ok(EngineReply::Done)
            }
            HostCall::Stop(handle, _) => {
                state.containers.remove(handle);
                state.send_hint();
                Ok(EngineReply::Done)
            }
            HostCall::Check(handle) => state.check(handle, self.clock()),
        }
    }

    async fn call(&self, call: HostCall) -> Result<EngineReply, RuntimeError> {
        let no_reply = || RuntimeError::Engine("the engine did not reply".to_owned());
        self.bus.call_engine(self.process, call).await.unwrap_or_else(|_| Err(no_reply()))
    }

    async fn command(&self, call: HostCall) -> Result<(), RuntimeError> {
        self.call(call).await.map(drop)
    }
}

fn state_after_start(is_broken: bool) -> ContainerState {
    if is_broken { ContainerState::Exited { code: 1, out_of_memory: false } } else { ContainerState::Running }
}

impl HostState {
    fn run(&mut self, request: &ContainerRequest, starts: bool) -> Container {
        let identity = &request.identity;
        let handle = identity.container_name();
        self.create_volumes(request);
        let container = self.containers.entry(handle.clone());
        let container =
            container.or_insert_with(|| Container::new(handle, identity, ContainerState::Created));
        let is_broken = is_broken(&request.container.image);
        if starts {
            container.state = state_after_start(is_broken);
        }
        let container = container.clone();
        if is_broken {
            self.broken.insert(container.handle.clone());
        }
        if is_sick(&request.container.image) {
            self.sick.insert(container.handle.clone());
        }
        self.send_hint();
        container
    }

    fn check(&mut self, handle: &str, now: u64) -> Result<EngineReply, RuntimeError> {
        let runs = |container: &Container| container.state == ContainerState::Running;
        if !self.containers.get(handle).is_some_and(runs) {
            return Err(RuntimeError::NotFound(handle.to_owned()));
        }
        let fails =
            self.sick.contains(handle) || self.ill_until.get(handle).is_some_and(|until| now < *until);
        let answers = self.checks.entry(handle.to_owned()).or_default();
        answers.has_passed |= !fails;
        answers.failed_in_a_row = if fails { answers.failed_in_a_row + 1 } else { 0 };
        answers.most_failed = answers.most_failed.max(answers.failed_in_a_row);
        Ok(EngineReply::ExitCode(fails.into()))
    }

    fn create_volumes(&mut self, request: &ContainerRequest) {
        let identity = &request.identity;
        let Some(service) = &identity.service else { return };
        for volume in &request.container.volumes {
            let Some(source) = volume.source.clone() else { continue };
            let name = VolumeName::of_replica(service, &source, identity.replica).unwrap();
            let (service, scope) = (service.clone(), VolumeScope::Replica(identity.replica));
            let claim = VolumeClaim { name: name.clone(), service, source, scope, space: None };
            let volume = EngineVolume {
                handle: name.to_string(),
                cluster: identity.cluster.clone(),
                epoch: request.volume_epochs.get(&claim.source).copied(),
                owner: VolumeOwner::Replica(claim),
                space: None,
            };
            self.volumes.entry(name).or_insert(volume);
        }
    }

    fn send_hint(&mut self) {
        self.hint_senders.retain(|sender| sender.send(Hint::default()).is_ok());
    }
}

impl Clock for SimulatedHost {
    fn now(&self) -> BootInstant {
        BootInstant { millis: self.clock() }
    }
}

impl LeaseStore for SimulatedHost {
    fn load(&self) -> SavedLease {
        match self.state().lease_file.clone() {
            Some(lease) => SavedLease::Lease(lease),
            None => SavedLease::Unusable("no lease".to_owned()),
        }
    }

    fn save(&self, lease: &LeaseGrant) {
        let mut state = self.state();
        let before = state.lease.replace(lease.clone());
        state.lease_file = if state.has_slow_disk { before } else { Some(lease.clone()) };
    }
}

impl IdentityStore for SimulatedHost {
    fn load(&self) -> Option<ClusterId> {
        self.state().cluster.clone()
    }

    fn save(&self, cluster: &ClusterId) {
        self.state().cluster = Some(cluster.clone());
    }

    fn load_or_create_holder(&self) -> HolderId {
        self.state().holder.get_or_insert_with(HolderId::random).clone()
    }

    fn engine(&self) -> Option<String> {
        Some(self.state().engine_id.clone())
    }

    fn save_engine(&self, _id: &str) {}

    fn note_hold(&self, _why: Option<&str>) {}

    fn other_leases(&self) -> Vec<OtherLease> {
        Vec::new()
    }
}

impl Runtime for SimulatedHost {
    fn ping(&self) -> BoxFuture<'_, Result<EngineInfo, RuntimeError>> {
        let id = self.state().engine_id.clone();
        let info = EngineInfo { runtime: "simulated", version: String::new(), id };
        self.command(HostCall::Ping).map(|done| done.map(|()| info)).boxed()
    }

    fn list<'a>(&'a self, _node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>> {
        async {
            match self.call(HostCall::List).await? {
                EngineReply::Containers(containers) => Ok(containers),
                other => Err(RuntimeError::Failed(format!("{other:?}"))),
            }
        }
        .boxed()
    }

    fn ensure_image<'a>(
        &'a self,
        image: &'a str,
        _policy: PullPolicy,
        _logins: &'a Arc<dyn RegistryLogins>,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.command(HostCall::Image(image.to_owned())).boxed()
    }

    fn run<'a>(&'a self, request: &'a ContainerRequest) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        async {
            match self.call(HostCall::Run(Box::new(request.clone()))).await? {
                EngineReply::Container(container) => Ok(*container),
                other => Err(RuntimeError::Failed(format!("{other:?}"))),
            }
        }
        .boxed()
    }

    fn volumes<'a>(&'a self, _node: &'a NodeName) -> BoxFuture<'a, Result<Vec<EngineVolume>, RuntimeError>> {
        let volumes = self.state().volumes.values().cloned().collect();
        std::future::ready(Ok(volumes)).boxed()
    }

    fn has_sandboxes(&self) -> bool {
        true
    }

    fn uses_host_network(&self) -> bool {
        true
    }

    fn run_sandbox<'a>(
        &'a self,
        identity: &'a Identity,
        _ports: &'a [Port],
    ) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        let container = ContainerSpec::from_image("sandbox");
        let request = ContainerRequest {
            identity: identity.clone(),
            container,
            sandbox: None,
            files: Vec::new(),
            volume_epochs: Default::default(),
        };
        async move {
            match self.call(HostCall::Run(Box::new(request))).await? {
                EngineReply::Container(container) => Ok(*container),
                other => Err(RuntimeError::Failed(format!("{other:?}"))),
            }
        }
        .boxed()
    }

    fn halt<'a>(&'a self, handle: &'a str, _grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.command(HostCall::Halt(handle.to_owned())).boxed()
    }

    fn restart<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.command(HostCall::Restart(handle.to_owned())).boxed()
    }

    fn stop<'a>(&'a self, handle: &'a str, grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.command(HostCall::Stop(handle.to_owned(), grace.as_millis() as u64)).boxed()
    }

    fn end_all<'a>(
        &'a self,
        containers: &'a [Container],
        kill_by: Instant,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        let left = kill_by.saturating_duration_since(Instant::now());
        let stops = containers.iter().map(move |one| self.stop(&one.handle, one.grace.min(left)));
        join_all(stops.collect::<Vec<_>>()).map(|done| done.into_iter().collect()).boxed()
    }

    fn logs<'a>(
        &'a self,
        handle: &'a str,
        _tail: usize,
        _follow: bool,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>> {
        async move { Err(RuntimeError::NotFound(handle.to_owned())) }.boxed()
    }

    /// The only commands are checks.
    fn exec<'a>(
        &'a self,
        handle: &'a str,
        _command: &'a [String],
        _limit: Duration,
    ) -> BoxFuture<'a, Result<ExecResult, RuntimeError>> {
        let check = self.call(HostCall::Check(handle.to_owned()));
        async move {
            let no_answer = |_| RuntimeError::Engine("the engine did not answer in time".to_owned());
            match tokio::time::timeout(CHECK_LIMIT, check).await.map_err(no_answer)?? {
                EngineReply::ExitCode(code) => {
                    Ok(ExecResult { exit_code: Some(code), output: String::new() })
                }
                other => Err(RuntimeError::Failed(format!("{other:?}"))),
            }
        }
        .boxed()
    }

    fn hints<'a>(
        &'a self,
        _node: &'a NodeName,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Hint>, RuntimeError>> {
        let (sender, hints) = mpsc::unbounded_channel();
        self.state().hint_senders.push(sender);
        let hints = stream::unfold(hints, async |mut hints| Some((hints.recv().await?, hints)));
        async move { Ok(hints.boxed()) }.boxed()
    }
}

/// Called after every step: copies no container.
pub(crate) fn pods_that_run_twice(hosts: &[(usize, &SimulatedHost)]) -> BTreeMap<PodId, Vec<usize>> {
    let states: Vec<_> = hosts.iter().map(|(index, host)| (*index, host.state())).collect();
    let exclusive =
        |container: &&Container| container.state == ContainerState::Running && must_not_run_twice(container);
    let mut runs = Vec::new();
    for (index, state) in &states {
        let running = state.containers.values().filter(exclusive);
        runs.extend(running.map(|container| (&container.pod, *index, &container.assignment)));
    }
    runs.sort_unstable();
    // The containers of one assignment are one pod; those of two would run it twice.
    runs.dedup();
    let mut twice = BTreeMap::new();
    for same in runs.chunk_by(|(pod, ..), (other, ..)| pod == other).filter(|same| same.len() > 1) {
        twice.insert(same[0].0.clone(), same.iter().map(|(_, index, _)| *index).collect());
    }
    twice
}

pub(crate) fn must_not_run_twice(container: &Container) -> bool {
    container.on_disconnect == OnDisconnect::Stop
}
