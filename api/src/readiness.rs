//! Whether this process can serve, asked of Redis once for all probes that want to know it.

use std::future::Future;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::overview;
use crate::state::AppState;

/// An answer of Redis is passed on for this time. Thousands of probes cost Redis ten questions a second.
const MAX_AGE: Duration = Duration::from_millis(100);
/// A readiness probe gets its answer within this time.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The number of live schedulers, or why Redis takes no writes.
pub(crate) type ReadinessAnswer = Result<u64, String>;

/// The latest answer of Redis.
#[derive(Default)]
pub(crate) struct Readiness {
    /// Held while Redis is asked: all others wait for that answer.
    latest: Mutex<Option<(Instant, ReadinessAnswer)>>,
}

impl Readiness {
    /// Returns what Redis has answered within the last 100 ms, or asks it.
    pub(crate) async fn read(&self, app: &AppState) -> ReadinessAnswer {
        self.latest_or(|| ask(app)).await
    }

    /// Cancel safe: if the caller that asks leaves, the next one asks.
    async fn latest_or<F: Future<Output = ReadinessAnswer>>(
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

async fn ask(app: &AppState) -> ReadinessAnswer {
    let probe = async {
        if let Some(outage) = app.redis_watch.outage().await {
            return Err(outage.text);
        }
        match overview::count_live_schedulers(app).await {
            Err(error) if error.is_broken_key() => Ok(0),
            count => count.map_err(|error| error.to_string()),
        }
    };
    match tokio::time::timeout(TIMEOUT, probe).await {
        Ok(answer) => answer,
        Err(_) => {
            let why = overview::redis_master(app).err().filter(|why| !why.is_empty());
            Err(why.unwrap_or_else(|| format!("no answer within {} s", TIMEOUT.as_secs())))
        }
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
