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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Index in the batch.
    pub pod: usize,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Place(Arc<PlacementTarget>),
    Unschedulable {
        /// Most frequent first; a node counts for each of its reasons. As of the first pod of a class.
        refusals: Arc<[Refusal]>,
    },
}

/// Returns one decision for each pod, in their order. Pure.
///
/// [`ClusterSnapshot::commit`] the assignments that Redis accepts. A snapshot with other weights than the
/// policy is sorted first.
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
    by_requirements: HashMap<Requirements, usize>,
    last: usize,
}

impl PodClasses {
    fn of(&mut self, requirements: &Requirements) -> &mut PodClass {
        // The pods of a service usually follow each other.
        if self.classes.get(self.last).is_none_or(|last| last.requirements != *requirements) {
            // Copying the key costs less than hashing it twice.
            self.last = *self.by_requirements.entry(requirements.clone()).or_insert_with(|| {
                self.classes.push(PodClass::new(requirements.clone()));
                self.classes.len() - 1
            });
        }
        &mut self.classes[self.last]
    }
}
