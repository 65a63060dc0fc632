//! A pod to be placed, and its requirements.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;

use model::ids::{NodeName, PodId, ServiceName, SpecId, VolumeName};
use model::node::Resources;
use model::node::host_access::HostRequest;
use model::service::volume::UnreportedNode;
use model::spec::{
    HostPorts, NamedRequest, NodeConstraint, Placement, PlacementProfile, PodSpec, Preference, Relation,
    RelationKind, Spread, Stateful, domain_of,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRequest {
    pub id: PodId,
    pub requirements: Requirements,
    /// `None` if it was pushed.
    pub generation: Option<Generation>,
    /// `None` unless its service is stateful.
    pub ordinal: Option<Ordinal>,
    pub target: Option<Target>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// It goes there if this node can take it: a move was planned.
    Planned(NodeName),
    /// No other node is asked: it is the pod of this node of a global service.
    Only(NodeName),
    /// Its global service wants no pod of this number.
    Nowhere,
}

impl Target {
    pub(crate) fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Planned(node) | Self::Only(node) => Some(node),
            Self::Nowhere => None,
        }
    }
}

/// A pod of a stateful service among its others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordinal {
    pub index: u32,
    pub rule: Arc<Stateful>,
}

/// The pods of a service that have the same specification.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation {
    pub service: ServiceName,
    pub spec: SpecId,
}

impl PodRequest {
    pub fn name(&self) -> &str {
        self.generation.as_ref().map_or(self.id.as_str(), |generation| generation.service.as_str())
    }
}

/// All that filters know of a pod. A refusal holds for all equal requirements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Without the pod's slot.
    pub request: Resources,
    /// See [`PodSpec::needs_only_image`].
    pub needs_only_image: bool,
    pub host_ports: HostPorts,
    /// Ids of named resources; `None` for nearly all pods.
    pub named: Option<Arc<NamedRequest>>,
    pub host: Option<Arc<HostRequest>>,
    pub needs_shared_directory: bool,
    /// See [`PodSpec::needs_newest_form`]: workers of the version before cannot read its specification.
    pub needs_newest_form: bool,
    /// Of its service; `None` if it has none.
    pub rules: Option<Arc<NodeRules>>,
    /// Only [`decide`](crate::decide) and [`explain`](crate::explain) know it.
    pub zone: Option<Arc<OrdinalZone>>,
    pub profile: PlacementProfile,
    /// `None` for nearly all pods.
    pub volumes: Option<Box<VolumePlaces>>,
}

/// Where the zone rule lets an ordinal go.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OrdinalZone {
    /// A label, or `node.hostname`.
    pub key: String,
    pub choice: ZoneChoice,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ZoneChoice {
    Zone(String),
    TooFew { zones: u64, wanted: u64 },
}

/// `placement` of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct NodeRules {
    pub constraints: Vec<NodeConstraint>,
    /// With their weights.
    pub preferences: Vec<(NodeConstraint, u32)>,
    pub spread: Vec<Spread>,
    pub max_per_node: Option<NonZeroU64>,
    /// To other services, and hard ones of others to this one.
    pub relations: Vec<Relation>,
    /// Others have relations to it: its pods count for theirs.
    pub is_related: bool,
}

impl NodeRules {
    pub fn of(placement: &Placement) -> Option<Arc<Self>> {
        Self::with_relations(placement, Vec::new(), false)
    }

    pub fn with_relations(
        placement: &Placement,
        of_others: Vec<Relation>,
        is_related: bool,
    ) -> Option<Arc<Self>> {
        let Placement { constraints, preferences, spread, max_per_node, affinity: _, anti_affinity: _ } =
            placement;
        let preference = |one: &Preference| (NodeConstraint::from_stored(&one.when), one.weight);
        let rules = Self {
            constraints: constraints.iter().map(|text| NodeConstraint::from_stored(text)).collect(),
            preferences: preferences.iter().map(preference).collect(),
            spread: spread.clone(),
            max_per_node: *max_per_node,
            relations: placement.relations().chain(of_others).collect(),
            is_related,
        };
        (rules != Self::default()).then(|| Arc::new(rules))
    }

    /// As a service's specification has them, without relations.
    pub(crate) fn to_placement(&self) -> Placement {
        let Self { constraints, preferences, spread, max_per_node, relations: _, is_related: _ } = self;
        let preference =
            |(when, weight): &(NodeConstraint, u32)| Preference { when: when.to_string(), weight: *weight };
        Placement {
            constraints: constraints.iter().map(ToString::to_string).collect(),
            preferences: preferences.iter().map(preference).collect(),
            spread: spread.clone(),
            max_per_node: *max_per_node,
            ..Placement::default()
        }
    }

    /// The labels that they know.
    pub(crate) fn label_keys(&self) -> impl Iterator<Item = String> {
        let constraints = self.constraints.iter().chain(self.preferences.iter().map(|(when, _)| when));
        let of_constraints = constraints.filter_map(|one| Some(one.satisfied_by()?.0));
        let of_relations = self.relations.iter().map(|relation| relation.key.clone());
        of_constraints.chain(self.spread.iter().map(|spread| spread.key().to_owned())).chain(of_relations)
    }

