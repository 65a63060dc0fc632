//! All nodes at one moment, kept in the order in which they would be given a pod.
//!
//! The order is kept up to date with every change, so that a decision looks at the best few nodes instead of at all.
//! The snapshot is a copy of what Redis holds and never the truth: two schedulers each have their own, and the
//! script that assigns checks again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use common::ids::{Incarnation, NodeName};
use common::node::{Node, Resources};

use super::candidate::{Candidate, add};
use super::policy::Weights;
use super::score::Load;

/// Which life of which node a pod is meant for. Assigning is refused when the node has begun another life since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The node.
    pub name: NodeName,
    /// The life that was looked at; none for guests.
    pub incarnation: Option<Incarnation>,
}

/// The nodes, by name and by load.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    weights: Weights,
    slots: Vec<Slot>,
    by_name: BTreeMap<NodeName, u32>,
    order: BTreeSet<Place>,
}

#[derive(Debug, Clone)]
struct Slot {
    node: Node,
    target: Arc<Target>,
    candidate: Candidate,
    place: Place,
}

/// A node's place in the order: by load, then by name. The least is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) load: Load,
    /// In the order of names, different for each node of a snapshot. Comparing it is cheaper than comparing names.
    pub(super) rank: u64,
    /// Where the node is found: its slot, or its row in a batch.
    pub(super) at: u32,
}

/// The distance between the ranks of neighbours, where there is a choice: room for nodes that come later.
const RANK_STRIDE: u64 = 1 << 32;

impl Snapshot {
    /// No nodes yet. The weights give the order that is kept; deciding with others works, but sorts anew each time.
    pub fn new(weights: Weights) -> Self {
        Self { weights, ..Self::default() }
    }

    /// Adds a node, or replaces what was known of it, commitments included.
    pub fn upsert(&mut self, node: Node) {
        let candidate = Candidate::of(&node, &self.weights);
        let load = candidate.load(&self.weights);
        if let Some(&at) = self.by_name.get(&node.name) {
            let slot = &mut self.slots[at as usize];
            if slot.target.incarnation != node.incarnation {
                slot.target = target(&node);
            }
            (slot.node, slot.candidate) = (node, candidate);
            return self.place(at, load);
        }
        let rank = self.free_rank(&node.name);
        let at = u32::try_from(self.slots.len()).expect("four thousand million nodes do not fit into memory");
        let place = Place { load, rank, at };
        self.by_name.insert(node.name.clone(), at);
        self.order.insert(place);
        self.slots.push(Slot { target: target(&node), node, candidate, place });
    }

    /// Forgets a node. False when it was not known.
    pub fn remove(&mut self, name: &NodeName) -> bool {
        let Some(at) = self.by_name.remove(name) else { return false };
        let gone = self.slots.swap_remove(at as usize);
        self.order.remove(&gone.place);
        // The last slot has moved into the gap: what points to it has to follow.
        if let Some(moved) = self.slots.get_mut(at as usize) {
            self.order.remove(&moved.place);
            moved.place.at = at;
            self.order.insert(moved.place);
            self.by_name.insert(moved.node.name.clone(), at);
        }
        true
    }

    /// Takes note of an assignment that Redis has accepted: the request counts as used until the next
    /// [`upsert`](Self::upsert) of that node. False when the node is not known.
    pub fn commit(&mut self, name: &NodeName, request: Resources) -> bool {
        let Some(&at) = self.by_name.get(name) else { return false };
        let slot = &mut self.slots[at as usize];
        add(&mut slot.node.used, &request);
        slot.candidate.used = slot.node.used;
        let load = slot.candidate.load(&self.weights);
        self.place(at, load);
        true
    }

