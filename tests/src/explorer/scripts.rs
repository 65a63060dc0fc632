//! Our scripts, as the explorer has Redis run them: with its time instead of Redis' own, with their wake-ups put aside
//! for it to deliver, and with an ablation where there is one.

use std::collections::HashMap;

use ::redis::Script;

use super::redis::Redis;
use crate::Ablation;
use crate::ablation::sources;

/// What every run keeps beside the cluster's own keys: the time, and until when leases hold.
pub(super) const KEY: &str = "explorer";
/// Wake-ups that nobody has heard yet: channel, message, channel, message …
pub(super) const HINTS: &str = "explorer:hints";

const CLOCK: &str = "local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)";
const LEASE_READ: &str = "local holder = redis.call('GET', KEYS[3])";
const LEASE_TAKEN: &str = "redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[2])";

/// By the hash that a store asks for: the script's name, and the hash of what is run.
pub(super) struct Scripts(HashMap<String, (&'static str, String)>);

impl Scripts {
    /// Has Redis learn them.
    pub(super) fn load(redis: &mut Redis, ablation: Option<Ablation>) -> Self {
        let mut scripts = HashMap::new();
        for (name, ours, ablated) in sources(ablation) {
            let changed = adapt(&ablated);
            let hash = Script::new(&changed).get_hash().to_owned();
            if redis.ask(&["SCRIPT", "EXISTS", &hash]) != ::redis::Value::Array(vec![::redis::Value::Int(1)])
            {
                redis.ask(&["SCRIPT", "LOAD", &changed]);
            }
            scripts.insert(Script::new(&ours).get_hash().to_owned(), (name, hash));
        }
        Self(scripts)
    }

    /// Name, and the hash of what is to be run, by the hash that was asked for.
    pub(super) fn get(&self, asked: &[u8]) -> Option<&(&'static str, String)> {
        self.0.get(std::str::from_utf8(asked).ok()?)
    }
}

fn adapt(text: &str) -> String {
    assert!(text.contains(CLOCK), "the prelude reads the time in another way");
    let until = format!("'{KEY}', KEYS[3]");
    text.replace(CLOCK, &format!("return tonumber(redis.call('HGET', '{KEY}', 'now'))"))
        .replace("redis.call('PUBLISH', ", &format!("redis.call('RPUSH', '{HINTS}', "))
        .replace(
            LEASE_READ,
            &format!(
                "if NOW >= tonumber(redis.call('HGET', {until}) or 0) then redis.call('DEL', KEYS[3]) end\n{LEASE_READ}"
            ),
        )
        .replace(
            LEASE_TAKEN,
            &format!("redis.call('SET', KEYS[3], ARGV[1])\nredis.call('HSET', {until}, NOW + ARGV[2])"),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_script_reads_the_time_or_wakes_anybody_by_itself() {
        for (name, _, text) in sources(None) {
            let adapted = adapt(&text);
            for word in ["'TIME'", "'PUBLISH'", "'PX'"] {
                assert!(!adapted.contains(word), "{name} still says {word}");
            }
        }
    }
}
