//! Asks the Sentinels for the master and its electable replicas.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, timeout_at};

use super::dial::RedisDialer;
use super::fault::LinkFault;
use super::replicas::SentinelView;
use super::sentinel_report::{SentinelReport, parse_facts};
use crate::error::StoreError;
use daemon::redis_url::HostPort;

const MAJORITY_TIMEOUT: Duration = Duration::from_millis(1500);
/// Shorter than that, so that a dead connection is replaced in time.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// A replica out of a Sentinel's reach for this time is not elected before it has caught up: all Sentinels
/// know that others have more data. They ask every 10 s, and a replica can read the master's output for
/// `repl-timeout`, 10 s.
const UNELECTABLE_AFTER: Duration = Duration::from_secs(30);

/// Keeps a connection to each Sentinel that answered last time.
pub(super) struct Sentinels {
    name: String,
    peers: Vec<SentinelPeer>,
    epoch: u64,
}

struct SentinelPeer {
    at: HostPort,
    connection: Option<MultiplexedConnection>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SentinelAnswer {
    master: HostPort,
    /// Every failover increments it.
    epoch: u64,
    /// By `host:port`; true if it could be elected. Includes those that are down.
    replicas: BTreeMap<String, bool>,
}

impl Sentinels {
    pub(super) fn new(name: String, peers: Vec<HostPort>) -> Self {
        let peers = peers.into_iter().map(|at| SentinelPeer { at, connection: None }).collect();
        Self { name, peers, epoch: 0 }
    }

    /// A Sentinel that was cut off still names the old master. So this waits for more than half of them or a
    /// timeout.
    pub(super) async fn ask(&mut self, dialer: &RedisDialer) -> Result<(HostPort, SentinelView), LinkFault> {
        let needed = self.peers.len() / 2 + 1;
        let deadline = Instant::now() + MAJORITY_TIMEOUT;
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
        let newest = newest_answer(&answers, needed, self.epoch).ok_or_else(|| no_master(failures))?;
        self.epoch = newest.epoch;
        Ok((newest.master.clone(), combine(&newest.master, &answers, needed)))
    }

    /// Ends within some seconds.
    pub(super) async fn inspect(&mut self, dialer: &RedisDialer) -> Vec<SentinelReport> {
        let name = &self.name;
        join_all(self.peers.iter_mut().map(|peer| peer.inspect(dialer, name))).await
    }
}

fn combine(master: &HostPort, answers: &[SentinelAnswer], needed: usize) -> SentinelView {
    let agreeing: Vec<_> = answers.iter().filter(|answer| answer.master == *master).collect();
    let mut replicas = BTreeMap::new();
    for (replica, electable) in agreeing.iter().flat_map(|answer| &answer.replicas) {
        *replicas.entry(replica.clone()).or_default() |= electable;
    }
    let master = format!("{}:{}", master.host, master.port);
    SentinelView { master, replicas, is_majority: agreeing.len() >= needed }
}

/// An answer older than `known` is from a Sentinel that was cut off. If more than half answer so, they were
/// set up anew.
fn newest_answer(answers: &[SentinelAnswer], needed: usize, known: u64) -> Option<&SentinelAnswer> {
    let is_majority = answers.len() >= needed;
    let newest = answers.iter().reduce(|best, next| if next.epoch > best.epoch { next } else { best })?;
    (is_majority || newest.epoch >= known).then_some(newest)
}

/// An operator must act if a Sentinel refuses the connection.
fn no_master(failures: Vec<LinkFault>) -> LinkFault {
    let mut reasons = Vec::new();
    for fault in failures {
        match fault.error {
            StoreError::Unreachable { why, .. } => reasons.push(why),
            StoreError::Refused(_) => return fault,
            other => reasons.push(other.to_string()),
        }
    }
    match reasons.is_empty() {
        true => LinkFault::lost("SENTINEL", "no Sentinel answers"),
        false => LinkFault::lost("SENTINEL", format!("no Sentinel names a master ({})", reasons.join("; "))),
    }
}

impl SentinelPeer {
    async fn ask(&mut self, dialer: &RedisDialer, name: &str) -> Result<SentinelAnswer, LinkFault> {
        let questions = ["get-master-addr-by-name", "master", "replicas"];
        let [address, fields, replicas] = self.query(dialer, name, questions).await?;
        parse_answer(address, fields, replicas).ok_or_else(|| self.malformed())
    }

    async fn inspect(&mut self, dialer: &RedisDialer, name: &str) -> SentinelReport {
        let answers = self.query(dialer, name, ["master", "replicas", "sentinels"]).await;
        let facts = answers.and_then(|[master, replicas, others]| {
            parse_facts(master, replicas, others).ok_or_else(|| self.malformed())
        });
        let reason = |fault: LinkFault| match fault.error {
            StoreError::Unreachable { why, .. } => why,
            other => other.to_string(),
        };
        SentinelReport { at: self.at.to_string(), facts: facts.map_err(reason) }
    }

    async fn query(
        &mut self,
        dialer: &RedisDialer,
        name: &str,
        questions: [&str; 3],
    ) -> Result<[Value; 3], LinkFault> {
        let mut connection = match &self.connection {
            Some(connection) => connection.clone(),
            None => {
                let opened = dialer.connect_to_sentinel(&self.at, RESPONSE_TIMEOUT).await?;
                self.connection.insert(opened).clone()
            }
        };
        let mut pipe = redis::pipe();
        for question in questions {
            pipe.cmd("SENTINEL").arg(question).arg(name);
        }
        match pipe.query_async::<(Value, Value, Value)>(&mut connection).await {
            Ok((first, second, third)) => Ok([first, second, third]),
            Err(error) => {
                self.connection = None;
                Err(self.fault(name, &error))
            }
        }
    }

