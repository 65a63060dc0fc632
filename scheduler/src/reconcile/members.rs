//! Which nodes have a pod of a global service, and with which number. Pure but for [`follow_nodes`].
//!
//! An eligible node is alive, not external, and satisfies the constraints. A cordoned one keeps its pod and
//! gets no new one, so a drain only has to stop it. A node keeps its number until it is removed, and no
//! number is given to another node while a pod has its slot, or its data is elsewhere: two pods of a service
//! never meet on a node, and each finds its volumes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use model::ids::{NodeName, VolumeName};
use model::node::{Node, NodeKind, NodeState};
use model::service::Service;
use model::service::members::{Member, Members, Standing};
use model::service::volume::VolumeClaim;
use placement::NodeRules;
use store::{Store, StoreError};

use super::slots::{ReplicaSlot, SlotHolder, is_ending, pods};

const MAX_NAMES: usize = 5;

/// The record of a node, as far as it concerns a global service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeenNode {
    Readable(Standing),
    /// Nothing is known: it keeps its number.
    Unreadable,
    /// Its number is free as soon as its slot is.
    Missing,
}

/// The nodes of the volumes of numbers.
pub(crate) type DataPlaces = BTreeMap<u32, NodeName>;

/// Stores the nodes that `service` has by now. Returns false if it has changed: read it again.
pub(crate) async fn follow_nodes(
    store: &Store,
    service: &mut Service,
    slots: &[ReplicaSlot],
) -> Result<bool, StoreError> {
    let of_members = service.members.by_number().values().map(|member| member.node.clone());
    let listed = store.node_names().await?.into_iter();
    let names: BTreeSet<NodeName> = listed.chain(of_members).collect();
    let names: Vec<NodeName> = names.into_iter().collect();
    let rules = service.fields.placement.as_ref().and_then(NodeRules::of);
    let seen = |record: Result<Option<Node>, StoreError>| match record {
        Ok(Some(node)) => SeenNode::Readable(standing(&node, rules.as_deref())),
        Ok(None) => SeenNode::Missing,
        Err(_) => SeenNode::Unreadable,
    };
    let records = store.nodes(&names).await?;
    let nodes = names.into_iter().zip(records.into_iter().map(seen)).collect();
    let mut members = plan(&service.members, slots, &nodes, &DataPlaces::new());
    if has_new_numbers(&service.members, &members) && !service.pod.persistent_volumes().is_empty() {
        let data = read_data(store, service, members.slots() + nodes.len() as u32).await?;
        members = plan(&service.members, slots, &nodes, &data);
    }
    if members == service.members {
        return Ok(true);
    }
    let news = news(&service.members, &members);
    if !store.put_members(service, &members, news.as_deref()).await? {
        return Ok(false);
    }
    service.replicas = members.slots();
    service.members = members;
    Ok(true)
}

fn has_new_numbers(before: &Members, after: &Members) -> bool {
    after.by_number().keys().any(|number| !before.by_number().contains_key(number))
}

/// Of the numbers below `count`. An unreadable volume is nowhere: its pod waits.
async fn read_data(store: &Store, service: &Service, count: u32) -> Result<DataPlaces, StoreError> {
    let claims: Vec<(u32, VolumeName)> = (0..count)
        .flat_map(|number| VolumeClaim::of_replica(&service.name, &service.pod, number))
        .filter_map(|claim| Some((claim.scope.replica()?, claim.name)))
        .collect();
    let names: Vec<VolumeName> = claims.iter().map(|(_, name)| name.clone()).collect();
    let places = claims.into_iter().zip(store.volumes(&names).await?);
    Ok(places.filter_map(|((number, _), volume)| Some((number, volume.ok()??.node?))).collect())
}

