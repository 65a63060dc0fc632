//! All nodes, the best for the next pod first.
//!
//! Every change updates the order, so a decision examines only the best few. The copy may be outdated: the
//! script that assigns pods checks again.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use model::ids::{Incarnation, NodeName};
use model::node::{Node, Resources};
use model::spec::HostPorts;

use crate::candidate::Candidate;
use crate::policy::Weights;
use crate::score::LoadScore;

/// Redis refuses the assignment if the node's worker has registered again since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementTarget {
    pub name: NodeName,
    /// `None` for an external worker.
    pub incarnation: Option<Incarnation>,
}

#[derive(Debug, Clone, Default)]
pub struct ClusterSnapshot {
    weights: Weights,
    entries: Vec<NodeEntry>,
    by_name: BTreeMap<NodeName, u32>,
    order: BTreeSet<RankKey>,
    /// Nodes without reported pressure. Their loads lack the typical pressure: a change of it moves no node.
    order_without_pressure: BTreeSet<RankKey>,
    pressures: BTreeMap<LoadScore, usize>,
}

#[derive(Debug, Clone)]
struct NodeEntry {
    node: Node,
    target: Arc<PlacementTarget>,
    candidate: Candidate,
    key: RankKey,
}

/// The lowest key is the best node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RankKey {
    pub(crate) load: LoadScore,
    /// Ascends with the name; cheaper to compare.
    pub(crate) name_rank: u64,
    /// In the snapshot, or in the pool of a batch.
    pub(crate) index: u32,
}

/// Gaps for nodes that join later.
const NAME_RANK_STRIDE: u64 = 1 << 32;

impl ClusterSnapshot {
    pub fn new(weights: Weights) -> Self {
        Self { weights, ..Self::default() }
    }

    /// Replaces all data, including commitments.
    pub fn upsert(&mut self, node: Node) {
        let candidate = Candidate::new(&node, &self.weights);
        let load = candidate.load(&self.weights, 0);
        if let Some(&index) = self.by_name.get(&node.name) {
            self.take_out_of_order(index);
            let entry = &mut self.entries[index as usize];
            if entry.target.incarnation != node.incarnation {
                entry.target = target_of(&node);
            }
            entry.node = node;
            entry.candidate = candidate;
            return self.put_in_order(index, load);
        }
        let name_rank = self.free_name_rank(&node.name);
        let index = u32::try_from(self.entries.len()).expect("fewer than 2^32 nodes fit into memory");
        let key = RankKey { load, name_rank, index };
        self.by_name.insert(node.name.clone(), index);
        self.entries.push(NodeEntry { target: target_of(&node), node, candidate, key });
        self.put_in_order(index, load);
    }

    pub fn remove(&mut self, name: &NodeName) -> bool {
        let Some(index) = self.by_name.remove(name) else { return false };
        let last = (self.entries.len() - 1) as u32;
        self.take_out_of_order(index);
        if last != index {
            self.take_out_of_order(last);
        }
        self.entries.swap_remove(index as usize);
        // The last entry has moved into the gap.
        if let Some(moved) = self.entries.get_mut(index as usize) {
            moved.key.index = index;
            let load = moved.key.load;
            self.by_name.insert(moved.node.name.clone(), index);
            self.put_in_order(index, load);
        }
        true
    }

    /// Counts an accepted assignment as used until the next [`upsert`](Self::upsert). Returns false if the
    /// node is unknown.
    pub fn commit(&mut self, name: &NodeName, request: Resources) -> bool {
        let Some(&index) = self.by_name.get(name) else { return false };
        self.take_out_of_order(index);
        let entry = &mut self.entries[index as usize];
        entry.node.used = entry.node.used.saturating_add(request);
        entry.candidate.used = entry.node.used;
        let load = entry.candidate.load(&self.weights, 0);
        self.put_in_order(index, load);
        true
    }

    pub fn commit_ports(&mut self, node: &NodeName, ports: &HostPorts, name: &str) {
        let Some(&index) = self.by_name.get(node).filter(|_| !ports.is_empty()) else { return };
        let entry = &mut self.entries[index as usize];
        entry.candidate.take_ports(ports, name);
        entry.node.host_ports.extend(ports.iter().map(|port| (port.to_owned(), name.to_owned())));
    }

