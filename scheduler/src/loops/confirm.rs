//! Confirms writes that the API answered with 202.
//!
//! An event says when the replicas have the write. The script compares, so two schedulers emit one event.

use std::time::Duration;

use daemon::control_loop::{Loop, Next};
use model::ids::SchedulerId;
use store::{Store, StoreError};

use crate::context::SchedulerContext;

const CHECK_INTERVAL: Duration = Duration::from_secs(2);
const LEASE_TIME: Duration = Duration::from_secs(8);

pub(crate) struct ConfirmLoop {
    store: Store,
    id: SchedulerId,
}

impl Loop<StoreError> for ConfirmLoop {
    const NAME: &'static str = "confirm";

    async fn step(&mut self) -> Result<Next, StoreError> {
        // Usually none: one command is all.
        let has_unconfirmed = self.store.unconfirmed_writes().await? > 0;
        if !has_unconfirmed || !self.store.lease(Self::NAME, &self.id, LEASE_TIME).await? {
            return Ok(Next::Rest);
        }
        let confirmed = self.store.confirm_writes().await?;
        if confirmed == 0 {
            return Ok(Next::Rest);
        }
        tracing::info!("all replicas now have the unconfirmed writes of {confirmed} services");
        Ok(Next::Again)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(CHECK_INTERVAL).await;
        Ok(())
    }
}

impl ConfirmLoop {
    pub(crate) fn new(context: &SchedulerContext) -> Self {
        Self { store: context.store.clone(), id: context.id.clone() }
    }
}
