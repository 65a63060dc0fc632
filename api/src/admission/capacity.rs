//! Decides whether a requested service fits the cluster, as an early answer for people: the script that
//! assigns pods decides. So only services that can never fit are refused. Cordoned and silent nodes count,
//! because they may be back before the pods are. Pure.

mod amounts;
mod shortage;

use std::sync::Arc;

use api_types::NodeShortage;
use model::ids::ServiceName;
use model::node::host_access::HostRequest;
use model::node::{Node, NodeKind, NodeState, Resource, Resources};
use model::service::Service;
use model::spec::{DesiredService, HostPorts, NamedRequest, PodSpec, ServiceFields};
use placement::NodeRules;

use self::amounts::{Rounded, amount};
use self::shortage::Lack;
pub(crate) use self::shortage::Shortage;

/// In the order in which they are blamed.
const BLAMED: [Lack; 6] = [
    Lack::Amount(Resource::Memory),
    Lack::Amount(Resource::Cpu),
    Lack::Amount(Resource::Pids),
    Lack::Amount(Resource::Disk),
    Lack::Ports,
    Lack::Slots,
];

#[derive(Debug, Clone, PartialEq, Eq)]
struct PodGroup {
    request: Resources,
    ports: HostPorts,
    named: NamedRequest,
    host: Option<Arc<HostRequest>>,
    rules: Option<Arc<NodeRules>>,
    replicas: u64,
    needs_only_image: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Demand {
    service: ServiceName,
    wanted: PodGroup,
    present: Option<PodGroup>,
    /// Jobs: their pods may wait for each other.
    can_wait: bool,
}

impl PodGroup {
    fn new(pod: &PodSpec, fields: &ServiceFields, replicas: u32) -> Self {
        Self {
            rules: fields.placement.as_ref().and_then(NodeRules::of),
            request: pod.request(),
            ports: pod.host_ports(),
            named: pod.resources.clone(),
            host: HostRequest::of(pod).map(Arc::new),
            replicas: replicas.into(),
            needs_only_image: pod.needs_only_image(),
        }
    }

    fn needs(&self) -> impl Iterator<Item = Resource> {
        Resource::ALL.into_iter().filter(|resource| self.request.get(*resource) > 0)
    }

    fn can_lack(&self, lack: Lack) -> bool {
        match lack {
            Lack::Amount(resource) => self.request.get(resource) > 0,
            Lack::Ports => !self.ports.is_empty(),
            Lack::Permission | Lack::Ids | Lack::Rules | Lack::PerNode | Lack::Slots => true,
        }
    }

    fn ruled_out_by(&self, node: &Node) -> Option<String> {
        self.rules.as_ref()?.ruled_out_by(&node.name, &node.facts.labels)
    }

    fn refusal_of(&self, node: &Node) -> Option<String> {
        let (request, settings) = self.host.as_ref().zip(node.facts.settings.as_ref())?;
        settings.host.check(request).err()
    }

    fn is_within(&self, others: &Self) -> bool {
        let ports: Vec<&str> = others.ports.iter().collect();
        self.replicas <= others.replicas
            && self.rules == others.rules
            && self.named == others.named
            && self.needs().all(|resource| self.request.get(resource) <= others.request.get(resource))
            && self.ports.iter().all(|port| ports.contains(&port))
            && self.host_is_within(others)
    }

    /// How many of the pods a node could have, if no others had its ids.
    fn count_by_ids(&self, node: &Node) -> u64 {
        let offered = node.offered_ids();
        self.named.iter().map(|(name, needed)| offered.count(name) / needed.max(1)).min().unwrap_or(u64::MAX)
    }

    fn host_is_within(&self, others: &Self) -> bool {
        let Some(host) = &self.host else { return true };
        others.host.as_ref().is_some_and(|others| host.is_within(others))
    }

