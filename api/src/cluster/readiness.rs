//! Caches Redis' latest readiness answer for all probes.

use std::future::Future;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// Time for which an answer is shared. Thousands of probes cost Redis ten requests a second.
const MAX_AGE: Duration = Duration::from_millis(100);

/// Number of live schedulers, or the reason why Redis rejects writes.
pub(crate) type ReadinessAnswer = Result<u64, String>;

#[derive(Default)]
pub(crate) struct Readiness {
    /// Held while Redis is asked: other probes wait for that answer.
    latest: Mutex<Option<(Instant, ReadinessAnswer)>>,
}

impl Readiness {
    /// Returns Redis' answer of the last 100 ms, or asks it. Cancel safe: if the asking caller leaves, the
    /// next one asks.
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
