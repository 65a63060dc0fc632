//! Placement: which pod goes to which node. A pure function, without Redis, clock, environment or randomness.
//!
//! ```text
//! nodes ──upsert──> Snapshot ──┐
//! pods waiting ────────────────┼── decide ──> a node for each pod, or the reasons why there is none
//! now, Policy ─────────────────┘
//! ```
//!
//! A pod goes to the node with the least [load](score) among those that no filter refuses; among equal
//! loads the first by name. Pods are placed in the order given, each seeing what the earlier ones have taken, so
//! nothing is overcommitted within a batch. Between schedulers, the script that assigns sees to that.

mod amounts;
mod batch;
mod candidate;
mod explain;
mod filter;
mod policy;
pub mod score;
mod snapshot;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use common::RedisMillis;
use common::ids::{PodId, ServiceName};
use common::node::Resources;
use common::pod::Refusal;

use batch::{Batch, Class};
use filter::{Moment, Need};

pub use explain::{NodeVerdict, Refused, explain};
pub use filter::Reason;
pub use policy::{Policy, Weights};
pub use snapshot::{Snapshot, Target};

/// A pod that waits for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRequest {
    /// Who it is.
    pub id: PodId,
    /// What is to be set aside for it. It takes a pod slot even where `pods` says 0.
    pub request: Resources,
    /// Whether a guest can run it: [`PodSpec::needs_only_an_image`](common::spec::PodSpec::needs_only_an_image).
    pub needs_only_an_image: bool,
    /// The service it belongs to; none for a pod somebody pushed.
    pub service: Option<ServiceName>,
}

/// What becomes of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Its index among the pods given.
    pub pod: usize,
    /// Where it goes, or why nowhere.
    pub outcome: Outcome,
}

/// Where a pod goes, or why nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Assign it to this node, if it is still in the life that was looked at.
    Place(Arc<Target>),
    /// No node takes it now.
    Unschedulable {
        /// The reason most nodes give first. Found once per batch for all pods that ask for the same, at the first
        /// of them; a node counts under each of its reasons.
        refusals: Arc<[Refusal]>,
    },
}

/// Decides about the pods, in their order; one decision each. The same arguments give the same decisions.
///
/// The snapshot is not changed: [`Snapshot::commit`] what Redis accepts. Give it the weights of the policy; with
/// others the decisions are the same, but all nodes are sorted anew first.
pub fn decide(snapshot: &Snapshot, now: RedisMillis, policy: &Policy, pods: &[PodRequest]) -> Vec<Decision> {
    let snapshot = match *snapshot.weights() == policy.weights {
        true => Cow::Borrowed(snapshot),
        false => Cow::Owned(snapshot.reweighted(policy.weights)),
    };
    let moment = Moment { now, dead_after: policy.dead_after };
    let mut batch = Batch::new(&snapshot, snapshot.order(), &policy.weights, moment);
    let mut classes = Classes::default();
    let decide_one = |(pod, request): (usize, &PodRequest)| {
        let outcome = match batch.place(classes.of(Need::of(request))) {
            Ok(target) => Outcome::Place(target),
            Err(refusals) => Outcome::Unschedulable { refusals },
        };
        Decision { pod, outcome }
    };
    pods.iter().enumerate().map(decide_one).collect()
}

/// The classes met so far.
#[derive(Default)]
struct Classes {
    classes: Vec<Class>,
    by_need: HashMap<Need, usize>,
    last: Option<(Need, usize)>,
}

impl Classes {
    fn of(&mut self, need: Need) -> &mut Class {
        // Pods of one service usually stand in a row.
        let at = match self.last {
            Some((last, at)) if last == need => at,
            _ => *self.by_need.entry(need).or_insert_with(|| {
                self.classes.push(Class::new(need));
                self.classes.len() - 1
            }),
        };
        self.last = Some((need, at));
        &mut self.classes[at]
    }
}
