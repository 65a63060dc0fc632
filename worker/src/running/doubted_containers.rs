//! Containers to inspect: some engines list an ended one as running for most of a second.

use std::collections::HashMap;

use model::ids::PodId;
use parking_lot::Mutex;

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
