//! Containers whose state in the engine's list is not to be trusted: an event said that they changed, and
//! some engines list an ended container as running for most of a second after that. Only an inspection tells.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::ids::PodId;

/// For each pod the handle of its container that is to be inspected.
#[derive(Default)]
pub(crate) struct DoubtedContainers {
    handles: Mutex<HashMap<PodId, String>>,
}

impl DoubtedContainers {
    /// A container is to be inspected.
    pub(crate) fn insert(&self, pod: PodId, handle: String) {
        self.lock().insert(pod, handle);
    }

    /// Returns whether the container of this pod is to be inspected.
    pub(crate) fn contains(&self, pod: &PodId) -> bool {
        self.lock().contains_key(pod)
    }

    /// Returns all of them.
    pub(crate) fn all(&self) -> Vec<(PodId, String)> {
        self.lock().iter().map(|(pod, handle)| (pod.clone(), handle.clone())).collect()
    }

    /// Its state is known.
    pub(crate) fn remove(&self, pod: &PodId) {
        self.lock().remove(pod);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PodId, String>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