    /// What is known of a node, commitments included.
    pub fn get(&self, name: &NodeName) -> Option<&Node> {
        self.by_name.get(name).map(|&at| &self.slots[at as usize].node)
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.by_name().map(|(_, _, node)| node)
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The weights by which the nodes are ordered.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The same nodes in the order that other weights give.
    pub(super) fn reweighted(&self, weights: Weights) -> Self {
        let mut other = Self::new(weights);
        self.nodes().for_each(|node| other.upsert(node.clone()));
        other
    }

    /// Best first.
    pub(super) fn order(&self) -> impl Iterator<Item = Place> {
        self.order.iter().copied()
    }

    /// All nodes by name, with the slot each is in and the part of it that decides.
    pub(super) fn by_name(&self) -> impl Iterator<Item = (u32, &Candidate, &Node)> {
        self.by_name
            .values()
            .map(|&at| (at, &self.slots[at as usize].candidate, &self.slots[at as usize].node))
    }

    /// The node in a slot.
    pub(super) fn at(&self, at: u32) -> (&Candidate, &Arc<Target>) {
        let slot = &self.slots[at as usize];
        (&slot.candidate, &slot.target)
    }

    fn place(&mut self, at: u32, load: Load) {
        let place = &mut self.slots[at as usize].place;
        if place.load != load {
            self.order.remove(place);
            place.load = load;
            self.order.insert(*place);
        }
    }

    /// A rank between those of the name's neighbours. All are dealt anew when there is none left.
    fn free_rank(&mut self, name: &NodeName) -> u64 {
        loop {
            let rank_of = |at: &u32| self.slots[*at as usize].place.rank;
            let below = self.by_name.range::<NodeName, _>((Bound::Unbounded, Bound::Excluded(name)));
            let above = self.by_name.range::<NodeName, _>((Bound::Excluded(name), Bound::Unbounded));
            let below = below.map(|(_, at)| rank_of(at)).next_back().unwrap_or(0);
            let above =
                above.map(|(_, at)| rank_of(at)).next().unwrap_or(below.saturating_add(2 * RANK_STRIDE));
            let rank = below + (above - below) / 2;
            if rank > below {
                return rank;
            }
            self.deal_ranks();
        }
    }

    fn deal_ranks(&mut self) {
        for (i, &at) in self.by_name.values().enumerate() {
            self.slots[at as usize].place.rank = (i as u64 + 1) * RANK_STRIDE;
        }
        self.order = self.slots.iter().map(|slot| slot.place).collect();
    }
}

fn target(node: &Node) -> Arc<Target> {
    Arc::new(Target { name: node.name.clone(), incarnation: node.incarnation.clone() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use proptest::prelude::*;

    use super::*;
    use crate::decide::testing::node;

    /// The order is what sorting by load and name would give, and everything points to where it is.
    fn check(snapshot: &Snapshot) {
        let names: Vec<_> = snapshot.order().map(|place| &snapshot.at(place.at).1.name).collect();
        let mut nodes: Vec<_> = snapshot.nodes().collect();
        assert!(nodes.windows(2).all(|pair| pair[0].name < pair[1].name));
        let load = |n: &Node| Candidate::of(n, &snapshot.weights).load(&snapshot.weights);
        nodes.sort_by_key(|n| load(n));
        assert_eq!(names, nodes.iter().map(|n| &n.name).collect::<Vec<_>>());
        assert_eq!((snapshot.len(), snapshot.is_empty()), (nodes.len(), nodes.is_empty()));
        for node in nodes {
            let slot = &snapshot.slots[snapshot.by_name[&node.name] as usize];
            assert_eq!((&slot.node.name, &slot.target.name), (&node.name, &node.name));
            assert_eq!(slot.target.incarnation, node.incarnation);
            assert_eq!(slot.candidate.used, node.used);
        }
    }

    proptest! {
        #[test]
        fn the_order_survives_any_changes(steps in prop::collection::vec((0..4u8, 0..12u8, 0..5u64), 0..60)) {
            let mut snapshot = Snapshot::new(Weights::default());
            for (step, name, n) in steps {
                let name = NodeName::new(format!("n{name}")).unwrap();
                let known = snapshot.get(&name).map(|node| node.used.pods);
                let one = Resources { pods: n, ..Resources::default() };
                match step {
                    0 => prop_assert_eq!(snapshot.remove(&name), known.is_some()),
                    1 => prop_assert_eq!(snapshot.commit(&name, one), known.is_some()),
                    _ => snapshot.upsert(node(name.as_str()).pods(n, 110).build()),
                }
                let after = snapshot.get(&name).map(|node| node.used.pods);
                prop_assert_eq!(after, match step { 0 => None, 1 => known.map(|k| k + n), _ => Some(n) });
                check(&snapshot);
            }
        }
    }

    #[test]
    fn names_may_come_in_any_order() {
        let rising = (0..200).map(|i| format!("n{i:03}"));
        let falling = (0..200).rev().map(|i| format!("m{i:03}"));
        // Each between the last two: this uses up the gaps fastest.
        let nested = (0..100).flat_map(|i| ["a".repeat(i % 60 + 1), format!("{}b", "a".repeat(i % 60))]);
        let mut snapshot = Snapshot::new(Weights::default());
        for name in rising.chain(falling).chain(nested) {
            snapshot.upsert(node(&name).build());
        }
        check(&snapshot);
        assert_eq!(snapshot.len(), 520);
    }

    #[test]
    fn a_new_life_is_a_new_target() {
        let mut snapshot = Snapshot::new(Weights::default());
        for life in ["one", "two"] {
            snapshot
                .upsert(node("a").with(|n| n.incarnation = Some(Incarnation::new(life).unwrap())).build());
            check(&snapshot);
        }
    }
}
