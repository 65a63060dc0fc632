//! Carries out what [`step`](crate::step) decided about one pod. Decides nothing but what to do after a
//! failure.
//!
//! The process may die on any line: the next pass finds what was left, and decides anew.

use std::sync::Arc;
use std::time::Duration;

use common::backoff;
use common::lifecycle::Phase;
use common::pod::EndedRun;
use common::spec::OnDisconnect;
use common::store::{FinishReport, PodOutcome, PodRef, StatusReport, WriteOutcome};
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::container_files::{self, FilesUnavailable};
use crate::context::SessionContext;
use crate::ended_runs;
use crate::measure::{self, StopReason};
use crate::retry::RetryClass;
use crate::runtime::{Container, ContainerState, RuntimeError};
use crate::step::{Action, ContainerAction, DesiredState, Exit};
use crate::stop_order;
use crate::table::{EndedPod, ManagedContainer, ManagedPod, PodStatus, RESTARTED};
use crate::text::seconds;

/// How long a pod is left alone after an action on it failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// A container that is stopped after others of its pod has at least this much of the pod's grace period.
const LEAST_GRACE: Duration = Duration::from_secs(1);

/// Begins the action in the background, unless the pod changed since it was looked at.
pub(crate) fn begin(
    context: &Arc<SessionContext>,
    managed: ManagedPod,
    found: &[&Container],
    action: Action,
) {
    if action == Action::Leave {
        let is_waiting = managed.retry_at.is_some_and(|at| context.worker.now() < at);
        if managed.is_reported || is_waiting || !context.worker.is_leased() {
            return;
        }
    }
    if !context.table.mark_busy(&managed) {
        return;
    }
    let containers = found.iter().map(|container| (*container).clone()).collect();
    let pod_action = PodAction { context: context.clone(), managed, containers };
    context.tasks.spawn(pod_action.carry_out(action));
}

/// An action under way: the pod as it was looked at, and its containers on the engine.
struct PodAction {
    context: Arc<SessionContext>,
    managed: ManagedPod,
    containers: Vec<Container>,
}

/// However the action ends, also by a panic: what happened meanwhile is for the next pass, unless the pod is
/// not managed any more.
impl Drop for PodAction {
    fn drop(&mut self) {
        let ManagedPod { payload, assignment, .. } = &self.managed;
        let updated = self.context.table.update(&payload.id, assignment, |managed| managed.busy = false);
        if updated.is_some() {
            self.context.wakeups.request_reconcile();
        }
    }
}

impl PodAction {
    async fn carry_out(self, action: Action) {
        match action {
            Action::Leave => {}
            Action::Stop => {
                if self.stop_containers(StopReason::Requested).await {
                    self.finish_stopped().await;
                }
            }
            Action::FinishStopped => self.finish_stopped().await,
            Action::Discard => {
                tracing::info!(
                    pod = %self.managed.payload.id,
                    "the pod is not assigned to this node any more: stopping it"
                );
                if self.stop_containers(StopReason::NotAssigned).await {
                    self.forget();
                }
            }
            Action::Forget => self.forget(),
            Action::ReportLost => self.restart_lost().await,
            Action::Containers(actions) => {
                for (index, action) in actions {
                    self.act_on_container(index, action).await;
                }
            }
            Action::Rebuild => self.rebuild().await,
            Action::Finish { exit } => {
                if self.stop_all(StopReason::Ended, |container| container.state.may_run()).await {
                    self.finish_exited(exit).await;
                }
            }
        }
        self.report_status().await;
    }

    async fn act_on_container(&self, index: usize, action: ContainerAction) {
        match action {
            ContainerAction::Create => self.create(index).await,
            ContainerAction::BackOff { exit, wait, crash_streak } => {
                self.note_run(index, exit).await;
                self.back_off(index, exit, wait, crash_streak);
            }
            ContainerAction::Restart => self.restart(index).await,
            ContainerAction::Recover => {
                self.change_container(index, |container| container.set_reason("", String::new()));
            }
        }
    }

