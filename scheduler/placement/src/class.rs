//! A class of pods, which every node judges alike, and its search.

use std::collections::HashMap;
use std::sync::Arc;

use model::pod::Refusal;

use crate::rank_heap::RankHeap;
use crate::requirements::Requirements;
use crate::ruled::RuledSearch;
use crate::scan::ScanOrder;
use crate::score::LoadScore;
use crate::snapshot::RankKey;

pub(crate) struct PodClass {
    pub(crate) requirements: Requirements,
    /// Index of the generation whose pods are placed apart.
    pub(crate) group: Option<usize>,
    pub(crate) cells: Vec<CellSearch>,
    /// How many nodes of the group's are in `cells`.
    pub(crate) known_nodes: usize,
    /// Index of the state of its rules, if these count or prefer.
    pub(crate) rules: Option<usize>,
    /// Made for its first pod.
    pub(crate) ruled: Option<RuledSearch>,
    /// Only with another profile than `default`, unless there are very many such classes.
    pub(crate) scanned: Option<ScanOrder>,
    /// A batch frees no resources. With the number of pods that [`rules`](Self::rules) had counted.
    pub(crate) unschedulable: Option<(u64, Arc<[Refusal]>)>,
}

/// Within a batch, scores only rise and refusals hold.
#[derive(Clone)]
pub(crate) struct CellSearch {
    /// No node of the cell precedes it.
    pub(crate) at_least: RankKey,
    /// Up to here, every node without siblings refuses the class.
    pub(crate) refused_up_to: Option<RankKey>,
    /// Nodes with siblings, by their scores when they were last looked at.
    pub(crate) with_siblings: RankHeap,
    pub(crate) is_exhausted: bool,
}

impl CellSearch {
    fn new() -> Self {
        let at_least = RankKey { load: 0, name_rank: 0, index: 0 };
        Self { at_least, refused_up_to: None, with_siblings: RankHeap::default(), is_exhausted: false }
    }
}

impl PodClass {
    pub(crate) fn new(
        requirements: Requirements,
        group: Option<usize>,
        rules: Option<usize>,
        cells: usize,
    ) -> Self {
        let cells = std::iter::repeat_with(CellSearch::new).take(cells).collect();
        Self {
            requirements,
            group,
            cells,
            known_nodes: 0,
            rules,
            ruled: None,
            scanned: None,
            unschedulable: None,
        }
    }

    /// Returns the cell that may have the best node, and the rank that its nodes have at least.
    pub(crate) fn most_promising(&self, zone_load: impl Fn(usize) -> LoadScore) -> Option<(RankKey, usize)> {
        let open = self.cells.iter().enumerate().filter(|(_, cell)| !cell.is_exhausted);
        open.map(|(index, cell)| (cell.at_least.with_more(zone_load(index)), index)).min()
    }
}

/// The pods of one generation, by node and by zone.
#[derive(Default)]
pub(crate) struct Siblings {
    by_node: HashMap<u32, u64>,
    /// In the order of their first pod.
    pub(crate) nodes: Vec<u32>,
    by_cell: Vec<u64>,
}

impl Siblings {
    pub(crate) fn new(cells: usize) -> Self {
        Self { by_cell: vec![0; cells], ..Self::default() }
    }

    /// Pods on unknown nodes count, too.
    pub(crate) fn set_in_cell(&mut self, cell: u32, count: u64) {
        self.by_cell[cell as usize] = count;
    }

    pub(crate) fn add(&mut self, cell: u32, node: Option<u32>, count: u64) {
        self.by_cell[cell as usize] += count;
        if let Some(node) = node.filter(|_| count > 0) {
            let of_node = self.by_node.entry(node).or_default();
            if *of_node == 0 {
                self.nodes.push(node);
            }
            *of_node += count;
        }
    }

    pub(crate) fn on(&self, node: u32) -> u64 {
        self.by_node.get(&node).copied().unwrap_or(0)
    }

    pub(crate) fn in_cell(&self, cell: usize) -> u64 {
        self.by_cell[cell]
    }
}
