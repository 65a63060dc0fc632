//! The search of a class whose rules count pods or prefer nodes: it keeps an order of its own, because the
//! shared ones know no rules.
//!
//! Its cells are the nodes of one zone that are in the same domains: what rules add to them is the same, and
//! they are open or closed together. Within a batch the score of a node in its cell only rises, so the best
//! one is first in the cell's heap as soon as its key is that of now.
//!
//! Tests: tests

use std::collections::HashMap;

use crate::rank_heap::RankHeap;
use crate::rules::{Domains, RuleState};
use crate::score::LoadScore;
use crate::snapshot::RankKey;

pub(crate) struct RuledSearch {
    cells: Vec<RuledCell>,
}

struct RuledCell {
    zone: u32,
    domains: Domains,
    /// With indexes into the snapshot.
    nodes: RankHeap,
}

impl RuledSearch {
    /// Each node is passed with its cell in the snapshot.
    pub(crate) fn new(rules: &RuleState, nodes: impl Iterator<Item = (u32, RankKey)>) -> Self {
        let mut cells: HashMap<(u32, Domains), Vec<RankKey>> = HashMap::new();
        for (zone, key) in nodes {
            cells.entry((zone, rules.domains_of(key.index))).or_default().push(key);
        }
        let cell = |((zone, domains), nodes): (_, Vec<RankKey>)| RuledCell {
            zone,
            domains,
            nodes: nodes.into_iter().collect(),
        };
        Self { cells: cells.into_iter().map(cell).collect() }
    }

    /// `current` returns the key of now, or `None` if the node refuses the class for the rest of the batch.
    pub(crate) fn best(
        &mut self,
        rules: &RuleState,
        zone_load: impl Fn(u32) -> LoadScore,
        domain_load: impl Fn(&Domains) -> LoadScore,
        current: impl Fn(u32) -> Option<RankKey>,
    ) -> Option<RankKey> {
        let added = |cell: &RuledCell| zone_load(cell.zone) + domain_load(&cell.domains);
        let bound = |cell: &RuledCell| {
            let first = cell.nodes.bound().filter(|_| rules.is_open(&cell.domains))?;
            Some(first.with_more(added(cell)))
        };
        loop {
            let open = self.cells.iter_mut().filter_map(|cell| Some((bound(cell)?, cell)));
            let (bound, cell) = open.min_by_key(|(bound, _)| *bound)?;
            let best = cell.nodes.best(&current);
            if best.is_some_and(|best| best.with_more(added(cell)) == bound) {
                return best;
            }
        }
    }
}
