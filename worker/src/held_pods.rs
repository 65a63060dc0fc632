//! The pods of this session that are held: their containers run here and Redis has no record of them.
//!
//! A pod that has moved or ended has a record that says so. Without one, an older state of Redis was
//! restored, or records were lost. A few such containers are removed like any other that is not this node's.
//! When they are most of what runs here they are left alone until all their records are back or a person has
//! removed them.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::ids::{AssignmentId, PodId};

use crate::runtime::{Container, ContainerState};

/// Fewer unknown containers are not held.
const MIN_HELD: usize = 3;

/// See the module.
#[derive(Default)]
pub(crate) struct HeldPods {
    inner: Mutex<HeldInner>,
}

#[derive(Default)]
struct HeldInner {
    pods: HashSet<(PodId, AssignmentId)>,
    /// Managed pods without a record: to be held, or not.
    undecided: HashSet<(PodId, AssignmentId)>,
}

impl HeldPods {
    pub(crate) fn count(&self) -> usize {
        self.lock().pods.len()
    }

    pub(crate) fn contains(&self, pod: &PodId) -> bool {
        self.lock().pods.iter().any(|(held, _)| held == pod)
    }

    pub(crate) fn contains_assignment(&self, pod: &PodId, assignment: &AssignmentId) -> bool {
        self.lock().pods.contains(&(pod.clone(), assignment.clone()))
    }

    pub(crate) fn contains_container(&self, container: &Container) -> bool {
        self.contains_assignment(&container.pod, &container.assignment)
    }

    /// Asks for a check of managed pods that have no record: the next pass has to look at all containers.
    pub(crate) fn request_check(&self, pods: impl IntoIterator<Item = (PodId, AssignmentId)>) {
        self.lock().undecided.extend(pods);
    }

    /// Returns the pods for which a check was requested, and consumes the request.
    pub(crate) fn take_check(&self) -> HashSet<(PodId, AssignmentId)> {
        std::mem::take(&mut self.lock().undecided)
    }

    /// Replaces the held pods. Returns whether they have changed.
    pub(crate) fn set(&self, pods: HashSet<(PodId, AssignmentId)>) -> bool {
        let mut inner = self.lock();
        let is_changed = inner.pods != pods;
        inner.pods = pods;
        is_changed
    }

    fn lock(&self) -> MutexGuard<'_, HeldInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether these containers without a record are to be held: at least [`MIN_HELD`], and more than
/// half of those that run here. Those that were started a moment ago do not count: a failover may have lost
/// their records.
pub(crate) fn must_hold(
    unknown: &[&Container],
    all: &[Container],
    is_new: impl Fn(&Container) -> bool,
) -> bool {
    let runs = |container: &&Container| !matches!(container.state, ContainerState::Exited { .. });
    let unknown = unknown.iter().filter(|container| runs(container) && !is_new(container)).count();
    let all = all.iter().filter(runs).count();
    unknown >= MIN_HELD && unknown * 2 > all
}
