//! The rules of a service that count its pods or only prefer a node, and their judgement of each node. A
//! constraint is a filter.
//!
//! Counts belong to a generation and grow within a batch; those of a node belong to the service.
//!
//! Tests: beside the code, tests

use std::cell::RefCell;
use std::collections::HashMap;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;

use model::node::Node;
use model::spec::Spread;

use crate::candidate::Candidate;
use crate::filter::{EvalContext, Reason, is_domain};
use crate::placed::PodsByNode;
use crate::policy::Weights;
use crate::requirements::{Generation, NodeRules, Requirements, no_domain};
use crate::score::{self, LoadScore, LoadTerm, TermScore};
use crate::snapshot::ClusterSnapshot;
use crate::whole::WholeSpread;

/// Pods of a service on nodes, by index in the snapshot.
type OnNodes = Rc<RefCell<HashMap<u32, u64>>>;

pub(crate) struct RuleState {
    rules: Arc<NodeRules>,
    spreads: Vec<SpreadState>,
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

/// Of a node: its domain for each rule of `spread`.
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
        if let Some(whole) = snapshot.whole() {
            spreads.iter_mut().zip(&whole.spreads).for_each(|(spread, whole)| spread.set_whole(whole));
        }
        let of_service = generation.and_then(|of| snapshot.placed().services.get(&of.service));
        let by_index = |(name, pods): (_, &u64)| Some((snapshot.index_of(name)?, *pods));
        let on_nodes: HashMap<u32, u64> = of_service.into_iter().flatten().filter_map(by_index).collect();
        Some(Self { rules, spreads, on_nodes: Rc::new(RefCell::new(on_nodes)) })
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

    pub(crate) fn domains_of(&self, node: u32) -> Domains {
        self.spreads.iter().map(|spread| spread.domain_of[node as usize]).collect()
    }

    /// Closed domains may open again: the others get pods.
    pub(crate) fn is_open(&self, domains: &Domains) -> bool {
        self.spreads.iter().zip(domains).all(|(spread, domain)| spread.is_open(*domain))
    }

    /// Holds for the rest of the batch.
    pub(crate) fn is_full(&self, node: u32) -> bool {
        self.rules.max_per_node.is_some_and(|most| self.on_node(node) >= most.get())
    }

    pub(crate) fn refusals(&self, node: u32) -> Vec<(Reason, String)> {
        let on_node = self.on_node(node);
        let full = self.rules.max_per_node.filter(|_| self.is_full(node)).map(|most| too_many(on_node, most));
        let spread = self.spreads.iter().filter_map(|spread| Some((Reason::SPREAD, spread.refusal(node)?)));
        full.map(|detail| (Reason::MAX_PER_NODE, detail)).into_iter().chain(spread).collect()
    }

    /// The change of the rule that lets the node take one more pod; `None` if a label is missing.
    pub(crate) fn relaxed(&self, node: u32, reason: Reason) -> Option<String> {
        if reason == Reason::MAX_PER_NODE {
            return Some(format!("`max_per_node: {}`", self.on_node(node) + 1));
        }
        let closed = self.spreads.iter().find(|spread| !spread.is_open(spread.domain_of[node as usize]))?;
        let domain = closed.domain_of[node as usize]?;
        let skew = closed.domains[domain as usize].pods + 1 - closed.least;
        Some(format!("`max_skew: {skew}` of {}", closed.rule.key()))
    }

    /// The same for all nodes of these domains; only rises within a batch.
    pub(crate) fn domain_load(&self, domains: &Domains, weights: &Weights) -> LoadScore {
        let of_one = |(spread, domain): (&SpreadState, &Option<u32>)| spread.load(*domain, weights);
        self.spreads.iter().zip(domains).map(of_one).sum()
    }

    /// Constant.
    pub(crate) fn preference_load(&self, candidate: &Candidate) -> LoadScore {
        self.missed(candidate).map(score::preference_load).sum()
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
        preferences.chain(soft.map(of_spread)).collect()
    }

    fn missed<'a>(&'a self, candidate: &'a Candidate) -> impl Iterator<Item = u32> + 'a {
        let preferences = self.rules.preferences.iter();
        let missed = preferences.filter(|(when, _)| !when.holds(&candidate.name, candidate.labels()));
        missed.map(|(_, weight)| *weight)
    }

    /// The domains of these nodes, and the one with the fewest pods, for a snapshot of these nodes.
    pub(crate) fn whole(&self, nodes: &[u32]) -> Vec<WholeSpread> {
        self.spreads.iter().map(|spread| spread.whole(nodes)).collect()
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
        let mut domains: Vec<Domain> = Vec::new();
        let mut by_name: HashMap<&str, u32> = HashMap::new();
        let mut domain_of = vec![None; snapshot.len()];
        for (index, candidate, node) in snapshot.by_name() {
            let Some(name) = domain_name(rule, node) else { continue };
            let domain = *by_name.entry(name).or_insert_with(|| {
                domains.push(Domain { name: name.to_owned(), pods: 0, is_eligible: false });
                (domains.len() - 1) as u32
            });
            domain_of[index as usize] = Some(domain);
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

fn domain_name<'a>(rule: &Spread, node: &'a Node) -> Option<&'a str> {
    rule.domain(&node.name, &node.facts.labels)
}

fn too_many(on_node: u64, most: NonZeroU64) -> String {
    format!("has {on_node} of the service's pods and may have {most}")
}
