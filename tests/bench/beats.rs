//! Who beat when, and what became of those who did not: read from Redis, without changing anything.

use std::collections::BTreeMap;

use common::event::ClusterEvent;
use common::store::Store;
use kubeleet_tests::Redis;
use redis::aio::MultiplexedConnection;

/// Events that one look reads; the next goes on from there.
const EVENTS: usize = 1000;

/// What was seen so far.
pub struct Seen {
    connection: MultiplexedConnection,
    store: Store,
    last: BTreeMap<String, f64>,
    /// The event that was read last.
    place: String,
    /// The longest time between two heartbeats of one node, in seconds, and which it was.
    pub longest: (f64, String),
    /// What was said of each node that was declared dead.
    pub deaths: Vec<String>,
    /// Pods that were taken from their nodes.
    pub moved: usize,
    /// Workers that had to register again.
    pub registered: usize,
}

impl Seen {
    /// What happens from now on.
    pub async fn from_now(redis: &Redis) -> Self {
        let (connection, store) = (redis.connection().await.unwrap(), redis.store());
        let place = store.last_events(1).await.unwrap().pop().map_or("0".to_owned(), |event| event.id);
        let (last, longest, deaths) = (BTreeMap::new(), (0.0, String::new()), Vec::new());
        Self { connection, store, last, place, longest, deaths, moved: 0, registered: 0 }
    }

    /// One look. Looks have to come more often than beats: a beat that was missed makes a gap look longer than it was.
    pub async fn look(&mut self) {
        let mut ask = redis::cmd("ZRANGE");
        ask.arg(&["beats", "0", "-1", "WITHSCORES"]);
        let beats: Vec<(String, f64)> = ask.query_async(&mut self.connection).await.unwrap();
        for (node, beat) in beats {
            let before = self.last.insert(node.clone(), beat).unwrap_or(beat);
            let gap = (beat - before) / 1000.0;
            if gap > self.longest.0 {
                self.longest = (gap, node);
            }
        }
        for event in self.store.events_after(&self.place, EVENTS).await.unwrap() {
            self.happened(&event);
            self.place = event.id;
        }
    }

    fn happened(&mut self, event: &ClusterEvent) {
        match event.reason.as_str() {
            "NodeDead" => self.deaths.push(format!("{} was {}", event.object, event.message)),
            "NodeReady" | "NodeRestarted" => self.registered += 1,
            "PodRescheduled" => self.moved += 1,
            _ => {}
        }
    }
}
