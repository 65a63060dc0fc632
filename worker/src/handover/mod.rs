//! The hand-over of a pod's traffic: this node's proxy learns where the pods are, and lets go of a pod before the
//! worker stops it.
//!
//! ```text
//! link.rs       the loop that speaks to the proxy: all pods, then each change
//! rows.rs       pure: what the proxy is told about a pod
//! drain.rs      pure: how long a stop waits for requests in flight, and what it does next
//! close_all.rs  closes gates without a session, for the fence
//! ```
//!
//! Without a proxy nothing flows through one, and no stop waits.

pub(crate) mod close_all;
pub(crate) mod drain;
pub(crate) mod link;
mod rows;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::handover::{FromProxy, FromWorker};
use common::ids::{AssignmentId, PodId};
use tokio::sync::{Notify, watch};

use self::drain::{DrainProgress, LinkStatus};

/// What the loop and the stops of one session share: the pods whose gate is to be closed, and what the proxy answered.
pub(crate) struct Handover {
    inner: Mutex<Inner>,
    /// Wakes the loop.
    wake: Notify,
    /// Grows with each answer of the proxy, and with each change of the link.
    version: watch::Sender<u64>,
}

struct Inner {
    status: LinkStatus,
    closings: HashMap<AssignmentId, Closing>,
}

/// A pod whose gate is to be closed for as long as a stop is under way.
struct Closing {
    pod: PodId,
    within: Duration,
    is_sent: bool,
    progress: DrainProgress,
}

/// Keeps the gate of a pod closed until it is dropped. After that, its row says whether it is open.
pub(crate) struct ClosedGate<'a> {
    handover: &'a Handover,
    assignment: AssignmentId,
}

impl Drop for ClosedGate<'_> {
    fn drop(&mut self) {
        self.handover.lock().closings.remove(&self.assignment);
        self.handover.wake.notify_one();
    }
}

impl Handover {
    pub(crate) fn new(has_socket: bool) -> Self {
        let status = if has_socket { LinkStatus::Untried } else { LinkStatus::Off };
        let inner = Mutex::new(Inner { status, closings: HashMap::new() });
        Self { inner, wake: Notify::new(), version: watch::Sender::new(0) }
    }

    /// Closes the gate of a pod; what is in flight after `within` is cut. Looks for a proxy at once if there was none
    /// a moment ago.
    pub(crate) fn close(&self, pod: &PodId, assignment: &AssignmentId, within: Duration) -> ClosedGate<'_> {
        let mut inner = self.lock();
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

    /// Returns the state of the link, and how far the drain of a pod is.
    pub(crate) fn progress(&self, assignment: &AssignmentId) -> (LinkStatus, DrainProgress) {
        let inner = self.lock();
        let progress = inner.closings.get(assignment).map(|closing| closing.progress);
        (inner.status, progress.unwrap_or(DrainProgress::Requested))
    }

    /// Returns a receiver that is notified of each answer of the proxy.
    pub(crate) fn answers(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Returns whether the gate of a pod is kept closed by a stop.
    fn is_closing(&self, assignment: &AssignmentId) -> bool {
        self.lock().closings.contains_key(assignment)
    }

    /// The link is up, down, or was not there. What was sent before has to be sent again.
    fn set_status(&self, status: LinkStatus) {
        let mut inner = self.lock();
        inner.status = status;
        inner.closings.values_mut().for_each(|closing| closing.is_sent = false);
        drop(inner);
        self.note_answer();
    }

    /// Returns the requests to close that the proxy has not had.
    fn unsent(&self) -> Vec<FromWorker> {
        let mut inner = self.lock();
        let unsent = inner.closings.iter_mut().filter(|(_, closing)| !closing.is_sent);
        let messages = unsent.map(|(assignment, closing)| {
            closing.is_sent = true;
            FromWorker::Close {
                pod: closing.pod.clone(),
                assignment: assignment.clone(),
                within_ms: closing.within.as_millis() as u64,
            }
        });
        messages.collect()
    }

    /// Notes what the proxy has answered.
    fn note(&self, answer: &FromProxy) {
        let mut inner = self.lock();
        match answer {
            FromProxy::Closed { assignment, in_flight, .. } => {
                if let Some(closing) = inner.closings.get_mut(assignment) {
                    closing.progress = DrainProgress::Closed { in_flight: *in_flight };
                }
            }
            FromProxy::Drained { assignment, after_ms, cut, .. } => {
                if let Some(closing) = inner.closings.get_mut(assignment) {
                    let in_flight = match closing.progress {
                        DrainProgress::Closed { in_flight } => in_flight,
                        DrainProgress::Requested | DrainProgress::Drained { .. } => 0,
                    };
                    let after = Duration::from_millis(*after_ms);
                    closing.progress = DrainProgress::Drained { in_flight, after, cut: *cut };
                }
            }
            FromProxy::Pong => {}
        }
        drop(inner);
        self.note_answer();
    }

    fn note_answer(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
