//! The one way a control loop is run: step, rest, and again; a failing step backs off.
//!
//! A loop is never told what happened. Its step looks for itself, so a missed hint costs time and nothing else.

use std::future::Future;
use std::time::{Duration, Instant};

use common::store::{StoreError, Subscription};
use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use crate::measure;

/// A step that is under way may take so long to end after we were asked to stop.
const GRACE: Duration = Duration::from_secs(2);
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// What comes after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another step at once: this one did something, and there was more.
    Again,
    /// Nothing to do until the next tick or hint.
    Rest,
}

/// A control loop.
pub(crate) trait Loop: Send + 'static {
    /// What it is called in logs and metrics.
    const NAME: &'static str;

    /// Looks, and does what is to be done. Idempotent; may be dropped, or fail, at any await.
    fn step(&mut self) -> impl Future<Output = Result<Next, StoreError>> + Send;

    /// Waits until another step makes sense: a tick, or a hint. May be dropped.
    fn rest(&mut self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Runs a loop until it is told to stop.
pub(crate) async fn run_loop<L: Loop>(mut work: L, stop: CancellationToken) {
    let mut state = State::<L>::new();
    while !stop.is_cancelled() {
        let step = tokio::select! {
            step = work.step() => step,
            () = async { stop.cancelled().await; tokio::time::sleep(GRACE).await } => return,
        };
        let outcome = match step {
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
            state.works();
            continue;
        };
        let pause = state.failed(&error);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Whether a loop works, so that only a change is said.
struct State<L> {
    failures: u32,
    failing_since: Option<Instant>,
    of: std::marker::PhantomData<L>,
}

impl<L: Loop> State<L> {
    fn new() -> Self {
        Self { failures: 0, failing_since: None, of: std::marker::PhantomData }
    }

    fn works(&mut self) {
        self.failures = 0;
        if let Some(since) = self.failing_since.take() {
            tracing::info!("the {} loop works again after {:.1?}", L::NAME, since.elapsed());
        }
    }

    /// How long to wait before trying again.
    fn failed(&mut self, error: &StoreError) -> Duration {
        measure::loop_failed(L::NAME);
        if self.failing_since.is_none() {
            self.failing_since = Some(Instant::now());
            tracing::warn!("the {} loop can not go on and keeps trying: {error}", L::NAME);
        }
        self.failures = self.failures.saturating_add(1);
        backoff(self.failures, rand::random())
    }
}

/// Doubles up to the longest; between half and all of that, so that many schedulers do not come back as one.
fn backoff(failures: u32, dice: f64) -> Duration {
    let whole = FIRST_BACKOFF.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST_BACKOFF);
    whole.mul_f64(0.5 + dice / 2.0)
}

/// Waits for one period, or until something is heard; gives all that was heard.
pub(crate) async fn tick_or_hints(period: Duration, hints: &mut Subscription) -> Vec<bytes::Bytes> {
    let Ok(first) = tokio::time::timeout(period, hints.next()).await else { return Vec::new() };
    let mut heard = vec![first];
    heard.extend(heard_already(hints));
    heard
}

/// What was heard and not yet looked at.
pub(crate) fn heard_already(hints: &mut Subscription) -> Vec<bytes::Bytes> {
    std::iter::from_fn(|| hints.next().now_or_never()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backing_off_ends_at_five_seconds() {
        for failures in 1..100 {
            for dice in [0.0, 0.5, 0.999] {
                let pause = backoff(failures, dice);
                assert!(pause >= FIRST_BACKOFF / 2 && pause <= LONGEST_BACKOFF, "{failures} {pause:?}");
            }
            assert!(backoff(failures + 1, 0.5) >= backoff(failures, 0.5));
        }
        assert_eq!(backoff(100, 1.0), LONGEST_BACKOFF);
    }

    struct Failing(std::sync::Arc<std::sync::atomic::AtomicU32>);

    impl Loop for Failing {
        const NAME: &'static str = "failing";
        async fn step(&mut self) -> Result<Next, StoreError> {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Err(StoreError::WrongType { detail: "sq".into() })
        }
        async fn rest(&mut self) -> Result<(), StoreError> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_failing_loop_is_not_busy_and_stops_at_once() {
        let (steps, stop) = (std::sync::Arc::default(), CancellationToken::new());
        let task = tokio::spawn(run_loop(Failing(std::sync::Arc::clone(&steps)), stop.clone()));
        tokio::time::sleep(Duration::from_millis(500)).await;
        let count = steps.load(std::sync::atomic::Ordering::SeqCst);
        assert!((1..=5).contains(&count), "{count} steps in half a second");
        stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(1), task).await;
        assert!(ended.is_ok_and(|joined| joined.is_ok()));
    }
}
