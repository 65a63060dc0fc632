//! A relation of a service to another one: where the pods of that service are, and what this means for each
//! node.
//!
//! Within a batch the pods of both services are placed, so places are closed and opened by turns. Only a node
//! that is too close to the other service stays so.
//!
//! Tests: tests, tests::related

use model::ids::ServiceName;
use model::spec::{Relation, RelationKind};

use crate::filter::Reason;
use crate::policy::Weights;
use crate::requirements::no_label;
use crate::score::{self, LoadScore, LoadTerm, TermScore};
use crate::snapshot::ClusterSnapshot;
use crate::whole::WholeRelation;

pub(crate) struct RelationState {
    rule: Relation,
    /// The service itself: its first pod may go anywhere.
    is_to_itself: bool,
    /// By index in the snapshot.
    domain_of: Vec<Option<u32>>,
    domains: Vec<RelatedDomain>,
    /// Of all domains, and of nodes without one.
    pods: u64,
}

struct RelatedDomain {
    name: String,
    pods: u64,
}

impl RelationState {
    pub(crate) fn new(snapshot: &ClusterSnapshot, rule: &Relation, own: Option<&ServiceName>) -> Self {
        let (of_nodes, names) = snapshot.domains(&rule.key);
        let domain = |name: &str| RelatedDomain { name: name.to_owned(), pods: 0 };
        let domains = names.into_iter().map(domain).collect();
        let is_to_itself = own == Some(&rule.service);
        let mut state = Self { rule: rule.clone(), is_to_itself, domain_of: of_nodes, domains, pods: 0 };
        let placed = match rule.kind {
            RelationKind::Near => &snapshot.placed().staying,
            RelationKind::Apart => &snapshot.placed().services,
        };
        for (name, pods) in placed.get(&rule.service).into_iter().flatten() {
            if let Some(index) = snapshot.index_of(name) {
                state.count(index, *pods);
            }
        }
        state
    }

    pub(crate) fn set_whole(&mut self, WholeRelation { is_somewhere, pods }: &WholeRelation) {
        for domain in &mut self.domains {
            domain.pods = pods.get(&domain.name).copied().unwrap_or(0);
        }
        self.pods = u64::from(*is_somewhere);
    }

    pub(crate) fn whole(&self, nodes: &[u32]) -> WholeRelation {
        let named = |domain: &RelatedDomain| (domain.name.clone(), domain.pods);
        let of_nodes = nodes.iter().filter_map(|node| self.domain(*node));
        WholeRelation { is_somewhere: self.pods > 0, pods: of_nodes.map(named).collect() }
    }

    /// A pod of `service` was placed.
    pub(crate) fn note(&mut self, service: &ServiceName, node: u32) {
        if self.rule.service == *service {
            self.count(node, 1);
        }
    }

    fn count(&mut self, node: u32, pods: u64) {
        self.pods += pods;
        if let Some(domain) = self.domain_of[node as usize] {
            self.domains[domain as usize].pods += pods;
        }
    }

    /// Its refusals and points only rise within a batch, and belong to single nodes.
    pub(crate) fn is_of_nodes(&self) -> bool {
        self.rule.kind == RelationKind::Apart && self.rule.is_by_node()
    }

    pub(crate) fn domain_index(&self, node: u32) -> Option<u32> {
        self.domain_of[node as usize]
    }

    fn domain(&self, node: u32) -> Option<&RelatedDomain> {
        self.domain_index(node).map(|domain| &self.domains[domain as usize])
    }

    fn pods_in(&self, domain: Option<u32>) -> u64 {
        domain.map_or(0, |domain| self.domains[domain as usize].pods)
    }

    pub(crate) fn is_open(&self, domain: Option<u32>) -> bool {
        if !self.rule.hard {
            return true;
        }
        match self.rule.kind {
            RelationKind::Apart => self.pods_in(domain) == 0,
            RelationKind::Near => self.pods_in(domain) > 0 || (self.is_to_itself && self.pods == 0),
        }
    }

    /// Of a soft rule.
    pub(crate) fn load(&self, domain: Option<u32>, weights: &Weights) -> LoadScore {
        if self.rule.hard {
            return 0;
        }
        score::domain_load(self.counted(domain), self.rule.weight, weights)
    }

    /// That there is no pod to be near to counts as one that should be far.
    fn counted(&self, domain: Option<u32>) -> u64 {
        let pods = self.pods_in(domain);
        match self.rule.kind {
            RelationKind::Apart => pods,
            RelationKind::Near => u64::from(pods == 0),
        }
    }

    /// `None` if the rule is hard.
    pub(crate) fn term(&self, node: u32, weights: &Weights) -> Option<TermScore> {
        let domain = self.domain_index(node);
        let term = match self.rule.kind {
            RelationKind::Apart => LoadTerm::AntiAffinity,
            RelationKind::Near => LoadTerm::Affinity,
        };
        (!self.rule.hard).then(|| TermScore {
            term,
            value: self.counted(domain) as f64,
            weight: self.rule.weight,
            points: self.load(domain, weights),
        })
    }

    pub(crate) fn reason(&self) -> Reason {
        match self.rule.kind {
            RelationKind::Apart => Reason::ANTI_AFFINITY,
            RelationKind::Near => Reason::AFFINITY,
        }
    }

    pub(crate) fn refusal(&self, node: u32) -> Option<String> {
        if self.is_open(self.domain_index(node)) {
            return None;
        }
        let Relation { service, key, kind, is_of_other, .. } = &self.rule;
        let Some(RelatedDomain { name, pods }) = self.domain(node) else {
            return Some(no_label(&self.rule));
        };
        let place = if self.rule.is_by_node() { String::new() } else { format!("{key}={name} ") };
        let counted = if *pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") };
        Some(match (kind, is_of_other) {
            (RelationKind::Near, _) if self.pods == 0 => {
                format!("the service runs near {service}, which has no pods")
            }
            (RelationKind::Near, _) => format!("{place}has no pod of {service}, near which the service runs"),
            (RelationKind::Apart, false) => {
                format!("{place}has {counted} of {service}, away from which the service runs")
            }
            (RelationKind::Apart, true) => {
                format!("{place}has {counted} of {service}, which runs away from the service")
            }
        })
    }

    /// The change of the rule that opens all nodes.
    pub(crate) fn relaxed(&self) -> String {
        let Relation { service, kind, is_of_other, .. } = &self.rule;
        match (kind, is_of_other) {
            (RelationKind::Near, _) => format!("`hard: false` of the affinity to {service}"),
            (RelationKind::Apart, false) => format!("`hard: false` of the anti-affinity to {service}"),
            (RelationKind::Apart, true) => format!("`hard: false` of the anti-affinity of {service}"),
        }
    }
}
