//! Answers ACME challenges from Redis, where the ordering proxy stored them.
//!
//! Anyone can ask, so a host is read at most once in [`CACHED_FOR`], for all waiting requests.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use store::{Challenge, Store};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

/// The ordering proxy waits longer before it requests the check.
pub const CACHED_FOR: Duration = Duration::from_millis(250);
/// Further ones count as without a challenge.
const MOST_WAITING: usize = 1024;
const READ_WITHIN: Duration = Duration::from_secs(3);

struct Question {
    host: String,
    answer: oneshot::Sender<Option<Challenge>>,
}

#[derive(Debug)]
pub struct Challenges {
    questions: mpsc::Sender<Question>,
}

impl Challenges {
    pub fn new(store: Store) -> (Arc<Self>, impl Future<Output = ()>) {
        let (questions, received) = mpsc::channel(MOST_WAITING);
        (Arc::new(Self { questions }), answer_all(store, received))
    }

    pub async fn authorization(&self, host: &str, token: &str) -> Option<String> {
        let (answer, answered) = oneshot::channel();
        self.questions.try_send(Question { host: host.to_owned(), answer }).ok()?;
        let challenge = answered.await.ok()??;
        (challenge.token == token).then_some(challenge.authorization)
    }
}

async fn answer_all(store: Store, mut questions: mpsc::Receiver<Question>) {
    let mut known: HashMap<String, (Instant, Option<Challenge>)> = HashMap::new();
    let mut waiting = Vec::new();
    while questions.recv_many(&mut waiting, MOST_WAITING).await > 0 {
        known.retain(|_, (read_at, _)| read_at.elapsed() < CACHED_FOR);
        let hosts = waiting.iter().map(|question| &question.host);
        let unknown: BTreeSet<String> = hosts.filter(|host| !known.contains_key(*host)).cloned().collect();
        let unknown: Vec<String> = unknown.into_iter().collect();
        if !unknown.is_empty() {
            let read_at = Instant::now();
            match timeout(READ_WITHIN, store.challenges(&unknown)).await {
                Ok(Ok(found)) => {
                    known.extend(unknown.into_iter().zip(found.into_iter().map(|one| (read_at, one))));
                }
                Ok(Err(error)) => tracing::debug!(%error, "the challenges of an authority cannot be read"),
                Err(_) => tracing::debug!("the challenges of an authority cannot be read: Redis is slow"),
            }
        }
        for Question { host, answer } in waiting.drain(..) {
            let _ = answer.send(known.get(&host).and_then(|(_, challenge)| challenge.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use store::LinkOptions;
    use testkit::redis::Redis;

    use super::*;

    #[tokio::test]
    async fn however_many_ask_redis_is_asked_a_few_times_a_second() {
        testkit::need_redis!();
        let redis = Redis::start().await;
        let (challenges, answering) =
            Challenges::new(Store::new(redis.url().parse().unwrap(), LinkOptions::default()));
        tokio::spawn(answering);
        let () = redis.cli(&["HSET", "certificate:a.example", "token", "t", "authorization", "t.k"]).await;
        let () = redis.cli(&["CONFIG", "RESETSTAT"]).await;
        let begun = Instant::now();
        for number in 0..2000 {
            let (host, token) = (["a.example", "b.example"][number % 2], format!("guess{number}"));
            assert_eq!(challenges.authorization(host, &token).await, None);
        }
        assert_eq!(challenges.authorization("a.example", "t").await.as_deref(), Some("t.k"));
        assert_eq!(challenges.authorization("b.example", "t").await, None, "a token is of one host");
        let statistics: String = redis.cli(&["INFO", "commandstats"]).await;
        let line = statistics.lines().find(|line| line.starts_with("cmdstat_hmget:calls=")).unwrap();
        let calls: u128 = line["cmdstat_hmget:calls=".len()..].split(',').next().unwrap().parse().unwrap();
        let most = 2 * (begun.elapsed().as_millis() / CACHED_FOR.as_millis() + 1);
        assert!(calls <= most, "{calls} of at most {most}");
    }
}
