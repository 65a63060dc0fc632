//! Reads the times of heartbeats from Redis, and the fate of silent nodes.

use std::collections::BTreeMap;

use kubeleet_tests::Redis;
use model::event::ClusterEvent;
use redis::aio::MultiplexedConnection;
use store::Store;

/// The next sample continues from there.
const EVENTS_PER_SAMPLE: usize = 1000;

pub struct HeartbeatMonitor {
    connection: MultiplexedConnection,
    store: Store,
    last_heartbeats: BTreeMap<String, f64>,
    last_event: String,
    /// In seconds, and the node.
    pub longest_gap: (f64, String),
    pub deaths: Vec<String>,
    pub moved_pods: usize,
    pub registrations: usize,
}

impl HeartbeatMonitor {
    pub async fn start(redis: &Redis) -> Self {
        let (connection, store) = (redis.connection().await.unwrap(), redis.store());
        let last_event = store.last_events(1).await.unwrap().pop().map_or("0".to_owned(), |event| event.id);
        Self {
            connection,
            store,
            last_heartbeats: BTreeMap::new(),
            last_event,
            longest_gap: (0.0, String::new()),
            deaths: Vec::new(),
            moved_pods: 0,
            registrations: 0,
        }
    }

    /// Samples must be more frequent than heartbeats, or a gap appears longer.
    pub async fn sample(&mut self) {
        let mut query = redis::cmd("ZRANGE");
        query.arg(&["beats", "0", "-1", "WITHSCORES"]);
        let heartbeats: Vec<(String, f64)> = query.query_async(&mut self.connection).await.unwrap();
        for (node, heartbeat) in heartbeats {
            let before = self.last_heartbeats.insert(node.clone(), heartbeat).unwrap_or(heartbeat);
            let gap = (heartbeat - before) / 1000.0;
            if gap > self.longest_gap.0 {
                self.longest_gap = (gap, node);
            }
        }
        for event in self.store.events_after(&self.last_event, EVENTS_PER_SAMPLE).await.unwrap() {
            self.count(&event);
            self.last_event = event.id;
        }
    }

    fn count(&mut self, event: &ClusterEvent) {
        match event.reason.as_str() {
            "NodeDead" => self.deaths.push(format!("{} was {}", event.object, event.message)),
            "NodeReady" | "NodeRestarted" => self.registrations += 1,
            "PodRescheduled" => self.moved_pods += 1,
            _ => {}
        }
    }
}
