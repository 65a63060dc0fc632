//! One life of a process: production code on a tokio runtime of its own, which stands still unless it is driven.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, yield_now};
use tokio_util::sync::CancellationToken;

use super::tame;

/// After so many turns in which nothing new is asked a process has gone as far as it can.
const TURNS: usize = 2;

/// Dropped, it dies where it stands: none of its tasks runs any further.
pub(super) struct Process {
    /// Which life, of all processes together.
    pub(super) life: u64,
    /// Cancelled: it is asked to end.
    pub(super) shutdown: CancellationToken,
    runtime: Runtime,
    main: JoinHandle<()>,
}

impl Process {
    pub(super) fn start<F>(life: u64, clock: u64, main: impl FnOnce(CancellationToken) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        tame::set_clock(Duration::from_millis(clock));
        // Nothing but timers, and those are looked at only when all tasks wait.
        let runtime = Builder::new_current_thread().enable_time().event_interval(u32::MAX).build().unwrap();
        let shutdown = CancellationToken::new();
        let entered = runtime.enter();
        let main = runtime.spawn(main(shutdown.clone()));
        drop(entered);
        Self { life, shutdown, runtime, main }
    }

    /// Lets it go on until all its tasks wait for something.
    pub(super) fn drive(&self, clock: u64, asked: impl Fn() -> u64) {
        tame::set_clock(Duration::from_millis(clock));
        self.runtime.block_on(async {
            let mut before = asked();
            let mut quiet = 0;
            while quiet < TURNS {
                yield_now().await;
                let now = asked();
                quiet = if now == before { quiet + 1 } else { 0 };
                before = now;
            }
        });
    }

    pub(super) fn has_ended(&self) -> bool {
        self.main.is_finished()
    }
}
