//! The Sentinels' reports for people.

use std::collections::BTreeMap;

use redis::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentinelReport {
    pub at: String,
    pub facts: Result<SentinelFacts, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SentinelFacts {
    pub master: String,
    /// The server itself says so.
    pub is_replica: bool,
    pub quorum: usize,
    /// Itself included.
    pub sentinels: usize,
    /// Itself included.
    pub reachable_sentinels: usize,
    /// With `replica-priority`.
    pub replicas: BTreeMap<String, u64>,
}

type Objects = Vec<BTreeMap<String, String>>;

pub(super) fn parse_facts(master: Value, replicas: Value, others: Value) -> Option<SentinelFacts> {
    let master: BTreeMap<String, String> = redis::from_redis_value(master).ok()?;
    let replicas: Objects = redis::from_redis_value(replicas).ok()?;
    let others: Objects = redis::from_redis_value(others).ok()?;
    let address =
        |fields: &BTreeMap<String, String>| Some(format!("{}:{}", fields.get("ip")?, fields.get("port")?));
    let priority = |fields: &BTreeMap<String, String>| {
        fields.get("slave-priority").and_then(|text| text.parse().ok()).unwrap_or(100)
    };
    let is_away = |fields: &&BTreeMap<String, String>| {
        let flags = fields.get("flags").map(String::as_str).unwrap_or_default();
        flags.split(',').any(|flag| matches!(flag, "s_down" | "o_down"))
    };
    Some(SentinelFacts {
        master: address(&master)?,
        is_replica: master.get("role-reported").is_some_and(|role| role == "slave"),
        quorum: master.get("quorum")?.parse().ok()?,
        sentinels: others.len() + 1,
        reachable_sentinels: others.len() + 1 - others.iter().filter(is_away).count(),
        replicas: replicas.iter().filter_map(|fields| Some((address(fields)?, priority(fields)))).collect(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn what_a_sentinel_says_is_read() {
        let texts = |words: &[&str]| {
            Value::Array(words.iter().map(|word| Value::BulkString(word.as_bytes().to_vec())).collect())
        };
        let master = texts(&["ip", "a", "port", "1", "role-reported", "slave", "quorum", "2"]);
        let replicas = Value::Array(vec![
            texts(&["ip", "b", "port", "2", "slave-priority", "0"]),
            texts(&["ip", "c", "port", "3", "slave-priority", "100"]),
        ]);
        let others = Value::Array(vec![
            texts(&["ip", "s", "port", "4", "flags", "sentinel"]),
            texts(&["ip", "t", "port", "5", "flags", "s_down,sentinel"]),
        ]);
        let facts = parse_facts(master, replicas, others).unwrap();
        let expected = SentinelFacts {
            master: "a:1".into(),
            is_replica: true,
            quorum: 2,
            sentinels: 3,
            reachable_sentinels: 2,
            replicas: [("b:2".to_owned(), 0), ("c:3".to_owned(), 100)].into(),
        };
        assert_eq!(facts, expected);
        assert_eq!(parse_facts(Value::Nil, Value::Nil, Value::Nil), None);
    }
}
