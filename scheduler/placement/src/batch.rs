//! Places the pods of one batch; each placement counts for the next.
//!
//! Nodes are visited in the snapshot's order, as far as needed; visited ones form the pool of copies.
//!
//! Within a batch loads only grow and free resources only shrink. So an unvisited node keeps its position,
//! and a refusal holds for the class. A node can move behind the key up to which a class was refused, never
//! before it.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use model::pod::Refusal;

use crate::candidate::Candidate;
use crate::explain;
use crate::filter::{self, EvalContext};
use crate::policy::Weights;
use crate::requirements::Requirements;
use crate::score::LoadScore;
use crate::snapshot::{ClusterSnapshot, PlacementTarget, RankKey};

pub(crate) struct PlacementBatch<'a, I: Iterator<Item = RankKey>> {
    snapshot: &'a ClusterSnapshot,
    weights: &'a Weights,
    typical_pressure: LoadScore,
    context: EvalContext,
    unvisited: Peekable<I>,
    pooled: Vec<PooledNode<'a>>,
    /// Keys with indexes into `pooled`.
    pool: BTreeSet<RankKey>,
}

struct PooledNode<'a> {
    candidate: Candidate,
    target: &'a Arc<PlacementTarget>,
    snapshot_index: u32,
}

pub(crate) struct PodClass {
    pub(crate) requirements: Requirements,
    refused_up_to: Option<RankKey>,
    /// A batch frees no resources.
    unschedulable: Option<Arc<[Refusal]>>,
}

impl PodClass {
    pub(crate) fn new(requirements: Requirements) -> Self {
        Self { requirements, refused_up_to: None, unschedulable: None }
    }
}

impl<'a, I: Iterator<Item = RankKey>> PlacementBatch<'a, I> {
    pub(crate) fn new(
        snapshot: &'a ClusterSnapshot,
        order: I,
        weights: &'a Weights,
        context: EvalContext,
    ) -> Self {
        Self {
            snapshot,
            weights,
            typical_pressure: snapshot.typical_pressure(),
            context,
            unvisited: order.peekable(),
            pooled: Vec::new(),
            pool: BTreeSet::new(),
        }
    }

    /// `name` identifies the pod to others that need the same host port.
    pub(crate) fn place(
        &mut self,
        class: &mut PodClass,
        name: &str,
    ) -> Result<Arc<PlacementTarget>, Arc<[Refusal]>> {
        if let Some(refusals) = &class.unschedulable {
            return Err(refusals.clone());
        }
        loop {
            if let Some(key) = self.first_fit(class) {
                return Ok(self.reserve(key, &class.requirements, name));
            }
            if !self.visit_next(&class.requirements) {
                return Err(class.unschedulable.insert(self.refusals(&class.requirements)).clone());
            }
        }
    }

    fn first_fit(&mut self, class: &mut PodClass) -> Option<RankKey> {
        let limit = self.unvisited.peek().copied();
        match class.refused_up_to {
            // Finding the beginning of a range takes a fifth of a placement.
            None => self.first_fit_of(self.pool.iter(), limit, class),
            Some(refused) => {
                let others = (Bound::Excluded(refused), Bound::Unbounded);
                self.first_fit_of(self.pool.range(others), limit, class)
            }
        }
    }

    fn first_fit_of<'k>(
        &self,
        keys: impl Iterator<Item = &'k RankKey>,
        limit: Option<RankKey>,
        class: &mut PodClass,
    ) -> Option<RankKey> {
        for key in keys {
            if limit.is_some_and(|limit| *key > limit) {
                break;
            }
            let candidate = &self.pooled[key.index as usize].candidate;
            if filter::is_feasible(filter::POD_FILTERS, candidate, &class.requirements, &self.context) {
                return Some(*key);
            }
            class.refused_up_to = Some(*key);
        }
        None
    }

    fn reserve(&mut self, key: RankKey, requirements: &Requirements, name: &str) -> Arc<PlacementTarget> {
        self.pool.remove(&key);
        let node = &mut self.pooled[key.index as usize];
        node.candidate.used = node.candidate.used.saturating_add(requirements.resources());
        node.candidate.take_ports(&requirements.host_ports, name);
        if node.candidate.has_free_slot() {
            self.pool
                .insert(RankKey { load: node.candidate.load(self.weights, self.typical_pressure), ..key });
        }
        node.target.clone()
    }

    /// Returns false if all nodes have been visited.
    fn visit_next(&mut self, requirements: &Requirements) -> bool {
        let Some(key) = self.unvisited.next() else { return false };
        let (candidate, target) = self.snapshot.at(key.index);
        if filter::is_feasible(filter::NODE_FILTERS, candidate, requirements, &self.context)
            && candidate.has_free_slot()
        {
            let index = u32::try_from(self.pooled.len()).expect("the pool is no larger than the snapshot");
            self.pooled.push(PooledNode { candidate: candidate.clone(), target, snapshot_index: key.index });
            self.pool.insert(RankKey { index, ..key });
        }
        true
    }

    fn refusals(&self, requirements: &Requirements) -> Arc<[Refusal]> {
        let mut changed = vec![None; self.snapshot.len()];
        self.pooled.iter().for_each(|node| changed[node.snapshot_index as usize] = Some(&node.candidate));
        explain::refusals(self.snapshot, requirements, &self.context, |index, candidate| {
            changed[index as usize].unwrap_or(candidate)
        })
    }
}
