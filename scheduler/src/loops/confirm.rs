//! Confirms writes of services that were answered as "stored, not yet confirmed", and tells of them in events.
//!
//! Restores what a 202 promises: once the replicas have such a write, an event says so, whatever became of the API that
//! answered. One scheduler at a time asks, to save work; two at a time tell once, because the script compares.

use std::time::Duration;

use common::ids::SchedulerId;
use common::store::{Store, StoreError};

use crate::Context;
use crate::runner::{Loop, Next};

/// Looks so often: whoever was told "not yet" does not mind.
const TICK: Duration = Duration::from_secs(2);
/// The right to ask lapses after so long.
const LEASE: Duration = Duration::from_secs(8);

/// The loop.
pub(crate) struct Confirm {
    store: Store,
    id: SchedulerId,
}

impl Loop for Confirm {
    const NAME: &'static str = "confirm";

    async fn step(&mut self) -> Result<Next, StoreError> {
        // Nearly always there is none, and this one command is all.
        let waiting = self.store.unconfirmed_writes().await? > 0;
        if !waiting || !self.store.lease(Self::NAME, &self.id, LEASE).await? {
            return Ok(Next::Rest);
        }
        let confirmed = self.store.confirm_writes().await?;
        if confirmed == 0 {
            return Ok(Next::Rest);
        }
        tracing::info!("{confirmed} services that were not yet confirmed are stored by all replicas now");
        Ok(Next::Again)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(TICK).await;
        Ok(())
    }
}

impl Confirm {
    pub(crate) fn new(context: &Context) -> Self {
        Self { store: context.store.clone(), id: context.id.clone() }
    }
}
