//! The handover of a pod's traffic: this node's proxy learns the pods' addresses ([`link`]), and drains a pod
//! before the worker stops it ([`drain`]; [`close_all`] for the fence). Without a proxy no stop waits.
//!
//! Tests: beside the code, tests::handing_over, scenarios::handover

pub(crate) mod close_all;
pub(crate) mod drain;
pub(crate) mod link;
mod rows;
pub(crate) mod socket;

use std::collections::HashMap;
use std::time::Duration;

use model::ids::{AssignmentId, PodId};
use model::network::handover::{FromProxy, FromWorker, Gateway};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use self::drain::{DrainProgress, LinkStatus};

pub(crate) struct Handover {
    inner: Mutex<HandoverInner>,
    wake: Notify,
    names_changed: Notify,
    version: watch::Sender<u64>,
}

struct HandoverInner {
    status: LinkStatus,
    closings: HashMap<AssignmentId, Closing>,
    names: Option<NamesStatus>,
    gateway: Option<Gateway>,
    is_gateway_sent: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamesStatus {
    pub(crate) problem: Option<String>,
}

struct Closing {
    pod: PodId,
    within: Duration,
    is_sent: bool,
    progress: DrainProgress,
}

/// Keeps a gate closed until it is dropped; then the pod's row decides again.
pub(crate) struct ClosedGate<'a> {
    handover: &'a Handover,
    assignment: AssignmentId,
}

impl Drop for ClosedGate<'_> {
    fn drop(&mut self) {
        self.handover.inner.lock().closings.remove(&self.assignment);
        self.handover.wake.notify_one();
    }
}

impl Handover {
    pub(crate) fn new(has_socket: bool) -> Self {
        let status = if has_socket { LinkStatus::Untried } else { LinkStatus::Off };
        let closings = HashMap::new();
        let inner = HandoverInner { status, closings, names: None, gateway: None, is_gateway_sent: false };
        Self {
            inner: Mutex::new(inner),
            wake: Notify::new(),
            names_changed: Notify::new(),
            version: watch::Sender::new(0),
        }
    }

    /// Requests in flight are cut after `within`.
    pub(crate) fn close(&self, pod: &PodId, assignment: &AssignmentId, within: Duration) -> ClosedGate<'_> {
        let mut inner = self.inner.lock();
        let progress = DrainProgress::Requested;
        let closing = Closing { pod: pod.clone(), within, is_sent: false, progress };
        inner.closings.insert(assignment.clone(), closing);
        if inner.status == LinkStatus::Absent {
            inner.status = LinkStatus::Untried;
        }
        drop(inner);
        self.wake.notify_one();
        ClosedGate { handover: self, assignment: assignment.clone() }
    }

    pub(crate) fn progress(&self, assignment: &AssignmentId) -> (LinkStatus, DrainProgress) {
        let inner = self.inner.lock();
        let progress = inner.closings.get(assignment).map(|closing| closing.progress);
        (inner.status, progress.unwrap_or(DrainProgress::Requested))
    }

    pub(crate) fn answers(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    fn is_closing(&self, assignment: &AssignmentId) -> bool {
        self.inner.lock().closings.contains_key(assignment)
    }

    /// Earlier messages must be sent again.
    fn set_status(&self, status: LinkStatus) {
        let mut inner = self.inner.lock();
        inner.status = status;
        inner.closings.values_mut().for_each(|closing| closing.is_sent = false);
        (inner.names, inner.is_gateway_sent) = (None, false);
        drop(inner);
        self.note_answer();
    }

    pub(crate) fn names(&self) -> Option<NamesStatus> {
        self.inner.lock().names.clone()
    }

    pub(crate) async fn names_changed(&self) {
        self.names_changed.notified().await;
    }

    pub(crate) fn set_gateway(&self, gateway: Gateway) {
        let mut inner = self.inner.lock();
        if inner.gateway.replace(gateway) != Some(gateway) {
            inner.is_gateway_sent = false;
            self.wake.notify_one();
        }
    }

    fn unsent(&self) -> Vec<FromWorker> {
        let mut inner = self.inner.lock();
        let gateway = inner.gateway.filter(|_| !inner.is_gateway_sent);
        inner.is_gateway_sent = true;
        let network =
            gateway.map(|Gateway { address, on_demand }| FromWorker::Network { gateway: address, on_demand });
        let unsent = inner.closings.iter_mut().filter(|(_, closing)| !closing.is_sent);
        let messages = unsent.map(|(assignment, closing)| {
            closing.is_sent = true;
            FromWorker::Close {
                pod: closing.pod.clone(),
                assignment: assignment.clone(),
                within_ms: closing.within.as_millis() as u64,
            }
        });
        network.into_iter().chain(messages).collect()
    }

    fn note(&self, answer: &FromProxy) {
        let mut inner = self.inner.lock();
        match answer {
            FromProxy::Closed { assignment, in_flight, .. } => {
                if let Some(closing) = inner.closings.get_mut(assignment) {
                    closing.progress = DrainProgress::Closed { in_flight: *in_flight };
                }
            }
            FromProxy::Drained { assignment, after_ms, cut, .. } => {
                // Otherwise it ends the drain of an earlier stop.
                if let Some(closing) = inner.closings.get_mut(assignment)
                    && let DrainProgress::Closed { in_flight } = closing.progress
                {
                    let after = Duration::from_millis(*after_ms);
                    closing.progress = DrainProgress::Drained { in_flight, after, cut: *cut };
                }
            }
            FromProxy::Names { problem, .. } => {
                inner.names = Some(NamesStatus { problem: problem.clone() });
                self.names_changed.notify_one();
            }
            FromProxy::Pong => {}
        }
        drop(inner);
        self.note_answer();
    }

    fn note_answer(&self) {
        self.version.send_modify(|version| *version += 1);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn the_end_of_an_earlier_drain_is_not_that_of_the_one_that_was_asked_for() {
        let (pod, assignment) = (PodId::new("p").unwrap(), AssignmentId::new("a").unwrap());
        let handover = Handover::new(true);
        let drained =
            || FromProxy::Drained { pod: pod.clone(), assignment: assignment.clone(), after_ms: 7, cut: 0 };
        let _closed = handover.close(&pod, &assignment, Duration::from_secs(30));
        handover.note(&drained());
        assert_eq!(handover.progress(&assignment).1, DrainProgress::Requested);
        handover.note(&FromProxy::Closed { pod: pod.clone(), assignment: assignment.clone(), in_flight: 2 });
        handover.note(&drained());
        let after = Duration::from_millis(7);
        assert_eq!(handover.progress(&assignment).1, DrainProgress::Drained { in_flight: 2, after, cut: 0 });
    }
}
