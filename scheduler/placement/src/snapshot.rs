//! All nodes, by zone, in each the best for the next pod first.
//!
//! Every change updates the orders, so a decision examines only the best few. The copy may be outdated: the
//! script that assigns pods checks again.

mod domains;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use model::ids::{Incarnation, NodeName};
use model::node::{Node, Resources};
use model::spec::{HostPorts, NamedRequest};

use crate::candidate::Candidate;
use crate::placed::PlacedPods;
use crate::policy::Weights;
use crate::profile::ClusterMeasures;
use crate::requirements::Generation;
use crate::score::LoadScore;
use crate::whole::WholeCluster;

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
    cells: Vec<Cell>,
    /// May name empty cells.
    cell_of_zone: BTreeMap<String, u32>,
    pressures: BTreeMap<LoadScore, usize>,
    placed: PlacedPods,
    needs: Arc<[(Resources, u64)]>,
    uses: u64,
    /// If only few of its nodes are here.
    whole: Option<Arc<WholeCluster>>,
}

#[derive(Debug, Clone)]
struct NodeEntry {
    node: Node,
    target: Arc<PlacementTarget>,
    candidate: Candidate,
    key: RankKey,
    cell: u32,
    /// See [`ClusterSnapshot::commit_use`].
    last_use: u64,
}

/// The nodes of one zone.
#[derive(Debug, Clone, Default)]
struct Cell {
    order: BTreeSet<RankKey>,
    /// Nodes without reported pressure. Their loads lack the typical pressure: a change of it moves no node.
    order_without_pressure: BTreeSet<RankKey>,
}

impl Cell {
    fn is_empty(&self) -> bool {
        self.order.is_empty() && self.order_without_pressure.is_empty()
    }

    fn insert(&mut self, key: RankKey, has_pressure: bool) {
        if has_pressure {
            self.order.insert(key)
        } else {
            self.order_without_pressure.insert(key)
        };
    }

    fn order(&self, typical_pressure: LoadScore) -> impl Iterator<Item = RankKey> {
        let with_typical = move |key: &RankKey| key.with_more(typical_pressure);
        let mut reported = self.order.iter().copied().peekable();
        let mut others = self.order_without_pressure.iter().map(with_typical).peekable();
        std::iter::from_fn(move || match (reported.peek(), others.peek()) {
            (Some(a), Some(b)) if b < a => others.next(),
            (None, _) => others.next(),
            _ => reported.next(),
        })
    }
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

impl RankKey {
    pub(crate) fn with_more(self, load: LoadScore) -> Self {
        Self { load: self.load.saturating_add(load), ..self }
    }

    pub(crate) fn with_less(self, load: LoadScore) -> Self {
        Self { load: self.load.saturating_sub(load), ..self }
    }
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
            let cell = self.cell_for(node.zone());
            let entry = &mut self.entries[index as usize];
            if entry.target.incarnation != node.incarnation {
                entry.target = target_of(&node);
            }
            entry.cell = cell;
            entry.node = node;
            entry.candidate = candidate;
            return self.put_in_order(index, load);
        }
        let name_rank = self.free_name_rank(&node.name);
        let index = u32::try_from(self.entries.len()).expect("fewer than 2^32 nodes fit into memory");
        let key = RankKey { load, name_rank, index };
        let cell = self.cell_for(node.zone());
        self.by_name.insert(node.name.clone(), index);
        self.entries.push(NodeEntry { target: target_of(&node), node, candidate, key, cell, last_use: 0 });
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

    /// Takes back what [`commit`](Self::commit) counted, or what the node had of a pod that leaves it.
    pub fn release(&mut self, name: &NodeName, request: Resources) {
        let Some(&index) = self.by_name.get(name) else { return };
        self.take_out_of_order(index);
        let entry = &mut self.entries[index as usize];
        entry.node.used = entry.node.used.saturating_sub(request);
        entry.candidate.used = entry.node.used;
        let load = entry.candidate.load(&self.weights, 0);
        self.put_in_order(index, load);
    }

    /// Replaces those of all generations: pods of others are placed by load alone.
    pub fn set_placed(&mut self, placed: PlacedPods) {
        self.placed = placed;
    }

    pub fn commit_placed(&mut self, node: &NodeName, generation: &Generation) {
        self.placed.add(node, generation);
    }

    pub fn release_placed(&mut self, node: &NodeName, generation: &Generation) {
        self.placed.take_out(node, generation);
    }

    pub(crate) fn placed(&self) -> &PlacedPods {
        &self.placed
    }