    fn malformed(&self) -> LinkFault {
        LinkFault::lost("SENTINEL", format!("the answer of the Sentinel {} is malformed", self.at))
    }

    fn fault(&self, name: &str, error: &redis::RedisError) -> LinkFault {
        if !error.to_string().contains("No such master") {
            return LinkFault::of("SENTINEL", error);
        }
        LinkFault::lost("SENTINEL", format!("the Sentinel {} knows no master named '{name}'", self.at))
    }
}

/// During a failover `address` is already the promoted server, while `fields` still describe the old master.
fn parse_answer(address: Value, fields: Value, replicas: Value) -> Option<SentinelAnswer> {
    let (host, port): (String, u16) = redis::from_redis_value(address).ok()?;
    let fields: BTreeMap<String, String> = redis::from_redis_value(fields).ok()?;
    let replicas: Vec<BTreeMap<String, String>> = redis::from_redis_value(replicas).ok()?;
    let named = |fields: &BTreeMap<String, String>| {
        Some((format!("{}:{}", fields.get("ip")?, fields.get("port")?), is_electable(fields)))
    };
    Some(SentinelAnswer {
        master: HostPort { host, port },
        epoch: fields.get("config-epoch")?.parse().ok()?,
        replicas: replicas.iter().map(named).collect::<Option<_>>()?,
    })
}

fn is_electable(fields: &BTreeMap<String, String>) -> bool {
    let millis = |field: &str| fields.get(field).and_then(|text| text.parse::<u64>().ok());
    // Only while the Sentinel considers it down.
    let is_gone = millis("s-down-time").is_some_and(|down| down >= UNELECTABLE_AFTER.as_millis() as u64);
    // Sentinel refuses at ten times this setting. Another Sentinel may have another setting.
    let limit = millis("down-after-milliseconds").unwrap_or(30_000).saturating_mul(20);
    let is_outdated = millis("master-link-down-time").is_some_and(|down| down > limit);
    !is_gone && !is_outdated && millis("slave-priority") != Some(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn answer(port: u16, epoch: u64) -> SentinelAnswer {
        let replicas = [("10.0.0.2:6379", true), ("10.0.0.3:6379", false)];
        let replicas = replicas.map(|(name, electable)| (name.to_owned(), electable)).into();
        SentinelAnswer { master: HostPort { host: "10.0.0.1".into(), port }, epoch, replicas }
    }

    #[test]
    fn the_newest_configuration_wins() {
        let port = |answers: &[SentinelAnswer], known| {
            newest_answer(answers, 2, known).map(|answer| answer.master.port)
        };
        assert_eq!(port(&[], 0), None);
        assert_eq!(port(&[answer(1, 4), answer(2, 7), answer(3, 7)], 0), Some(2));
        assert_eq!(port(&[answer(1, 8), answer(2, 7)], 7), Some(1));
    }

    #[test]
    fn the_answer_of_a_sentinel_that_was_cut_off_is_not_accepted() {
        let port = |answers: &[SentinelAnswer], known| {
            newest_answer(answers, 2, known).map(|answer| answer.master.port)
        };
        assert_eq!(port(&[answer(1, 4)], 4), Some(1));
        assert_eq!(port(&[answer(1, 4)], 5), None);
        assert_eq!(port(&[answer(1, 0), answer(1, 0)], 5), Some(1), "all Sentinels were set up anew");
    }

    #[test]
    fn answers_are_parsed() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let texts = |words: &[&str]| Value::Array(words.iter().map(|word| text(word)).collect());
        let address = texts(&["10.0.0.1", "6379"]);
        let fields = texts(&["name", "mymaster", "num-slaves", "2", "config-epoch", "7"]);
        let well = texts(&["ip", "10.0.0.2", "port", "6379", "flags", "slave", "slave-priority", "100"]);
        let gone =
            texts(&["ip", "10.0.0.3", "port", "6379", "flags", "s_down,slave", "s-down-time", "30000"]);
        let replicas = Value::Array(vec![well, gone]);
        assert_eq!(parse_answer(address, fields.clone(), replicas.clone()), Some(answer(6379, 7)));
        assert_eq!(parse_answer(Value::Nil, fields, replicas), None);
    }

    #[test]
    fn electable_replicas_are_recognized() {
        let table = [
            (&[("flags", "slave")][..], true, "all is well"),
            (&[("flags", "s_down,slave"), ("s-down-time", "29999")], true, "it can be back in time"),
            (&[("flags", "s_down,slave"), ("s-down-time", "30000")], false, "down for too long"),
            (&[("master-link-down-time", "60000"), ("down-after-milliseconds", "3000")], true, "cut off"),
            (
                &[("master-link-down-time", "60001"), ("down-after-milliseconds", "3000")],
                false,
                "cut off for too long",
            ),
            (&[("master-link-down-time", "-1000")], true, "never connected to it: nothing is known"),
            (&[("slave-priority", "0")], false, "never, by configuration"),
        ];
        for (fields, expected, why) in table {
            let fields = fields.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            assert_eq!(is_electable(&fields), expected, "{why}");
        }
    }

    #[test]
    fn a_replica_is_electable_if_one_sentinel_could_elect_it() {
        let master = |port| HostPort { host: "10.0.0.1".into(), port };
        let mut other = answer(1, 7);
        other.replicas = [("10.0.0.3:6379".to_owned(), true)].into();
        let view = combine(&master(1), &[answer(1, 7), other, answer(2, 6)], 2);
        assert!(view.is_majority && view.replicas.values().all(|electable| *electable), "{view:?}");
        let view = combine(&master(2), &[answer(1, 7), answer(2, 6)], 2);
        assert!(!view.is_majority, "only one Sentinel names that master: {view:?}");
    }
}
