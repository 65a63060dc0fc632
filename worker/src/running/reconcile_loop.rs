//! The reconcile loop: compares the engine's containers with the desired pods, and acts on the differences.
//!
//! Restores invariant 1 of `docs/internals/invariants.md` on this node. Hints bring the next
//! [pass](crate::running::reconcile_pass) forward; at intervals a full pass asks Redis as well (invariant 8).

use std::sync::Arc;
use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::clock::BootInstant;
use daemon::control_loop::{Loop, Next};
use tokio::time::Instant;

use crate::running::engine_hints::EngineHints;
use crate::running::reconcile_pass::{PassError, inspect_doubted, reconcile};
use crate::session::context::SessionContext;

/// Pods are due on the boot clock; tokio's sleep stands still while the machine is suspended.
const MAX_WAIT_FOR_DUE_POD: Duration = Duration::from_secs(60);

/// Above this, one list of all containers costs less.
const MAX_INSPECTED_DUE: usize = 8;

const INSPECT_RETRY: Duration = Duration::from_secs(1);

pub(crate) struct WorkerReconcileLoop {
    context: Arc<SessionContext>,
    hints: EngineHints,
    begun: Instant,
    looked_at: BootInstant,
    next_full: Instant,
    wait: Duration,
}

impl Loop<PassError> for WorkerReconcileLoop {
    const NAME: &'static str = "containers";
    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(10));
    const LOGS_FAILURES: bool = false;

    async fn step(&mut self) -> Result<Next, PassError> {
        let context = &self.context;
        self.hints.open(&context.worker).await;
        self.begun = Instant::now();
        self.looked_at = context.worker.now();
        // The request for a full pass stays until Redis answers.
        let full = context.link.is_in_touch()
            && (context.wakeups.take_full_reconcile() || self.begun >= self.next_full);
        if let Err(error) = reconcile(context, full).await {
            tracing::debug!(node = %context.worker.node, %error, "a look at the containers failed; retrying");
            if full {
                context.wakeups.request_full_reconcile();
            }
            return Err(error);
        }
        let has_inspected_all = inspect_doubted(context).await;
        let relist_interval = context.worker.timings.relist_interval;
        if full {
            self.next_full = self.begun + relist_interval;
            context.first_listing_done.cancel();
        }
        // A due full pass does not begin without Redis: it must not shorten the pause to nothing.
        self.wait = match full || context.link.is_in_touch() {
            true => self.next_full.saturating_duration_since(Instant::now()),
            false => relist_interval,
        };
        if !has_inspected_all {
            self.wait = self.wait.min(INSPECT_RETRY);
        }
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), PassError> {
        self.wait_for_next_pass().await;
        Ok(())
    }

    async fn back_off(&mut self, pause: Duration) {
        tokio::time::sleep(pause).await;
        self.wait = Duration::ZERO;
        self.wait_for_next_pass().await;
    }
}

impl WorkerReconcileLoop {
    pub(crate) fn new(context: Arc<SessionContext>) -> Self {
        let now = Instant::now();
        let looked_at = context.worker.now();
        let hints = EngineHints::default();
        Self { context, hints, begun: now, looked_at, next_full: now, wait: Duration::ZERO }
    }

    /// Passes keep a minimum distance; containers named by hints and due pods are inspected at once.
    async fn wait_for_next_pass(&mut self) {
        let earliest = self.begun + self.context.worker.timings.min_relist_gap;
        let next_pass = tokio::time::sleep_until(earliest.max(Instant::now() + self.wait));
        tokio::pin!(next_pass);
        let mut is_hurried = false;
        loop {
            let needs_pass = tokio::select! {
                biased;
                () = &mut next_pass => return,
                () = self.context.wakeups.reconcile_requested() => true,
                () = tokio::time::sleep(self.until_pod_is_due()) => !self.doubt_due_pods(),
                // Returns at once without a subscription, so it is asked once.
                doubted = self.hints.next(&self.context.table), if self.hints.is_open() || !is_hurried => {
                    match doubted {
                        Some((pod, handle)) => {
                            self.context.doubted.insert(pod, handle);
                            false
                        }
                        None => true,
                    }
                }
            };
            if !inspect_doubted(&self.context).await || needs_pass {
                next_pass.as_mut().reset(earliest);
                is_hurried = true;
            }
        }
    }

    fn until_pod_is_due(&self) -> Duration {
        let context = &self.context;
        let next = context.table.next_due(self.looked_at, context.worker.config.restart_backoff);
        next.map_or(MAX_WAIT_FOR_DUE_POD, |at| at.since(context.worker.now()).min(MAX_WAIT_FOR_DUE_POD))
    }

    /// False if a pass is needed instead.
    fn doubt_due_pods(&mut self) -> bool {
        let context = &self.context;
        let now = context.worker.now();
        let due = context.table.due((self.looked_at, now), context.worker.config.restart_backoff);
        self.looked_at = now;
        if due.len() > MAX_INSPECTED_DUE {
            return false;
        }
        let has_all = due.iter().all(|(_, handle)| handle.is_some());
        for (pod, handle) in due.into_iter().filter_map(|(pod, handle)| Some((pod, handle?))) {
            context.doubted.insert(pod, handle);
        }
        has_all
    }
}
