//! The search of a class with another profile than `default`: it judges every node, because the shared orders
//! know only the load of `default`. The next pod of the class needs only the nodes that have changed since,
//! unless rules count: then one placement changes others.
//!
//! Tests: tests::profiles

use std::collections::{BTreeSet, HashMap};

use model::node::Resources;
use model::spec::PlacementProfile;

use crate::candidate::Candidate;
use crate::profile::{self, ClusterTotals, Profiled};
use crate::score::{LoadScore, TermScore};
use crate::snapshot::{ClusterSnapshot, RankKey};

/// Of one class in a cluster of 5,000 nodes, about half a megabyte.
const MAX_ORDERS: usize = 64;

/// The nodes that can run a pod of a class, by index in the snapshot.
pub(crate) struct ScanOrder {
    keys: BTreeSet<RankKey>,
    key_of: HashMap<u32, RankKey>,
    /// The number of changes that it knows.
    changes: usize,
}

pub(crate) struct ProfileScan<'a> {
    snapshot: &'a ClusterSnapshot,
    totals: ClusterTotals,
    first_use: u64,
    last_use: u64,
    /// Nodes that got a pod, in order.
    changed: Vec<u32>,
    orders: usize,
    /// Of this batch, by index in the snapshot.
    uses: HashMap<u32, u64>,
}

impl<'a> ProfileScan<'a> {
    pub(crate) fn new(snapshot: &'a ClusterSnapshot, typical_pressure: LoadScore) -> Self {
        let totals = ClusterTotals::new(snapshot.measures(), snapshot.needs(), typical_pressure);
        let first_use = snapshot.first_use();
        let (last_use, uses) = (snapshot.uses(), HashMap::new());
        Self { snapshot, totals, first_use, last_use, changed: Vec::new(), orders: 0, uses }
    }

    /// `siblings` are pods of the same generation on the node.
    pub(crate) fn load(
        &self,
        profile: PlacementProfile,
        (index, node): (u32, &Candidate),
        request: &Resources,
        siblings: u64,
    ) -> LoadScore {
        profile::load(profile, &self.profiled((index, node), request, siblings))
    }

    pub(crate) fn explain(
        &self,
        profile: PlacementProfile,
        (index, node): (u32, &Candidate),
        request: &Resources,
        siblings: u64,
    ) -> Vec<TermScore> {
        profile::explain(profile, &self.profiled((index, node), request, siblings))
    }

    pub(crate) fn note_change(&mut self, index: u32) {
        self.changed.push(index);
    }

    /// `None` if there are too many.
    pub(crate) fn new_order(&mut self, keys: &[RankKey]) -> Option<ScanOrder> {
        if self.orders == MAX_ORDERS {
            return None;
        }
        self.orders += 1;
        let key_of: HashMap<u32, RankKey> = keys.iter().map(|key| (key.index, *key)).collect();
        Some(ScanOrder { keys: keys.iter().copied().collect(), key_of, changes: self.changed.len() })
    }

    /// `current` returns the key of now, or `None` if the node cannot run a pod of the class.
    pub(crate) fn update(&self, order: &mut ScanOrder, current: impl Fn(u32) -> Option<RankKey>) {
        for &node in &self.changed[order.changes..] {
            order.set(node, current(node));
        }
        order.changes = self.changed.len();
    }

    pub(crate) fn note_use(&mut self, index: u32) {
        self.last_use += 1;
        self.uses.insert(index, self.last_use);
    }

    fn profiled<'b>(
        &'b self,
        (index, node): (u32, &'b Candidate),
        request: &'b Resources,
        siblings: u64,
    ) -> Profiled<'b> {
        let last_use = self.last_use(index);
        Profiled { node, request, cluster: &self.totals, siblings, last_use }
    }

    /// Counted from the node that was used longest ago.
    pub(crate) fn last_use(&self, index: u32) -> u64 {
        let last_use = self.uses.get(&index).copied().unwrap_or_else(|| self.snapshot.last_use_of(index));
        last_use - self.first_use
    }
}

impl ScanOrder {
    pub(crate) fn best(&self) -> Option<RankKey> {
        self.keys.first().copied()
    }

    fn set(&mut self, node: u32, key: Option<RankKey>) {
        if let Some(known) = self.key_of.remove(&node) {
            self.keys.remove(&known);
        }
        if let Some(key) = key {
            self.keys.insert(key);
            self.key_of.insert(node, key);
        }
    }
}
