//! The latest answer of Redis to the question whether this process can serve, for all probes.

use std::future::Future;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// An answer of Redis is passed on for this time. Thousands of probes cost Redis ten questions a second.
const MAX_AGE: Duration = Duration::from_millis(100);

/// The number of live schedulers, or why Redis takes no writes.
pub(crate) type ReadinessAnswer = Result<u64, String>;

/// The latest answer of Redis.
#[derive(Default)]
pub(crate) struct Readiness {
    /// Held while Redis is asked: all others wait for that answer.
    latest: Mutex<Option<(Instant, ReadinessAnswer)>>,
}

impl Readiness {
    /// Returns what Redis has answered within the last 100 ms, or asks it. Cancel safe: if the caller that
    /// asks leaves, the next one asks.
    pub(crate) async fn latest_or<F: Future<Output = ReadinessAnswer>>(
        &self,
        ask: impl FnOnce() -> F,
    ) -> ReadinessAnswer {
        let mut latest = self.latest.lock().await;
        if let Some((at, answer)) = &*latest
            && at.elapsed() < MAX_AGE
        {
            return answer.clone();
        }
        let answer = ask().await;
        *latest = Some((Instant::now(), answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn thousands_of_probes_share_one_answer_which_is_soon_asked_again() {
        let (readiness, asked) = (Readiness::default(), Arc::new(AtomicU64::new(0)));
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
        let readiness = Readiness::default();
        let never = readiness.latest_or(std::future::pending);
        assert!(tokio::time::timeout(Duration::from_secs(1), never).await.is_err());
        assert_eq!(readiness.latest_or(|| async { Ok(3) }).await, Ok(3));
    }
}
