//! Requeues unschedulable pods: after their backoff (1 s, doubling up to 60 s), and when resources became
//! free.

use std::time::Duration;

use daemon::control_loop::{Loop, Next};
use store::tick_or_hints;
use store::{Store, StoreError, Subscription, Unpark, channel};

use crate::context::SchedulerContext;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const MIN_STEP_INTERVAL: Duration = Duration::from_millis(500);
const MAX_BATCH: usize = 1000;

pub(crate) struct UnschedulableLoop {
    store: Store,
    hints: Subscription,
    has_free_resources: bool,
    /// Each pod gets its turn: one that is parked again goes behind the others.
    remaining: usize,
}

impl Loop<StoreError> for UnschedulableLoop {
    const NAME: &'static str = "unschedulable";

    async fn step(&mut self) -> Result<Next, StoreError> {
        self.store.unpark(Unpark::Due, MAX_BATCH).await?;
        if self.has_free_resources {
            // The next node that registers publishes a hint.
            let nodes = self.store.live_nodes().await?;
            let lengths = self.store.queue_lengths().await?;
            self.remaining = if nodes > 0 { lengths.unschedulable as usize } else { 0 };
            self.has_free_resources = false;
        }
        if self.remaining > 0 {
            let queued = self.store.unpark(Unpark::All, self.remaining.min(MAX_BATCH)).await?;
            self.remaining = if queued == 0 { 0 } else { self.remaining.saturating_sub(queued) };
        }
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(MIN_STEP_INTERVAL).await;
        let wait = if self.remaining > 0 { Duration::ZERO } else { CHECK_INTERVAL - MIN_STEP_INTERVAL };
        self.has_free_resources |= !tick_or_hints(wait, &mut self.hints).await.is_empty();
        Ok(())
    }
}

impl UnschedulableLoop {
    pub(crate) fn new(context: &SchedulerContext) -> Self {
        Self {
            store: context.store.clone(),
            hints: context.store.subscribe(channel::SCHEDULER),
            has_free_resources: false,
            remaining: 0,
        }
    }
}
