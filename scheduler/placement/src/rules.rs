//! The rules of a service that count its pods or only prefer a node, and their judgement of each node. A
//! constraint is a filter.
//!
//! Counts belong to a generation and grow within a batch; those of a node belong to the service, and those of
//! a relation to the other service.
//!
//! Tests: beside the code, tests

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;

use model::ids::ServiceName;
use model::spec::Spread;

use crate::candidate::Candidate;
use crate::filter::{EvalContext, Reason, is_domain};
use crate::placed::PodsByNode;
use crate::policy::Weights;
use crate::related::RelationState;
use crate::requirements::{Generation, NodeRules, Requirements, no_domain};
use crate::score::{self, LoadScore, LoadTerm, TermScore};
use crate::snapshot::ClusterSnapshot;
use crate::whole::{WholeCluster, WholeSpread};

/// Pods of a service on nodes, by index in the snapshot.
type OnNodes = Rc<RefCell<HashMap<u32, u64>>>;

pub(crate) struct RuleState {
    rules: Arc<NodeRules>,
    /// `None` for a pushed pod.
    service: Option<ServiceName>,
    spreads: Vec<SpreadState>,
    relations: Vec<RelationState>,
    on_nodes: OnNodes,
}

struct SpreadState {
    rule: Spread,
    /// By index in the snapshot.
    domain_of: Vec<Option<u32>>,
    domains: Vec<Domain>,
    /// Of the domain with the fewest pods.
    least: u64,
}

struct Domain {
    name: String,
    pods: u64,
    /// One of its nodes could take a pod, if it had room.
    is_eligible: bool,
}

/// Of a node: its domain for each rule of `spread`, and for each relation that is not of single nodes.
pub(crate) type Domains = Box<[Option<u32>]>;

impl RuleState {
    /// `None` if the service has constraints at most.
    pub(crate) fn new(
        snapshot: &ClusterSnapshot,
        requirements: &Requirements,
        generation: Option<&Generation>,
        context: &EvalContext,
    ) -> Option<Self> {
        let rules = requirements.rules.clone().filter(|rules| rules.count_or_prefer())?;
        let placed = generation.and_then(|generation| snapshot.placed().generations.get(generation));
        let spread = |rule: &Spread| SpreadState::new(snapshot, rule, placed, requirements, context);
        let mut spreads: Vec<SpreadState> = rules.spread.iter().map(spread).collect();
        let service = generation.map(|of| of.service.clone());
        let relation = |rule| RelationState::new(snapshot, rule, service.as_ref());
        let mut relations: Vec<RelationState> = rules.relations.iter().map(relation).collect();
        if let Some(whole) = snapshot.whole() {
            spreads.iter_mut().zip(&whole.spreads).for_each(|(spread, whole)| spread.set_whole(whole));
            relations.iter_mut().zip(&whole.relations).for_each(|(one, whole)| one.set_whole(whole));
        }
        let of_service = generation.and_then(|of| snapshot.placed().services.get(&of.service));
        let by_index = |(name, pods): (_, &u64)| Some((snapshot.index_of(name)?, *pods));
        let on_nodes: HashMap<u32, u64> = of_service.into_iter().flatten().filter_map(by_index).collect();
        Some(Self { rules, service, spreads, relations, on_nodes: Rc::new(RefCell::new(on_nodes)) })
    }

    /// Another generation of the same service, in the same batch.
    #[must_use]
    pub(crate) fn beside(self, other: &Self) -> Self {
        Self { on_nodes: other.on_nodes.clone(), ..self }
    }

    pub(crate) fn add(&mut self, node: u32) {
        *self.on_nodes.borrow_mut().entry(node).or_default() += 1;
        self.spreads.iter_mut().for_each(|spread| spread.add(node));
    }

    /// The service whose pods count for the relations of others.
    pub(crate) fn related_service(&self) -> Option<&ServiceName> {
        let counts = self.rules.is_related || self.has_relations();
        self.service.as_ref().filter(|_| counts)
    }

    pub(crate) fn has_relations(&self) -> bool {
        !self.relations.is_empty()
    }

    /// A pod of this service was placed.
    pub(crate) fn note(&mut self, service: &ServiceName, node: u32) {
        self.relations.iter_mut().for_each(|relation| relation.note(service, node));
    }

    fn of_nodes(&self) -> impl Iterator<Item = &RelationState> {
        self.relations.iter().filter(|relation| relation.is_of_nodes())
    }

    fn of_domains(&self) -> impl Iterator<Item = &RelationState> {
        self.relations.iter().filter(|relation| !relation.is_of_nodes())
    }

    pub(crate) fn domains_of(&self, node: u32) -> Domains {
        let spreads = self.spreads.iter().map(|spread| spread.domain_of[node as usize]);
        spreads.chain(self.of_domains().map(|relation| relation.domain_index(node))).collect()
    }

