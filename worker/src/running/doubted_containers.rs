//! Containers whose state in the engine's list is unreliable: an event reported a change, and some engines
//! list an ended container as running for most of a second after that. Only an inspection shows its state.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::ids::PodId;

/// The handle of the container to inspect, by pod.
#[derive(Default)]
pub(crate) struct DoubtedContainers {
    handles: Mutex<HashMap<PodId, String>>,
}

impl DoubtedContainers {
    pub(crate) fn insert(&self, pod: PodId, handle: String) {
        self.lock().insert(pod, handle);
    }

    pub(crate) fn contains(&self, pod: &PodId) -> bool {
        self.lock().contains_key(pod)
    }

    pub(crate) fn all(&self) -> Vec<(PodId, String)> {
        self.lock().iter().map(|(pod, handle)| (pod.clone(), handle.clone())).collect()
    }

    pub(crate) fn remove(&self, pod: &PodId) {
        self.lock().remove(pod);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PodId, String>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
