//! Carries out the decision of [`step`](crate::running::step) about one pod. The process may die at any
//! point: the next pass decides anew.

mod draining;
mod ending;
mod of_containers;
mod pod_action;
mod pre_stop;

use std::sync::Arc;
use std::time::Duration;

use engine::kept_logs::KeptOwner;
use engine::{Container, RuntimeError};
use futures_util::FutureExt;
use futures_util::future::join_all;
use store::{FinishReport, PodOutcome, StatusReport, WriteOutcome};

use self::pod_action::{GracePeriod, PodAction};
use crate::running::step::{Action, DesiredState};
use crate::running::stop_order;
use crate::running::table::{ManagedPod, PodStatus};
use crate::session::context::SessionContext;
use crate::session::reply_class::ReplyClass;
use crate::support::measure::{self, ContainerStopReason};

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

impl PodAction {
    async fn carry_out(self, action: Action) {
        match action {
            Action::Leave => {}
            Action::Stop => {
                if self.stop_all(ContainerStopReason::Requested, |_| true).await {
                    self.finish_stopped().await;
                }
            }
            Action::FinishStopped => self.finish_stopped().await,
            Action::Discard => {
                tracing::info!(
                    pod = %self.managed.payload.id,
                    "the pod is not assigned to this node any more: stopping it"
                );
                if self.stop_all(ContainerStopReason::NotAssigned, |_| true).await {
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
                if self.stop_all(ContainerStopReason::Ended, |container| container.state.may_run()).await {
                    self.finish_exited(exit).await;
                }
            }
        }
        self.report_status().await;
    }

    /// In their order, and together within the grace period. Returns true if they are gone.
    async fn stop_all(&self, reason: ContainerStopReason, is_chosen: impl Fn(&Container) -> bool) -> bool {
        // So that programs have all of the grace period.
        let Some(_gate) = self.drain(reason).await else { return false };
        let grace = GracePeriod::begin(self.managed.spec.grace());
        let hooks = pre_stop::limit(&self.stop_facts(reason), grace.whole);
        for group in stop_order::groups(&self.managed.spec, &self.containers) {
            let stops = group
                .into_iter()
                .filter(|container| is_chosen(container))
                .map(|container| self.stop_container(container, grace, hooks));
            for stopped in join_all(stops).await {
                match stopped {
                    Ok(true) => measure::stop(reason),
                    Ok(false) => return false,
                    Err(error) => {
                        self.engine_failed("stopping", &error);
                        return false;
                    }
                }
            }
        }
        true
    }

    async fn stop_container(
        &self,
        container: &Container,
        grace: GracePeriod,
        hooks: Duration,
    ) -> Result<bool, RuntimeError> {
        if !self.before_stop(container, hooks.min(grace.rest())).await {
            return Ok(false);
        }
        let worker = &self.context.worker;
        if worker.kept_logs.is_on() {
            worker.runtime.halt(&container.handle, grace.rest()).await?;
            let owner = KeptOwner {
                pod: container.pod.clone(),
                name: self.managed.payload.display_name(),
                service: self.managed.service.clone(),
                container: container.name.clone(),
            };
            worker.kept_logs.keep(&*worker.runtime, &container.handle, owner).await;
        }
        worker.runtime.stop(&container.handle, grace.rest()).await?;
        worker.files.remove(container);
        Ok(true)
    }

    /// Only Redis may take the assignment away, so it is asked before anything is stopped. If the reply to an
    /// earlier report was lost, the next assignment begins here at once: it must find these containers.
    async fn rebuild(&self) {
        let discard = || self.update(|managed| managed.desired = DesiredState::Discard);
        match self.report_lost("the network of its containers is gone").await {
            Some(WriteOutcome::Done) => discard(),
            Some(WriteOutcome::Stale | WriteOutcome::Wanted) => {
                match self.context.worker.store.pod(&self.managed.payload.id).await {
                    Ok(Some(_)) => discard(),
                    // Redis may have lost it: the full pass decides.
                    Ok(None) => self.forget(),
                    Err(_) => self.retry_later(),
                }
            }
            None => {}
        }
    }

    async fn finish_stopped(&self) {
        let message = "stopped as requested";
        let drained = self.context.table.get(&self.managed.payload.id).and_then(|managed| managed.drained);
        let drained = drained.as_deref().unwrap_or_default();
        let report = FinishReport { message, drained, ..FinishReport::new(PodOutcome::Stopped) };
        match self.finish(&report).await {
            Some(WriteOutcome::Done | WriteOutcome::Stale) => self.forget(),
            // A failover may have lost the stop request, and the container is gone.
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

    /// `None` if it is tried again later.
    async fn report_lost(&self, what: &str) -> Option<WriteOutcome> {
        let raw = &self.managed.payload.raw;
        let report_lost = || self.context.session.report_lost(self.pod(), raw).boxed();
        let outcome = self.context.persist("reporting a lost container", report_lost).await;
        match outcome {
            Some(WriteOutcome::Done) => {
                tracing::warn!(pod = %self.managed.payload.id, "{what}: the pod is started again");
            }
            // It has moved, or must stop: the next heartbeat and the next full pass find out.
            Some(WriteOutcome::Stale | WriteOutcome::Wanted) => self.context.wakeups.request_full_reconcile(),
            None => self.retry_later(),
        }
        outcome
    }

    async fn restart_lost(&self) {
        if self.report_lost("the container is gone").await.is_some() {
            self.forget();
        }
    }

    async fn report_status(&self) {
        if !self.context.worker.is_leased() {
            // Actions must not wait for an unavailable Redis.
            return;
        }
        let Some(managed) = self.context.table.get(&self.managed.payload.id) else { return };
        if managed.is_reported {
            return;
        }
        let status = managed.status();
        let PodStatus { reason, ref message, restarts, exit_code, ref containers } = status;
        let report = StatusReport {
            service: self.managed.service.as_ref(),
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
            ReplyClass::Reply(_) => self.update(|now| {
                now.runs.retain(|run| !managed.runs.contains(run));
                let is_current = now.status() == status && now.network == managed.network;
                now.is_reported = is_current && now.runs.is_empty();
            }),
            ReplyClass::Transient(_) => self.retry_later(),
            ReplyClass::Fenced | ReplyClass::Permanent(_) => self.update(|now| now.is_reported = true),
        }
    }
}
