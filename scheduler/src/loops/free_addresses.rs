//! Frees the addresses of removed services and slots. Each step reads one page.

use std::time::Duration;

use daemon::control_loop::{Loop, Next};
use store::{Store, StoreError};

use crate::context::SchedulerContext;
use crate::loop_lease::{LeaseStanding, LoopLease};

const PAGE_INTERVAL: Duration = Duration::from_millis(50);
/// In passes.
const LEASE_PASSES: u32 = 4;

pub(crate) struct FreeAddressLoop {
    store: Store,
    lease: LoopLease,
    interval: Duration,
    /// 0 at the beginning of a pass.
    cursor: u64,
}

impl Loop<StoreError> for FreeAddressLoop {
    const NAME: &'static str = "free_addresses";

    async fn step(&mut self) -> Result<Next, StoreError> {
        if self.lease.acquire().await? == LeaseStanding::Without {
            self.cursor = 0;
            return Ok(Next::Rest);
        }
        let (freed, next) = self.store.free_addresses(self.cursor).await?;
        if freed > 0 {
            tracing::debug!(freed, "addresses of services and slots that are gone are free in an hour");
        }
        self.cursor = next.unwrap_or(0);
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        let is_between_pages = self.cursor != 0;
        tokio::time::sleep(if is_between_pages { PAGE_INTERVAL } else { self.interval }).await;
        Ok(())
    }
}

impl FreeAddressLoop {
    pub(crate) fn new(context: &SchedulerContext) -> Self {
        let (store, interval) = (context.store.clone(), context.timings.full_pass_interval);
        let lease = LoopLease::new(&store, &context.id, "free_addresses", interval * LEASE_PASSES);
        Self { store, lease, interval, cursor: 0 }
    }
}
