//! Places the pods of one batch; each placement counts for the next.
//!
//! Each zone is a cell with its own order. The nodes of a cell are visited in the snapshot's order, as far as
//! needed; visited ones form its pool of copies. A class searches the cells in the order of the scores that
//! they may have, until the best node that it found precedes all others.
//!
//! A pod avoids the nodes and zones of its siblings. A zone's siblings add the same to each of its nodes, so
//! the order within a cell stays. A node with siblings is not found in the pool but in a heap of the class.
//!
//! Within a batch scores only rise and free resources only shrink. So an unvisited node keeps its position,
//! and a refusal holds for the class. A node can move behind the key up to which a class was refused, never
//! before it.
//!
//! A class whose rules count or prefer searches for itself: see [`RuledSearch`]. One with another profile
//! than `default` judges each node: see [`ProfileScan`].

mod observe;

use std::collections::{BTreeSet, HashMap};
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use model::ids::NodeName;
use model::pod::Refusal;
use model::spec::PlacementProfile;

use crate::candidate::Candidate;
use crate::class::{PodClass, Siblings};
use crate::explain;
use crate::filter::{self, EvalContext};
use crate::placed::PodsByNode;
use crate::policy::Weights;
use crate::requirements::{Generation, Requirements};
use crate::ruled::RuledSearch;
use crate::rules::RuleState;
use crate::scan::ProfileScan;
use crate::score::{self, LoadScore};
use crate::snapshot::{ClusterSnapshot, PlacementTarget, RankKey};

pub(crate) use observe::Observed;

pub(crate) struct PlacementBatch<'a, I: Iterator<Item = RankKey>> {
    snapshot: &'a ClusterSnapshot,
    weights: &'a Weights,
    typical_pressure: LoadScore,
    context: EvalContext,
    has_zones: bool,
    cells: Vec<BatchCell<I>>,
    pooled: Vec<PooledNode<'a>>,
    /// By index in the snapshot. `None` if the node gets no pod of this batch.
    visited: HashMap<u32, Option<u32>>,
    /// Some nodes were visited because of siblings, before their turn.
    has_early_visits: bool,
    groups: Vec<Siblings>,
    rules: Vec<RuleState>,
    /// Pods placed by `rules`.
    counted: u64,
    /// Rules of services that have relations.
    with_relations: Vec<usize>,
    /// Placed pods of services to which others may have relations: their rules, and the node.
    related: Vec<(usize, u32)>,
    /// Made for the first pod with another profile.
    scan: Option<ProfileScan<'a>>,
}

struct BatchCell<I: Iterator<Item = RankKey>> {
    unvisited: Peekable<I>,
    /// Keys with indexes into `pooled`.
    pool: BTreeSet<RankKey>,
}

struct PooledNode<'a> {
    candidate: Candidate,
    target: &'a Arc<PlacementTarget>,
    snapshot_index: u32,
    cell: u32,
    key: RankKey,
}

enum CellResult {
    Found(RankKey),
    /// No node precedes the ceiling.
    NoneBelow(RankKey),
    /// Nor will there be one for this class.
    Exhausted,
}

impl<'a, I: Iterator<Item = RankKey>> PlacementBatch<'a, I> {
    pub(crate) fn new(
        snapshot: &'a ClusterSnapshot,
        orders: impl Iterator<Item = I>,
        weights: &'a Weights,
        context: EvalContext,
    ) -> Self {
        let cell = |order: I| BatchCell { unvisited: order.peekable(), pool: BTreeSet::new() };
        Self {
            snapshot,
            weights,
            typical_pressure: snapshot.typical_pressure(),
            context,
            has_zones: snapshot.has_zones(),
            cells: orders.map(cell).collect(),
            pooled: Vec::new(),
            visited: HashMap::new(),
            has_early_visits: false,
            groups: Vec::new(),
            rules: Vec::new(),
            counted: 0,
            with_relations: Vec::new(),
            related: Vec::new(),
            scan: None,
        }
    }

    pub(crate) fn new_class(
        &self,
        requirements: Requirements,
        group: Option<usize>,
        rules: Option<usize>,
    ) -> PodClass {
        PodClass::new(requirements, group, rules, self.cells.len())
    }

