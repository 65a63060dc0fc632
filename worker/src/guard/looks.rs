//! The guard's own looks at the containers, each on a thread of its own.
//!
//! A thread with a runtime that is thrown away afterwards: the guard stays small and answers meanwhile, and nothing that a
//! look begins (waiting for the ends of process pods) goes on beside the worker's.

use std::sync::Arc;
use std::time::Instant;

use common::clock::{BootClock, BootInstant};
use common::config::Config;
use tokio::sync::mpsc;

use crate::fence;
use crate::trouble::Trouble;

/// How many containers a look found to stop, or what is wrong.
type Found = Result<usize, String>;

/// Looks at the containers of one node.
pub(super) struct Looks {
    config: Arc<Config>,
    results: (mpsc::Sender<Found>, mpsc::Receiver<Found>),
    under_way: bool,
    not_before: Option<Instant>,
    trouble: Trouble,
}

impl Looks {
    pub(super) fn new(config: Arc<Config>) -> Self {
        let trouble = Trouble::of(format!("the engine of {}, asked by the guard,", config.node));
        Self { config, results: mpsc::channel(1), under_way: false, not_before: None, trouble }
    }

    /// Whether one is under way, or the last one failed just now.
    pub(super) fn are_busy(&self) -> bool {
        self.under_way || self.not_before.is_some_and(|moment| Instant::now() < moment)
    }

    /// Begins one, unless one is under way. The lease ran out at `deadline`.
    pub(super) fn begin(&mut self, deadline: BootInstant) {
        if std::mem::replace(&mut self.under_way, true) {
            return;
        }
        let (config, results) = (self.config.clone(), self.results.0.clone());
        let looking = move || {
            let look = std::panic::AssertUnwindSafe(|| look(&config, deadline));
            let found = std::panic::catch_unwind(look).unwrap_or_else(|_| Err("it panicked".to_owned()));
            // The guard has ended: nobody is left to be told.
            let _ended = results.blocking_send(found);
        };
        if let Err(error) = std::thread::Builder::new().name("fence".to_owned()).spawn(looking) {
            // A look that failed: whoever waits for its end must not wait for ever.
            let _told = self.results.0.try_send(Err(format!("no thread can be started: {error}")));
        }
    }

    /// Waits for the end of the one that is under way. True when it found nothing to stop.
    pub(super) async fn end(&mut self) -> bool {
        let result = match self.results.1.recv().await {
            Some(result) => result,
            None => std::future::pending().await,
        };
        self.under_way = false;
        match result {
            Ok(found) => {
                self.trouble.worked();
                found == 0
            }
            Err(error) => {
                self.trouble.failed(&error);
                self.not_before = Some(Instant::now() + fence::AGAIN);
                false
            }
        }
    }
}

/// Stops the `stop` pods that run here. Every call of the engine has a deadline, so it ends.
fn look(config: &Config, deadline: BootInstant) -> Found {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no async runtime: {error}"))?;
    let found = runtime.block_on(async {
        let engine = crate::engine(config).map_err(|error| error.to_string())?;
        let look = fence::enforce(&*engine, &config.node, &config.timing, deadline, &BootClock);
        look.await.map_err(|error| error.to_string())
    });
    // A thread that waits for a lock must not hold up the guard.
    runtime.shutdown_background();
    found
}
