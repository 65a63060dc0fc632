//! Limits the rate of reads from Redis.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::sleep;

#[derive(Debug)]
pub(crate) struct ReadLimit {
    free: Arc<Semaphore>,
    per: Duration,
}

impl ReadLimit {
    pub(crate) fn new(count: usize, per: Duration) -> Self {
        Self { free: Arc::new(Semaphore::new(count)), per }
    }

    pub(crate) async fn wait(&self) {
        let Ok(turn) = self.free.clone().acquire_owned().await else { return };
        let per = self.per;
        tokio::spawn(async move {
            sleep(per).await;
            drop(turn);
        });
    }
}
