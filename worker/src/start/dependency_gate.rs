//! Reads the missing dependencies of services, for all pods of a worker at once.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use model::ids::{PodId, ServiceName};
use model::spec::Dependency;
use parking_lot::Mutex;
use store::{Store, StoreError};
use tokio::time::Instant;

pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);
const FRESH: Duration = Duration::from_millis(900);
const FORGET_AFTER: Duration = Duration::from_secs(5);

pub(crate) const WAITING: &str = "WaitingForDependencies";

#[derive(Default)]
pub(crate) struct DependencyGate {
    asked: Mutex<HashSet<ServiceName>>,
    known: Mutex<HashMap<ServiceName, KnownObstacle>>,
    /// Requests made during a read share the next one.
    reading: tokio::sync::Mutex<()>,
    pub(crate) watched: Mutex<HashSet<PodId>>,
}

struct KnownObstacle {
    read_at: Instant,
    asked_at: Instant,
    obstacle: Option<String>,
}

impl DependencyGate {
    pub(crate) async fn obstacle(
        &self,
        store: &Store,
        dead_after: Duration,
        service: &ServiceName,
    ) -> Result<Option<String>, StoreError> {
        if let Some(obstacle) = self.fresh(service) {
            return Ok(obstacle);
        }
        self.asked.lock().insert(service.clone());
        let _reading = self.reading.lock().await;
        if let Some(obstacle) = self.fresh(service) {
            self.asked.lock().remove(service);
            return Ok(obstacle);
        }
        let mut services = self.waiting();
        services.insert(service.clone());
        services.extend(self.asked.lock().drain());
        let services: Vec<ServiceName> = services.into_iter().collect();
        let silent_after = dead_after.as_millis() as u64;
        let now = Instant::now();
        let read = store.dependencies(&services, silent_after).await?;
        let mut known = self.known.lock();
        let mut answer = None;
        for (name, dependencies) in services.into_iter().zip(read) {
            let obstacle = missing(&dependencies);
            let asked_at = if name == *service {
                answer.clone_from(&obstacle);
                now
            } else {
                known.get(&name).map_or(now, |found| found.asked_at)
            };
            known.insert(name, KnownObstacle { read_at: now, asked_at, obstacle });
        }
        Ok(answer)
    }

    fn fresh(&self, service: &ServiceName) -> Option<Option<String>> {
        let now = Instant::now();
        let mut known = self.known.lock();
        let found = known.get_mut(service).filter(|found| now.duration_since(found.read_at) < FRESH)?;
        found.asked_at = now;
        Some(found.obstacle.clone())
    }

    fn waiting(&self) -> HashSet<ServiceName> {
        let now = Instant::now();
        let mut known = self.known.lock();
        known.retain(|_, found| now.duration_since(found.asked_at) < FORGET_AFTER);
        let waiting = known.iter().filter(|(_, found)| found.obstacle.is_some());
        waiting.map(|(name, _)| name.clone()).collect()
    }
}

fn missing(dependencies: &[Dependency]) -> Option<String> {
    let obstacles: Vec<String> = dependencies.iter().filter_map(Dependency::obstacle).collect();
    (!obstacles.is_empty()).then(|| obstacles.join("; "))
}
