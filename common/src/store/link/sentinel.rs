//! Asking the sentinels which server is the master, and who might become it.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, timeout_at};

use super::super::error::StoreError;
use super::dial::Dialer;
use super::fault::Fault;
use super::replicas::Survey;
use super::url::HostPort;

/// How long to wait for more than half of the sentinels.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How long one may take to answer: less, so that a connection that leads nowhere is noticed and replaced.
const ANSWER: Duration = Duration::from_secs(1);
/// A replica that a sentinel could not reach for so long is not elected before it has caught up: by then all sentinels
/// have heard that others are further (they ask every 10 s, and a replica may still read for `repl-timeout`, 10 s, what
/// the master had sent).
const GONE: Duration = Duration::from_secs(30);

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
    /// Replicas of that master, `host:port`, those that are down included, and whether it might elect them.
    pub(super) replicas: BTreeMap<String, bool>,
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
    pub(super) async fn ask(&mut self, dialer: &Dialer) -> Result<(HostPort, Survey), Fault> {
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
        let survey_of = answers.clone();
        let answer = believe(answers, needed, self.epoch).ok_or_else(|| nobody(failures))?;
        self.epoch = answer.epoch;
        Ok((answer.master.clone(), survey(&answer.master, survey_of, needed)))
    }
}

/// What those sentinels say together that name this master.
fn survey(master: &HostPort, answers: Vec<Answer>, needed: usize) -> Survey {
    let agreed: Vec<Answer> = answers.into_iter().filter(|answer| answer.master == *master).collect();
    let complete = agreed.len() >= needed;
    let mut replicas = BTreeMap::new();
    for (replica, electable) in agreed.into_iter().flat_map(|answer| answer.replicas) {
        *replicas.entry(replica).or_default() |= electable;
    }
    Survey { master: format!("{}:{}", master.host, master.port), replicas, complete }
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
        pipe.cmd("SENTINEL").arg("replicas").arg(name);
        match pipe.query_async::<(Value, Value, Value)>(&mut connection).await {
            Ok((address, facts, replicas)) => read_answer(address, facts, replicas).ok_or_else(|| {
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
fn read_answer(address: Value, facts: Value, replicas: Value) -> Option<Answer> {
    let (host, port): (String, u16) = redis::from_redis_value(address).ok()?;
    let facts: BTreeMap<String, String> = redis::from_redis_value(facts).ok()?;
    let replicas: Vec<BTreeMap<String, String>> = redis::from_redis_value(replicas).ok()?;
    let named = |facts: &BTreeMap<String, String>| {
        Some((format!("{}:{}", facts.get("ip")?, facts.get("port")?), may_be_elected(facts)))
    };
    Some(Answer {
        master: HostPort { host, port },
        epoch: facts.get("config-epoch")?.parse().ok()?,
        replicas: replicas.iter().map(named).collect::<Option<_>>()?,
    })
}

/// Whether a sentinel that says this of a replica may make it the master without its having caught up before.
fn may_be_elected(facts: &BTreeMap<String, String>) -> bool {
    let millis = |field: &str| facts.get(field).and_then(|text| text.parse::<u64>().ok());
    // Only there while it is thought to be down.
    let gone = millis("s-down-time").is_some_and(|down| down >= GONE.as_millis() as u64);
    // Sentinel itself refuses one that lost its master ten times as long ago; another sentinel may be set otherwise.
    let limit = millis("down-after-milliseconds").unwrap_or(30_000).saturating_mul(20);
    let astray = millis("master-link-down-time").is_some_and(|down| down > limit);
    !gone && !astray && millis("slave-priority") != Some(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn answer(port: u16, epoch: u64) -> Answer {
        let replicas = [("10.0.0.2:6379", true), ("10.0.0.3:6379", false)];
        let replicas = replicas.map(|(name, electable)| (name.to_owned(), electable)).into();
        Answer { master: HostPort { host: "10.0.0.1".into(), port }, epoch, replicas }
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
        let texts = |words: &[&str]| Value::Array(words.iter().map(|word| text(word)).collect());
        let address = texts(&["10.0.0.1", "6379"]);
        let facts = texts(&["name", "mymaster", "num-slaves", "2", "config-epoch", "7"]);
        let well = texts(&["ip", "10.0.0.2", "port", "6379", "flags", "slave", "slave-priority", "100"]);
        let gone =
            texts(&["ip", "10.0.0.3", "port", "6379", "flags", "s_down,slave", "s-down-time", "30000"]);
        let replicas = Value::Array(vec![well, gone]);
        assert_eq!(read_answer(address, facts.clone(), replicas.clone()), Some(answer(6379, 7)));
        assert_eq!(read_answer(Value::Nil, facts, replicas), None);
    }

    #[test]
    fn who_may_be_elected() {
        let table = [
            (&[("flags", "slave")][..], true, "all is well"),
            (&[("flags", "s_down,slave"), ("s-down-time", "29999")], true, "it may be back in time"),
            (&[("flags", "s_down,slave"), ("s-down-time", "30000")], false, "gone for long"),
            (&[("master-link-down-time", "60000"), ("down-after-milliseconds", "3000")], true, "cut off"),
            (
                &[("master-link-down-time", "60001"), ("down-after-milliseconds", "3000")],
                false,
                "cut off for long",
            ),
            (&[("master-link-down-time", "-1000")], true, "never in touch with it: nothing is known"),
            (&[("slave-priority", "0")], false, "never, by configuration"),
        ];
        for (facts, expected, why) in table {
            let facts = facts.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            assert_eq!(may_be_elected(&facts), expected, "{why}");
        }
    }

    #[test]
    fn whom_one_sentinel_might_elect_may_be_elected() {
        let master = |port| HostPort { host: "10.0.0.1".into(), port };
        let mut other = answer(1, 7);
        other.replicas = [("10.0.0.3:6379".to_owned(), true)].into();
        let said = survey(&master(1), vec![answer(1, 7), other, answer(2, 6)], 2);
        assert!(said.complete && said.replicas.values().all(|electable| *electable), "{said:?}");
        let said = survey(&master(2), vec![answer(1, 7), answer(2, 6)], 2);
        assert!(!said.complete, "only one names that master: {said:?}");
    }
}
