//! Pods with a stop request for this node that are unknown to this session.

use std::collections::HashMap;
use std::time::Duration;

use model::ids::PodId;
use parking_lot::Mutex;
use tokio::time::Instant;

#[derive(Default)]
pub(crate) struct UnknownPods {
    since: Mutex<HashMap<PodId, Instant>>,
}

impl UnknownPods {
    pub(crate) fn note(&self, pod: &PodId) {
        self.since.lock().entry(pod.clone()).or_insert_with(Instant::now);
    }

    /// The next heartbeat adds those that are still requested.
    pub(crate) fn take_overdue(&self, age: Duration) -> Vec<PodId> {
        let mut since = self.since.lock();
        let overdue = since.iter().filter(|(_, at)| at.elapsed() >= age);
        let overdue: Vec<PodId> = overdue.map(|(pod, _)| pod.clone()).collect();
        since.retain(|pod, _| !overdue.contains(pod));
        overdue
    }
}