    /// Requests of the cluster's services, with their numbers of pods: `fragmentation` keeps room for them.
    pub fn set_needs(&mut self, needs: impl Into<Arc<[(Resources, u64)]>>) {
        self.needs = needs.into();
    }

    pub(crate) fn needs(&self) -> &[(Resources, u64)] {
        &self.needs
    }

    /// `round-robin` has placed a pod on the node.
    pub fn commit_use(&mut self, node: &NodeName) {
        if let Some(&index) = self.by_name.get(node) {
            self.uses += 1;
            self.entries[index as usize].last_use = self.uses;
        }
    }

    /// The nodes are a part of this cluster.
    pub(crate) fn set_whole(&mut self, whole: WholeCluster) {
        self.whole = Some(Arc::new(whole));
    }

    pub(crate) fn whole(&self) -> Option<&WholeCluster> {
        self.whole.as_deref()
    }

    /// Pods of the generation, by cell: of the whole cluster.
    pub(crate) fn whole_by_cell(&self) -> impl Iterator<Item = (u32, u64)> {
        let by_zone = self.whole.iter().flat_map(|whole| &whole.by_zone);
        by_zone.filter_map(|(zone, count)| Some((*self.cell_of_zone.get(zone)?, *count)))
    }

    pub(crate) fn measures(&self) -> ClusterMeasures {
        let of_all = || ClusterMeasures::of(self.by_name().map(|(_, candidate, _)| candidate));
        self.whole.as_ref().map_or_else(of_all, |whole| whole.measures)
    }

    /// Of the node that was used longest ago.
    pub(crate) fn first_use(&self) -> u64 {
        match self.whole {
            Some(_) => 0,
            None => self.entries.iter().map(|entry| entry.last_use).min().unwrap_or(0),
        }
    }

    pub(crate) fn set_last_use(&mut self, node: &NodeName, last_use: u64) {
        if let Some(&index) = self.by_name.get(node) {
            self.entries[index as usize].last_use = last_use;
            self.uses = self.uses.max(last_use);
        }
    }

    pub(crate) fn uses(&self) -> u64 {
        self.uses
    }

    /// 0 before its first one.
    pub(crate) fn last_use_of(&self, index: u32) -> u64 {
        self.entries[index as usize].last_use
    }

    pub fn commit_ports(&mut self, node: &NodeName, ports: &HostPorts, name: &str) {
        let Some(&index) = self.by_name.get(node).filter(|_| !ports.is_empty()) else { return };
        let entry = &mut self.entries[index as usize];
        entry.candidate.take_ports(ports, name);
        entry.node.host_ports.extend(ports.iter().map(|port| (port.to_owned(), name.to_owned())));
    }

    pub fn commit_ids(&mut self, node: &NodeName, request: &NamedRequest, name: &str) {
        if let Some(&index) = self.by_name.get(node) {
            let entry = &mut self.entries[index as usize];
            entry.candidate.take_ids(request);
            entry.node.give_ids(request, name);
        }
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
        let (placed, needs, whole) = (self.placed.clone(), self.needs.clone(), self.whole.clone());
        let mut other = Self { placed, needs, uses: self.uses, whole, ..Self::new(weights) };
        self.nodes().for_each(|node| other.upsert(node.clone()));
        for (entry, own) in other.entries.iter_mut().zip(self.by_name.values()) {
            entry.last_use = self.last_use_of(*own);
        }
        Cow::Owned(other)
    }

    /// The median, or 0.
    pub(crate) fn typical_pressure(&self) -> LoadScore {
        if let Some(whole) = &self.whole {
            return whole.typical_pressure;
        }
        let count: usize = self.pressures.values().sum();
        if count == 0 || count == self.len() {
            return 0;
        }
        let sorted = self.pressures.iter().flat_map(|(pressure, n)| std::iter::repeat_n(*pressure, *n));
        let middle: Vec<LoadScore> = sorted.skip((count - 1) / 2).take(2 - count % 2).collect();
        middle.iter().sum::<LoadScore>() / middle.len() as LoadScore
    }

    /// Of each cell.
    pub(crate) fn orders(&self) -> impl Iterator<Item = impl Iterator<Item = RankKey>> {
        let typical_pressure = self.typical_pressure();
        self.cells.iter().map(move |cell| cell.order(typical_pressure))
    }

    pub(crate) fn index_of(&self, name: &NodeName) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Its load lacks the typical pressure.
    pub(crate) fn key_of(&self, index: u32) -> RankKey {
        self.entries[index as usize].key
    }

