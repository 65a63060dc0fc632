//! The loop that removes what is not needed any more from the disk of this node.

use std::sync::Arc;
use std::time::Duration;

use common::backoff::Backoff;
use common::control_loop::{Loop, Next};
use common::store::StoreError;

use crate::context::SessionContext;

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(60);

/// The loop.
pub(crate) struct GarbageLoop {
    context: Arc<SessionContext>,
}

impl Loop for GarbageLoop {
    const NAME: &'static str = "garbage";

    async fn step(&mut self) -> Result<Next, StoreError> {
        self.context.worker.kept_logs.expire().await;
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(INTERVAL).await;
        Ok(())
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(Duration::from_secs(10), Duration::from_secs(300))
    }
}

impl GarbageLoop {
    pub(crate) fn new(context: Arc<SessionContext>) -> Self {
        Self { context }
    }
}
