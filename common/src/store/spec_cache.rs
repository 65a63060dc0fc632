//! Pod specifications that were read before. They never change under their id, so an entry can not be wrong.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::ids::SpecId;
use crate::spec::PodSpec;

/// Beyond this the cache is emptied: simpler than an order of age, and as good for a few thousand services.
const MOST: usize = 4096;

#[derive(Default)]
pub(crate) struct SpecCache {
    specs: Mutex<HashMap<SpecId, Arc<PodSpec>>>,
}

impl SpecCache {
    pub(crate) fn get(&self, id: &SpecId) -> Option<Arc<PodSpec>> {
        self.lock().get(id).cloned()
    }

    pub(crate) fn insert(&self, id: SpecId, spec: PodSpec) -> Arc<PodSpec> {
        let mut specs = self.lock();
        if specs.len() >= MOST {
            specs.clear();
        }
        Arc::clone(specs.entry(id).or_insert_with(|| Arc::new(spec)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SpecId, Arc<PodSpec>>> {
        self.specs.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