    pub fn get(&self, name: &NodeName) -> Option<&Node> {
        self.by_name.get(name).map(|&index| &self.entries[index as usize].node)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.by_name().map(|(_, _, node)| node)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn ordered_by(&self, weights: Weights) -> Cow<'_, Self> {
        if self.weights == weights {
            return Cow::Borrowed(self);
        }
        let mut other = Self::new(weights);
        self.nodes().for_each(|node| other.upsert(node.clone()));
        Cow::Owned(other)
    }

    /// The median, or 0.
    pub(crate) fn typical_pressure(&self) -> LoadScore {
        let count: usize = self.pressures.values().sum();
        if count == 0 || self.order_without_pressure.is_empty() {
            return 0;
        }
        let sorted = self.pressures.iter().flat_map(|(pressure, n)| std::iter::repeat_n(*pressure, *n));
        let middle: Vec<LoadScore> = sorted.skip((count - 1) / 2).take(2 - count % 2).collect();
        middle.iter().sum::<LoadScore>() / middle.len() as LoadScore
    }

    pub(crate) fn order(&self) -> impl Iterator<Item = RankKey> {
        let typical_pressure = self.typical_pressure();
        let with_typical =
            move |key: &RankKey| RankKey { load: key.load.saturating_add(typical_pressure), ..*key };
        let mut reported = self.order.iter().copied().peekable();
        let mut others = self.order_without_pressure.iter().map(with_typical).peekable();
        std::iter::from_fn(move || match (reported.peek(), others.peek()) {
            (Some(a), Some(b)) if b < a => others.next(),
            (None, _) => others.next(),
            _ => reported.next(),
        })
    }

    pub(crate) fn by_name(&self) -> impl Iterator<Item = (u32, &Candidate, &Node)> {
        self.by_name
            .values()
            .map(|&at| (at, &self.entries[at as usize].candidate, &self.entries[at as usize].node))
    }

    pub(crate) fn at(&self, index: u32) -> (&Candidate, &Arc<PlacementTarget>) {
        let entry = &self.entries[index as usize];
        (&entry.candidate, &entry.target)
    }

    fn take_out_of_order(&mut self, index: u32) {
        let entry = &self.entries[index as usize];
        let Some(pressure) = entry.candidate.pressure else {
            self.order_without_pressure.remove(&entry.key);
            return;
        };
        self.order.remove(&entry.key);
        if let Some(count) = self.pressures.get_mut(&pressure) {
            *count -= 1;
            if *count == 0 {
                self.pressures.remove(&pressure);
            }
        }
    }

    fn put_in_order(&mut self, index: u32, load: LoadScore) {
        let entry = &mut self.entries[index as usize];
        entry.key.load = load;
        match entry.candidate.pressure {
            Some(pressure) => {
                self.order.insert(entry.key);
                *self.pressures.entry(pressure).or_default() += 1;
            }
            None => drop(self.order_without_pressure.insert(entry.key)),
        }
    }

    /// Between those of the neighbors; if none is left, assigns all anew.
    fn free_name_rank(&mut self, name: &NodeName) -> u64 {
        loop {
            let rank_of = |index: &u32| self.entries[*index as usize].key.name_rank;
            let mut before = self.by_name.range::<NodeName, _>((Bound::Unbounded, Bound::Excluded(name)));
            let mut after = self.by_name.range::<NodeName, _>((Bound::Excluded(name), Bound::Unbounded));
            let low = before.next_back().map_or(0, |(_, index)| rank_of(index));
            let high =
                after.next().map_or(low.saturating_add(2 * NAME_RANK_STRIDE), |(_, index)| rank_of(index));
            let rank = low + (high - low) / 2;
            if rank > low {
                return rank;
            }
            self.reassign_name_ranks();
        }
    }

