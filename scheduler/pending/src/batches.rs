//! The batches in which a scheduler takes pods from the queue, and the order of a batch's decisions. Plans
//! place their pods alike.
//!
//! Tests: beside the code

use std::borrow::Borrow;

use model::ids::NodeName;
use placement::{Decision, Outcome, PodRequest};

/// The first one after an idle time.
pub const MIN_BATCH: usize = 64;
/// A large batch gives each node more pods at once.
const MAX_BATCH_PER_NODE: usize = 32;
const MIN_BATCH_LIMIT: usize = 8_192;
/// Some hundred bytes per pod.
const MAX_BATCH_LIMIT: usize = 131_072;

/// Swaps nodes among equal pods, so that a script accesses few nodes, and a worker can claim its pods
/// together. A hard spread holds only in the order of the decisions, and each ordinal has its own zone.
///
/// A decision keeps the index of the pod that it was made for.
pub fn group_by_node(pods: &[impl Borrow<PodRequest>], decisions: &mut [Decision]) {
    let has_order = |a: &PodRequest| {
        a.ordinal.is_some() || a.requirements.rules.as_ref().is_some_and(|rules| rules.has_hard_spread())
    };
    let is_equal = |a: &PodRequest, b: &PodRequest| {
        (&a.requirements, &a.generation, &a.target) == (&b.requirements, &b.generation, &b.target)
            && !has_order(a)
    };
    let mut rest = decisions;
    for run in pods.chunk_by(|a, b| is_equal(a.borrow(), b.borrow())) {
        let (these, others) = rest.split_at_mut(run.len());
        these.sort_by(|a, b| group_key(&a.outcome).cmp(&group_key(&b.outcome)));
        rest = others;
    }
}

fn group_key(outcome: &Outcome) -> (bool, Option<&NodeName>) {
    match outcome {
        Outcome::Place(target) => (false, Some(&target.name)),
        Outcome::Unschedulable { .. } => (true, None),
    }
}

/// Large batches take few calls; small ones let schedulers share the pods.
pub fn next_batch_size(batch_size: usize, taken: usize, nodes: usize) -> usize {
    let next = if taken >= batch_size {
        batch_size * 8
    } else if taken < batch_size / 4 {
        batch_size / 2
    } else {
        batch_size
    };
    next.clamp(MIN_BATCH, batch_limit(nodes))
}

pub fn batch_limit(nodes: usize) -> usize {
    (nodes * MAX_BATCH_PER_NODE).clamp(MIN_BATCH_LIMIT, MAX_BATCH_LIMIT)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::sync::Arc;

    use model::ids::PodId;
    use model::node::Resources;
    use placement::{PlacementTarget, Requirements};

    use super::*;

    #[test]
    fn the_batch_size_follows_the_backlog() {
        let mut batch = MIN_BATCH;
        for _ in 0..10 {
            batch = next_batch_size(batch, batch, 1_000);
        }
        assert_eq!(batch, 32_000);
        assert_eq!(next_batch_size(batch, batch / 2, 1_000), batch);
        assert_eq!(next_batch_size(batch, batch, 3), MIN_BATCH_LIMIT);
        assert_eq!(next_batch_size(batch, batch, 5_000), MAX_BATCH_LIMIT);
        for _ in 0..10 {
            batch = next_batch_size(batch, 1, 1_000);
        }
        assert_eq!(batch, MIN_BATCH);
    }

    #[test]
    fn equal_pods_are_grouped_by_node_and_keep_their_requirements() {
        let pod = |id: &str, cpu_millis| PodRequest {
            id: PodId::new(id).unwrap(),
            requirements: Requirements {
                request: Resources { cpu_millis, ..Resources::default() },
                ..Requirements::default()
            },
            generation: None,
            ordinal: None,
            target: None,
        };
        let on = |name: &str| {
            let name = NodeName::new(name).unwrap();
            Outcome::Place(Arc::new(PlacementTarget { name, incarnation: None }))
        };
        let nowhere = || Outcome::Unschedulable { refusals: Arc::from([]) };
        let pods =
            [pod("1", 1), pod("2", 1), pod("3", 1), pod("4", 1), pod("5", 2), pod("6", 2), pod("7", 1)];
        let outcomes = [on("b"), on("a"), on("b"), nowhere(), on("z"), on("a"), on("b")];
        let decided = outcomes.into_iter().enumerate();
        let mut decisions: Vec<Decision> = decided.map(|(pod, outcome)| Decision { pod, outcome }).collect();
        group_by_node(&pods, &mut decisions);
        let of: Vec<usize> = decisions.iter().map(|decision| decision.pod).collect();
        assert_eq!(of, [1, 0, 2, 3, 5, 4, 6]);
        let outcomes: Vec<Outcome> = decisions.into_iter().map(|decision| decision.outcome).collect();
        assert_eq!(outcomes, [on("a"), on("b"), on("b"), nowhere(), on("a"), on("z"), on("b")]);
    }
}
