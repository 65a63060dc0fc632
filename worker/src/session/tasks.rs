//! The background tasks of one session, and the two stages in which they end.

use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub(crate) struct Tasks {
    stopping: CancellationToken,
    aborted: CancellationToken,
    tracker: TaskTracker,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self {
            stopping: CancellationToken::new(),
            aborted: CancellationToken::new(),
            tracker: TaskTracker::new(),
        }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let aborted = self.aborted.clone();
        // The future of a start has some kilobytes, which each future around it would copy.
        let task = Box::pin(task);
        self.tracker.spawn(async move {
            tokio::select! {
                () = aborted.cancelled() => {}
                () = task => {}
            }
        });
    }

    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    pub(crate) fn aborted(&self) -> &CancellationToken {
        &self.aborted
    }

    pub(crate) fn abort_on_drop(&self) -> DropGuard {
        self.aborted.clone().drop_guard()
    }

    pub(crate) async fn stop(&self, limit: Duration) -> bool {
        self.stopping.cancel();
        self.tracker.close();
        tokio::time::timeout(limit, self.tracker.wait()).await.is_ok()
    }

    pub(crate) fn abort(&self) {
        self.aborted.cancel();
    }

    /// False if the session ends.
    pub(crate) async fn pause(&self, pause: Duration) -> bool {
        // A zero sleep would still last until the next millisecond of the timer.
        if pause.is_zero() {
            return !self.stopping.is_cancelled();
        }
        tokio::select! {
            () = self.stopping.cancelled() => false,
            () = tokio::time::sleep(pause) => true,
        }
    }
}
