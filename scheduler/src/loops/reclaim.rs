//! Returns the in-flight payloads of dead schedulers to `sq` (invariant 2). A scheduler that was only paused
//! finds its list empty, and the scripts answer "gone".

use std::collections::HashSet;
use std::time::Duration;

use daemon::control_loop::{Loop, Next};
use model::ids::SchedulerId;
use store::{Store, StoreError};

use crate::context::SchedulerContext;

const MAX_BATCH: usize = 1000;

pub(crate) struct ReclaimLoop {
    store: Store,
    own_id: SchedulerId,
    silent_after: Duration,
    interval: Duration,
    /// Each is logged once.
    broken: HashSet<SchedulerId>,
}

impl Loop<StoreError> for ReclaimLoop {
    const NAME: &'static str = "reclaim";

    async fn step(&mut self) -> Result<Next, StoreError> {
        let now = self.store.redis_now().await?;
        let max_silence_millis = self.silent_after.as_millis() as u64;
        for (id, last_seen) in self.store.schedulers().await? {
            // The script corrects future times.
            let is_suspect = now.abs_diff(last_seen) > max_silence_millis;
            if id != self.own_id && is_suspect {
                match self.reclaim(&id).await {
                    Err(error) if !error.is_transient() => self.report_broken(&id, &error),
                    result => result?,
                }
            }
        }
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(self.interval).await;
        Ok(())
    }
}

impl ReclaimLoop {
    pub(crate) fn new(context: &SchedulerContext) -> Self {
        Self {
            store: context.store.clone(),
            own_id: context.id.clone(),
            silent_after: context.timings.reclaim_after,
            interval: context.timings.reclaim_interval,
            broken: HashSet::new(),
        }
    }

    fn report_broken(&mut self, id: &SchedulerId, error: &StoreError) {
        if self.broken.insert(id.clone()) {
            tracing::error!(
                scheduler = %id,
                "the pods that this silent scheduler had in flight cannot be queued again: {error}; fix the key"
            );
        }
    }

    async fn reclaim(&self, id: &SchedulerId) -> Result<(), StoreError> {
        while let Some(count @ 1..) = self.store.reclaim_in_flight(id, self.silent_after, MAX_BATCH).await? {
            tracing::info!(scheduler = %id, "queued {count} in-flight pods of this silent scheduler again");
        }
        Ok(())
    }
}