    /// `beside` is another generation of the service. `None` if its rules neither count nor prefer.
    pub(crate) fn new_rules(
        &mut self,
        requirements: &Requirements,
        generation: Option<&Generation>,
        beside: Option<usize>,
    ) -> Option<usize> {
        let state = RuleState::new(self.snapshot, requirements, generation, &self.context)?;
        let mut state = match beside {
            Some(other) => state.beside(&self.rules[other]),
            None => state,
        };
        if state.has_relations() {
            for (rules, node) in &self.related {
                self.rules[*rules].related_service().iter().for_each(|service| state.note(service, *node));
            }
            self.with_relations.push(self.rules.len());
        }
        self.rules.push(state);
        Some(self.rules.len() - 1)
    }

    /// `placed` are the generation's pods before this batch.
    pub(crate) fn new_group(&mut self, placed: &PodsByNode) -> usize {
        let mut siblings = Siblings::new(self.cells.len());
        for (name, count) in placed {
            let Some(index) = self.snapshot.index_of(name) else { continue };
            let (candidate, _) = self.snapshot.at(index);
            let load = candidate.load(self.weights, self.typical_pressure);
            let cell = self.snapshot.cell_of(index);
            let node = self.visit(cell, RankKey { load, ..self.snapshot.key_of(index) });
            siblings.add(cell, node, *count);
            self.has_early_visits = true;
        }
        for (cell, count) in self.snapshot.whole_by_cell() {
            siblings.set_in_cell(cell, count);
        }
        self.groups.push(siblings);
        self.groups.len() - 1
    }

    /// `name` identifies the pod to others that need the same host port.
    pub(crate) fn place(
        &mut self,
        class: &mut PodClass,
        name: &str,
    ) -> Result<Arc<PlacementTarget>, Arc<[Refusal]>> {
        if let Some((_, refusals)) =
            class.unschedulable.as_ref().filter(|(counted, _)| *counted == self.counted)
        {
            return Err(refusals.clone());
        }
        let best = match (class.requirements.profile, class.rules) {
            (PlacementProfile::Default, None) => self.best_node(class),
            (PlacementProfile::Default, Some(rules)) => self.best_by_rules(class, rules),
            _ => self.best_by_scan(class),
        };
        match best {
            Some(node) => Ok(self.reserve(node, class, name)),
            None => Err(class.unschedulable.insert((self.counted, self.refusals_of(class, None))).1.clone()),
        }
    }

    /// `None` if this node refuses.
    pub(crate) fn place_on(
        &mut self,
        node: &NodeName,
        class: &PodClass,
        name: &str,
    ) -> Option<Arc<PlacementTarget>> {
        let index = self.snapshot.index_of(node)?;
        let pooled = self.visit_early(index)?;
        let candidate = &self.pooled[pooled as usize].candidate;
        // With those of its profile.
        let fits = filter::failed(candidate, &class.requirements, &self.context).next().is_none()
            && class.rules.is_none_or(|rules| self.rules[rules].refusals(index).is_empty());
        fits.then(|| self.reserve(pooled, class, name))
    }

    /// Of a pod that no other node may run; `None` if it goes nowhere.
    pub(crate) fn refusals_on(&self, node: Option<&NodeName>, class: &PodClass) -> Arc<[Refusal]> {
        let index = node.and_then(|node| self.snapshot.index_of(node));
        let own = index.map(|index| self.refusals_of(class, Some(index)));
        let others = explain::other_nodes(self.snapshot, node);
        own.iter().flat_map(|own| own.iter().cloned()).chain(others).collect()
    }

    fn best_by_rules(&mut self, class: &mut PodClass, rules: usize) -> Option<u32> {
        let mut search = class.ruled.take().unwrap_or_else(|| self.ruled_search(class, rules));
        let state = &self.rules[rules];
        let best = search.best(
            state,
            |zone| self.zone_load(class, zone as usize),
            |domains| state.domain_load(domains, self.weights),
            |node| {
                let is_feasible = filter::is_feasible(
                    filter::POD_FILTERS,
                    self.current(node),
                    &class.requirements,
                    &self.context,
                );
                (is_feasible && !state.is_full(node)).then(|| self.ruled_key(class, state, node))
            },
        );
        class.ruled = Some(search);
        self.visit_early(best?.index)
    }

