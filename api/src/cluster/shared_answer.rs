//! An answer of Redis for all callers of some milliseconds.

use std::future::Future;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

pub(crate) struct SharedAnswer<T> {
    max_age: Duration,
    /// Held while Redis is asked: other callers wait for that answer.
    latest: Mutex<Option<(Instant, T)>>,
}

impl<T: Clone> SharedAnswer<T> {
    pub(crate) fn new(max_age: Duration) -> Self {
        Self { max_age, latest: Mutex::default() }
    }

    /// Cancel safe: if the asking caller leaves, the next one asks.
    pub(crate) async fn latest_or<F: Future<Output = T>>(&self, ask: impl FnOnce() -> F) -> T {
        let mut latest = self.latest.lock().await;
        if let Some((at, answer)) = &*latest
            && at.elapsed() < self.max_age
        {
            return answer.clone();
        }
        let answer = ask().await;
        *latest = Some((Instant::now(), answer.clone()));
        answer
    }

    /// `None` while Redis is being asked.
    pub(crate) fn known(&self) -> Option<T> {
        Some(self.latest.try_lock().ok()?.as_ref()?.1.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::future::join_all;

    use super::*;

    const MAX_AGE: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn thousands_of_probes_share_one_answer_which_is_soon_asked_again() {
        let (readiness, asked) =
            (SharedAnswer::<Result<u64, String>>::new(MAX_AGE), Arc::new(AtomicU64::new(0)));
        let ask = || async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(asked.fetch_add(1, Ordering::Relaxed))
        };
        let answers = join_all((0..5_000).map(|_| readiness.latest_or(ask))).await;
        assert!(answers.iter().all(|answer| *answer == Ok(0)), "all have the first answer");
        tokio::time::sleep(MAX_AGE).await;
        assert_eq!(readiness.latest_or(ask).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_leaves_leaves_the_question_to_the_next() {
        let readiness = SharedAnswer::<Result<u64, String>>::new(MAX_AGE);
        let never = readiness.latest_or(std::future::pending);
        assert!(tokio::time::timeout(Duration::from_secs(1), never).await.is_err());
        assert_eq!(readiness.latest_or(|| async { Ok(3) }).await, Ok(3));
    }
}
