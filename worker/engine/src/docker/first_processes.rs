//! First processes of containers, which the fence signals itself. An engine takes seconds for hundreds, and
//! signals none while it hangs.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use model::spec::{OnDisconnect, StopSignal};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, test_kill_process};
use tokio::time::Instant;

use super::client::EngineClient;
use super::containers::{halt, signal};
use super::deadlines::INSPECT_IN_LIST;
use super::errors::EngineCall;
use crate::end_all::end_all;
use crate::process::ProcessIdentity;
use crate::{Container, ContainerState, RuntimeError};

/// The engine stops those still unknown after this time.
const LEARN_TIMEOUT: Duration = Duration::from_millis(700);
const LEARN_CONCURRENCY: usize = 16;
const KILL_TIMEOUT: Duration = Duration::from_secs(2);
/// Time to kill one of many containers, measured on two busy cores.
const ENGINE_KILL: Duration = Duration::from_millis(40);
const ENGINE_CONCURRENCY: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
struct FirstProcess {
    identity: ProcessIdentity,
    /// `None` if only the engine can send it.
    stop_signal: Option<Signal>,
}

#[derive(Default)]
pub(super) struct FirstProcesses {
    known: Mutex<HashMap<String, FirstProcess>>,
    is_learning: AtomicBool,
}

impl FirstProcesses {
    pub(super) fn learn_later(self: &Arc<Self>, client: &Arc<EngineClient>, listed: &[Container]) {
        let is_listed = |handle: &str| listed.iter().any(|container| container.handle == handle);
        let mut known = self.known.lock();
        // A list may be older than a start.
        known.retain(|handle, process| is_listed(handle) || process.identity.is_running());
        let is_new = |one: &&Container| {
            one.on_disconnect == OnDisconnect::Stop
                && one.state == ContainerState::Running
                && !known.contains_key(&one.handle)
        };
        let new: Vec<String> = listed.iter().filter(is_new).map(|one| one.handle.clone()).collect();
        drop(known);
        if new.is_empty() || self.is_learning.swap(true, Ordering::AcqRel) {
            return;
        }
        let (processes, client) = (self.clone(), client.clone());
        tokio::spawn(async move {
            for handle in new {
                processes.learn(&client, &handle).await;
            }
            processes.is_learning.store(false, Ordering::Release);
        });
    }

    pub(super) fn forget(&self, handle: &str) {
        self.known.lock().remove(handle);
    }

    /// The engine kills processes on another machine, and those that this user may not signal: one after the
    /// other, so it begins earlier.
    pub(super) async fn end_all(
        &self,
        client: &EngineClient,
        containers: Vec<Container>,
        kill_by: Instant,
    ) -> Result<(), RuntimeError> {
        let _late = tokio::time::timeout(LEARN_TIMEOUT, self.learn_all(client, &containers)).await;
        let is_own = |one: &Container| self.running(&one.handle).is_some();
        let (own, engines): (Vec<Container>, Vec<Container>) = containers.into_iter().partition(is_own);
        let lead = ENGINE_KILL.saturating_mul(u32::try_from(engines.len()).unwrap_or(u32::MAX));
        let left = kill_by.saturating_duration_since(Instant::now()).saturating_sub(lead);
        let engine_kill_by = Instant::now() + left;
        if left.is_zero() && !engines.is_empty() {
            tracing::warn!(
                containers = engines.len(),
                "the fence has to ask the engine to kill these containers, and cannot wait for them to stop: let the \
                 worker see and signal their processes"
            );
        }
        let stopped = |one| self.stopped(client, one, kill_by);
        let stopped_by_engine = |one| stopped_by_engine(client, one, engine_kill_by);
        let (by_us, by_engine) = tokio::join!(
            end_all(own, kill_by, stopped, |left| self.kill(left)),
            end_all(engines, engine_kill_by, stopped_by_engine, |left| kill_by_engine(client, left))
        );
        by_us.and(by_engine)
    }

    async fn learn_all(&self, client: &EngineClient, containers: &[Container]) {
        let is_unknown = |handle: &String| self.running(handle).is_none();
        let handles = containers.iter().map(|one| one.handle.clone()).filter(is_unknown);
        let learn = async |handle: String| self.learn(client, &handle).await;
        let learned = stream::iter(handles.collect::<Vec<_>>()).map(learn);
        learned.buffer_unordered(LEARN_CONCURRENCY).collect::<Vec<()>>().await;
    }

