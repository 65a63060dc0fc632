//! The replicas attached to a master, by its own report.

use std::collections::BTreeMap;

/// In seconds. Redis draws the same line (`min-replicas-max-lag` in `sentinel/redis.conf`); a healthy replica
/// acknowledges every second.
const MAX_LAG: u64 = 3;

/// A replica attached to the master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedReplica {
    /// Its address in the Sentinels' form, `10.0.0.2:6379`.
    pub address: String,
    /// True if it receives a full copy or lags, and so cannot confirm a write soon.
    pub is_behind: bool,
}

/// Parses a reply to `INFO replication` into replicas sorted by address:
/// `slave0:ip=10.0.0.2,port=6379,state=online,…` is `10.0.0.2:6379`, as the Sentinels name it.
pub fn attached_replicas(info: &str) -> Vec<AttachedReplica> {
    let read = |line: &str| {
        let (_, fields) = line.strip_prefix("slave")?.split_once(":ip=")?;
        let (ip, rest) = fields.split_once(",port=")?;
        let fields: Vec<&str> = rest.split(',').map(str::trim).collect();
        let value = |name: &str| fields.iter().find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        let lags = value("lag").and_then(|lag| lag.parse::<u64>().ok()).is_some_and(|lag| lag > MAX_LAG);
        let is_behind = value("state").is_some_and(|state| state != "online") || lags;
        Some((format!("{ip}:{}", fields.first()?), is_behind))
    };
    let replicas: BTreeMap<String, bool> = info.lines().filter_map(read).collect();
    replicas.into_iter().map(|(address, is_behind)| AttachedReplica { address, is_behind }).collect()
}
