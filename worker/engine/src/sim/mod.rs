//! A simulated engine in memory: for tests, benchmarks, and clusters of thousands of nodes in one process.
//! Clones share it, so a test can replace a worker while the containers go on.

mod node;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use model::ids::{ContainerName, NodeName, PodId};
use model::spec::{ContainerSpec, Port, PullPolicy, StopSignal};
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};

use self::node::{SimContainer, SimNode};
use crate::{
    Container, ContainerRequest, ContainerState, Counters, EngineInfo, EngineVolume, ExecResult, Hint,
    Identity, RegistryLogins, Runtime, RuntimeError,
};

/// The image name selects failures: the pull of `missing…` fails, `broken…` is refused, the command of
/// `no-command…` cannot be started, `port-taken…` finds its host port in use, `crash…` exits with 1 right
/// after each start, `done…` with 0, `done-or-not…` with either. Commands in `unhealthy…` exit with 1.
#[derive(Debug, Clone)]
pub struct SimOptions {
    pub start_delay: Duration,
    pub stop_delay: Duration,
    pub image_delay: Duration,
    /// The deadline of calls while the engine hangs.
    pub deadline: Duration,
    /// Containers are reached at loopback; otherwise they have no address.
    pub host_network: bool,
    pub engine_id: String,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            start_delay: Duration::ZERO,
            stop_delay: Duration::ZERO,
            image_delay: Duration::ZERO,
            deadline: Duration::from_secs(3),
            host_network: false,
            engine_id: String::new(),
        }
    }
}

#[derive(Clone)]
pub struct SimRuntime {
    options: SimOptions,
    nodes: Arc<Mutex<HashMap<String, SimNode>>>,
    faults: Arc<watch::Sender<InjectedFaults>>,
    pulls_hang: Arc<watch::Sender<bool>>,
    begun: Instant,
}

#[derive(Debug, Clone, Copy, Default)]
struct InjectedFaults {
    hangs: bool,
    loses_replies: bool,
}

impl SimRuntime {
    pub fn new(options: SimOptions) -> Self {
        Self {
            options,
            nodes: Arc::default(),
            faults: Arc::new(watch::Sender::default()),
            pulls_hang: Arc::new(watch::Sender::default()),
            begun: Instant::now(),
        }
    }

    pub fn exit(&self, pod: &PodId, code: i64) -> bool {
        self.exit_containers(pod, None, code)
    }

    pub fn exit_one(&self, pod: &PodId, container: &str, code: i64) -> bool {
        self.exit_containers(pod, Some(container), code)
    }

    fn exit_containers(&self, pod: &PodId, container: Option<&str>, code: i64) -> bool {
        self.for_each(pod, |node, name| {
            let Some(simulated) = node.containers.get_mut(name) else { return false };
            let own = simulated.container.name.as_ref().map(ContainerName::as_str);
            let is_chosen = container.is_none_or(|container| own == Some(container));
            let exits = is_chosen && simulated.container.state == ContainerState::Running;
            if exits {
                simulated.container.state = ContainerState::Exited { code, out_of_memory: false };
            }
            exits
        })
    }

    pub fn exec_count(&self, pod: &PodId) -> u32 {
        containers_of(&mut self.nodes.lock(), pod).map(|simulated| simulated.execs).sum()
    }

    pub fn signals(&self, pod: &PodId) -> Vec<StopSignal> {
        containers_of(&mut self.nodes.lock(), pod).flat_map(|simulated| simulated.signals.clone()).collect()
    }

    pub fn lose(&self, pod: &PodId) -> bool {
        self.for_each(pod, |node, name| node.containers.remove(name).is_some())
    }

    /// With `None` commands do not end. Returns true if there is a container.
    pub fn set_exec_exit_code(&self, pod: &PodId, exit_code: Option<i64>) -> bool {
        let mut is_known = false;
        for simulated in containers_of(&mut self.nodes.lock(), pod) {
            simulated.exec_exit_code = exit_code;
            is_known = true;
        }
        is_known
    }