    fn ruled_search(&self, class: &PodClass, rules: usize) -> RuledSearch {
        let state = &self.rules[rules];
        let nodes = self.snapshot.by_name().map(|(index, _, _)| index);
        let feasible = nodes.filter(|index| {
            let candidate = self.current(*index);
            filter::is_feasible(filter::NODE_FILTERS, candidate, &Requirements::default(), &self.context)
        });
        RuledSearch::new(
            state,
            feasible.map(|node| (self.snapshot.cell_of(node), self.ruled_key(class, state, node))),
        )
    }

    fn best_by_scan(&mut self, class: &mut PodClass) -> Option<u32> {
        let new_scan = || ProfileScan::new(self.snapshot, self.typical_pressure);
        let mut scan = self.scan.take().unwrap_or_else(new_scan);
        let best = self.best_scanned(&mut scan, class);
        if let Some(best) = best.filter(|_| class.requirements.profile == PlacementProfile::RoundRobin) {
            scan.note_use(best.index);
        }
        self.scan = Some(scan);
        self.visit_early(best?.index)
    }

    fn best_scanned(&self, scan: &mut ProfileScan<'a>, class: &mut PodClass) -> Option<RankKey> {
        if let Some(mut order) = class.scanned.take() {
            scan.update(&mut order, |node| self.scanned_key(scan, class, node));
            return class.scanned.insert(order).best();
        }
        let nodes = self.snapshot.by_name();
        let keys = nodes.filter_map(|(node, _, _)| self.scanned_key(scan, class, node));
        let keys: Vec<RankKey> = keys.collect();
        if class.rules.is_none() {
            class.scanned = scan.new_order(&keys);
        }
        keys.into_iter().min()
    }

    /// `None` if the node cannot run the pod now.
    fn scanned_key(&self, scan: &ProfileScan<'_>, class: &PodClass, node: u32) -> Option<RankKey> {
        let requirements = &class.requirements;
        let candidate = self.current(node);
        if filter::failed(candidate, requirements, &self.context).next().is_some() {
            return None;
        }
        let mut by_rules = 0;
        if let Some(rules) = class.rules.map(|rules| &self.rules[rules]) {
            let domains = rules.domains_of(node);
            if rules.is_full(node) || !rules.is_open(&domains) {
                return None;
            }
            let of_node = rules.node_load(node, candidate, self.weights);
            by_rules = of_node + rules.domain_load(&domains, self.weights);
        }
        let pooled = self.visited.get(&node).copied().flatten();
        let siblings = class.group.zip(pooled).map_or(0, |(group, pooled)| self.groups[group].on(pooled));
        let load = scan.load(requirements.profile, (node, candidate), &requirements.request, siblings);
        Some(RankKey { load: load.saturating_add(by_rules), ..self.snapshot.key_of(node) })
    }

    /// With an index into the snapshot, and without what its cell adds.
    fn ruled_key(&self, class: &PodClass, state: &RuleState, node: u32) -> RankKey {
        let candidate = self.current(node);
        let pooled = self.visited.get(&node).copied().flatten();
        let siblings = class.group.zip(pooled).map_or(0, |(group, pooled)| self.node_load(group, pooled));
        let load = candidate.load(self.weights, self.typical_pressure);
        let own = state.node_load(node, candidate, self.weights).saturating_add(siblings);
        RankKey { load: load.saturating_add(own), ..self.snapshot.key_of(node) }
    }

    /// With the batch's placements.
    fn current(&self, node: u32) -> &Candidate {
        match self.visited.get(&node) {
            Some(Some(pooled)) => &self.pooled[*pooled as usize].candidate,
            _ => self.snapshot.at(node).0,
        }
    }

