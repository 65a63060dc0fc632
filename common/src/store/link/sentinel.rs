//! Asking the sentinels which server is the master.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, timeout_at};

use super::super::error::StoreError;
use super::dial::Dialer;
use super::fault::Fault;
use super::url::HostPort;

/// How long to wait for more than half of the sentinels.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How long one may take to answer: less, so that a connection that leads nowhere is noticed and replaced.
const ANSWER: Duration = Duration::from_secs(1);

/// The sentinels of one master, with a connection to each that answered last time.
pub(super) struct Sentinels {
    name: String,
    peers: Vec<Peer>,
    /// The newest configuration believed so far.
    epoch: u64,
}

struct Peer {
    at: HostPort,
    connection: Option<MultiplexedConnection>,
}

/// What one sentinel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The master's address.
    pub(super) master: HostPort,
    /// The number of the configuration; each failover counts it up.
    pub(super) epoch: u64,
    /// Replicas of that master, those that are down included.
    pub(super) replicas: usize,
}

impl Sentinels {
    pub(super) fn new(name: String, peers: Vec<HostPort>) -> Self {
        let peers = peers.into_iter().map(|at| Peer { at, connection: None }).collect();
        Self { name, peers, epoch: 0 }
    }

    /// Asks all of them at once and believes the newest configuration.
    ///
    /// One that was cut off still names the old master, so a single answer is not enough while others may come:
    /// this waits for more than half of them, or a moment, and takes what there is then.
    pub(super) async fn ask(&mut self, dialer: &Dialer) -> Result<Answer, Fault> {
        let needed = self.peers.len() / 2 + 1;
        let deadline = Instant::now() + PATIENCE;
        let name = &self.name;
        let mut pending: FuturesUnordered<_> =
            self.peers.iter_mut().map(|peer| peer.ask(dialer, name)).collect();
        let mut answers = Vec::new();
        let mut failures = Vec::new();
        while answers.len() < needed {
            match timeout_at(deadline, pending.next()).await {
                Ok(Some(Ok(answer))) => answers.push(answer),
                Ok(Some(Err(fault))) => failures.push(fault),
                Ok(None) | Err(_) => break,
            }
        }
        drop(pending);
        let answer = believe(answers, needed, self.epoch).ok_or_else(|| nobody(failures))?;
        self.epoch = answer.epoch;
        Ok(answer)
    }
}

/// The answer with the newest configuration; among equals the first that came. One that is older than what is known
/// comes from a sentinel that was cut off, unless more than half say so: then somebody has set them up afresh.
fn believe(answers: Vec<Answer>, needed: usize, known: u64) -> Option<Answer> {
    let majority = answers.len() >= needed;
    let newest =
        answers.into_iter().reduce(|best, next| if next.epoch > best.epoch { next } else { best })?;
    (majority || newest.epoch >= known).then_some(newest)
}

/// No sentinel named a master. One that refuses us says what a person has to do; otherwise all reasons count.
fn nobody(failures: Vec<Fault>) -> Fault {
    let mut reasons = Vec::new();
    for fault in failures {
        match fault.error {
            StoreError::Unreachable { why, .. } => reasons.push(why),
            StoreError::Refused(_) => return fault,
            other => reasons.push(other.to_string()),
        }
    }
    match reasons.is_empty() {
        true => Fault::lost("SENTINEL", "no sentinel answers"),
        false => Fault::lost("SENTINEL", format!("no sentinel names a master ({})", reasons.join("; "))),
    }
}

impl Peer {
    async fn ask(&mut self, dialer: &Dialer, name: &str) -> Result<Answer, Fault> {
        let mut connection = match &self.connection {
            Some(connection) => connection.clone(),
            None => self.connection.insert(dialer.sentinel(&self.at, ANSWER).await?).clone(),
        };
        let mut pipe = redis::pipe();
        pipe.cmd("SENTINEL").arg("get-master-addr-by-name").arg(name);
        pipe.cmd("SENTINEL").arg("master").arg(name);
        match pipe.query_async::<(Value, Value)>(&mut connection).await {
            Ok((address, facts)) => read_answer(address, facts).ok_or_else(|| {
                Fault::lost("SENTINEL", format!("the answer of {} can not be understood", self.at))
            }),
            Err(error) => {
                self.connection = None;
                Err(self.fault(name, &error))
            }
        }
    }

    fn fault(&self, name: &str, error: &redis::RedisError) -> Fault {
        match error.to_string().contains("No such master") {
            true => {
                Fault::lost("SENTINEL", format!("the sentinel {} knows no master named '{name}'", self.at))
            }
            false => Fault::of("SENTINEL", error),
        }
    }
}

/// The address is asked for by itself: in the middle of a failover it is the promoted server already, while the
/// facts still show the old one.
fn read_answer(address: Value, facts: Value) -> Option<Answer> {
    let (host, port): (String, u16) = redis::from_redis_value(address).ok()?;
    let facts: Vec<(String, String)> = redis::from_redis_value(facts).ok()?;
    let number =
        |key: &str| facts.iter().find(|(k, _)| k == key).and_then(|(_, value)| value.parse::<u64>().ok());
    Some(Answer {
        master: HostPort { host, port },
        epoch: number("config-epoch")?,
        replicas: usize::try_from(number("num-slaves")?).ok()?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn answer(port: u16, epoch: u64) -> Answer {
        Answer { master: HostPort { host: "10.0.0.1".into(), port }, epoch, replicas: 2 }
    }

    #[test]
    fn the_newest_configuration_wins() {
        let port =
            |answers: &[Answer], known| believe(answers.to_vec(), 2, known).map(|answer| answer.master.port);
        assert_eq!(port(&[], 0), None);
        assert_eq!(port(&[answer(1, 4), answer(2, 7), answer(3, 7)], 0), Some(2));
        assert_eq!(port(&[answer(1, 8), answer(2, 7)], 7), Some(1));
    }

    #[test]
    fn a_sentinel_that_was_cut_off_is_not_believed() {
        let port =
            |answers: &[Answer], known| believe(answers.to_vec(), 2, known).map(|answer| answer.master.port);
        assert_eq!(port(&[answer(1, 4)], 4), Some(1));
        assert_eq!(port(&[answer(1, 4)], 5), None);
        assert_eq!(port(&[answer(1, 0), answer(1, 0)], 5), Some(1), "all were set up afresh");
    }

    #[test]
    fn reads_what_a_sentinel_says() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let address = Value::Array(vec![text("10.0.0.1"), text("6379")]);
        let facts = ["name", "mymaster", "num-slaves", "2", "config-epoch", "7"];
        let facts = Value::Array(facts.iter().map(|fact| text(fact)).collect());
        assert_eq!(read_answer(address, facts.clone()), Some(answer(6379, 7)));
        assert_eq!(read_answer(Value::Nil, facts), None);
    }
}
