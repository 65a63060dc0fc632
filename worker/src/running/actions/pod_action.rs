//! An action in progress on one pod, and the grace period of its stop.

use std::sync::Arc;
use std::time::Duration;

use engine::{Container, RuntimeError};
use store::PodRef;
use tokio::time::Instant;

use crate::running::table::{ManagedContainer, ManagedPod};
use crate::session::context::SessionContext;
use crate::support::text::seconds;

const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// A container stopped after others gets this much, even if they have used up the grace period.
const LEAST_GRACE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
pub(super) struct GracePeriod {
    begun: Instant,
    pub(super) whole: Duration,
}

impl GracePeriod {
    pub(super) fn begin(whole: Duration) -> Self {
        Self { begun: Instant::now(), whole }
    }

    pub(super) fn rest(self) -> Duration {
        self.whole.saturating_sub(self.begun.elapsed()).max(self.whole.min(LEAST_GRACE))
    }
}

pub(super) struct PodAction {
    pub(super) context: Arc<SessionContext>,
    pub(super) managed: ManagedPod,
    /// As the engine listed them when the pass chose the action.
    pub(super) containers: Vec<Container>,
}

/// Clears the busy flag even after a panic, and asks for a pass: changes that came during the action were
/// left to it.
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
    pub(super) fn pod(&self) -> PodRef<'_> {
        PodRef { id: &self.managed.payload.id, assignment: &self.managed.assignment }
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut ManagedPod)) {
        self.context.table.update(&self.managed.payload.id, &self.managed.assignment, change);
    }

    pub(super) fn change_container(&self, index: usize, change: impl FnOnce(&mut ManagedContainer)) {
        self.update(|managed| managed.change_container(index, change));
    }

    pub(super) fn forget(&self) {
        self.context.table.remove(&self.managed.payload.id, &self.managed.assignment);
    }

    pub(super) fn retry_later(&self) {
        let at = self.context.worker.now().plus(RETRY_INTERVAL);
        self.update(|managed| managed.retry_at = Some(at));
    }

    pub(super) fn engine_failed(&self, operation: &str, error: &RuntimeError) {
        tracing::warn!(
            pod = %self.managed.payload.id, %error,
            "{operation} its container failed; retrying in {}", seconds(RETRY_INTERVAL)
        );
        self.retry_later();
    }
}