    /// Every call waits until its deadline, or until `hang(false)`.
    pub fn hang(&self, hangs: bool) {
        self.faults.send_modify(|faults| faults.hangs = hangs);
    }

    pub fn hang_pulls(&self, hangs: bool) {
        self.pulls_hang.send_replace(hangs);
    }

    pub fn hanging_pulls(&self) -> usize {
        self.pulls_hang.receiver_count()
    }

    /// Starts and stops report an error although they take effect.
    pub fn lose_replies(&self, loses: bool) {
        self.faults.send_modify(|faults| faults.loses_replies = loses);
    }

    pub fn running(&self) -> usize {
        let is_running = |simulated: &&SimContainer| simulated.container.state == ContainerState::Running;
        self.nodes.lock().values().map(|node| node.containers.values().filter(is_running).count()).sum()
    }

    pub fn running_on(&self, pod: &PodId) -> Vec<NodeName> {
        let is_running = |simulated: &SimContainer| {
            simulated.container.pod == *pod && simulated.container.state == ContainerState::Running
        };
        let nodes = self.nodes.lock();
        let on = nodes.iter().filter(|(_, node)| node.containers.values().any(is_running));
        on.filter_map(|(name, _)| NodeName::new(name.as_str()).ok()).collect()
    }

    pub fn all_volumes(&self) -> Vec<EngineVolume> {
        self.nodes.lock().values().flat_map(|node| node.volumes.values().cloned()).collect()
    }

    /// As a person freeing disk space might.
    pub fn prune(&self, pod: &PodId) {
        self.lose(pod);
        for node in self.nodes.lock().values_mut() {
            for name in node.volumes.keys().cloned().collect::<Vec<_>>() {
                node.remove_volume(&name);
            }
        }
    }

    fn for_each(&self, pod: &PodId, change: impl Fn(&mut SimNode, &str) -> bool) -> bool {
        let mut any_changed = false;
        for node in self.nodes.lock().values_mut() {
            let of_pod = node.containers.iter().filter(|(_, simulated)| simulated.container.pod == *pod);
            let of_pod = of_pod.map(|(name, simulated)| (name.clone(), simulated.container.clone()));
            for (name, container) in of_pod.collect::<Vec<_>>() {
                if change(node, &name) {
                    any_changed = true;
                    node.send_hint(&container, false);
                }
            }
        }
        any_changed
    }

    async fn respond(&self, delay: Duration) -> Result<(), RuntimeError> {
        let mut faults = self.faults.subscribe();
        let is_responsive = faults.wait_for(|faults| !faults.hangs);
        if tokio::time::timeout(self.options.deadline, is_responsive).await.is_err() {
            let millis = self.options.deadline.as_millis();
            return Err(RuntimeError::Engine(format!(
                "the simulated engine hangs: no answer in {millis} ms"
            )));
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        Ok(())
    }

    fn reply<T>(&self, value: T) -> Result<T, RuntimeError> {
        if self.faults.borrow().loses_replies {
            return Err(RuntimeError::Engine("the simulated engine's reply was lost".to_owned()));
        }
        Ok(value)
    }

    fn start(&self, request: &ContainerRequest) -> Result<Container, RuntimeError> {
        let image = &request.container.image;
        check_image(image)?;
        if image.starts_with("broken") {
            return Err(RuntimeError::Refused(format!("simulated: {image} cannot run here")));
        }
        if image.starts_with("no-command") {
            return Err(RuntimeError::Failed("the command cannot be started: \"x\": not found".to_owned()));
        }
        if image.starts_with("port-taken") {
            return Err(RuntimeError::PortTaken("simulated: Bind for 127.0.0.1:8080 failed".to_owned()));
        }
        let mut nodes = self.nodes.lock();
        Ok(nodes.entry(request.identity.node.to_string()).or_default().run(request))
    }

    fn with_container<T>(
        &self,
        handle: &str,
        act: impl FnOnce(&mut SimNode, &str) -> Option<T>,
    ) -> Result<T, RuntimeError> {
        let not_found = || RuntimeError::NotFound(format!("simulated container {handle}"));
        let (node, name) = handle.split_once('/').ok_or_else(not_found)?;
        let mut nodes = self.nodes.lock();
        nodes.get_mut(node).and_then(|node| act(node, name)).ok_or_else(not_found)
    }
}

fn containers_of<'a>(
    nodes: &'a mut HashMap<String, SimNode>,
    pod: &'a PodId,
) -> impl Iterator<Item = &'a mut SimContainer> {
    let containers = nodes.values_mut().flat_map(|node| node.containers.values_mut());
    containers.filter(move |simulated| simulated.container.pod == *pod)
}

