//! The lease on a loop. It only saves work: two holders do no harm.

use std::time::{Duration, Instant};

use model::ids::SchedulerId;
use store::{Store, StoreError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseStanding {
    Without,
    New,
    Kept,
}

pub(crate) struct LoopLease {
    store: Store,
    holder: SchedulerId,
    name: &'static str,
    time: Duration,
    is_held: bool,
    renewed_at: Instant,
}

impl LoopLease {
    pub(crate) fn new(store: &Store, holder: &SchedulerId, name: &'static str, time: Duration) -> Self {
        let (store, holder) = (store.clone(), holder.clone());
        Self { store, holder, name, time, is_held: false, renewed_at: Instant::now() }
    }

    pub(crate) fn renewal_interval(&self) -> Duration {
        self.time / 4
    }

    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    pub(crate) async fn acquire(&mut self) -> Result<LeaseStanding, StoreError> {
        let was_held = self.is_held;
        if was_held && self.renewed_at.elapsed() < self.renewal_interval() / 2 {
            return Ok(LeaseStanding::Kept);
        }
        self.is_held = self.ask().await?;
        Ok(match (was_held, self.is_held) {
            (_, false) => LeaseStanding::Without,
            (false, true) => LeaseStanding::New,
            (true, true) => LeaseStanding::Kept,
        })
    }

    /// The next [`LoopLease::acquire`] notices a loss.
    pub(crate) async fn renew(&mut self) -> Result<(), StoreError> {
        if self.renewed_at.elapsed() >= self.renewal_interval() {
            self.ask().await?;
        }
        Ok(())
    }

    async fn ask(&mut self) -> Result<bool, StoreError> {
        let is_held = self.store.lease(self.name, &self.holder, self.time).await?;
        self.renewed_at = Instant::now();
        Ok(is_held)
    }
}