    pub(crate) fn cell_of(&self, index: u32) -> u32 {
        self.entries[index as usize].cell
    }

    pub(crate) fn has_zones(&self) -> bool {
        if let Some(whole) = &self.whole {
            return whole.has_zones;
        }
        self.cells.iter().filter(|cell| !cell.is_empty()).nth(1).is_some()
    }

    pub(crate) fn by_name(&self) -> impl Iterator<Item = (u32, &Candidate, &Node)> {
        self.by_name
            .values()
            .map(|&at| (at, &self.entries[at as usize].candidate, &self.entries[at as usize].node))
    }

    pub(crate) fn entry(&self, name: &NodeName) -> Option<(u32, &Candidate, &Node)> {
        let index = self.index_of(name)?;
        let entry = &self.entries[index as usize];
        Some((index, &entry.candidate, &entry.node))
    }

    pub(crate) fn node_at(&self, index: u32) -> &Node {
        &self.entries[index as usize].node
    }

    pub(crate) fn at(&self, index: u32) -> (&Candidate, &Arc<PlacementTarget>) {
        let entry = &self.entries[index as usize];
        (&entry.candidate, &entry.target)
    }

    fn take_out_of_order(&mut self, index: u32) {
        let entry = &self.entries[index as usize];
        let cell = &mut self.cells[entry.cell as usize];
        let Some(pressure) = entry.candidate.pressure else {
            cell.order_without_pressure.remove(&entry.key);
            return;
        };
        cell.order.remove(&entry.key);
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
        self.cells[entry.cell as usize].insert(entry.key, entry.candidate.pressure.is_some());
        if let Some(pressure) = entry.candidate.pressure {
            *self.pressures.entry(pressure).or_default() += 1;
        }
    }

    fn cell_for(&mut self, zone: &str) -> u32 {
        if let Some(&cell) = self.cell_of_zone.get(zone) {
            return cell;
        }
        self.cell_of_zone.retain(|_, cell| !self.cells[*cell as usize].is_empty());
        let free = self.cells.iter().position(Cell::is_empty).unwrap_or_else(|| {
            self.cells.push(Cell::default());
            self.cells.len() - 1
        });
        self.cell_of_zone.insert(zone.to_owned(), free as u32);
        free as u32
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
        self.cells.fill(Cell::default());
        for entry in &self.entries {
            self.cells[entry.cell as usize].insert(entry.key, entry.candidate.pressure.is_some());
        }
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
        let names_of = |cell: usize| {
            let keys = snapshot.orders().nth(cell).unwrap();
            keys.map(|key| &snapshot.at(key.index).1.name).collect::<Vec<_>>()
        };
        let mut nodes: Vec<_> = snapshot.nodes().collect();
        assert!(nodes.windows(2).all(|pair| pair[0].name < pair[1].name));
        let typical = snapshot.typical_pressure();
        let load = |n: &Node| Candidate::new(n, &snapshot.weights).load(&snapshot.weights, typical);
        nodes.sort_by_key(|n| load(n));
        let zones: BTreeSet<_> = nodes.iter().map(|node| node.zone()).collect();
        assert_eq!(snapshot.has_zones(), zones.len() > 1);
        for zone in zones {
            let names = nodes.iter().filter(|node| node.zone() == zone).map(|node| &node.name);
            assert_eq!(names_of(snapshot.cell_of_zone[zone] as usize), names.collect::<Vec<_>>());
        }
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
            steps in prop::collection::vec((0..4u8, 0..12u8, 0..5u64, 0..4u8), 0..60),
        ) {
            let mut snapshot = ClusterSnapshot::new(Weights::default());
            for (step, name, n, zone) in steps {
                let zoned = |n: &mut Node| {
                    n.facts.labels.extend((zone > 0).then(|| ("zone".to_owned(), zone.to_string())));
                };
                let name = NodeName::new(format!("n{name}")).unwrap();
                let known = snapshot.get(&name).map(|node| node.used.pods);
                let one = Resources { pods: n, ..Resources::default() };
                match step {
                    0 => prop_assert_eq!(snapshot.remove(&name), known.is_some()),
                    1 => prop_assert_eq!(snapshot.commit(&name, one), known.is_some()),
                    2 => snapshot.upsert(node(name.as_str()).pods(n, 110).with(|n| n.psi = None).with(zoned).build()),
                    _ => {
                        let pressure = move |psi: &mut model::node::Psi| psi.cpu_some = 10.0 * n as f32;
                        snapshot.upsert(node(name.as_str()).pods(n, 110).psi(pressure).with(zoned).build());
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
