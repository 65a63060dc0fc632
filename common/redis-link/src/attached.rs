//! The replicas attached to a master, by its own report.

use std::collections::BTreeMap;

/// Seconds, as `min-replicas-max-lag` in `sentinel/redis.conf`.
const MAX_LAG: u64 = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedReplica {
    /// As the Sentinels write it.
    pub address: String,
    /// Receives a full copy or lags: it confirms no write soon.
    pub is_behind: bool,
}

/// Reads `slave0:ip=10.0.0.2,port=6379,state=online,…`.
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