/// [`Standing::Closed`] if it has a pod, [`Standing::Out`] otherwise, is for [`plan`] to say.
fn standing(node: &Node, rules: Option<&NodeRules>) -> Standing {
    let is_ruled_out =
        || rules.is_some_and(|rules| rules.broken_by(&node.name, &node.facts.labels).is_some());
    if node.state == NodeState::Dead || node.kind == NodeKind::External || is_ruled_out() {
        Standing::Out
    } else if node.cordoned {
        Standing::Closed
    } else {
        Standing::Open
    }
}

/// `slots` must be sorted; `nodes` has at least those of the members; `data` is for nodes without a number.
pub(crate) fn plan(
    members: &Members,
    slots: &[ReplicaSlot],
    nodes: &BTreeMap<NodeName, SeenNode>,
    data: &DataPlaces,
) -> Members {
    let taken: BTreeSet<u32> = slots.iter().map(|slot| slot.slot.replica).collect();
    let is_kept = |number: &u32, node: &NodeName| {
        taken.contains(number) || nodes.get(node).is_some_and(|seen| *seen != SeenNode::Missing)
    };
    let mut numbers: HashMap<&NodeName, u32> = HashMap::new();
    for (number, member) in members.by_number().iter().filter(|(number, one)| is_kept(number, &one.node)) {
        numbers.entry(&member.node).or_insert(*number);
    }
    let mut used: BTreeSet<u32> = numbers.values().copied().collect();
    // Lost members are those of the pods.
    for (slot, pod) in pods(slots).filter(|(_, pod)| !is_ending(pod)) {
        let Some(node) = pod.node.as_ref() else { continue };
        if !numbers.contains_key(node) && used.insert(slot.slot.replica) {
            numbers.insert(node, slot.slot.replica);
        }
    }
    let is_free = |number: &u32| !used.contains(number) && !taken.contains(number);
    let mut free = (0..).filter(|number| is_free(number) && !data.contains_key(number));
    let open = nodes.iter().filter(|(_, seen)| **seen == SeenNode::Readable(Standing::Open));
    for (node, _) in open {
        let with_data = || data.iter().find(|(number, on)| *on == node && is_free(number));
        numbers.entry(node).or_insert_with(|| match with_data() {
            Some((number, _)) => *number,
            None => free.next().expect("there are more numbers than nodes"),
        });
    }
    let standing = |number: u32, node: &NodeName| match nodes.get(node) {
        Some(SeenNode::Readable(standing @ (Standing::Open | Standing::Out))) => *standing,
        _ if has_pod(slots, number, node) => Standing::Closed,
        _ => Standing::Out,
    };
    let member = |(node, number): (&NodeName, u32)| {
        (number, Member { node: node.clone(), standing: standing(number, node) })
    };
    Members::of(numbers.into_iter().map(member).collect())
}

/// Or may have one.
fn has_pod(slots: &[ReplicaSlot], number: u32, node: &NodeName) -> bool {
    let from = slots.partition_point(|slot| slot.slot.replica < number);
    slots[from..].iter().take_while(|slot| slot.slot.replica == number).any(|slot| match &slot.holder {
        SlotHolder::Pod(pod) => pod.node.as_ref() == Some(node) && !is_ending(pod),
        SlotHolder::Lost | SlotHolder::Void | SlotHolder::Unreadable => true,
        SlotHolder::NoRecord => false,
    })
}

/// `None` if no pod comes or goes.
fn news(before: &Members, after: &Members) -> Option<String> {
    let nodes = |members: &Members| members.wanted().map(|(_, node)| node.clone()).collect::<BTreeSet<_>>();
    let (before, after) = (nodes(before), nodes(after));
    let told = |what: &str, mut nodes: Vec<&str>| {
        let more = nodes.len().saturating_sub(MAX_NAMES);
        nodes.truncate(MAX_NAMES);
        let names = nodes.join(", ");
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!names.is_empty()).then(|| format!("{what} {names}{more}"))
    };
    let come = told("a pod is wanted on", after.difference(&before).map(NodeName::as_str).collect());
    let go = told("none any more on", before.difference(&after).map(NodeName::as_str).collect());
    let all: Vec<String> = come.into_iter().chain(go).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

#[cfg(test)]
mod tests;