    fn pod(&self) -> PodRef<'_> {
        PodRef { id: &self.managed.payload.id, assignment: &self.managed.assignment }
    }

    fn update(&self, change: impl FnOnce(&mut ManagedPod)) {
        self.context.table.update(&self.managed.payload.id, &self.managed.assignment, change);
    }

    fn change_container(&self, index: usize, change: impl FnOnce(&mut ManagedContainer)) {
        self.update(|managed| managed.change_container(index, change));
    }

    fn forget(&self) {
        self.context.table.remove(&self.managed.payload.id, &self.managed.assignment);
    }

    fn retry_later(&self) {
        let at = self.context.worker.now().plus(RETRY_INTERVAL);
        self.update(|managed| managed.retry_at = Some(at));
    }

    /// Stops and removes its containers. Returns whether they are gone.
    async fn stop_containers(&self, reason: StopReason) -> bool {
        self.stop_all(reason, |_| true).await
    }

    /// Stops and removes some of its containers, in their order and together within the pod's grace period. Returns
    /// whether they are gone.
    async fn stop_all(&self, reason: StopReason, is_chosen: impl Fn(&Container) -> bool) -> bool {
        let (begun, grace) = (Instant::now(), self.managed.spec.grace());
        for group in stop_order::groups(&self.managed.spec, &self.containers) {
            let grace = grace.saturating_sub(begun.elapsed()).max(grace.min(LEAST_GRACE));
            let stops = group
                .into_iter()
                .filter(|container| is_chosen(container))
                .map(|container| self.stop_container(container, grace));
            for stopped in join_all(stops).await {
                if let Err(error) = stopped {
                    self.engine_failed("stopping", &error);
                    return false;
                }
                measure::stop(reason);
            }
        }
        true
    }

    async fn stop_container(&self, container: &Container, grace: Duration) -> Result<(), RuntimeError> {
        let worker = &self.context.worker;
        worker.runtime.stop(&container.handle, grace).await?;
        worker.files.remove(container, worker.identity.cluster().as_ref());
        Ok(())
    }

    /// The sandbox is gone, and with it the network of the other containers: the pod is started anew, under another
    /// assignment. Only Redis may take the current one away, so it is asked before anything is stopped.
    async fn rebuild(&self) {
        if self.report_lost("the network of its containers is gone").await {
            self.update(|managed| managed.desired = DesiredState::Discard);
        }
    }

    /// Creates and starts a container that has waited for others, or that is gone.
    async fn create(&self, index: usize) {
        let worker = &self.context.worker;
        let Some(mut request) = self.managed.request(worker, index) else { return };
        let mut provided = match container_files::provide(worker, &request).await {
            Ok(provided) => provided,
            Err(unavailable) => return self.after_missing_files(index, unavailable),
        };
        request.files = std::mem::take(&mut provided.files);
        let created = match worker.runtime.ensure_image(&request.container.image).await {
            Ok(()) => {
                let permit = worker.lease.permit_start(worker.now());
                if permit.is_none() && self.managed.spec.on_disconnect == OnDisconnect::Stop {
                    return;
                }
                worker.runtime.run(&request).await
            }
            Err(error) => Err(error),
        };
        match created {
            Ok(container) => self.after_create(index, container),
            Err(error @ RuntimeError::Engine(_)) => self.engine_failed("creating", &error),
            Err(RuntimeError::Image(reason)) => {
                let message = format!("pulling {} failed: {reason}", request.container.image);
                self.after_failed_start(index, "ImagePullBackOff", message);
            }
            Err(
                RuntimeError::Refused(reason)
                | RuntimeError::NotFound(reason)
                | RuntimeError::PortTaken(reason)
                | RuntimeError::Failed(reason),
            ) => self.after_failed_start(index, "StartFailed", reason),
        }
    }

    fn after_create(&self, index: usize, container: Container) {
        let (worker, pod) = (&self.context.worker, &self.managed.payload.id);
        tracing::info!(%pod, container = container.handle, "container started");
        worker.known.insert(&container);
        let now = worker.now();
        if container.state != ContainerState::Running {
            self.context.doubted.insert(pod.clone(), container.handle.clone());
        }
        self.change_container(index, |managed| {
            managed.handle = Some(container.handle);
            managed.restart_at = None;
            managed.running_since = Some(now);
            managed.set_reason("", String::new());
        });
    }

    fn engine_failed(&self, operation: &str, error: &RuntimeError) {
        tracing::warn!(
            pod = %self.managed.payload.id, %error,
            "{operation} its container failed; retrying in {}", seconds(RETRY_INTERVAL)
        );
        self.retry_later();
    }

    async fn finish_stopped(&self) {
        let message = "stopped as requested";
        let report = FinishReport { message, ..FinishReport::new(PodOutcome::Stopped) };
        match self.finish(&report).await {
            Some(WriteOutcome::Done | WriteOutcome::Stale) => self.forget(),
            // Redis knows of no stop request (a failover may have lost it), and the container is gone.
            Some(WriteOutcome::Wanted) => self.restart_lost().await,
            None => self.retry_later(),
        }
    }

    async fn finish(&self, report: &FinishReport<'_>) -> Option<WriteOutcome> {
        let ManagedPod { payload, service, .. } = &self.managed;
        let session = &self.context.session;
        let finish = || session.finish(self.pod(), &payload.raw, service.as_ref(), report).boxed();
        self.context.persist("finishing a pod", finish).await
    }

    /// Has the pod started anew. Returns whether Redis has given it another assignment; if not, it is forgotten or
    /// this is tried again.
    async fn report_lost(&self, what: &str) -> bool {
        let raw = &self.managed.payload.raw;
        let report_lost = || self.context.session.report_lost(self.pod(), raw).boxed();
        match self.context.persist("reporting a lost container", report_lost).await {
            Some(WriteOutcome::Done) => {
                tracing::warn!(pod = %self.managed.payload.id, "{what}: the pod is started again");
                return true;
            }
            // It has moved, or is to be stopped: the next heartbeat and the next full pass tell which.
            Some(WriteOutcome::Stale | WriteOutcome::Wanted) => {
                self.forget();
                self.context.wakeups.request_full_reconcile();
            }
            None => self.retry_later(),
        }
        false
    }

    async fn restart_lost(&self) {
        if self.report_lost("the container is gone").await {
            self.forget();
        }
    }

    /// Notes a run that has ended, with the last lines that the container wrote.
    async fn note_run(&self, index: usize, exit: Exit) {
        let Some(managed) = self.managed.containers.get(index) else { return };
        let container = self.managed.spec.containers[index].name.clone();
        let handle = managed.handle.clone().unwrap_or_default();
        let last_output = ended_runs::last_output(&*self.context.worker.runtime, &handle).await;
        let run = EndedRun {
            id: ended_runs::id(&self.managed.assignment, container.as_ref(), managed.restarts),
            container: container.filter(|_| self.managed.has_several()),
            node: self.context.worker.node.clone(),
            ended_at: 0,
            ran_for_ms: managed
                .running_since
                .map(|since| self.context.worker.now().since(since).as_millis() as u64),
            exit_code: exit.code,
            out_of_memory: exit.out_of_memory,
            last_output,
        };
        self.update(|managed| {
            managed.runs.push(run);
            managed.is_reported = false;
        });
    }

    /// Returns the containers that have ended since the last of their ends was noted.
    fn unnoted_exits(&self) -> Vec<(usize, Exit)> {
        let found: Vec<&Container> = self.containers.iter().collect();
        let observed = self.managed.observe(&found).containers.into_iter().enumerate();
        let exits = observed.filter_map(|(index, container)| match container?.state {
            ContainerState::Exited { code, out_of_memory } => Some((index, Exit { code, out_of_memory })),
            ContainerState::Created | ContainerState::Running | ContainerState::Unknown => None,
        });
        exits.filter(|(index, _)| self.managed.containers[*index].restart_at.is_none()).collect()
    }

    fn back_off(&self, index: usize, exit: Exit, wait: Duration, crash_streak: u32) {
        let message = format!("{}; next start in {}", exit.describe(), seconds(wait));
        tracing::warn!(pod = %self.managed.payload.id, "{message}");
        let at = self.context.worker.now().plus(wait);
        self.change_container(index, |container| {
            container.restart_at = Some(at);
            container.crash_streak = crash_streak;
            container.running_since = None;
            container.exit_code = Some(exit.code);
            container.set_reason("CrashLoopBackOff", message);
        });
    }

    async fn restart(&self, index: usize) {
        let Some(handle) = self.managed.containers.get(index).and_then(|one| one.handle.as_ref()) else {
            return;
        };
        let worker = &self.context.worker;
        if let Some(request) = self.managed.request(worker, index)
            && let Err(unavailable) = container_files::restore(worker, &request).await
        {
            return self.after_missing_files(index, unavailable);
        }
        let permit = worker.lease.permit_start(worker.now());
        if permit.is_none() && self.managed.spec.on_disconnect == OnDisconnect::Stop {
            return;
        }
        let restarted = worker.runtime.restart(handle).await;
        drop(permit);
        match restarted {
            Ok(()) => self.after_restart(index),
            Err(RuntimeError::NotFound(_)) => self.context.wakeups.request_reconcile(),
            Err(error @ RuntimeError::Engine(_)) => self.engine_failed("restarting", &error),
            Err(
                RuntimeError::Image(reason)
                | RuntimeError::Refused(reason)
                | RuntimeError::PortTaken(reason)
                | RuntimeError::Failed(reason),
            ) => {
                self.after_failed_start(index, "StartFailed", reason);
            }
        }
    }

    fn after_restart(&self, index: usize) {
        measure::restart();
        tracing::info!(pod = %self.managed.payload.id, "container restarted");
        let now = self.context.worker.now();
        let recovers_after = self.context.worker.config.restart_backoff;
        self.change_container(index, |container| {
            container.restart_at = None;
            container.running_since = Some(now);
            container.restarts = container.restarts.saturating_add(1);
            let message = after_restart_message(container.exit_code, recovers_after);
            container.set_reason(RESTARTED, message);
        });
    }

    fn after_missing_files(&self, index: usize, FilesUnavailable { reason, message }: FilesUnavailable) {
        self.after_failed_start(index, reason, message);
    }

    fn after_failed_start(&self, index: usize, reason: &'static str, message: String) {
        let limits = self.context.worker.restart_backoff();
        let now = self.context.worker.now();
        self.change_container(index, |container| {
            let wait = backoff::delay(limits.first, limits.max, container.crash_streak);
            container.restart_at = Some(now.plus(wait));
            container.crash_streak = container.crash_streak.saturating_add(1);
            container.set_reason(reason, format!("{message}; retrying in {}", seconds(wait)));
        });
    }

    async fn finish_exited(&self, exit: Exit) {
        let message = exit.describe();
        let (outcome, reason) = match exit {
            Exit { out_of_memory: true, .. } => (PodOutcome::Failed, "OOMKilled"),
            Exit { code: 0, .. } => (PodOutcome::Succeeded, "Completed"),
            Exit { .. } => (PodOutcome::Failed, "Error"),
        };
        for (index, exit) in self.unnoted_exits() {
            self.note_run(index, exit).await;
        }
        let managed = self.context.table.get(&self.managed.payload.id);
        let (status, runs) = managed.map(|managed| (managed.status(), managed.runs)).unwrap_or_default();
        let report = FinishReport {
            outcome,
            reason,
            message: &message,
            exit_code: Some(exit.code),
            containers: &status.containers,
            runs: &runs,
        };
        match self.finish(&report).await {
            Some(WriteOutcome::Done) => {
                let ManagedPod { payload, assignment, .. } = &self.managed;
                let ended_at = self.context.worker.now();
                let phase = match outcome {
                    PodOutcome::Succeeded => Phase::Succeeded,
                    PodOutcome::Failed | PodOutcome::Stopped => Phase::Failed,
                };
                let (pod, assignment) = (payload.id.clone(), assignment.clone());
                let ended = EndedPod { pod, assignment, phase, ended_at };
                self.context.table.keep_ended(ended);
                self.forget();
            }
            Some(WriteOutcome::Stale | WriteOutcome::Wanted) => {
                self.forget();
                // Its container still exists, and may have to be removed.
                self.context.wakeups.request_reconcile();
            }
            None => self.retry_later(),
        }
    }

    /// Reports the pod's status if Redis does not have it. Tries once for each pass, as the status may change
    /// meanwhile.
    async fn report_status(&self) {
        if !self.context.worker.is_leased() {
            // Redis is unavailable, and actions must not wait for it. A pass after the next heartbeat reports
            // it.
            return;
        }
        let Some(managed) = self.context.table.get(&self.managed.payload.id) else { return };
        if managed.is_reported {
            return;
        }
        let status = managed.status();
        let PodStatus { reason, ref message, restarts, exit_code, ref containers } = status;
        let report = StatusReport {
            reason,
            message,
            restarts: Some(restarts),
            exit_code,
            network: Some(&managed.network),
            containers,
            runs: &managed.runs,
        };
        let reply = self.context.session.report(self.pod(), &report).await;
        match self.context.classify("reporting the status of a pod", reply) {
            RetryClass::Reply(_) => self.update(|now| {
                now.runs.retain(|run| !managed.runs.contains(run));
                let is_current = now.status() == status && now.network == managed.network;
                now.is_reported = is_current && now.runs.is_empty();
            }),
            RetryClass::Transient(_) => self.retry_later(),
            RetryClass::Fenced | RetryClass::Permanent(_) => self.update(|now| now.is_reported = true),
        }
    }
}

fn after_restart_message(exit_code: Option<i64>, recovers_after: Duration) -> String {
    let exit = exit_code.map_or_else(String::new, |code| format!(" after exit code {code}"));
    format!("started again{exit}; ready when it has run for {}", seconds(recovers_after))
}
