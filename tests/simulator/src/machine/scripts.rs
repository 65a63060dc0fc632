//! The store's scripts with simulated time, collected wake-ups, and an ablation if there is one.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use store::{SCRIPTS, Script};
use testkit::Ablation;
use testkit::ablation::{hash, sources};

use crate::checks::observed_state::READ_SCRIPT;
use crate::machine::redis::RedisConnection;

/// The time, and the ends of leases.
pub(crate) const KEY: &str = "simulator";
/// Channel, message, channel, message …
pub(crate) const HINTS: &str = "simulator:hints";

const CLOCK: &str = "local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)";
const LEASE_LEFT: &str = "redis.call('PTTL', lease_key)";
const LEASE_TAKEN: &str = "redis.call('SET', lease_key, caller, 'PX', period_ms)";

/// Adapting scripts takes a tenth of a run, so it is done once for all runs on a Redis.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LoadedScripts {
    /// The store's hash and the adapted one, in the order of the store's table.
    hashes: Vec<(String, String)>,
    pub(crate) read: String,
}

impl LoadedScripts {
    pub fn load(redis: &Path, ablation: Option<Ablation>) -> Self {
        let mut redis = RedisConnection::connect(redis);
        // It costs more than many a command. Some versions of Redis have none.
        redis.add(&["CONFIG", "SET", "latency-tracking", "no"]);
        let [_] = redis.send(0);
        let load = |(_, original, ablated): (_, String, String)| {
            (hash(&original), redis.load_script(&adapt(&ablated)))
        };
        let hashes = sources(ablation).into_iter().map(load).collect();
        Self { hashes, read: redis.load_script(READ_SCRIPT) }
    }
}

/// By the store's hash.
pub(crate) struct Scripts(HashMap<String, (&'static Script, String)>);

impl Scripts {
    pub(crate) fn new(loaded: &LoadedScripts) -> Self {
        let hashes = loaded.hashes.iter().cloned();
        Self(hashes.zip(SCRIPTS).map(|((asked, run), script)| (asked, (*script, run))).collect())
    }

    pub(crate) fn get(&self, asked: &[u8]) -> Option<&(&'static Script, String)> {
        self.0.get(std::str::from_utf8(asked).ok()?)
    }
}

fn adapt(text: &str) -> String {
    let now = format!("tonumber(redis.call('HGET', '{KEY}', 'now'))");
    let until = format!("tonumber(redis.call('HGET', '{KEY}', lease_key) or 0)");
    text.replace(CLOCK, &format!("return {now}"))
        .replace("redis.call('PUBLISH', ", &format!("redis.call('RPUSH', '{HINTS}', "))
        .replace(LEASE_LEFT, &format!("{until} - {now}"))
        .replace(
            LEASE_TAKEN,
            &format!(
                "redis.call('SET', lease_key, caller)\n\
                 redis.call('HSET', '{KEY}', lease_key, {now} + period_ms)"
            ),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_adapted_script_reads_the_time_or_publishes_by_itself() {
        for (script, _, text) in sources(None) {
            let adapted = adapt(&text);
            for word in ["'TIME'", "'PUBLISH'", "'PX'", "'PTTL'"] {
                assert!(!adapted.contains(word), "{script:?} still contains {word}");
            }
        }
    }
}
