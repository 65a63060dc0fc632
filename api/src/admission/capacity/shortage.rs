//! Reasons why pods do not fit, and their problem document.

use api_types::NodeShortage;
use model::ids::ServiceName;
use model::node::Resource;
use model::spec::{HostPorts, NamedRequest};

use super::amounts::{Rounded, amount, cores, memory};
use crate::http::problem::{ApiProblem, ProblemKind, ShortageMembers};

const MAX_EXAMPLES: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    Amount(Resource),
    Ports,
    Permission,
    /// Ids of named resources, whether free or not.
    Ids,
    Rules,
    /// `max_per_node`.
    PerNode,
    Slots,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) lack: Lack,
    /// In the resource's unit; for ports nodes, for slots and ids pods.
    pub(crate) required: u64,
    pub(crate) allocatable: u64,
    pub(crate) service: ServiceName,
    pub(crate) ports: HostPorts,
    pub(crate) named: NamedRequest,
    pub(crate) nodes: Vec<NodeShortage>,
}

impl From<Shortage> for ApiProblem {
    fn from(shortage: Shortage) -> Self {
        let (kind, detail) = shortage.kind_and_detail();
        let Shortage { required, allocatable, service, nodes, .. } = shortage;
        Self::new(kind, detail).with_shortage(ShortageMembers { service, required, allocatable, nodes })
    }
}

impl Shortage {
    fn kind_and_detail(&self) -> (ProblemKind, String) {
        let (required, allocatable) = (self.required, self.allocatable);
        match self.lack {
            Lack::Amount(resource) => {
                let (kind, free) = match resource {
                    Resource::Memory => (ProblemKind::InsufficientMemory, memory(allocatable, Rounded::Down)),
                    Resource::Cpu => (ProblemKind::InsufficientCpu, cores(allocatable).to_string()),
                    Resource::Pids => (ProblemKind::InsufficientPids, allocatable.to_string()),
                    Resource::Disk => (ProblemKind::InsufficientDisk, memory(allocatable, Rounded::Down)),
                };
                let required = amount(resource, required, Rounded::Up);
                (kind, format!("requires {required} but only {free} can be allocated"))
            }
            Lack::Permission => {
                // Nodes with different settings may refuse different values.
                let why = self.nodes.first().map_or("", |node| node.reason.as_str());
                (ProblemKind::NotAllowed, format!("no node allows its pods: {why}"))
            }
            Lack::Ids => {
                let why = self.nodes.iter().map(|one| format!("{} {}", one.node, one.reason));
                let why: Vec<String> = why.take(MAX_EXAMPLES).collect();
                let detail = format!(
                    "requires {} for each of {required} pods but nodes declare enough for only {allocatable} \
                     (KUBELEET_RESOURCES of each): {}; declare more, or add --allow-partial",
                    self.named,
                    why.join(", ")
                );
                (ProblemKind::InsufficientResource, detail)
            }
            Lack::Rules => {
                let why =
                    self.nodes.first().map_or(String::new(), |one| format!("{} {}", one.node, one.reason));
                let detail = format!(
                    "no node satisfies its rules: {why}; label a node with `kubeleet node label`, or add \
                     --allow-partial"
                );
                (ProblemKind::PlacementImpossible, detail)
            }
            Lack::PerNode => {
                let nodes = match self.nodes.len() {
                    1 => "1 node".to_owned(),
                    count => format!("{count} nodes"),
                };
                let detail = format!(
                    "max_per_node leaves room for {allocatable} of {required} pods: {nodes} can run them; add nodes, \
                     raise max_per_node, or add --allow-partial"
                );
                (ProblemKind::PlacementImpossible, detail)
            }
            Lack::Slots => (
                ProblemKind::InsufficientSlots,
                format!(
                    "requires room for {required} pods but the nodes take only {allocatable} (KUBELEET_MAX_PODS of each)"
                ),
            ),
            Lack::Ports => {
                let ports = self.ports.iter().collect::<Vec<_>>().join(" and ");
                let nodes = if required == 1 { "1 node".to_owned() } else { format!("{required} nodes") };
                (
                    ProblemKind::InsufficientPorts,
                    format!("requires {nodes} with port {ports} but only {allocatable} can be allocated"),
                )
            }
        }
    }
}
