//! Watches for pods that run twice, ten times a second, while everything breaks: whatever runs on engine and as processes,
//! against the leases of the nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kubeleet_tests::invariants::{Running, twice};
use kubeleet_tests::processes::running_below;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tokio::task::AbortHandle;

use crate::engine::View;
use crate::stack::Stack;

const EVERY: Duration = Duration::from_millis(100);

/// The watch. Dropped, it stops.
pub struct Watch {
    seen: Arc<Mutex<Seen>>,
    task: AbortHandle,
}

/// What was seen so far.
#[derive(Debug, Default)]
struct Seen {
    /// Both with a good lease: this must not be.
    doubled: BTreeSet<(Running, Running)>,
    /// One without a lease, of pods that must never run twice.
    stale: BTreeSet<(Running, Running)>,
}

/// How much was seen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sightings {
    /// Pairs under good leases.
    pub doubled: usize,
    /// Pairs of `stop` pods of which one had no good lease any more.
    pub stale: usize,
}

impl Watch {
    /// Begins.
    pub fn over(stack: &Stack) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let eye = Eye {
            data: stack.data(),
            leases: stack.leases(),
            engine: stack.engine.as_ref().map(|engine| engine.view()),
        };
        let task = tokio::spawn(eye.watch(seen.clone()));
        Self { seen, task: task.abort_handle() }
    }

    /// All so far.
    pub fn sightings(&self) -> Sightings {
        let seen = self.seen.lock().unwrap();
        Sightings { doubled: seen.doubled.len(), stale: seen.stale.len() }
    }

    /// Those that must not be, in words.
    pub fn doubled(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.doubled.iter().map(|pair| format!("under good leases at a time: {pair:?}")).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Eye {
    data: PathBuf,
    leases: PathBuf,
    engine: Option<View>,
}

impl Eye {
    async fn watch(self, seen: Arc<Mutex<Seen>>) {
        let mut before = BTreeMap::new();
        loop {
            let pairs = twice(&self.look().await);
            // What is there in two looks after each other has run at a time: one look takes a while.
            for (pair, stop) in pairs.iter().filter(|(pair, _)| before.contains_key(*pair)) {
                let leased = self.is_leased(&pair.0.node) && self.is_leased(&pair.1.node);
                let mut seen = seen.lock().unwrap();
                if leased {
                    seen.doubled.insert(pair.clone());
                } else if *stop {
                    seen.stale.insert(pair.clone());
                }
            }
            before = pairs;
            tokio::time::sleep(EVERY).await;
        }
    }

    async fn look(&self) -> Vec<(Running, bool)> {
        let data = self.data.clone();
        let mut running = tokio::task::spawn_blocking(move || running_below(&data)).await.unwrap();
        if let Some(engine) = &self.engine {
            // While it is away nobody can say what runs there.
            let listed = tokio::time::timeout(EVERY * 3, engine.running()).await;
            running.extend(listed.ok().flatten().unwrap_or_default());
        }
        running
    }

    /// Whether a node's worker may count on nobody else running its pods.
    fn is_leased(&self, node: &str) -> bool {
        let text = std::fs::read_to_string(self.leases.join(format!("{node}.lease"))).unwrap_or_default();
        let lease: Value = serde_json::from_str(&text).unwrap_or_default();
        let now = clock_gettime(ClockId::Boottime);
        let now = now.tv_sec.cast_unsigned() * 1000 + now.tv_nsec.cast_unsigned() / 1_000_000;
        lease["deadline_millis"].as_u64().is_some_and(|deadline| now < deadline)
    }
}
