//! Placing the pods of one batch, one after the other, each seeing what the earlier ones have taken.
//!
//! Nodes are taken from the snapshot's order one at a time, best first, and only as far as they are needed. Those
//! taken form the pool, which is ordered too and holds copies: placing a pod changes the copy, and moves it to where
//! its greater load belongs. The snapshot stays as it is.
//!
//! What makes this fast: while a batch is being placed, loads only grow and room only shrinks. So
//! - a node not taken yet still has the place it has in the snapshot;
//! - a node that refused a pod refuses every pod of the same class for the rest of the batch. Each class therefore
//!   remembers how far it has been refused, and starts there: a node can move behind that mark, never before it.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use common::pod::Refusal;

use super::candidate::{Candidate, add};
use super::explain;
use super::filter::{self, Moment, Need};
use super::policy::Weights;
use super::snapshot::{Place, Snapshot, Target};

/// The state of placing a batch.
pub(super) struct Batch<'a, I: Iterator<Item = Place>> {
    snapshot: &'a Snapshot,
    weights: &'a Weights,
    moment: Moment,
    /// The nodes not looked at yet.
    ahead: Peekable<I>,
    rows: Vec<Row<'a>>,
    /// The rows that can still take a pod.
    pool: BTreeSet<Place>,
}

struct Row<'a> {
    candidate: Candidate,
    target: &'a Arc<Target>,
    slot: u32,
}

/// Pods that ask for the same.
pub(super) struct Class {
    need: Need,
    /// All places up to this one have refused.
    refused: Option<Place>,
    /// Why no node takes this class. Once there, it stays: nothing is given back within a batch.
    hopeless: Option<Arc<[Refusal]>>,
}

impl Class {
    pub(super) fn new(need: Need) -> Self {
        Self { need, refused: None, hopeless: None }
    }
}

impl<'a, I: Iterator<Item = Place>> Batch<'a, I> {
    pub(super) fn new(snapshot: &'a Snapshot, order: I, weights: &'a Weights, moment: Moment) -> Self {
        let (ahead, rows, pool) = (order.peekable(), Vec::new(), BTreeSet::new());
        Self { snapshot, weights, moment, ahead, rows, pool }
    }

    /// Gives the next pod of a class its node, or the reasons why there is none.
    pub(super) fn place(&mut self, class: &mut Class) -> Result<Arc<Target>, Arc<[Refusal]>> {
        if let Some(refusals) = &class.hopeless {
            return Err(refusals.clone());
        }
        loop {
            if let Some(place) = self.first_fit(class) {
                return Ok(self.give(place, &class.need));
            }
            if !self.take_next(&class.need) {
                return Err(class.hopeless.insert(self.refusals(&class.need)).clone());
            }
        }
    }

    /// The best row that takes the pod, among those better than all nodes ahead.
    fn first_fit(&mut self, class: &mut Class) -> Option<Place> {
        let from = class.refused.map_or(Bound::Unbounded, Bound::Excluded);
        let limit = self.ahead.peek().copied();
        for place in self.pool.range((from, Bound::Unbounded)) {
            if limit.is_some_and(|limit| *place > limit) {
                break;
            }
            let candidate = &self.rows[place.at as usize].candidate;
            if filter::pass(&filter::OF_POD, candidate, &class.need, &self.moment) {
                return Some(*place);
            }
            class.refused = Some(*place);
        }
        None
    }

    /// Lets the row at this place have the pod.
    fn give(&mut self, place: Place, need: &Need) -> Arc<Target> {
        self.pool.remove(&place);
        let row = &mut self.rows[place.at as usize];
        add(&mut row.candidate.used, &need.resources());
        if row.candidate.free().pods > 0 {
            self.pool.insert(Place { load: row.candidate.load(self.weights), ..place });
        }
        row.target.clone()
    }

    /// Looks at the next node ahead, and takes it into the pool if it is fit for anything at all. False when there
    /// was none left.
    fn take_next(&mut self, need: &Need) -> bool {
        let Some(place) = self.ahead.next() else { return false };
        let (candidate, target) = self.snapshot.at(place.at);
        if filter::pass(&filter::OF_NODE, candidate, need, &self.moment) && candidate.free().pods > 0 {
            let row = u32::try_from(self.rows.len()).expect("no more rows than the snapshot has slots");
            self.rows.push(Row { candidate: *candidate, target, slot: place.at });
            self.pool.insert(Place { at: row, ..place });
        }
        true
    }

    /// Why each node refuses, with what this batch has put on it so far.
    fn refusals(&self, need: &Need) -> Arc<[Refusal]> {
        let mut rows = vec![None; self.snapshot.len()];
        self.rows.iter().for_each(|row| rows[row.slot as usize] = Some(&row.candidate));
        explain::refusals(self.snapshot, need, &self.moment, |at, candidate| {
            rows[at as usize].unwrap_or(candidate)
        })
    }
}