    fn count_within(&self, free: Resources, resource: Resource) -> u64 {
        match self.request.get(resource) {
            0 => u64::MAX,
            needed => free.get(resource) / needed,
        }
    }
}

impl Demand {
    pub(crate) fn of(desired: &DesiredService, existing: Option<&Service>) -> Self {
        let present = existing.map(|service| PodGroup::new(&service.pod, &service.fields, service.replicas));
        let can_wait = !desired.pod.kind.is_service();
        // A cron has no pods until it is due.
        let replicas = if can_wait { desired.replicas.max(1) } else { desired.replicas };
        let wanted = PodGroup::new(&desired.pod, &desired.fields, replicas);
        Self { service: desired.name.clone(), wanted, present, can_wait }
    }

    pub(crate) fn of_scale(service: &Service, replicas: u32) -> Self {
        let present = PodGroup::new(&service.pod, &service.fields, service.replicas);
        let wanted = PodGroup { replicas: replicas.into(), ..present.clone() };
        Self { service: service.name.clone(), wanted, present: Some(present), can_wait: false }
    }

    /// True if the service has no pods, or requires no more than its present pods.
    pub(crate) fn is_covered(&self) -> bool {
        self.wanted.replicas == 0
            || self.present.as_ref().is_some_and(|present| self.wanted.is_within(present))
    }

    /// Recently admitted demands may have pods without a node yet.
    pub(crate) fn may_lack_after(&self, admitted: &[Self], nodes: &[Node]) -> bool {
        let ports = &self.wanted.ports;
        let has_port =
            |other: &Self| other.wanted.ports.iter().any(|port| ports.iter().any(|own| own == port));
        if admitted.iter().any(has_port) {
            return true;
        }
        self.wanted.needs().any(|resource| {
            let all =
                |demand: &Self| demand.wanted.request.get(resource).saturating_mul(demand.wanted.replicas);
            let free = nodes.iter().map(|node| free(node).get(resource)).fold(0, u64::saturating_add);
            admitted.iter().map(all).fold(all(self), u64::saturating_add) > free
        })
    }

    /// `None` also if no live node is known.
    pub(crate) fn shortage(&self, nodes: &[Node]) -> Option<Shortage> {
        let can_run = |node: &&Node| node.kind == NodeKind::Kubeleet || self.wanted.needs_only_image;
        let mut nodes: Vec<&Node> = nodes.iter().filter(can_run).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        if self.is_covered() || nodes.iter().all(|node| node.state == NodeState::Dead) {
            return None;
        }
        let eligible = nodes.iter().filter(|node| self.wanted.ruled_out_by(node).is_none());
        let eligible: Vec<&Node> = eligible.copied().collect();
        if eligible.is_empty() {
            return self.ruled_out(&nodes);
        }
        let nodes = eligible;
        let allowing = nodes.iter().filter(|node| self.wanted.refusal_of(node).is_none());
        let allowing: Vec<&Node> = allowing.copied().collect();
        if allowing.is_empty() {
            return self.refused_by_all(&nodes);
        }
        let nodes = allowing;
        if let Some(shortage) = self.too_few_ids(&nodes) {
            return Some(shortage);
        }
        self.too_large_for_any(&nodes).or_else(|| self.too_many_for_nodes(&nodes)).or_else(|| {
            match &self.present {
                _ if self.can_wait => None,
                Some(present) if !self.has_the_requirements_of(present) => self.replacement(present, &nodes),
                present => {
                    let before = present.as_ref().map_or(0, |present| present.replicas);
                    self.addition(self.wanted.replicas.saturating_sub(before), &nodes)
                }
            }
        })
    }

    fn has_the_requirements_of(&self, present: &PodGroup) -> bool {
        let rules = present.rules.clone();
        PodGroup { replicas: present.replicas, rules, ..self.wanted.clone() } == *present
    }

    fn ruled_out(&self, nodes: &[&Node]) -> Option<Shortage> {
        if self.present.as_ref().is_some_and(|present| present.rules == self.wanted.rules) {
            return None;
        }
        let reason = |node: &Node| self.wanted.ruled_out_by(node).unwrap_or_default();
        Some(self.short_of(Lack::Rules, self.wanted.replicas, 0, nodes, reason))
    }

