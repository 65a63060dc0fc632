//! Control loops: a step, a wait, and again, with a backoff after failures. Hints only shorten the wait: each
//! step reads the state on its own.

use std::fmt::Display;
use std::future::Future;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;

const STOP_GRACE_PERIOD: Duration = Duration::from_secs(2);
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const FAILURES_METRIC: &str = "kubeleet_loop_failures_total";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Again,
    /// Until the next tick or hint.
    Rest,
    End,
}

pub trait Loop<E>: Send + 'static {
    const NAME: &'static str;
    const BACKOFF: Backoff = Backoff::starting_at(FIRST_BACKOFF);
    const LOGS_FAILURES: bool = true;

    /// Does the due work.
    ///
    /// # Cancel safety
    /// A step must be idempotent: it can fail, or be dropped, at any `await`.
    fn step(&mut self) -> impl Future<Output = Result<Next, E>> + Send;

    /// Can be dropped at any `await`.
    fn rest(&mut self) -> impl Future<Output = Result<(), E>> + Send;

    fn label(&self) -> String {
        format!("the {} loop", Self::NAME)
    }

    /// Called once, before the first step.
    fn backoff(&self) -> Backoff {
        Self::BACKOFF
    }

    /// Only the first warning of a series and the recovery are logged.
    fn is_logged(&self, _error: &E, _failures: u32) -> bool {
        Self::LOGS_FAILURES
    }

    /// Can be dropped at any `await`.
    fn back_off(&mut self, wait: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(wait)
    }
}

/// Drops a running step two seconds after `stop`.
pub async fn run_loop<E: Display + Send, L: Loop<E>>(mut work: L, stop: CancellationToken) {
    let mut health = LoopHealth::new(work.backoff());
    while !stop.is_cancelled() {
        let step = tokio::select! {
            step = work.step() => step,
            () = async { stop.cancelled().await; tokio::time::sleep(STOP_GRACE_PERIOD).await } => return,
        };
        let outcome = match step {
            Ok(Next::End) => return,
            Ok(Next::Again) => {
                tokio::task::yield_now().await;
                Ok(())
            }
            Ok(Next::Rest) => tokio::select! {
                rested = work.rest() => rested,
                () = stop.cancelled() => return,
            },
            Err(error) => Err(error),
        };
        let Err(error) = outcome else {
            health.record_success::<E, L>(&work);
            continue;
        };
        let wait = health.record_failure(&work, &error);
        tokio::select! {
            () = work.back_off(wait) => {}
            () = stop.cancelled() => return,
        }
    }
}

pub fn describe_metrics() {
    metrics::describe_counter!(FAILURES_METRIC, "Failed steps of a control loop");
}

struct LoopHealth {
    backoff: Backoff,
    failures: u32,
    failing_since: Option<Instant>,
    is_logged: bool,
}

impl LoopHealth {
    fn new(backoff: Backoff) -> Self {
        Self { backoff, failures: 0, failing_since: None, is_logged: false }
    }

    fn record_success<E, L: Loop<E>>(&mut self, work: &L) {
        if let Some(since) = self.failing_since
            && self.is_logged
        {
            tracing::info!("{} recovered after {:.1?}", work.label(), since.elapsed());
        }
        self.backoff.reset();
        self.failures = 0;
        self.failing_since = None;
        self.is_logged = false;
    }

    fn record_failure<E: Display, L: Loop<E>>(&mut self, work: &L, error: &E) -> Duration {
        metrics::counter!(FAILURES_METRIC, "loop" => L::NAME).increment(1);
        self.failures = self.failures.saturating_add(1);
        self.failing_since.get_or_insert_with(Instant::now);
        if !self.is_logged && work.is_logged(error, self.failures) {
            self.is_logged = true;
            tracing::warn!("{} failed and keeps retrying: {error}", work.label());
        }
        self.backoff.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(std::sync::Arc<std::sync::atomic::AtomicU32>);

    impl Loop<&'static str> for Failing {
        const NAME: &'static str = "failing";
        async fn step(&mut self) -> Result<Next, &'static str> {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Err("sq has the wrong type")
        }
        async fn rest(&mut self) -> Result<(), &'static str> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_failing_loop_backs_off_and_stops_at_once() {
        let (steps, stop) = (std::sync::Arc::default(), CancellationToken::new());
        let task = tokio::spawn(run_loop(Failing(std::sync::Arc::clone(&steps)), stop.clone()));
        tokio::time::sleep(Duration::from_millis(500)).await;
        let count = steps.load(std::sync::atomic::Ordering::SeqCst);
        assert!((1..=5).contains(&count), "{count} steps in half a second");
        stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(1), task).await;
        assert!(ended.is_ok_and(|joined| joined.is_ok()));
    }

    struct Ending {
        steps: u32,
        pauses: std::sync::Arc<parking_lot::Mutex<Vec<Duration>>>,
    }

    impl Loop<&'static str> for Ending {
        const NAME: &'static str = "ending";
        async fn step(&mut self) -> Result<Next, &'static str> {
            self.steps += 1;
            if self.steps > 2 { Ok(Next::End) } else { Err("not yet") }
        }
        async fn rest(&mut self) -> Result<(), &'static str> {
            Ok(())
        }
        fn backoff(&self) -> Backoff {
            Backoff::new(Duration::from_secs(10), Duration::from_secs(20))
        }
        async fn back_off(&mut self, pause: Duration) {
            self.pauses.lock().push(pause);
        }
    }

    #[tokio::test]
    async fn a_loop_may_end_and_has_its_own_backoff() {
        let pauses = std::sync::Arc::default();
        let work = Ending { steps: 0, pauses: std::sync::Arc::clone(&pauses) };
        run_loop(work, CancellationToken::new()).await;
        let pauses = pauses.lock();
        assert_eq!(pauses.len(), 2);
        assert!(pauses[0] >= Duration::from_secs(5) && pauses[1] >= Duration::from_secs(10), "{pauses:?}");
    }
}