    /// Whether they have more than constraints.
    pub(crate) fn count_or_prefer(&self) -> bool {
        let Self { constraints: _, preferences, spread, max_per_node, relations, is_related } = self;
        let counts = !spread.is_empty() || max_per_node.is_some();
        !preferences.is_empty() || counts || !relations.is_empty() || *is_related
    }

    /// Other services have all of them.
    pub(crate) fn are_of_others(&self) -> bool {
        let Self { constraints, preferences, spread, max_per_node, relations, is_related: _ } = self;
        let has_own = !(constraints.is_empty() && preferences.is_empty() && spread.is_empty());
        !has_own && max_per_node.is_none() && relations.iter().all(|relation| relation.is_of_other)
    }

    /// Why no pod can be on a node with these labels, however many others there are.
    pub fn ruled_out_by(&self, node: &NodeName, labels: &BTreeMap<String, String>) -> Option<String> {
        let broken = self.broken_by(node, labels).map(|one| one.explain(labels));
        let hard = self.spread.iter().filter(|spread| spread.hard);
        let unlabelled = hard.filter(|spread| spread.domain(node, labels).is_none()).map(no_domain);
        let near = self.relations.iter().filter(|one| one.hard && one.kind == RelationKind::Near);
        let far = near.filter(|one| domain_of(&one.key, node, labels).is_none()).map(no_label);
        broken.into_iter().chain(unlabelled).chain(far).next()
    }

    pub fn has_hard_spread(&self) -> bool {
        self.spread.iter().any(|spread| spread.hard)
    }

    /// The first that the node does not satisfy.
    pub fn broken_by(&self, node: &NodeName, labels: &BTreeMap<String, String>) -> Option<&NodeConstraint> {
        self.constraints.iter().find(|one| !one.holds(node, labels))
    }
}

pub(crate) fn no_domain(spread: &Spread) -> String {
    format!("has no label {}, over which the service is spread", spread.key())
}

/// A node without the label is near to nothing.
pub(crate) fn no_label(rule: &Relation) -> String {
    format!("has no label {}, by which the service runs near {}", rule.key, rule.service)
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VolumePlaces {
    pub bound: Vec<BoundVolume>,
    pub unreported: Option<UnreportedVolume>,
    pub contested: Option<ContestedVolume>,
    /// A new volume cannot be on the same node.
    pub given_up: Vec<GivenUpCopy>,
}

impl VolumePlaces {
    pub fn into_requirement(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UnreportedVolume {
    pub name: VolumeName,
    pub nodes: Vec<UnreportedNode>,
}

/// An operator has to choose between the copies.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContestedVolume {
    pub name: VolumeName,
    pub nodes: Vec<NodeName>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GivenUpCopy {
    pub name: VolumeName,
    pub node: NodeName,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BoundVolume {
    pub name: VolumeName,
    pub node: NodeName,
    pub engine_id: Option<String>,
    /// No pod can use it.
    pub is_removing: bool,
}

/// Hashing dominates the lookup of a class, by writes rather than bytes: the amounts are one write, and
/// defaults add none.
impl Hash for Requirements {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Resources { cpu_millis, memory_bytes, pids, disk_bytes, pods: _ } = self.request;
        let bytes = memory_bytes ^ disk_bytes.rotate_left(32);
        state.write_u128(u128::from(cpu_millis ^ pids << 32) << 64 | u128::from(bytes));
        if !self.host_ports.is_empty() {
            self.host_ports.hash(state);
        }
        if let Some(named) = &self.named {
            named.hash(state);
        }
        if let Some(host) = &self.host {
            host.hash(state);
        }
        if self.needs_shared_directory {
            state.write_u8(1);
        }
        if self.needs_newest_form {
            state.write_u8(2);
        }
        if let Some(rules) = &self.rules {
            rules.hash(state);
        }
        if let Some(zone) = &self.zone {
            zone.hash(state);
        }
        if self.profile != PlacementProfile::Default {
            self.profile.hash(state);
        }
        if let Some(volumes) = &self.volumes {
            volumes.hash(state);
        }
    }
}

impl Requirements {
    pub fn of(spec: &PodSpec) -> Self {
        Self {
            request: spec.request(),
            needs_only_image: spec.needs_only_image(),
            host_ports: spec.host_ports(),
            named: (!spec.resources.is_empty()).then(|| Arc::new(spec.resources.clone())),
            host: HostRequest::of(spec).map(Arc::new),
            needs_shared_directory: spec.has_shared_volumes(),
            needs_newest_form: spec.needs_newest_form(),
            rules: None,
            zone: None,
            profile: PlacementProfile::Default,
            volumes: None,
        }
    }

    /// Every pod takes one pod slot.
    pub fn resources(&self) -> Resources {
        Resources { pods: 1, ..self.request }
    }
}