    fn too_many_for_nodes(&self, nodes: &[&Node]) -> Option<Shortage> {
        let most = self.wanted.rules.as_ref()?.max_per_node.filter(|_| !self.can_wait)?;
        let room = most.get().saturating_mul(nodes.len() as u64);
        let reason = |_: &Node| format!("takes {most} of them");
        let required = self.wanted.replicas;
        (required > room).then(|| self.short_of(Lack::PerNode, required, room, nodes, reason))
    }

    /// Jobs may have their pods one after the other.
    fn too_few_ids(&self, nodes: &[&Node]) -> Option<Shortage> {
        let is_old = self.present.as_ref().is_some_and(|present| {
            present.named == self.wanted.named && present.replicas >= self.wanted.replicas
        });
        let room = nodes.iter().map(|node| self.wanted.count_by_ids(node)).fold(0, u64::saturating_add);
        let required = if self.can_wait { 1 } else { self.wanted.replicas };
        let reason = |node: &Node| {
            let has =
                self.wanted.named.iter().map(|(name, _)| (name.clone(), node.offered_ids().count(name)));
            format!("has {}", has.collect::<NamedRequest>())
        };
        (required > room && !is_old).then(|| self.short_of(Lack::Ids, required, room, nodes, reason))
    }

    fn refused_by_all(&self, nodes: &[&Node]) -> Option<Shortage> {
        if self.present.as_ref().is_some_and(|present| self.wanted.host_is_within(present)) {
            return None;
        }
        let reason = |node: &Node| self.wanted.refusal_of(node).unwrap_or_default();
        Some(self.short_of(Lack::Permission, self.wanted.replicas, 0, nodes, reason))
    }

    fn too_large_for_any(&self, nodes: &[&Node]) -> Option<Shortage> {
        let lacks =
            |node: &Node, resource| self.wanted.request.get(resource) > node.facts.capacity.get(resource);
        if nodes.iter().any(|node| !self.wanted.needs().any(|resource| lacks(node, resource))) {
            return None;
        }
        let blamed = BLAMED.into_iter().filter_map(|lack| {
            let Lack::Amount(resource) = lack else { return None };
            let short = nodes.iter().filter(|node| lacks(node, resource));
            Some((resource, short.map(|node| node.facts.capacity.get(resource)).collect::<Vec<u64>>()))
        });
        let blamed: Vec<(Resource, Vec<u64>)> = blamed.collect();
        let (resource, offers) = blamed.into_iter().rev().max_by_key(|(_, offers)| offers.len())?;
        let required = self.wanted.request.get(resource);
        let reason = |node: &Node| {
            let short = self.wanted.needs().filter(|resource| lacks(node, *resource));
            let short =
                short.map(|resource| amount(resource, node.facts.capacity.get(resource), Rounded::Down));
            format!("offers {}", short.collect::<Vec<_>>().join(" and "))
        };
        let allocatable = offers.into_iter().max().unwrap_or(0);
        Some(self.short_of(Lack::Amount(resource), required, allocatable, nodes, reason))
    }

    fn addition(&self, count: u64, nodes: &[&Node]) -> Option<Shortage> {
        let fits = |node: &Node, lack: Lack| match lack {
            Lack::Amount(resource) => self.wanted.count_within(free(node), resource),
            Lack::Ports if self.taken_port(node).is_none() => 1,
            Lack::Ports => 0,
            Lack::Permission | Lack::Ids | Lack::Rules | Lack::PerNode => u64::MAX,
            Lack::Slots => free(node).pods,
        };
        let lacks: Vec<Lack> = BLAMED.into_iter().filter(|lack| self.wanted.can_lack(*lack)).collect();
        let on_node = |node: &Node| lacks.iter().map(|lack| fits(node, *lack)).min().unwrap_or(u64::MAX);
        let total = nodes.iter().map(|node| on_node(node)).fold(0, u64::saturating_add);
        if total >= count {
            return None;
        }
        let of_lack = |lack: &Lack| nodes.iter().map(|node| fits(node, *lack)).fold(0, u64::saturating_add);
        let lack = *lacks.iter().min_by_key(|lack| of_lack(lack))?;
        let (required, allocatable) = match lack {
            Lack::Ports | Lack::Slots | Lack::Permission | Lack::Ids | Lack::Rules | Lack::PerNode => {
                (count, total)
            }
            Lack::Amount(resource) => {
                let each = self.wanted.request.get(resource);
                let required = each.saturating_mul(count);
                let free = nodes.iter().map(|node| free(node).get(resource)).fold(0, u64::saturating_add);
                (required, if free < required { free } else { each.saturating_mul(total) })
            }
        };
        let reason = |node: &Node| match self.taken_port(node) {
            _ if lack == Lack::Slots => slots_of(node),
            Some((port, pod)) => format!("port {port} is taken by {pod}"),
            None => {
                let free = free(node);
                let free =
                    self.wanted.needs().map(|resource| amount(resource, free.get(resource), Rounded::Down));
                let free: Vec<String> = free.collect();
                if free.is_empty() {
                    "takes one of the pods".to_owned()
                } else {
                    format!("{} free", free.join(", "))
                }
            }
        };
        Some(self.short_of(lack, required, allocatable, nodes, reason))
    }