    /// Closed domains may open again: the others get pods.
    pub(crate) fn is_open(&self, domains: &Domains) -> bool {
        let (of_spreads, of_relations) = domains.split_at(self.spreads.len());
        self.spreads.iter().zip(of_spreads).all(|(spread, domain)| spread.is_open(*domain))
            && self.of_domains().zip(of_relations).all(|(relation, domain)| relation.is_open(*domain))
    }

    /// Holds for the rest of the batch.
    pub(crate) fn is_full(&self, node: u32) -> bool {
        self.has_too_many(node).is_some()
            || self.of_nodes().any(|relation| !relation.is_open(relation.domain_index(node)))
    }

    fn has_too_many(&self, node: u32) -> Option<NonZeroU64> {
        self.rules.max_per_node.filter(|most| self.on_node(node) >= most.get())
    }

    pub(crate) fn refusals(&self, node: u32) -> Vec<(Reason, String)> {
        let full = self.has_too_many(node).map(|most| too_many(self.on_node(node), most));
        let spread = self.spreads.iter().filter_map(|spread| Some((Reason::SPREAD, spread.refusal(node)?)));
        let refused = full.map(|detail| (Reason::MAX_PER_NODE, detail)).into_iter().chain(spread);
        let of_relation = |one: &RelationState| Some((one.reason(), one.refusal(node)?));
        refused.chain(self.relations.iter().filter_map(of_relation)).collect()
    }

    pub(crate) fn reasons(&self, node: u32) -> BTreeSet<Reason> {
        self.refusals(node).into_iter().map(|(reason, _)| reason).collect()
    }

    /// A node that joins would have nothing against it.
    pub(crate) fn allows_new_node(&self, node: u32) -> bool {
        let closed = self.relations.iter().filter(|one| one.refusal(node).is_some());
        closed.clone().all(RelationState::is_of_nodes)
            && self
                .reasons(node)
                .iter()
                .all(|one| [Reason::MAX_PER_NODE, Reason::ANTI_AFFINITY].contains(one))
    }

    /// The change of the rule that lets the node take one more pod; `None` if a label is missing.
    pub(crate) fn relaxed(&self, node: u32, reason: Reason) -> Option<String> {
        if reason == Reason::MAX_PER_NODE {
            return Some(format!("`max_per_node: {}`", self.on_node(node) + 1));
        }
        if reason != Reason::SPREAD {
            let closed = self.relations.iter().find(|relation| relation.refusal(node).is_some());
            return closed.map(RelationState::relaxed);
        }
        let closed = self.spreads.iter().find(|spread| !spread.is_open(spread.domain_of[node as usize]))?;
        let domain = closed.domain_of[node as usize]?;
        let skew = closed.domains[domain as usize].pods + 1 - closed.least;
        Some(format!("`max_skew: {skew}` of {}", closed.rule.key()))
    }

    /// The same for all nodes of these domains.
    pub(crate) fn domain_load(&self, domains: &Domains, weights: &Weights) -> LoadScore {
        let (of_spreads, of_relations) = domains.split_at(self.spreads.len());
        let of_spread = |(spread, domain): (&SpreadState, &Option<u32>)| spread.load(*domain, weights);
        let spreads: LoadScore = self.spreads.iter().zip(of_spreads).map(of_spread).sum();
        let relations = self.of_domains().zip(of_relations);
        spreads + relations.map(|(relation, domain)| relation.load(*domain, weights)).sum::<LoadScore>()
    }

    /// Only rises within a batch.
    pub(crate) fn node_load(&self, node: u32, candidate: &Candidate, weights: &Weights) -> LoadScore {
        let preferences: LoadScore = self.missed(candidate).map(score::preference_load).sum();
        let relations = self.of_nodes().map(|relation| relation.load(relation.domain_index(node), weights));
        preferences + relations.sum::<LoadScore>()
    }

    pub(crate) fn terms(&self, node: u32, candidate: &Candidate, weights: &Weights) -> Vec<TermScore> {
        let preferences = self.missed(candidate).map(score::explain_preference);
        let of_spread = |spread: &SpreadState| {
            let domain = spread.domain_of[node as usize];
            let pods = domain.map_or(0, |domain| spread.domains[domain as usize].pods);
            TermScore {
                term: LoadTerm::DomainSiblings,
                value: pods as f64,
                weight: spread.rule.weight,
                points: spread.load(domain, weights),
            }
        };
        let soft = self.spreads.iter().filter(|spread| !spread.rule.hard);
        let relations = self.relations.iter().filter_map(|relation| relation.term(node, weights));
        preferences.chain(soft.map(of_spread)).chain(relations).collect()
    }