    async fn stopped(&self, client: &EngineClient, container: Container, kill_by: Instant) {
        match self.running(&container.handle) {
            Some(FirstProcess { identity, stop_signal: Some(signal) }) => {
                identity.signal(signal);
                identity.exited().await;
            }
            Some(FirstProcess { stop_signal: None, .. }) => {
                stopped_by_engine(client, container, kill_by).await;
            }
            None => {}
        }
    }

    /// The kernel ends all processes of a container with its first one.
    async fn kill(&self, left: Vec<Container>) -> Result<(), RuntimeError> {
        let processes: Vec<_> = left.iter().filter_map(|one| self.running(&one.handle)).collect();
        for process in &processes {
            process.identity.signal(Signal::KILL);
        }
        let exits: Vec<_> = processes.iter().map(|process| process.identity.exited()).collect();
        // The fence looks again: it removes them next, and that fails if one still runs.
        let _late = tokio::time::timeout(KILL_TIMEOUT, join_all(exits)).await;
        Ok(())
    }

    async fn learn(&self, client: &EngineClient, handle: &str) {
        let Ok(docker) = client.docker() else { return };
        let call = docker.inspect_container(handle, None);
        let Ok(found) = client.within(EngineCall::Inspect, INSPECT_IN_LIST, call).await else { return };
        let pid = found.state.and_then(|state| state.pid).and_then(|pid| i32::try_from(pid).ok());
        let signal = found.config.and_then(|config| config.stop_signal).unwrap_or_default();
        let process = found.id.zip(pid).and_then(|(id, pid)| own_process(&id, pid));
        if let Some(identity) = process {
            let process = FirstProcess { identity, stop_signal: stop_signal(&signal) };
            self.known.lock().insert(handle.to_owned(), process);
        }
    }

    #[cfg(test)]
    pub(super) fn knows(&self, handle: &str) -> bool {
        self.known.lock().contains_key(handle)
    }

    fn running(&self, handle: &str) -> Option<FirstProcess> {
        let known = self.known.lock().get(handle).cloned();
        known.filter(|process| process.identity.is_running())
    }
}

/// The engine may run on another machine, and a PID may be in use again: only a process whose cgroup or
/// mounts name the container's full id is signalled. A container without its own PID namespace does not end
/// with its first process.
fn own_process(container: &str, pid: i32) -> Option<ProcessIdentity> {
    let identity = ProcessIdentity::of(pid).filter(|_| pid > 1)?;
    let names_container = |file: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/{file}")).is_ok_and(|text| text.contains(container))
    };
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/pid")).ok();
    let has_namespace = namespace(&pid.to_string()).is_some_and(|of_it| Some(of_it) != namespace("self"));
    let is_containers = container.len() == 64 && (names_container("cgroup") || names_container("mountinfo"));
    let may_signal = Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid).is_ok());
    (is_containers && has_namespace && may_signal && identity.is_running()).then_some(identity)
}

fn stop_signal(name: &str) -> Option<Signal> {
    match name {
        "" => Some(Signal::TERM),
        name => Signal::from_named_raw(name.parse::<StopSignal>().ok()?.number()),
    }
}

async fn stopped_by_engine(client: &EngineClient, container: Container, kill_by: Instant) {
    let grace = kill_by.saturating_duration_since(Instant::now()).min(container.grace);
    if let Err(error) = halt(client, &container.handle, grace).await {
        tracing::debug!(container = container.handle, %error, "the engine could not stop a container");
        // Not stopped: to return would spare it the kill at `kill_by`.
        std::future::pending::<()>().await;
    }
}

async fn kill_by_engine(client: &EngineClient, left: Vec<Container>) -> Result<(), RuntimeError> {
    let kill = async |one: Container| signal(client, &one.handle, StopSignal::KILL).await;
    let kills = stream::iter(left).map(kill).buffer_unordered(ENGINE_CONCURRENCY);
    kills.collect::<Vec<_>>().await.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signal_is_the_one_that_the_engine_names() {
        let signals = ["", "SIGTERM", "SIGINT", "3", "SIGRTMIN+3", "nonsense"].map(stop_signal);
        assert_eq!(
            signals,
            [Some(Signal::TERM), Some(Signal::TERM), Some(Signal::INT), Some(Signal::QUIT), None, None]
        );
    }

    #[test]
    fn only_a_process_of_the_container_itself_is_signalled() {
        let own = i32::try_from(std::process::id()).expect("a process id");
        for pid in [0, 1, -1, own, i32::MAX] {
            assert_eq!(own_process(&"a".repeat(64), pid), None, "{pid}");
        }
    }
}
