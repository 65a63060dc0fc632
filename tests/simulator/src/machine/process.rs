//! Production code on its own tokio runtime, which runs only while it is polled.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, yield_now};
use tokio_util::sync::CancellationToken;

use crate::machine::deterministic;

const IDLE_TURNS: usize = 2;

/// Dropping it is a crash: its tasks stop.
pub(crate) struct SimulatedProcess {
    /// Unique among all starts of all processes.
    pub(crate) instance: u64,
    pub(crate) shutdown: CancellationToken,
    runtime: Runtime,
    main: JoinHandle<()>,
}

impl SimulatedProcess {
    /// In milliseconds.
    pub(crate) fn start<F>(instance: u64, clock: u64, main: impl FnOnce(CancellationToken) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        deterministic::set_clock(Duration::from_millis(clock));
        // There is no I/O, only timers, which are checked when all tasks wait.
        let runtime = Builder::new_current_thread().enable_time().event_interval(u32::MAX).build().unwrap();
        let shutdown = CancellationToken::new();
        let entered = runtime.enter();
        let main = runtime.spawn(main(shutdown.clone()));
        drop(entered);
        Self { instance, shutdown, runtime, main }
    }

    /// Until all tasks wait.
    pub(crate) fn poll(&self, clock: u64, requests: impl Fn() -> u64) {
        deterministic::set_clock(Duration::from_millis(clock));
        self.runtime.block_on(async {
            let mut before = requests();
            let mut idle_turns = 0;
            while idle_turns < IDLE_TURNS {
                yield_now().await;
                let now = requests();
                idle_turns = if now == before { idle_turns + 1 } else { 0 };
                before = now;
            }
        });
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.main.is_finished()
    }
}
