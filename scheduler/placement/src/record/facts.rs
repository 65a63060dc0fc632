//! The facts of a node and of a pod by which a decision is made, in few bytes: of labels, ports and settings
//! only those that the pod asks for.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use model::RedisMillis;
use model::ids::{NodeName, PodId, ResourceName, ServiceName, SpecId};
use model::node::host_access::{HostAccess, HostRequest};
use model::node::{
    Node, NodeInfo, NodeKind, NodeSettings, NodeState, Psi, ResourceIds, Resources, SharedVolumesState,
};
use model::spec::{HostPorts, NamedRequest, Placement, PlacementProfile, Relation};
use serde::{Deserialize, Serialize};

use crate::candidate::Candidate;
use crate::requirements::{
    Generation, NodeRules, OrdinalZone, PodRequest, Requirements, Target, VolumePlaces,
};
use crate::whole::is_default;

/// Of a problem's sentence.
const MAX_PROBLEM: usize = 100;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredPod {
    #[serde(default, skip_serializing_if = "is_default")]
    service: Option<ServiceName>,
    #[serde(default, skip_serializing_if = "is_default")]
    spec: Option<SpecId>,
    /// It avoids the pods of its generation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) is_counted: bool,
    request: [u64; 5],
    #[serde(default, skip_serializing_if = "is_default")]
    needs_only_image: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    host_ports: String,
    #[serde(default, skip_serializing_if = "is_default")]
    host: Option<HostRequest>,
    #[serde(default, skip_serializing_if = "is_default")]
    needs_shared_directory: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    needs_newest_form: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    rules: Option<Placement>,
    #[serde(default, skip_serializing_if = "is_default")]
    relations: Vec<Relation>,
    /// As the zone rule had chosen.
    #[serde(default, skip_serializing_if = "is_default")]
    zone: Option<OrdinalZone>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) profile: PlacementProfile,
    #[serde(default, skip_serializing_if = "is_default")]
    volumes: Option<VolumePlaces>,
    #[serde(default, skip_serializing_if = "is_default")]
    named: Option<NamedRequest>,
    #[serde(default, skip_serializing_if = "is_default")]
    /// It was free to go elsewhere, or it is not there.
    target: Option<NodeName>,
}

impl StoredPod {
    /// `requirements` have the zone of an ordinal.
    pub(super) fn of(pod: &PodRequest, requirements: &Requirements, is_counted: bool) -> Self {
        let generation = pod.generation.as_ref();
        Self {
            service: generation.map(|generation| generation.service.clone()),
            spec: generation.map(|generation| generation.spec.clone()),
            is_counted,
            request: requirements.request.to_array(),
            needs_only_image: requirements.needs_only_image,
            host_ports: requirements.host_ports.to_string(),
            host: requirements.host.as_deref().cloned(),
            needs_shared_directory: requirements.needs_shared_directory,
            needs_newest_form: requirements.needs_newest_form,
            rules: requirements.rules.as_ref().map(|rules| rules.to_placement()),
            relations: requirements.rules.iter().flat_map(|rules| rules.relations.clone()).collect(),
            zone: requirements.zone.as_deref().cloned(),
            profile: requirements.profile,
            volumes: requirements.volumes.as_deref().cloned(),
            named: requirements.named.as_deref().cloned(),
            target: pod.target.as_ref().and_then(Target::node).cloned(),
        }
    }

    pub(super) fn to_request(&self) -> PodRequest {
        let of = |(service, spec): (&ServiceName, &SpecId)| Generation {
            service: service.clone(),
            spec: spec.clone(),
        };
        PodRequest {
            id: PodId::new("pod").expect("a word is an id"),
            requirements: Requirements {
                request: Resources::from_array(self.request),
                needs_only_image: self.needs_only_image,
                host_ports: HostPorts::from_text(self.host_ports.clone()),
                host: self.host.clone().map(Arc::new),
                needs_shared_directory: self.needs_shared_directory,
                needs_newest_form: self.needs_newest_form,
                rules: self
                    .rules
                    .as_ref()
                    .and_then(|rules| NodeRules::with_relations(rules, self.relations.clone(), false)),
                zone: self.zone.clone().map(Arc::new),
                profile: self.profile,
                volumes: self.volumes.clone().map(Box::new),
                named: self.named.clone().map(Arc::new),
            },
            generation: self.service.as_ref().zip(self.spec.as_ref()).map(of),
            ordinal: None,
            target: self.target.clone().map(Target::Planned),
        }
    }
}

/// Of the labels of nodes, those that decide about a pod.
pub(crate) struct LabelKeys(Vec<String>);

impl LabelKeys {
    pub(crate) fn of(requirements: &Requirements) -> Self {
        let rules = requirements.rules.iter().flat_map(|rules| rules.label_keys());
        let of_zone = requirements.zone.iter().map(|zone| zone.key.clone());
        Self(rules.chain(of_zone).chain(["zone".to_owned()]).collect())
    }
}