    fn best_node(&mut self, class: &mut PodClass) -> Option<u32> {
        self.learn_nodes_with_siblings(class);
        if self.cells.len() == 1 {
            // Nothing to choose from: a tenth of a decision.
            let CellResult::Found(key) = self.search(0, class, None) else { return None };
            return Some(key.index);
        }
        let mut best: Option<RankKey> = None;
        while let Some((bound, cell)) = class.most_promising(|cell| self.zone_load(class, cell)) {
            if best.is_some_and(|best| best <= bound) {
                break;
            }
            let zone_load = self.zone_load(class, cell);
            match self.search(cell, class, best.map(|best| best.with_less(zone_load))) {
                CellResult::Found(key) => {
                    class.cells[cell].at_least = key;
                    best = Some(key.with_more(zone_load));
                }
                CellResult::NoneBelow(ceiling) => class.cells[cell].at_least = ceiling,
                CellResult::Exhausted => class.cells[cell].is_exhausted = true,
            }
        }
        best.map(|key| key.index)
    }

    fn zone_load(&self, class: &PodClass, cell: usize) -> LoadScore {
        let group = class.group.filter(|_| self.has_zones);
        group.map_or(0, |group| score::sibling_load(self.groups[group].in_cell(cell), self.weights))
    }

    fn node_load(&self, group: usize, node: u32) -> LoadScore {
        score::sibling_load(self.groups[group].on(node), self.weights)
    }

    /// Other classes of the group may have placed pods.
    fn learn_nodes_with_siblings(&self, class: &mut PodClass) {
        let Some(group) = class.group else { return };
        let nodes = &self.groups[group].nodes;
        for &node in &nodes[class.known_nodes..] {
            let pooled = &self.pooled[node as usize];
            let key = pooled.key.with_more(self.node_load(group, node));
            class.cells[pooled.cell as usize].with_siblings.push(key);
        }
        class.known_nodes = nodes.len();
    }

    fn search(&mut self, cell: usize, class: &mut PodClass, ceiling: Option<RankKey>) -> CellResult {
        let below = |key: &RankKey| ceiling.is_none_or(|ceiling| *key < ceiling);
        let known = class.group.and_then(|group| self.best_with_siblings(cell, group, class)).filter(below);
        match (self.best_without_siblings(cell, class, known.or(ceiling)), known) {
            (CellResult::Found(key), _) | (_, Some(key)) => CellResult::Found(key),
            (CellResult::Exhausted, None) if !class.cells[cell].with_siblings.is_empty() => {
                // Only a ceiling keeps a node with siblings from being found.
                ceiling.map_or(CellResult::Exhausted, CellResult::NoneBelow)
            }
            (other, None) => other,
        }
    }

    fn best_with_siblings(&self, cell: usize, group: usize, class: &mut PodClass) -> Option<RankKey> {
        let requirements = &class.requirements;
        class.cells[cell].with_siblings.best(|index| {
            let node = &self.pooled[index as usize];
            filter::is_feasible(filter::POD_FILTERS, &node.candidate, requirements, &self.context)
                .then(|| node.key.with_more(self.node_load(group, index)))
        })
    }

    fn best_without_siblings(
        &mut self,
        cell: usize,
        class: &mut PodClass,
        ceiling: Option<RankKey>,
    ) -> CellResult {
        loop {
            let limit = self.next_unvisited(cell);
            let pool = &self.cells[cell].pool;
            let in_pool = match class.cells[cell].refused_up_to {
                // Finding the beginning of a range takes a fifth of a placement.
                None => self.first_fit(pool.iter(), limit, ceiling, cell, class),
                Some(refused) => {
                    let others = (Bound::Excluded(refused), Bound::Unbounded);
                    self.first_fit(pool.range(others), limit, ceiling, cell, class)
                }
            };
            match (in_pool, limit) {
                (Some(found), _) => return found,
                (None, None) => return CellResult::Exhausted,
                (None, Some(next)) if let Some(ceiling) = ceiling.filter(|ceiling| *ceiling <= next) => {
                    return CellResult::NoneBelow(ceiling);
                }
                (None, Some(next)) => {
                    self.cells[cell].unvisited.next();
                    self.visit(cell as u32, next);
                }
            }
        }
    }

