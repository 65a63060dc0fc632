//! Pods that are being stopped.

use std::collections::BTreeMap;

use model::ids::AssignmentId;

/// Pods whose containers were sent a SIGTERM and have not ended, by host and assignment.
#[derive(Default)]
pub(crate) struct EndingPods(pub(crate) BTreeMap<(usize, AssignmentId), Ending>);

/// A pod that was sent a SIGTERM.
#[derive(Clone, Copy)]
pub(crate) struct Ending {
    /// Whether the proxy answered when its gate was to be closed.
    pub(crate) is_closed: bool,
    /// From when on nothing may be let in.
    pub(crate) since: u64,
}

impl EndingPods {
    /// Nothing runs on the host any more.
    pub(crate) fn forget(&mut self, host: usize) {
        self.0.retain(|(of, _), _| *of != host);
    }
}
