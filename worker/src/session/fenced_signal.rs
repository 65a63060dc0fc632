//! Signals from the heartbeat to the session that the cluster fenced it.

use std::sync::OnceLock;

use store::Fenced;
use tokio_util::sync::CancellationToken;

#[derive(Default)]
pub(crate) struct FencedSignal {
    reason: OnceLock<Fenced>,
    is_set: CancellationToken,
}

impl FencedSignal {
    /// The first reason counts.
    pub(crate) fn set(&self, reason: Fenced) {
        self.reason.get_or_init(|| reason);
        self.is_set.cancel();
    }

    pub(crate) async fn wait(&self) -> Fenced {
        self.is_set.cancelled().await;
        self.reason.get().copied().unwrap_or(Fenced::Dead)
    }
}
