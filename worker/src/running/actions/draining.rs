//! The first part of each stop: closes the pod's gate and waits for requests in flight
//! ([`crate::handover::drain`]).

use std::time::Duration;

use engine::{ContainerState, RuntimeError};
use model::pod::lifecycle::Phase;
use model::spec::OnDisconnect;
use tokio::time::Instant;

use super::pod_action::PodAction;
use crate::handover::ClosedGate;
use crate::handover::drain::{self, DrainFacts, DrainProgress, DrainStep, StopFacts};
use crate::running::step::DesiredState;
use crate::running::stop_order;
use crate::support::measure::ContainerStopReason;

/// Interval of checks after a failover may have lost the stop.
const REVOKED_INTERVAL: Duration = Duration::from_secs(1);

impl PodAction {
    /// The gate stays closed until the result is dropped. `None`: stop nothing now.
    pub(super) async fn drain(&self, reason: ContainerStopReason) -> Option<ClosedGate<'_>> {
        let (handover, limit) = (&self.context.handover, drain::limit(&self.stop_facts(reason)));
        let (begun, master) = (Instant::now(), self.context.link.master());
        let (pod, assignment) = (&self.managed.payload.id, &self.managed.assignment);
        let mut answers = handover.answers();
        let gate = handover.close(pod, assignment, limit);
        let (mut is_revoked, mut is_signalled) = (false, false);
        loop {
            answers.mark_unchanged();
            let (link, progress) = handover.progress(assignment);
            let is_ending = self.context.tasks.stopping().is_cancelled();
            let waited = begun.elapsed();
            let facts = DrainFacts { link, progress, waited, limit, is_revoked, is_ending };
            match drain::step(&facts) {
                DrainStep::Leave => return None,
                DrainStep::Stop(end) => {
                    if let Some(message) = end.describe(limit) {
                        tracing::info!(%pod, "{message}");
                        self.update(|managed| managed.drained = Some(message));
                    }
                    return Some(gate);
                }
                DrainStep::Wait(rest) => {
                    if !is_signalled && matches!(progress, DrainProgress::Closed { in_flight: 1.. }) {
                        is_signalled = true;
                        self.signal_drain().await;
                    }
                    tokio::select! {
                        _ = answers.changed() => {}
                        () = self.context.tasks.stopping().cancelled() => {}
                        () = tokio::time::sleep(rest.min(REVOKED_INTERVAL)) => {
                            let may_be_lost = self.context.link.master() != master;
                            is_revoked = may_be_lost && self.revoke_lost_stop(reason).await;
                        }
                    }
                }
            }
        }
    }

    /// No new requests reach the containers.
    async fn signal_drain(&self) {
        for container in self.containers.iter().filter(|container| container.state.may_run()) {
            let index = stop_order::index_of(&self.managed.spec, container);
            let Some(signal) = index.and_then(|index| self.managed.spec.containers[index].drain_signal)
            else {
                continue;
            };
            let pod = &self.managed.payload.id;
            match self.context.worker.runtime.signal(&container.handle, signal).await {
                Ok(()) => tracing::info!(%pod, "{signal} sent (`drain_signal`)"),
                Err(RuntimeError::NotFound(_)) => {}
                Err(error) => tracing::warn!(
                    %pod, "`drain_signal`: {signal} could not be sent: {error}; requests in flight are cut after `drain`"
                ),
            }
        }
    }

    pub(super) fn stop_facts(&self, reason: ContainerStopReason) -> StopFacts {
        let spec = &self.managed.spec;
        let runs = |state: ContainerState| matches!(state, ContainerState::Running | ContainerState::Unknown);
        let found: Vec<_> = self.containers.iter().collect();
        let observed = self.managed.observe(&found);
        let any_runs = observed.containers.iter().flatten().any(|container| runs(container.state));
        let has_network = !self.managed.uses_sandbox(&self.context.worker)
            || observed.sandbox.is_some_and(|sandbox| runs(sandbox.state));
        StopFacts {
            reason,
            drain: spec.drain(),
            can_answer: any_runs && has_network,
            never_twice: spec.on_disconnect == OnDisconnect::Stop,
            is_leased: self.context.worker.is_leased(),
        }
    }

    /// True if another master has lost the stop: the pod must run, and its gate opens again.
    async fn revoke_lost_stop(&self, reason: ContainerStopReason) -> bool {
        let ContainerStopReason::Requested = reason else { return false };
        let (id, assignment) = (&self.managed.payload.id, &self.managed.assignment);
        let Ok(Some(record)) = self.context.worker.store.pod(id).await else { return false };
        let is_wanted = record.phase == Phase::Running
            && record.node.as_ref() == Some(&self.context.worker.node)
            && record.assignment.as_ref() == Some(assignment);
        if is_wanted {
            tracing::warn!(
                pod = %id,
                "a failover of Redis has lost the request to stop the pod: it goes on, and its gate is open again"
            );
            self.update(|managed| managed.desired = DesiredState::Run);
        }
        is_wanted
    }
}