/// Pods of the pod's generation and of its service on a node; see also `ClusterSnapshot::commit_use`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PodsOnNode {
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) siblings: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) of_service: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) last_use: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredNode {
    pub(super) name: NodeName,
    used: [u64; 5],
    has: [u64; 5],
    beat: RedisMillis,
    /// In percent, as far as it counts.
    #[serde(default, skip_serializing_if = "is_default")]
    psi: Option<[u8; 5]>,
    #[serde(default, skip_serializing_if = "is_default")]
    is_dead: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    kind: NodeKind,
    #[serde(default, skip_serializing_if = "is_default")]
    cordoned: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    engine_problem: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    disk_problem: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    has_shared_directory: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    engine_id: String,
    #[serde(default, skip_serializing_if = "is_default")]
    forms: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    host: HostAccess,
    #[serde(default, skip_serializing_if = "is_default")]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "is_default")]
    host_ports: BTreeMap<String, String>,
    /// By name: how many ids it offers, and how many of them are free.
    #[serde(default, skip_serializing_if = "is_default")]
    ids: BTreeMap<ResourceName, (u64, u64)>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) places: PodsOnNode,
}

impl StoredNode {
    /// `candidate` has the placements of the batch, `node` has not.
    pub(crate) fn of(
        candidate: &Candidate,
        node: &Node,
        requirements: &Requirements,
        LabelKeys(keys): &LabelKeys,
        places: PodsOnNode,
    ) -> Self {
        let settings = candidate.settings.as_deref();
        let asks_host = settings.filter(|_| requirements.host.is_some());
        let has_volumes = requirements.volumes.is_some();
        let labels = keys.iter().filter_map(|key| Some((key.clone(), candidate.labels().get(key)?.clone())));
        let taken = requirements.host_ports.iter().filter_map(|port| {
            let one = HostPorts::from_text(port.to_owned());
            candidate.taken_port(&one).map(|(port, pod)| (port.to_owned(), pod.to_owned()))
        });
        let named = requirements.named.iter().flat_map(|named| named.iter());
        let ids = named
            .map(|(name, _)| (name.clone(), (node.offered_ids().count(name), candidate.free_ids_of(name))));
        Self {
            name: node.name.clone(),
            used: candidate.used.to_array(),
            has: candidate.capacity.to_array(),
            beat: candidate.beat,
            psi: node.psi.as_ref().map(percents),
            is_dead: candidate.state == NodeState::Dead,
            kind: candidate.kind,
            cordoned: candidate.cordoned,
            engine_problem: node.engine_problem.as_deref().map(shortened),
            disk_problem: node.disk_problem.as_deref().map(shortened),
            has_shared_directory: requirements.needs_shared_directory && candidate.has_shared_directory,
            engine_id: candidate.engine_id.as_deref().filter(|_| has_volumes).unwrap_or_default().to_owned(),
            forms: settings.map(|settings| settings.forms),
            host: asks_host.map(|settings| settings.host.clone()).unwrap_or_default(),
            labels: labels.collect(),
            host_ports: taken.collect(),
            ids: ids.collect(),
            places,
        }
    }

    pub(super) fn to_node(&self) -> Node {
        let resources = self.resource_ids(|(offered, _)| 0..offered);
        let settings = self.forms.map(|forms| NodeSettings {
            forms,
            host: self.host.clone(),
            secret_key: None,
            resources,
        });
        let given = self.resource_ids(|(offered, free)| free.min(offered)..offered);
        let facts = NodeInfo {
            labels: self.labels.clone(),
            capacity: Resources::from_array(self.has),
            engine_id: self.engine_id.clone(),
            settings,
            ..NodeInfo::default()
        };
        Node {
            kind: self.kind,
            state: if self.is_dead { NodeState::Dead } else { NodeState::Alive },
            cordoned: self.cordoned,
            engine_problem: self.engine_problem.clone(),
            disk_problem: self.disk_problem.clone(),
            shared_volumes: self.has_shared_directory.then_some(SharedVolumesState::Ready),
            used: Resources::from_array(self.used),
            host_ports: self.host_ports.clone(),
            given_ids: given.keys().map(|key| (key, String::new())).collect(),
            psi: self.psi.map(|[cpu_some, memory_some, memory_full, io_some, io_full]| Psi {
                cpu_some: cpu_some.into(),
                memory_some: memory_some.into(),
                memory_full: memory_full.into(),
                io_some: io_some.into(),
                io_full: io_full.into(),
            }),
            ..Node::new(self.name.clone(), facts, self.beat)
        }
    }
}

impl StoredNode {
    /// Returns invented ids: only their number decides.
    fn resource_ids(&self, range: impl Fn((u64, u64)) -> Range<u64>) -> ResourceIds {
        let of_name = |(name, counts): (&ResourceName, &(u64, u64))| {
            range(*counts).map(|id| format!("{name}/{id}")).collect::<Vec<_>>()
        };
        ResourceIds::from_text(&self.ids.iter().flat_map(of_name).collect::<Vec<_>>().join(" "))
    }
}

/// Scores round down.
fn percents(psi: &Psi) -> [u8; 5] {
    let Psi { cpu_some, memory_some, memory_full, io_some, io_full } = *psi;
    // The cast saturates and turns NaN into 0.
    [cpu_some, memory_some, memory_full, io_some, io_full].map(|percent| (percent as u8).min(100))
}

fn shortened(problem: &str) -> String {
    problem.chars().take(MAX_PROBLEM).collect()
}
