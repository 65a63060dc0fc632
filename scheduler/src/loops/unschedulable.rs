//! Tries pods again that fitted nowhere.
//!
//! Restores: a pod stays unschedulable only as long as nothing changes: it is tried again when its wait is over
//! (1 s at first, doubling up to 60 s), and at once when somebody says that room appeared.

use std::time::Duration;

use common::store::{Store, StoreError, Subscription, Unpark, channel};

use crate::Context;
use crate::runner::{Loop, Next, tick_or_hints};

/// Pods whose wait is over are looked for so often.
const TICK: Duration = Duration::from_secs(1);
/// However often room appears, pods are queued again no more often than this.
const LEAST: Duration = Duration::from_millis(500);
/// So many at a time.
const BATCH: usize = 1000;

/// The loop.
pub(crate) struct Unschedulable {
    store: Store,
    hints: Subscription,
    /// Room appeared since the last step.
    room_appeared: bool,
    /// How many pods are still to be tried since room appeared. Each pod gets its turn: one that is recorded again
    /// stands behind those that are not through yet.
    wave: usize,
}

impl Loop for Unschedulable {
    const NAME: &'static str = "unschedulable";

    async fn step(&mut self) -> Result<Next, StoreError> {
        self.store.unpark(Unpark::Due, BATCH).await?;
        if self.room_appeared {
            // Without a node there is nothing to try; the next one that registers says so.
            let nodes = self.store.living_nodes().await?;
            let lengths = self.store.queue_lengths().await?;
            self.wave = if nodes > 0 { lengths.unschedulable as usize } else { 0 };
            self.room_appeared = false;
        }
        if self.wave > 0 {
            let tried = self.store.unpark(Unpark::All, self.wave.min(BATCH)).await?;
            self.wave = if tried == 0 { 0 } else { self.wave.saturating_sub(tried) };
        }
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(LEAST).await;
        let tick = if self.wave > 0 { Duration::ZERO } else { TICK - LEAST };
        self.room_appeared |= !tick_or_hints(tick, &mut self.hints).await.is_empty();
        Ok(())
    }
}

impl Unschedulable {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            store: context.store.clone(),
            hints: context.store.subscribe(channel::SCHEDULER),
            room_appeared: false,
            wave: 0,
        }
    }
}