    /// The nodes of the present pods are not read, so only impossible changes are found.
    fn replacement(&self, present: &PodGroup, nodes: &[&Node]) -> Option<Shortage> {
        let sum = |resource| {
            let own = present.request.get(resource).saturating_mul(present.replicas);
            nodes.iter().map(|node| free(node).get(resource)).fold(own, u64::saturating_add)
        };
        BLAMED.into_iter().filter(|lack| self.wanted.can_lack(*lack)).find_map(|lack| {
            let (required, allocatable) = match lack {
                Lack::Ports => {
                    let free = nodes.iter().filter(|node| self.taken_port(node).is_none()).count();
                    (self.wanted.replicas, free as u64)
                }
                Lack::Slots | Lack::Permission | Lack::Ids | Lack::Rules | Lack::PerNode => {
                    let own = present.replicas;
                    let slots = nodes.iter().map(|node| free(node).pods).fold(own, u64::saturating_add);
                    (self.wanted.replicas, slots)
                }
                Lack::Amount(resource) => {
                    (self.wanted.request.get(resource).saturating_mul(self.wanted.replicas), sum(resource))
                }
            };
            let reason = |node: &Node| match (lack, self.taken_port(node)) {
                (Lack::Slots | Lack::Permission | Lack::Ids | Lack::Rules | Lack::PerNode, _) => {
                    slots_of(node)
                }
                (Lack::Ports, Some((port, pod))) => format!("port {port} is taken by {pod}"),
                (Lack::Ports, None) => "takes one of the pods".to_owned(),
                (Lack::Amount(resource), _) => {
                    format!("{} free", amount(resource, free(node).get(resource), Rounded::Down))
                }
            };
            (required > allocatable).then(|| self.short_of(lack, required, allocatable, nodes, reason))
        })
    }

    fn taken_port<'a>(&'a self, node: &'a Node) -> Option<(&'a str, &'a str)> {
        self.wanted.ports.iter().find_map(|port| {
            let holder = node.host_ports.get(port)?;
            // Pods have their service's name; a changed service gets its own ports again.
            let is_own = self.present.as_ref().is_some_and(|present| !self.has_the_requirements_of(present))
                && holder == self.service.as_str();
            (!is_own).then_some((port, holder.as_str()))
        })
    }

    fn short_of(
        &self,
        lack: Lack,
        required: u64,
        allocatable: u64,
        nodes: &[&Node],
        reason: impl Fn(&Node) -> String,
    ) -> Shortage {
        let nodes =
            nodes.iter().map(|node| NodeShortage { node: node.name.to_string(), reason: reason(node) });
        Shortage {
            lack,
            required,
            allocatable,
            service: self.service.clone(),
            ports: self.wanted.ports.clone(),
            named: self.wanted.named.clone(),
            nodes: nodes.collect(),
        }
    }
}

fn slots_of(node: &Node) -> String {
    format!("has {} of {} pods", node.used.pods, node.facts.capacity.pods)
}

fn free(node: &Node) -> Resources {
    node.facts.capacity.saturating_sub(node.used)
}

#[cfg(test)]
mod tests;
