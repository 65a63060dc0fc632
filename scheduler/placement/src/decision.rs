//! Decides about a batch of pods: groups them into classes and places them one by one.

use std::collections::HashMap;
use std::sync::Arc;

use model::RedisMillis;
use model::pod::Refusal;

use crate::batch::{PlacementBatch, PodClass};
use crate::filter::EvalContext;
use crate::policy::PlacementPolicy;
use crate::requirements::{PodRequest, Requirements};
use crate::snapshot::{ClusterSnapshot, PlacementTarget};

/// The decision about one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The index of the pod in the batch.
    pub pod: usize,
    /// The node of the pod, or why there is none.
    pub outcome: Outcome,
}

/// The node of a pod, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Assign the pod to this node, if its incarnation has not changed.
    Place(Arc<PlacementTarget>),
    /// No node can run the pod now.
    Unschedulable {
        /// Most frequent reason first; a node counts under each of its reasons. Determined once per batch for
        /// all pods with equal requirements, at the first of them.
        refusals: Arc<[Refusal]>,
    },
}

/// Decides about the pods in the given order; returns one decision for each. Equal arguments give equal
/// decisions.
///
/// The snapshot does not change: [`ClusterSnapshot::commit`] assignments that Redis accepts. Order the
/// snapshot by the weights of the policy; otherwise all nodes are sorted again first, with the same
/// decisions.
pub fn decide(
    snapshot: &ClusterSnapshot,
    now: RedisMillis,
    policy: &PlacementPolicy,
    pods: &[PodRequest],
) -> Vec<Decision> {
    let snapshot = snapshot.ordered_by(policy.weights);
    let context = EvalContext { now, dead_after: policy.dead_after };
    let mut batch = PlacementBatch::new(&snapshot, snapshot.order(), &policy.weights, context);
    let mut classes = PodClasses::default();
    let decide_one = |(pod, request): (usize, &PodRequest)| {
        let outcome = match batch.place(classes.of(&request.requirements), request.name()) {
            Ok(target) => Outcome::Place(target),
            Err(refusals) => Outcome::Unschedulable { refusals },
        };
        Decision { pod, outcome }
    };
    pods.iter().enumerate().map(decide_one).collect()
}

#[derive(Default)]
struct PodClasses {
    classes: Vec<PodClass>,
    /// Indexes into `classes`.
    by_requirements: HashMap<Requirements, usize>,
    /// The index of the class of the last pod.
    last: usize,
}

impl PodClasses {
    fn of(&mut self, requirements: &Requirements) -> &mut PodClass {
        // The pods of a service usually follow each other: avoid the lookup.
        if self.classes.get(self.last).is_none_or(|last| last.requirements != *requirements) {
            // A copy of the key costs less than a second hash of it.
            self.last = *self.by_requirements.entry(requirements.clone()).or_insert_with(|| {
                self.classes.push(PodClass::new(requirements.clone()));
                self.classes.len() - 1
            });
        }
        &mut self.classes[self.last]
    }
}
