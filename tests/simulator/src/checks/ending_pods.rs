//! Pods that are being stopped.

use std::collections::BTreeMap;

use model::ids::AssignmentId;

#[derive(Default)]
pub(crate) struct EndingPods(pub(crate) BTreeMap<(usize, AssignmentId), Ending>);

#[derive(Clone, Copy)]
pub(crate) struct Ending {
    /// The proxy answered when its gate was to be closed.
    pub(crate) is_closed: bool,
    /// From then on nothing may be let in.
    pub(crate) since: u64,
}

impl EndingPods {
    pub(crate) fn forget(&mut self, host: usize) {
        self.0.retain(|(of, _), _| *of != host);
    }
}
