//! Empties the hands of schedulers that died.
//!
//! Restores invariant 2 for what a killed scheduler had taken: it goes back to `sq`, oldest first out again.
//! A scheduler that was only paused finds its hands empty, and what it decided meanwhile is answered with "gone".

use std::time::Duration;

use common::ids::SchedulerId;
use common::store::{Store, StoreError};

use crate::Context;
use crate::runner::{Loop, Next};

/// So many at a time.
const BATCH: usize = 1000;

/// The loop.
pub(crate) struct Orphans {
    store: Store,
    own: SchedulerId,
    silent_for: Duration,
    tick: Duration,
}

impl Loop for Orphans {
    const NAME: &'static str = "orphans";

    async fn step(&mut self) -> Result<Next, StoreError> {
        let now = self.store.redis_now().await?;
        let limit = self.silent_for.as_millis() as u64;
        for (id, seen) in self.store.schedulers().await? {
            if id != self.own && now.saturating_sub(seen) > limit {
                self.empty_hands(&id).await?;
            }
        }
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(self.tick).await;
        Ok(())
    }
}

impl Orphans {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            store: context.store.clone(),
            own: context.id.clone(),
            silent_for: context.pace.orphan_after,
            tick: context.pace.orphan_tick,
        }
    }

    async fn empty_hands(&self, id: &SchedulerId) -> Result<(), StoreError> {
        while let Some(returned @ 1..) = self.store.return_orphans(id, self.silent_for, BATCH).await? {
            tracing::info!(scheduler = %id, pods = returned, "queued what a silent scheduler had in its hands");
        }
        Ok(())
    }
}
