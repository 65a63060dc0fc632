//! Held pods of this session: their containers run here without a record in Redis.
//!
//! A pod that moved or ended has a record for at least an hour. A missing one means that an older state of
//! Redis was restored, or that records were lost: the container is left alone until the record is back.
//! Exceptions: no one wants it, a failover may have lost its young record, or it must not run twice. If most
//! of the containers here (or the only one) have no record, all are held in spite of that.
//!
//! Tests: tests::holding, scenarios::mistakes::lost_keys

use std::collections::{BTreeSet, HashMap, HashSet};

use engine::{Container, ContainerState, PodKey};
use model::ids::{AssignmentId, PodId};
use model::node::HeldPod;
use parking_lot::Mutex;

#[derive(Default)]
pub(crate) struct HeldPods {
    inner: Mutex<HeldInner>,
}

#[derive(Default)]
struct HeldInner {
    pods: HashMap<PodKey, Option<HeldPod>>,
    undecided: HashSet<PodKey>,
}

impl HeldPods {
    pub(crate) fn count(&self) -> usize {
        self.inner.lock().pods.len()
    }

    pub(crate) fn contains(&self, pod: &PodId) -> bool {
        self.inner.lock().pods.keys().any(|(held, _)| held == pod)
    }

    pub(crate) fn contains_assignment(&self, pod: &PodId, assignment: &AssignmentId) -> bool {
        self.inner.lock().pods.contains_key(&(pod.clone(), assignment.clone()))
    }

    pub(crate) fn contains_container(&self, container: &Container) -> bool {
        self.contains_assignment(&container.pod, &container.assignment)
    }

    pub(crate) fn request_check(&self, pods: impl IntoIterator<Item = PodKey>) {
        self.inner.lock().undecided.extend(pods);
    }

    pub(crate) fn take_check(&self) -> HashSet<PodKey> {
        std::mem::take(&mut self.inner.lock().undecided)
    }

    /// `None` keeps what is known of a pod.
    pub(crate) fn set(&self, mut pods: HashMap<PodKey, Option<HeldPod>>) -> bool {
        let mut inner = self.inner.lock();
        for (key, slot) in &mut pods {
            if slot.is_none() {
                *slot = inner.pods.get(key).cloned().flatten();
            }
        }
        let is_changed = inner.pods != pods;
        inner.pods = pods;
        is_changed
    }

    pub(crate) fn among(&self, pods: &HashSet<PodKey>) -> HashSet<PodKey> {
        self.inner.lock().pods.keys().filter(|key| pods.contains(key)).cloned().collect()
    }

    pub(crate) fn of_services(&self) -> Vec<HeldPod> {
        let pods: BTreeSet<HeldPod> = self.inner.lock().pods.values().flatten().cloned().collect();
        pods.into_iter().collect()
    }
}

/// True if most running containers are unknown. New ones do not count: a failover may have lost their
/// records.
pub(crate) fn must_hold(
    unknown: &[&Container],
    all: &[Container],
    is_new: impl Fn(&Container) -> bool,
) -> bool {
    let runs = |container: &&Container| !matches!(container.state, ContainerState::Exited { .. });
    let unknown = unknown.iter().filter(|container| runs(container) && !is_new(container)).count();
    let all = all.iter().filter(runs).count();
    unknown * 2 > all
}

/// While records come back one by one, the rest stays held. Ended pods wait only as long as a held one runs:
/// no one would release them, and no other pod may start in their slots.
pub(crate) fn still_held(held: HashSet<PodKey>, running: &HashSet<PodKey>) -> HashSet<PodKey> {
    if held.is_disjoint(running) { HashSet::new() } else { held }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use engine::testing;

    #[test]
    fn what_has_ended_is_held_only_as_long_as_something_held_runs() {
        let pods = |names: &[&str]| -> HashSet<PodKey> {
            let key = |name: &&str| (PodId::new(*name).unwrap(), AssignmentId::new("a").unwrap());
            names.iter().map(key).collect()
        };
        for (held, running, expected) in [
            (vec!["ended"], vec![], vec![]),
            (vec!["ended"], vec!["other"], vec![]),
            (vec!["ended", "runs"], vec!["runs", "other"], vec!["ended", "runs"]),
        ] {
            assert_eq!(still_held(pods(&held), &pods(&running)), pods(&expected));
        }
    }

    #[test]
    fn what_has_no_record_is_held_if_it_is_most_of_what_runs_here() {
        let container = |number: usize, state| {
            let identity = testing::identity("n", &format!("p{number}"), "a");
            Container::new(format!("c{number}"), &identity, state)
        };
        let ended = ContainerState::Exited { code: 0, out_of_memory: false };
        // running, without a record, new among these, ended
        for (running, unknown, new, exited, expected) in [
            (1, 1, 0, 0, true),
            (1, 0, 0, 0, false),
            (2, 1, 0, 0, false),
            (2, 2, 0, 0, true),
            (2, 2, 1, 0, false),
            (1, 1, 1, 0, false),
            (3, 2, 0, 0, true),
            (1, 1, 0, 5, true),
        ] {
            let all: Vec<Container> = (0..running)
                .map(|number| container(number, ContainerState::Running))
                .chain((0..exited).map(|number| container(100 + number, ended)))
                .collect();
            let without: Vec<&Container> = all.iter().take(unknown).collect();
            let is_new = |one: &Container| all.iter().take(new).any(|other| other.handle == one.handle);
            assert_eq!(must_hold(&without, &all, is_new), expected, "{running} {unknown} {new} {exited}");
        }
    }
}
