//! Watches for pods that run twice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kubeleet_tests::invariants::{Running, twice};
use kubeleet_tests::processes::running_below;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tokio::task::AbortHandle;

use crate::engine::EngineView;
use crate::stack::Stack;

const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

pub struct DoubleRunMonitor {
    found: Arc<Mutex<DoubleRuns>>,
    task: AbortHandle,
}

#[derive(Debug, Default)]
struct DoubleRuns {
    doubled: BTreeSet<(Running, Running)>,
    /// One without a valid lease, of pods that must not run twice.
    stale: BTreeSet<(Running, Running)>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct DoubleRunCounts {
    pub doubled: usize,
    pub stale: usize,
}

impl DoubleRunMonitor {
    pub fn start(stack: &Stack) -> Self {
        let found: Arc<Mutex<DoubleRuns>> = Arc::default();
        let sampler = Sampler {
            data: stack.data(),
            leases: stack.leases(),
            engine: stack.engine.as_ref().map(|engine| engine.view()),
        };
        let task = tokio::spawn(sampler.run(found.clone()));
        Self { found, task: task.abort_handle() }
    }

    pub fn counts(&self) -> DoubleRunCounts {
        let found = self.found.lock();
        DoubleRunCounts { doubled: found.doubled.len(), stale: found.stale.len() }
    }

    pub fn describe_doubled(&self) -> Vec<String> {
        let found = self.found.lock();
        found.doubled.iter().map(|pair| format!("ran at the same time with valid leases: {pair:?}")).collect()
    }
}

impl Drop for DoubleRunMonitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Sampler {
    data: PathBuf,
    leases: PathBuf,
    engine: Option<EngineView>,
}

impl Sampler {
    async fn run(self, found: Arc<Mutex<DoubleRuns>>) {
        let mut before = BTreeMap::new();
        loop {
            let pairs = twice(&self.sample().await);
            // One sample takes a while: only a pair in two successive samples has run at the same time.
            for (pair, is_stop) in pairs.iter().filter(|(pair, _)| before.contains_key(*pair)) {
                let are_leased = self.has_lease(&pair.0.node) && self.has_lease(&pair.1.node);
                let mut found = found.lock();
                if are_leased {
                    found.doubled.insert(pair.clone());
                } else if *is_stop {
                    found.stale.insert(pair.clone());
                }
            }
            before = pairs;
            tokio::time::sleep(SAMPLE_INTERVAL).await;
        }
    }

    async fn sample(&self) -> Vec<(Running, bool)> {
        let data = self.data.clone();
        let mut running = tokio::task::spawn_blocking(move || running_below(&data)).await.unwrap();
        if let Some(engine) = &self.engine {
            // While the engine is down its containers are unknown.
            let listed = tokio::time::timeout(SAMPLE_INTERVAL * 3, engine.running()).await;
            running.extend(listed.ok().flatten().unwrap_or_default());
        }
        running
    }

    fn has_lease(&self, node: &str) -> bool {
        let text = std::fs::read_to_string(self.leases.join(format!("{node}.lease"))).unwrap_or_default();
        let lease: Value = serde_json::from_str(&text).unwrap_or_default();
        let now = clock_gettime(ClockId::Boottime);
        let now = now.tv_sec.cast_unsigned() * 1000 + now.tv_nsec.cast_unsigned() / 1_000_000;
        lease["deadline_millis"].as_u64().is_some_and(|deadline| now < deadline)
    }
}
