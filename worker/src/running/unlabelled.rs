//! Containers of this node's name without a cluster label or a record in Redis. A version before that label
//! created them, for this or another cluster. They are reported and left alone.

use std::collections::HashSet;

use engine::Container;
use parking_lot::Mutex;

#[derive(Default)]
pub(crate) struct Unlabelled {
    handles: Mutex<HashSet<String>>,
}

impl Unlabelled {
    pub(crate) fn report(&self, container: &Container) {
        let mut handles = self.handles.lock();
        if handles.insert(container.handle.clone()) {
            tracing::warn!(
                container = container.handle, pod = %container.pod,
                "a container with this node's label is of no pod that Redis knows, and does not say of which \
                 cluster it is: leaving it alone. Remove it on the engine if it is not wanted"
            );
        }
    }

    pub(crate) fn contains(&self, container: &Container) -> bool {
        self.handles.lock().contains(&container.handle)
    }
}
