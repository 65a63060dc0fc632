//! Actions on single containers of a pod: creating, restarting, waiting, and stopping an unhealthy one.

use std::time::Duration;

use engine::{Container, ContainerState, RuntimeError};
use model::duration;
use model::spec::OnDisconnect;

use super::pod_action::{GracePeriod, PodAction};
use super::pre_stop;
use crate::running::step::{ContainerAction, ContainerExit, DesiredState};
use crate::running::table::{ManagedPod, RESTARTED};
use crate::start::container_files;
use crate::start::files_unavailable::FilesUnavailable;
use crate::support::measure::{self, ContainerStopReason};
use crate::support::text::seconds;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartReason {
    /// It ended, or never started.
    Exit,
    /// It ended with its engine.
    Engine,
}

impl PodAction {
    pub(super) async fn act_on_container(&self, index: usize, action: ContainerAction) {
        match action {
            ContainerAction::Create => self.create(index).await,
            ContainerAction::BackOff { exit, wait, crash_streak } => {
                self.note_run(index, exit).await;
                self.back_off(index, exit, wait, crash_streak);
            }
            ContainerAction::Restart => self.restart(index, StartReason::Exit).await,
            ContainerAction::StartAgain => self.restart(index, StartReason::Engine).await,
            ContainerAction::StopUnhealthy => self.stop_unhealthy(index).await,
            ContainerAction::Recover => {
                self.change_container(index, |container| container.set_reason("", String::new()));
            }
        }
    }

    async fn create(&self, index: usize) {
        let worker = &self.context.worker;
        let Some(mut request) = self.managed.request(worker, index) else { return };
        let mut provided = match container_files::provide(worker, &request).await {
            Ok(provided) => provided,
            Err(unavailable) => return self.after_missing_files(index, unavailable),
        };
        request.files = std::mem::take(&mut provided.files);
        if let Err(unavailable) = worker.shared.provide(&mut request).await {
            return self.after_missing_files(index, unavailable);
        }
        let (image, policy) = (&request.container.image, request.container.pull_policy);
        let pull = worker.runtime.ensure_image(image, policy, &worker.logins);
        let image_is_there = tokio::select! {
            biased;
            // A pull can take minutes.
            () = self.until_unwanted() => return,
            () = self.context.tasks.stopping().cancelled() => return,
            result = pull => result,
        };
        let created = match image_is_there {
            Ok(()) => {
                worker.image_uses.note(image);
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

    /// Returns when the pod is to be stopped, or is not this node's any more. A pod has one action at a time:
    /// its stop waits for this one.
    async fn until_unwanted(&self) {
        let mut changes = self.context.table.changes();
        let ManagedPod { payload, assignment, .. } = &self.managed;
        loop {
            changes.mark_unchanged();
            let managed = self.context.table.get(&payload.id);
            let is_wanted =
                |now: &ManagedPod| now.assignment == *assignment && now.desired == DesiredState::Run;
            if !managed.is_some_and(|now| is_wanted(&now)) || changes.changed().await.is_err() {
                return;
            }
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
            managed.set_started(now);
            managed.set_reason("", String::new());
        });
    }

    /// Keeps the container; its end is handled like any exit.
    async fn stop_unhealthy(&self, index: usize) {
        let Some(handle) = self.managed.containers.get(index).and_then(|one| one.handle.as_ref()) else {
            return;
        };
        let Some(_gate) = self.drain(ContainerStopReason::Unhealthy).await else { return };
        // If this worker dies after the stop, the next one finds in the record why the container ended.
        self.report_status().await;
        self.change_container(index, |container| container.was_unhealthy = true);
        let worker = &self.context.worker;
        let grace = GracePeriod::begin(self.managed.spec.grace());
        let hooks = pre_stop::limit(&self.stop_facts(ContainerStopReason::Unhealthy), grace.whole);
        if let Some(container) = self.containers.iter().find(|container| container.handle == *handle)
            && !self.before_stop(container, hooks).await
        {
            return;
        }
        match worker.runtime.halt(handle, grace.rest()).await {
            Ok(()) => {
                measure::stop(ContainerStopReason::Unhealthy);
                self.context.doubted.insert(self.managed.payload.id.clone(), handle.clone());
            }
            Err(error) => self.engine_failed("stopping", &error),
        }
    }

    fn back_off(&self, index: usize, exit: ContainerExit, wait: Duration, crash_streak: u32) {
        let container = self.managed.containers.get(index);
        let unhealthy = container.filter(|container| container.was_unhealthy);
        let why = match unhealthy.and_then(|container| container.checks.problem()) {
            Some((_, message)) => format!("unhealthy, so it was stopped: {message}"),
            None => exit.describe(),
        };
        let message = format!("{why}; next start in {}", seconds(wait));
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

    async fn restart(&self, index: usize, reason: StartReason) {
        let Some(handle) = self.managed.containers.get(index).and_then(|one| one.handle.as_ref()) else {
            return;
        };
        let worker = &self.context.worker;
        if let Some(request) = self.managed.request(worker, index)
            && let Err(unavailable) = container_files::provide_missing(worker, &request).await
        {
            return self.after_missing_files(index, unavailable);
        }
        // Without a lease another node may start the pod too, which only `on_disconnect: keep` permits.
        let permit = worker.lease.permit_start(worker.now());
        if permit.is_none() && self.managed.spec.on_disconnect == OnDisconnect::Stop {
            return;
        }
        let restarted = worker.runtime.restart(handle).await;
        drop(permit);
        match restarted {
            Ok(()) => self.after_restart(index, reason),
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

    fn after_restart(&self, index: usize, reason: StartReason) {
        let (pod, now) = (&self.managed.payload.id, self.context.worker.now());
        if reason == StartReason::Engine {
            tracing::info!(%pod, "the container ended with its engine, and was started again");
            return self.change_container(index, |container| {
                container.set_started(now);
                container.set_reason("", String::new());
            });
        }
        measure::restart();
        tracing::info!(%pod, "container restarted");
        let recovers_after = self.context.worker.config.restart_backoff;
        self.change_container(index, |container| {
            container.set_started(now);
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
            let wait = duration::delay(limits.first, limits.max, container.crash_streak);
            container.restart_at = Some(now.plus(wait));
            container.crash_streak = container.crash_streak.saturating_add(1);
            container.set_reason(reason, format!("{message}; retrying in {}", seconds(wait)));
        });
    }
}

fn after_restart_message(exit_code: Option<i64>, recovers_after: Duration) -> String {
    let exit = exit_code.map_or_else(String::new, |code| format!(" after exit code {code}"));
    format!("started again{exit}; ready when it has run for {}", seconds(recovers_after))
}
