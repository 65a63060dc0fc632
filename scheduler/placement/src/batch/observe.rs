//! The view of the decision about one pod of a batch: the nodes that it would take, and why it leaves out
//! others. Judges every node, so few pods of a batch are observed.
//!
//! Tests: tests::recorded

use std::collections::{BTreeMap, BTreeSet};

use model::ids::NodeName;
use model::spec::PlacementProfile;

use super::PlacementBatch;
use crate::class::PodClass;
use crate::filter::{self, Reason};
use crate::record::{LabelKeys, PodsOnNode, StoredNode};
use crate::scan::ProfileScan;
use crate::snapshot::RankKey;
use crate::whole::WholeCluster;

/// The best one, and the next ones.
const BEST: usize = 4;
const MAX_NODES: usize = 8;

pub(crate) struct Observed {
    pub(crate) node_count: u64,
    pub(crate) fitting: u64,
    /// Nodes by reason; a node counts for each of its reasons.
    pub(crate) refused: BTreeMap<String, u64>,
    /// The best ones first, then one for each reason.
    pub(crate) nodes: Vec<StoredNode>,
    pub(crate) whole: WholeCluster,
    pub(crate) is_counted: bool,
}

impl<I: Iterator<Item = RankKey>> PlacementBatch<'_, I> {
    /// Before the pod is placed. `target` is where it goes if that node can take it.
    pub(crate) fn observe(&mut self, class: &PodClass, target: Option<&NodeName>) -> Observed {
        if class.requirements.profile != PlacementProfile::Default && self.scan.is_none() {
            self.scan = Some(ProfileScan::new(self.snapshot, self.typical_pressure));
        }
        let mut best: Vec<RankKey> = Vec::with_capacity(BEST + 1);
        let mut refused: BTreeMap<Reason, (u64, u32)> = BTreeMap::new();
        let mut fitting = 0;
        for (node, _, _) in self.snapshot.by_name() {
            let Some(key) = self.key_now(class, node) else {
                for reason in self.reasons(class, node) {
                    refused.entry(reason).or_insert((0, node)).0 += 1;
                }
                continue;
            };
            fitting += 1;
            let at = best.partition_point(|other| *other < key);
            if at < BEST {
                best.insert(at, key);
                best.truncate(BEST);
            }
        }
        let examples = refused.values().map(|(_, node)| *node);
        let target = target.and_then(|target| self.snapshot.index_of(target));
        let mut seen = BTreeSet::new();
        let all = target.into_iter().chain(best.into_iter().map(|key| key.index)).chain(examples);
        let nodes: Vec<u32> = all.filter(|node| seen.insert(*node)).take(MAX_NODES).collect();
        Observed {
            node_count: self.snapshot.len() as u64,
            fitting,
            refused: refused.into_iter().map(|(reason, (count, _))| (reason.to_string(), count)).collect(),
            whole: self.whole(class, &nodes),
            nodes: self.facts(class, &nodes),
            is_counted: class.group.is_some(),
        }
    }

    /// `None` if the node cannot run the pod now.
    fn key_now(&self, class: &PodClass, node: u32) -> Option<RankKey> {
        if class.requirements.profile != PlacementProfile::Default {
            return self.scanned_key(self.scan.as_ref()?, class, node);
        }
        let (candidate, requirements) = (self.current(node), &class.requirements);
        if !filter::is_feasible(filter::NODE_FILTERS, candidate, requirements, &self.context)
            || !filter::is_feasible(filter::POD_FILTERS, candidate, requirements, &self.context)
        {
            return None;
        }
        let zone_load = self.zone_load(class, self.snapshot.cell_of(node) as usize);
        let Some(rules) = class.rules.map(|rules| &self.rules[rules]) else {
            let load = candidate.load(self.weights, self.typical_pressure);
            let key = RankKey { load, ..self.snapshot.key_of(node) };
            return Some(key.with_more(self.siblings_load(class, node)).with_more(zone_load));
        };
        let domains = rules.domains_of(node);
        if rules.is_full(node) || !rules.is_open(&domains) {
            return None;
        }
        let by_domains = rules.domain_load(&domains, self.weights);
        Some(self.ruled_key(class, rules, node).with_more(zone_load + by_domains))
    }

    fn reasons(&self, class: &PodClass, node: u32) -> Vec<Reason> {
        let failed = filter::failed(self.current(node), &class.requirements, &self.context);
        let mut reasons: Vec<Reason> = failed.map(|filter| filter.reason).collect();
        if let Some(rules) = class.rules.map(|rules| &self.rules[rules]) {
            reasons.extend(rules.reasons(node));
        }
        reasons
    }

    fn whole(&self, class: &PodClass, nodes: &[u32]) -> WholeCluster {
        let mut by_zone = BTreeMap::new();
        if let Some(group) = class.group {
            for node in nodes {
                let cell = self.snapshot.cell_of(*node) as usize;
                let zone = self.snapshot.node_at(*node).zone().to_owned();
                by_zone.insert(zone, self.groups[group].in_cell(cell));
            }
        }
        let profile = class.requirements.profile;
        let is_default = profile == PlacementProfile::Default;
        let needs = self.snapshot.needs().iter().filter(|_| profile == PlacementProfile::Fragmentation);
        let mut whole = WholeCluster {
            typical_pressure: self.typical_pressure,
            has_zones: self.has_zones,
            by_zone,
            measures: if is_default { Default::default() } else { self.snapshot.measures() },
            needs: needs.map(|(request, pods)| (request.to_array(), *pods)).collect(),
            ..WholeCluster::default()
        };
        class.rules.into_iter().for_each(|rules| self.rules[rules].set_whole(nodes, &mut whole));
        whole
    }

    fn facts(&self, class: &PodClass, nodes: &[u32]) -> Vec<StoredNode> {
        let keys = LabelKeys::of(&class.requirements);
        let of_one = |node: &u32| {
            let places = PodsOnNode {
                siblings: self.siblings(class, *node),
                of_service: class.rules.map_or(0, |rules| self.rules[rules].on_node(*node)),
                last_use: self.scan.as_ref().map_or(0, |scan| scan.last_use(*node)),
            };
            let record = self.snapshot.node_at(*node);
            StoredNode::of(self.current(*node), record, &class.requirements, &keys, places)
        };
        nodes.iter().map(of_one).collect()
    }

    fn siblings(&self, class: &PodClass, node: u32) -> u64 {
        let pooled = self.visited.get(&node).copied().flatten();
        class.group.zip(pooled).map_or(0, |(group, pooled)| self.groups[group].on(pooled))
    }

    fn siblings_load(&self, class: &PodClass, node: u32) -> u64 {
        crate::score::sibling_load(self.siblings(class, node), self.weights)
    }
}