    fn first_fit<'k>(
        &self,
        keys: impl Iterator<Item = &'k RankKey>,
        limit: Option<RankKey>,
        ceiling: Option<RankKey>,
        cell: usize,
        class: &mut PodClass,
    ) -> Option<CellResult> {
        let siblings = class.group.map(|group| &self.groups[group]);
        for key in keys {
            if limit.is_some_and(|limit| *key > limit) {
                break;
            }
            if let Some(ceiling) = ceiling.filter(|ceiling| ceiling <= key) {
                return Some(CellResult::NoneBelow(ceiling));
            }
            let candidate = &self.pooled[key.index as usize].candidate;
            if siblings.is_none_or(|siblings| siblings.on(key.index) == 0)
                && filter::is_feasible(filter::POD_FILTERS, candidate, &class.requirements, &self.context)
            {
                return Some(CellResult::Found(*key));
            }
            class.cells[cell].refused_up_to = Some(*key);
        }
        None
    }

    fn reserve(&mut self, index: u32, class: &PodClass, name: &str) -> Arc<PlacementTarget> {
        let requirements = &class.requirements;
        let node = &mut self.pooled[index as usize];
        let pool = &mut self.cells[node.cell as usize].pool;
        pool.remove(&node.key);
        node.candidate.used = node.candidate.used.saturating_add(requirements.resources());
        node.candidate.take_ports(&requirements.host_ports, name);
        if let Some(named) = &requirements.named {
            node.candidate.take_ids(named);
        }
        node.key.load = node.candidate.load(self.weights, self.typical_pressure);
        if node.candidate.has_free_slot() {
            pool.insert(node.key);
        }
        if let Some(group) = class.group {
            self.groups[group].add(node.cell, Some(index), 1);
        }
        if let Some(rules) = class.rules {
            self.rules[rules].add(node.snapshot_index);
            self.counted += 1;
        }
        if let Some(scan) = &mut self.scan {
            scan.note_change(node.snapshot_index);
        }
        let (target, node) = (node.target.clone(), node.snapshot_index);
        class.rules.into_iter().for_each(|rules| self.note_related(rules, node));
        target
    }

    /// Relations to the service of a placed pod count it.
    fn note_related(&mut self, rules: usize, node: u32) {
        let Some(service) = self.rules[rules].related_service().cloned() else { return };
        for other in &self.with_relations {
            self.rules[*other].note(&service, node);
        }
        self.related.push((rules, node));
    }

    fn next_unvisited(&mut self, cell: usize) -> Option<RankKey> {
        let (visited, unvisited) = (&self.visited, &mut self.cells[cell].unvisited);
        if self.has_early_visits {
            while unvisited.next_if(|key| visited.contains_key(&key.index)).is_some() {}
        }
        unvisited.peek().copied()
    }

    /// Before its turn in the order of its cell.
    fn visit_early(&mut self, node: u32) -> Option<u32> {
        let load = self.current(node).load(self.weights, self.typical_pressure);
        self.has_early_visits = true;
        self.visit(self.snapshot.cell_of(node), RankKey { load, ..self.snapshot.key_of(node) })
    }

    /// Returns its index in `pooled`, unless it gets no pod of this batch.
    fn visit(&mut self, cell: u32, key: RankKey) -> Option<u32> {
        if let Some(known) = self.visited.get(&key.index) {
            return *known;
        }
        let (candidate, target) = self.snapshot.at(key.index);
        // Filters of nodes know no requirements.
        let is_feasible =
            filter::is_feasible(filter::NODE_FILTERS, candidate, &Requirements::default(), &self.context);
        let pooled = (is_feasible && candidate.has_free_slot()).then(|| {
            let index = u32::try_from(self.pooled.len()).expect("the pool is no larger than the snapshot");
            let (candidate, snapshot_index) = (candidate.clone(), key.index);
            let key = RankKey { index, ..key };
            self.pooled.push(PooledNode { candidate, target, snapshot_index, cell, key });
            self.cells[cell as usize].pool.insert(key);
            index
        });
        self.visited.insert(key.index, pooled);
        pooled
    }

    /// By one node, or by all.
    fn refusals_of(&self, class: &PodClass, only: Option<u32>) -> Arc<[Refusal]> {
        let mut changed = vec![None; self.snapshot.len()];
        self.pooled.iter().for_each(|node| changed[node.snapshot_index as usize] = Some(&node.candidate));
        let rules = class.rules.map(|rules| &self.rules[rules]);
        explain::refusals(
            self.snapshot,
            &class.requirements,
            rules,
            &self.context,
            only,
            |index, candidate| changed[index as usize].unwrap_or(candidate),
        )
    }
}
