//! A cache of pod specifications. They never change under their id, so entries are never outdated.

use std::collections::HashMap;
use std::sync::Arc;

use model::ids::SpecId;
use model::spec::PodSpec;
use parking_lot::Mutex;

/// The cache is emptied at this size.
const MAX_SPECS: usize = 4096;

#[derive(Default)]
pub(crate) struct SpecCache {
    specs: Mutex<HashMap<SpecId, Arc<PodSpec>>>,
}

impl SpecCache {
    pub(crate) fn get(&self, id: &SpecId) -> Option<Arc<PodSpec>> {
        self.specs.lock().get(id).cloned()
    }

    pub(crate) fn insert(&self, id: SpecId, spec: PodSpec) -> Arc<PodSpec> {
        let mut specs = self.specs.lock();
        if specs.len() >= MAX_SPECS {
            specs.clear();
        }
        Arc::clone(specs.entry(id).or_insert_with(|| Arc::new(spec)))
    }
}
