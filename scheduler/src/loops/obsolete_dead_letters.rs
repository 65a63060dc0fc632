//! Discards dead letters of pods whose service was corrected or deleted since. Those of pushed pods stay:
//! each may be the only copy.

use std::time::Duration;

use daemon::control_loop::{Loop, Next};
use store::{Store, StoreError};

use crate::context::SchedulerContext;

const PAGE_SIZE: usize = 500;

pub(crate) struct ObsoleteDeadLetterLoop {
    store: Store,
    interval: Duration,
    /// The newest dead letters come first.
    offset: usize,
}

impl Loop<StoreError> for ObsoleteDeadLetterLoop {
    // In metrics and logs; it does not change.
    const NAME: &'static str = "settled_dead_letters";

    async fn step(&mut self) -> Result<Next, StoreError> {
        let (dropped, next) = self.store.discard_obsolete_dead_letters(self.offset, PAGE_SIZE).await?;
        for dead_letter in &dropped {
            tracing::info!(
                dead_letter = dead_letter.id,
                "dropped a dead letter: the service of its pod has been changed or deleted since"
            );
        }
        self.offset = next.unwrap_or(0);
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(self.interval).await;
        Ok(())
    }
}

impl ObsoleteDeadLetterLoop {
    pub(crate) fn new(context: &SchedulerContext) -> Self {
        Self { store: context.store.clone(), interval: context.timings.reclaim_interval, offset: 0 }
    }
}
