//! Containers whose state must be inspected: some engines list an ended container as running for most of a
//! second after its event.

use std::collections::HashMap;

use model::ids::PodId;
use parking_lot::Mutex;

/// Handles by pod.
#[derive(Default)]
pub(crate) struct DoubtedContainers {
    handles: Mutex<HashMap<PodId, String>>,
}

impl DoubtedContainers {
    pub(crate) fn insert(&self, pod: PodId, handle: String) {
        self.handles.lock().insert(pod, handle);
    }

    pub(crate) fn contains(&self, pod: &PodId) -> bool {
        self.handles.lock().contains_key(pod)
    }

    pub(crate) fn all(&self) -> Vec<(PodId, String)> {
        self.handles.lock().iter().map(|(pod, handle)| (pod.clone(), handle.clone())).collect()
    }

    pub(crate) fn remove(&self, pod: &PodId) {
        self.handles.lock().remove(pod);
    }
}
