//! Failovers: a replica that has fallen behind becomes the master, and what it had not got is lost.

use ::redis::{FromRedisValue, Value, from_redis_value};

use super::scripts::KEY;
use super::view::View;
use super::who::{WORKERS, Who};
use super::world::World;

/// A copy of Redis, and what was promised then.
pub(super) struct Past {
    content: Vec<(Vec<u8>, Vec<u8>)>,
    view: View,
    beats: [u64; WORKERS],
    at: u64,
    unsure: Option<&'static str>,
}

impl World {
    pub(super) fn remember(&mut self) {
        let keys: Vec<Vec<u8>> = read(self.redis.ask(&["KEYS", "*"]));
        let ours = |key: &Vec<u8>| key != b"events" && !key.starts_with(KEY.as_bytes());
        let content = keys.into_iter().filter(ours).map(|key| {
            let dump = read(self.redis.ask(&[b"DUMP", &key[..]]));
            (key, dump)
        });
        let content = content.collect();
        let unsure = self.desk.lock().unsure();
        self.past = Some(Past { content, view: self.view.clone(), beats: self.beats, at: self.now, unsure });
        self.say("redis", "from here on nothing reaches the replica");
    }

    /// Whether a failover now would undo that some pod runs as it does.
    pub(super) fn would_lose_a_start(&self) -> bool {
        let Some(past) = &self.past else { return false };
        let mut running = self.view.pods.iter().filter(|(_, pod)| pod.phase == "running");
        running.any(|(uuid, pod)| past.view.pods.get(uuid).is_none_or(|old| old.assignment != pod.assignment))
    }

    /// The master dies, and the replica takes over: what it had not got is lost. Its clock is its own.
    pub(super) fn fail_over(&mut self) {
        let Some(past) = self.past.take() else { return };
        self.redis.ask(&["FLUSHDB"]);
        for (key, dump) in &past.content {
            self.redis.ask(&[b"RESTORE", &key[..], b"0", dump]);
        }
        self.redis.ask(&["HSET", "meta", "run_id", "0123abc"]);
        self.redis_ahead = self.random.between(0, 4000);
        self.beats = past.beats;
        self.master_changed = Some(self.now);
        self.stats.failovers += 1;
        self.say("redis", "FAILOVER: the replica takes over");
        let is_sure = self.api_is_sure();
        self.break_all_lines();
        if is_sure || self.now < self.seats[Who::Api.index()].paused_until {
            // It has, or may have without having looked at it, an answer that there are no replicas to wait for: what it
            // told its users then would be of no worth.
            self.kill(Who::Api, self.now);
        }
        self.refresh();
        let known: Vec<String> = self.known_pods.iter().cloned().collect();
        let mut desk = self.desk.lock();
        let unsure = desk.unsure();
        for unsure in [past.unsure, unsure] {
            desk.wishes.roll_back(past.at, unsure, &self.view, &mut self.heads, known.clone());
        }
    }
}

impl World {
    /// Whether the API knows that a write is as durable as it can be, and has not said so yet: it takes its note away.
    fn api_is_sure(&self) -> bool {
        let is_tidying = |words: &common::store::Words| {
            let script = words.get(1).and_then(|hash| self.scripts.get(hash));
            script.is_some_and(|(name, _)| *name == "writes_confirmed")
        };
        let bus = self.bus.lock();
        // One that is never answered as well: it waits for a moment, and says so then.
        let asked = bus.requests.iter().chain(&self.limbo);
        let mut asked = asked.filter(|request| request.who == Who::Api);
        asked.any(|request| request.commands.iter().any(is_tidying))
    }
}

fn read<T: FromRedisValue>(value: Value) -> T {
    from_redis_value(value).unwrap()
}