fn check_image(image: &str) -> Result<(), RuntimeError> {
    if image.starts_with("missing") {
        return Err(RuntimeError::Image(format!("simulated: {image} is in no registry")));
    }
    Ok(())
}

impl Runtime for SimRuntime {
    fn signal<'a>(&'a self, handle: &'a str, signal: StopSignal) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            self.respond(Duration::ZERO).await?;
            self.with_container(handle, |node, name| {
                node.containers.get_mut(name).map(|simulated| simulated.signals.push(signal))
            })
        })
    }

    fn uses_host_network(&self) -> bool {
        self.options.host_network
    }

    fn ping(&self) -> BoxFuture<'_, Result<EngineInfo, RuntimeError>> {
        Box::pin(async {
            self.respond(Duration::ZERO).await?;
            Ok(EngineInfo {
                runtime: "sim",
                version: "simulated".to_owned(),
                id: self.options.engine_id.clone(),
            })
        })
    }

    fn list<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<Container>, RuntimeError>> {
        Box::pin(async move {
            self.respond(Duration::ZERO).await?;
            let nodes = self.nodes.lock();
            let containers = nodes.get(node.as_str()).map(|node| node.containers.values());
            Ok(containers.into_iter().flatten().map(|simulated| simulated.container.clone()).collect())
        })
    }

    fn ensure_image<'a>(
        &'a self,
        image: &'a str,
        _policy: PullPolicy,
        _logins: &'a Arc<dyn RegistryLogins>,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            self.respond(self.options.image_delay).await?;
            // Real pulls have no deadline either. The sender lives as long as this runtime.
            let mut pulls_hang = self.pulls_hang.subscribe();
            pulls_hang.wait_for(|hangs| !hangs).await.ok();
            check_image(image)
        })
    }

    fn run<'a>(&'a self, request: &'a ContainerRequest) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        Box::pin(async move {
            self.respond(self.options.start_delay).await?;
            self.reply(self.start(request)?)
        })
    }

    fn has_sandboxes(&self) -> bool {
        true
    }

    fn run_sandbox<'a>(
        &'a self,
        identity: &'a Identity,
        _ports: &'a [Port],
    ) -> BoxFuture<'a, Result<Container, RuntimeError>> {
        Box::pin(async move {
            self.respond(self.options.start_delay).await?;
            let container = ContainerSpec::from_image("sandbox");
            let request = ContainerRequest::new(identity.clone(), container);
            self.reply(self.start(&request)?)
        })
    }

    fn counters<'a>(&'a self, handles: &'a [String]) -> BoxFuture<'a, Vec<Option<Counters>>> {
        let seconds = self.begun.elapsed().as_micros() as u64;
        let of_one = |handle: &String| {
            let number = handle.bytes().fold(7u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte)) % 100;
            Some(Counters {
                cpu_micros: Some(seconds * number / 1000),
                memory_bytes: Some((number + 1) << 20),
                read_bytes: Some(0),
                write_bytes: Some(seconds * number / 1000),
                ..Counters::default()
            })
        };
        Box::pin(std::future::ready(handles.iter().map(of_one).collect()))
    }

    fn halt<'a>(&'a self, handle: &'a str, _grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            self.respond(self.options.stop_delay).await?;
            let _ = self.with_container(handle, |node, name| {
                let simulated = node.containers.get_mut(name)?;
                if simulated.container.state == ContainerState::Running {
                    simulated.container.state = ContainerState::Exited { code: 143, out_of_memory: false };
                }
                let container = simulated.container.clone();
                node.send_hint(&container, false);
                Some(())
            });
            self.reply(())
        })
    }

    fn volumes<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<EngineVolume>, RuntimeError>> {
        Box::pin(async move {
            self.respond(Duration::ZERO).await?;
            let nodes = self.nodes.lock();
            let volumes = nodes.get(node.as_str()).map(|node| node.volumes.values());
            Ok(volumes.into_iter().flatten().cloned().collect())
        })
    }

    fn remove_volume<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        Box::pin(async move {
            self.respond(Duration::ZERO).await?;
            let mut nodes = self.nodes.lock();
            let of_node = nodes.values_mut().find(|node| node.volumes.contains_key(handle));
            let is_gone = of_node.is_none_or(|node| node.remove_volume(handle));
            self.reply(is_gone)
        })
    }

    fn restart<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            self.respond(self.options.start_delay).await?;
            let done = self.with_container(handle, |node, name| {
                let simulated = node.containers.get_mut(name)?;
                if simulated.container.state != ContainerState::Running {
                    simulated.start();
                    let container = simulated.container.clone();
                    node.send_hint(&container, false);
                }
                Some(())
            });
            self.reply(done?)
        })
    }

    fn stop<'a>(&'a self, handle: &'a str, _grace: Duration) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            self.respond(self.options.stop_delay).await?;
            let _ = self.with_container(handle, |node, name| {
                let simulated = node.containers.remove(name)?;
                node.send_hint(&simulated.container, false);
                Some(())
            });
            self.reply(())
        })
    }

    fn logs<'a>(
        &'a self,
        handle: &'a str,
        tail: usize,
        _follow: bool,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError>> {
        Box::pin(async move {
            self.respond(Duration::ZERO).await?;
            let starts =
                self.with_container(handle, |node, name| node.containers.get(name).map(|s| s.starts))?;
            let skipped = usize::try_from(starts).unwrap_or(usize::MAX).saturating_sub(tail);
            let lines = (1..=starts).skip(skipped).map(|n| Ok(Bytes::from(format!("simulated start {n}\n"))));
            Ok(stream::iter(lines).boxed())
        })
    }

    fn exec<'a>(
        &'a self,
        handle: &'a str,
        _command: &'a [String],
        limit: Duration,
    ) -> BoxFuture<'a, Result<ExecResult, RuntimeError>> {
        Box::pin(async move {
            self.respond(Duration::ZERO).await?;
            let exit_code = self.with_container(handle, |node, name| {
                let simulated = node.containers.get_mut(name)?;
                simulated.execs += 1;
                (simulated.container.state == ContainerState::Running).then_some(simulated.exec_exit_code)
            })?;
            if exit_code.is_none() {
                tokio::time::sleep(limit).await;
            }
            self.reply(ExecResult { exit_code, output: String::new() })
        })
    }

    fn hints<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Hint>, RuntimeError>> {
        Box::pin(async move {
            self.respond(Duration::ZERO).await?;
            let receiver = self.nodes.lock().entry(node.to_string()).or_default().hints.subscribe();
            let hints = stream::unfold(receiver, |mut receiver| async move {
                match receiver.recv().await {
                    Ok(hint) => Some((hint, receiver)),
                    Err(broadcast::error::RecvError::Lagged(_)) => Some((Hint::default(), receiver)),
                    Err(broadcast::error::RecvError::Closed) => None,
                }
            });
            Ok(hints.boxed())
        })
    }
}