    fn missed<'a>(&'a self, candidate: &'a Candidate) -> impl Iterator<Item = u32> + 'a {
        let preferences = self.rules.preferences.iter();
        let missed = preferences.filter(|(when, _)| !when.holds(&candidate.name, candidate.labels()));
        missed.map(|(_, weight)| *weight)
    }

    /// For a snapshot of these nodes: their domains, and the one with the fewest pods.
    pub(crate) fn set_whole(&self, nodes: &[u32], whole: &mut WholeCluster) {
        whole.spreads = self.spreads.iter().map(|spread| spread.whole(nodes)).collect();
        whole.relations = self.relations.iter().map(|relation| relation.whole(nodes)).collect();
    }

    pub(crate) fn on_node(&self, node: u32) -> u64 {
        self.on_nodes.borrow().get(&node).copied().unwrap_or(0)
    }
}

impl SpreadState {
    fn new(
        snapshot: &ClusterSnapshot,
        rule: &Spread,
        placed: Option<&PodsByNode>,
        requirements: &Requirements,
        context: &EvalContext,
    ) -> Self {
        let (domain_of, names) = snapshot.domains(rule.key());
        let domain = |name: &str| Domain { name: name.to_owned(), pods: 0, is_eligible: false };
        let mut domains: Vec<Domain> = names.into_iter().map(domain).collect();
        for (index, candidate, _) in snapshot.by_name() {
            let Some(domain) = domain_of[index as usize] else { continue };
            domains[domain as usize].is_eligible |= is_domain(candidate, requirements, context);
        }
        let mut state = Self { rule: rule.clone(), domain_of, domains, least: 0 };
        for (name, pods) in placed.into_iter().flatten() {
            if let Some(index) = snapshot.index_of(name) {
                state.count(index, *pods);
            }
        }
        state.least = state.fewest();
        state
    }

    fn whole(&self, nodes: &[u32]) -> WholeSpread {
        let named = |domain: &Domain| (domain.name.clone(), domain.pods);
        let of_nodes = nodes.iter().filter_map(|node| self.domain_of[*node as usize]);
        let fewest = self.with_fewest().map(|domain| domain.name.clone());
        let pods = of_nodes.map(|domain| named(&self.domains[domain as usize])).collect();
        WholeSpread { least: self.least, fewest, pods }
    }

    fn set_whole(&mut self, WholeSpread { least, fewest, pods }: &WholeSpread) {
        for domain in &mut self.domains {
            domain.pods = pods.get(&domain.name).copied().unwrap_or(0);
            domain.is_eligible = false;
        }
        self.least = *least;
        let eligible =
            fewest.iter().map(|name| Domain { name: name.clone(), pods: *least, is_eligible: true });
        self.domains.extend(eligible);
    }

    /// `None` if there are too few domains.
    fn with_fewest(&self) -> Option<&Domain> {
        self.domains.iter().find(|domain| domain.is_eligible && domain.pods == self.least)
    }

    fn add(&mut self, node: u32) {
        self.count(node, 1);
        self.least = self.fewest();
    }

    fn count(&mut self, node: u32, pods: u64) {
        if let Some(domain) = self.domain_of[node as usize] {
            self.domains[domain as usize].pods += pods;
        }
    }

    fn fewest(&self) -> u64 {
        let eligible = self.domains.iter().filter(|domain| domain.is_eligible);
        let wanted = self.rule.min_domains.map_or(0, NonZeroU64::get);
        let is_enough = eligible.clone().count() as u64 >= wanted;
        eligible.map(|domain| domain.pods).min().filter(|_| is_enough).unwrap_or(0)
    }

    fn is_open(&self, domain: Option<u32>) -> bool {
        let within = |domain: u32| self.domains[domain as usize].pods < self.least + self.rule.max_skew.get();
        !self.rule.hard || domain.is_some_and(within)
    }

    fn load(&self, domain: Option<u32>, weights: &Weights) -> LoadScore {
        let Some(domain) = domain.filter(|_| !self.rule.hard) else { return 0 };
        score::domain_load(self.domains[domain as usize].pods, self.rule.weight, weights)
    }

    fn refusal(&self, node: u32) -> Option<String> {
        let (key, domain) = (self.rule.key(), self.domain_of[node as usize]);
        if self.is_open(domain) {
            return None;
        }
        let Some(domain) = domain else {
            return Some(no_domain(&self.rule));
        };
        let Domain { name, pods, .. } = &self.domains[domain as usize];
        let beside = self.with_fewest().map_or_else(
            || format!("there are fewer than {} of them", self.rule.min_domains.unwrap_or(NonZeroU64::MIN)),
            |fewest| format!("{key}={} has {}", fewest.name, fewest.pods),
        );
        Some(format!("{key}={name} has {pods} of its pods, {beside}, and max_skew is {}", self.rule.max_skew))
    }
}

fn too_many(on_node: u64, most: NonZeroU64) -> String {
    format!("has {on_node} of the service's pods and may have {most}")
}