    fn reassign_name_ranks(&mut self) {
        for (i, &index) in self.by_name.values().enumerate() {
            self.entries[index as usize].key.name_rank = (i as u64 + 1) * NAME_RANK_STRIDE;
        }
        let (reported, others): (Vec<_>, Vec<_>) =
            self.entries.iter().partition(|entry| entry.candidate.pressure.is_some());
        self.order = reported.into_iter().map(|entry| entry.key).collect();
        self.order_without_pressure = others.into_iter().map(|entry| entry.key).collect();
    }
}

fn target_of(node: &Node) -> Arc<PlacementTarget> {
    Arc::new(PlacementTarget { name: node.name.clone(), incarnation: node.incarnation.clone() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use proptest::prelude::*;

    use super::*;
    use crate::testing::node;

    fn assert_consistent(snapshot: &ClusterSnapshot) {
        let names: Vec<_> = snapshot.order().map(|key| &snapshot.at(key.index).1.name).collect();
        let mut nodes: Vec<_> = snapshot.nodes().collect();
        assert!(nodes.windows(2).all(|pair| pair[0].name < pair[1].name));
        let typical = snapshot.typical_pressure();
        let load = |n: &Node| Candidate::new(n, &snapshot.weights).load(&snapshot.weights, typical);
        nodes.sort_by_key(|n| load(n));
        assert_eq!(names, nodes.iter().map(|n| &n.name).collect::<Vec<_>>());
        assert_eq!((snapshot.len(), snapshot.is_empty()), (nodes.len(), nodes.is_empty()));
        for node in nodes {
            let entry = &snapshot.entries[snapshot.by_name[&node.name] as usize];
            assert_eq!((&entry.node.name, &entry.target.name), (&node.name, &node.name));
            assert_eq!(entry.target.incarnation, node.incarnation);
            assert_eq!(entry.candidate.used, node.used);
        }
    }

    proptest! {
        #[test]
        fn the_order_is_consistent_after_any_changes(
            steps in prop::collection::vec((0..4u8, 0..12u8, 0..5u64), 0..60),
        ) {
            let mut snapshot = ClusterSnapshot::new(Weights::default());
            for (step, name, n) in steps {
                let name = NodeName::new(format!("n{name}")).unwrap();
                let known = snapshot.get(&name).map(|node| node.used.pods);
                let one = Resources { pods: n, ..Resources::default() };
                match step {
                    0 => prop_assert_eq!(snapshot.remove(&name), known.is_some()),
                    1 => prop_assert_eq!(snapshot.commit(&name, one), known.is_some()),
                    2 => snapshot.upsert(node(name.as_str()).pods(n, 110).with(|n| n.psi = None).build()),
                    _ => {
                        let pressure = move |psi: &mut model::node::Psi| psi.cpu_some = 10.0 * n as f32;
                        snapshot.upsert(node(name.as_str()).pods(n, 110).psi(pressure).build());
                    }
                }
                let after = snapshot.get(&name).map(|node| node.used.pods);
                prop_assert_eq!(after, match step { 0 => None, 1 => known.map(|k| k + n), _ => Some(n) });
                assert_consistent(&snapshot);
            }
        }
    }

    #[test]
    fn nodes_can_be_added_in_any_order_of_names() {
        let rising = (0..200).map(|i| format!("n{i:03}"));
        let falling = (0..200).rev().map(|i| format!("m{i:03}"));
        // Each between the last two, which uses up the gaps fastest.
        let nested = (0..100).flat_map(|i| ["a".repeat(i % 60 + 1), format!("{}b", "a".repeat(i % 60))]);
        let mut snapshot = ClusterSnapshot::new(Weights::default());
        for name in rising.chain(falling).chain(nested) {
            snapshot.upsert(node(&name).build());
        }
        assert_consistent(&snapshot);
        assert_eq!(snapshot.len(), 520);
    }

    #[test]
    fn a_new_incarnation_is_a_new_target() {
        let mut snapshot = ClusterSnapshot::new(Weights::default());
        for incarnation in ["one", "two"] {
            let incarnation = Some(Incarnation::new(incarnation).unwrap());
            snapshot.upsert(node("a").with(|n| n.incarnation = incarnation).build());
            assert_consistent(&snapshot);
        }
    }
}
