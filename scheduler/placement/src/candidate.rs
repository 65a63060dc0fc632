//! The facts about a node for filters and scores.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::RedisMillis;
use model::ids::{NodeName, ResourceName};
use model::node::{Node, NodeKind, NodeSettings, NodeState, Resource, Resources, SharedVolumesState};
use model::spec::{HostPorts, NamedRequest, domain_of};

use crate::policy::Weights;
use crate::score::{self, LoadScore};

/// A batch works on copies: their `used` includes its placements.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) name: Arc<NodeName>,
    pub(crate) capacity: Resources,
    pub(crate) used: Resources,
    pub(crate) pressure: Option<LoadScore>,
    pub(crate) beat: RedisMillis,
    pub(crate) state: NodeState,
    pub(crate) kind: NodeKind,
    pub(crate) cordoned: bool,
    pub(crate) engine_healthy: bool,
    pub(crate) has_disk: bool,
    pub(crate) has_shared_directory: bool,
    pub(crate) engine_id: Option<Arc<str>>,
    /// As its worker registered them; `None` if that is unknown.
    pub(crate) settings: Option<Arc<NodeSettings>>,
    /// `None` if it has none.
    labels: Option<Arc<BTreeMap<String, String>>>,
    /// With the pods' names; `None` on most nodes.
    host_ports: Option<Arc<BTreeMap<String, String>>>,
    /// How many ids of each named resource are free; `None` on most nodes.
    free_ids: Option<Arc<BTreeMap<ResourceName, u64>>>,
}

/// A named resource of which a pod needs more ids than are free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LackOfIds<'a> {
    pub(crate) name: &'a ResourceName,
    pub(crate) needed: u64,
    pub(crate) free: u64,
}

impl Candidate {
    pub(crate) fn new(node: &Node, weights: &Weights) -> Self {
        Self {
            name: Arc::new(node.name.clone()),
            capacity: node.facts.capacity,
            used: node.used,
            pressure: node.psi.as_ref().map(|psi| score::pressure_load(psi, weights)),
            beat: node.beat,
            state: node.state,
            kind: node.kind,
            cordoned: node.cordoned,
            engine_healthy: node.engine_problem.is_none(),
            has_disk: node.disk_problem.is_none(),
            has_shared_directory: node.shared_volumes == Some(SharedVolumesState::Ready),
            engine_id: Some(node.facts.engine_id.as_str()).filter(|id| !id.is_empty()).map(Arc::from),
            settings: node.facts.settings.clone().map(Arc::new),
            labels: (!node.facts.labels.is_empty()).then(|| Arc::new(node.facts.labels.clone())),
            host_ports: (!node.host_ports.is_empty()).then(|| Arc::new(node.host_ports.clone())),
            free_ids: (!node.offered_ids().is_empty()).then(|| Arc::new(free_ids(node))),
        }
    }

    pub(crate) fn labels(&self) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.labels.as_deref().unwrap_or(&NONE)
    }

    /// The value of a label, or of `node.hostname`.
    pub(crate) fn domain(&self, key: &str) -> Option<&str> {
        domain_of(key, &self.name, self.labels())
    }

    /// Returns the first of these ports that is taken, and the name of its pod.
    pub(crate) fn taken_port<'a>(&'a self, ports: &'a HostPorts) -> Option<(&'a str, &'a str)> {
        let taken = self.host_ports.as_ref()?;
        ports.iter().find_map(|port| Some((port, taken.get(port)?.as_str())))
    }

    pub(crate) fn take_ports(&mut self, ports: &HostPorts, name: &str) {
        if !ports.is_empty() {
            let taken = Arc::make_mut(self.host_ports.get_or_insert_default());
            taken.extend(ports.iter().map(|port| (port.to_owned(), name.to_owned())));
        }
    }

    /// Returns the first named resource of which too few ids are free.
    pub(crate) fn lack_of_ids<'a>(&self, request: &'a NamedRequest) -> Option<LackOfIds<'a>> {
        let lacks =
            request.iter().map(|(name, needed)| LackOfIds { name, needed, free: self.free_ids_of(name) });
        lacks.into_iter().find(|lack| lack.free < lack.needed)
    }

    pub(crate) fn free_ids_of(&self, name: &ResourceName) -> u64 {
        self.free_ids.as_ref().and_then(|free| free.get(name).copied()).unwrap_or(0)
    }

    pub(crate) fn take_ids(&mut self, request: &NamedRequest) {
        let Some(free_ids) = &mut self.free_ids else { return };
        let free_ids = Arc::make_mut(free_ids);
        for (name, count) in request.iter() {
            if let Some(free) = free_ids.get_mut(name) {
                *free = free.saturating_sub(count);
            }
        }
    }

    pub(crate) fn load(&self, weights: &Weights, typical_pressure: LoadScore) -> LoadScore {
        let pods = score::pod_load(self.used.pods, self.capacity.pods, weights);
        pods.saturating_add(self.pressure.unwrap_or(typical_pressure))
    }

    pub(crate) fn free(&self, resource: Resource) -> u64 {
        self.capacity.left(resource, &self.used)
    }

    pub(crate) fn has_free_slot(&self) -> bool {
        self.used.pods < self.capacity.pods
    }
}

fn free_ids(node: &Node) -> BTreeMap<ResourceName, u64> {
    let offered = node.offered_ids().iter();
    offered.map(|(name, _)| (name.clone(), node.free_ids(name).count() as u64)).collect()
}
