//! The invariants, as checks of what stands in Redis and of what runs.

use std::collections::{BTreeMap, BTreeSet};

use worker::runtime::ContainerState;

use super::host::{Host, never_twice};
use super::view::{Heads, Node, Pod, View, short};
use super::who::{WORKERS, Who};
use super::wishes::Wishes;
use super::world::World;

/// What does not hold at this instant.
pub(super) fn violations(world: &mut World) -> Vec<String> {
    let places = places(&world.view, &mut world.heads);
    let desk = world.desk.lock();
    let mut wrong = misplaced(&world.view, &desk.wishes, &places);
    wrong.extend(accounts(&world.view));
    wrong.extend(slots(&world.view));
    wrong.extend(unaccounted(&world.view, &desk.wishes));
    wrong
}

/// Every key in which a payload of a pod stands, by pod.
fn places<'a>(view: &'a View, heads: &mut Heads) -> BTreeMap<String, Vec<&'a str>> {
    let mut places: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (key, payloads) in view.payloads.iter().filter(|(key, _)| *key != "dq") {
        for raw in payloads {
            if let Some(uuid) = heads.pod_of(raw) {
                places.entry(uuid.to_owned()).or_default().push(key);
            }
        }
    }
    places
}

fn is_allowed(pod: &Pod, place: &str) -> bool {
    match (pod.phase.as_str(), place.split_once(':')) {
        ("pending", None) => matches!(place, "sq" | "uq"),
        ("pending", Some(("fq", _))) => true,
        ("assigned", Some(("pq" | "rq", node))) => node == pod.node,
        ("running", Some(("cs", node))) => node == pod.node,
        ("stopping", Some(("pq" | "rq" | "cs", node))) => node == pod.node,
        _ => false,
    }
}

/// Invariant 2. Copies that somebody pushed, or that a failover made, may lie about until they are dropped.
fn misplaced(view: &View, wishes: &Wishes, places: &BTreeMap<String, Vec<&str>>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (uuid, pod) in view.pods.iter().filter(|(_, pod)| pod.is_live()) {
        let found = places.get(uuid).map_or(&[][..], Vec::as_slice);
        let allowed = found.iter().filter(|place| is_allowed(pod, place)).count();
        if (allowed == 0 && !wishes.may_be_nowhere(uuid)) || (found.len() > 1 && !wishes.may_be_copied(uuid))
        {
            let name = short(uuid);
            wrong.push(format!(
                "invariant 2: {name} is {} on {:?}, its payload is in {found:?}",
                pod.phase, pod.node
            ));
        }
    }
    for (uuid, found) in places {
        let lives = view.pods.get(uuid).is_some_and(Pod::is_live);
        let in_set = found.iter().any(|place| place.starts_with("cs:"));
        if !lives && in_set && !wishes.may_be_copied(uuid) {
            wrong.push(format!("invariant 2: {} lives no more, its payload is in {found:?}", short(uuid)));
        }
    }
    wrong
}

/// Invariant 9, one half: what a node has set aside is what its pods ask for.
fn accounts(view: &View) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, node) in &view.nodes {
        let held = view.pods.values().filter(|pod| pod.is_held() && pod.node == *name);
        let sum = held.fold([0, 0, 0], |sum, pod| [sum[0] + pod.cpu, sum[1] + pod.memory, sum[2] + 1]);
        if sum != node.used {
            wrong.push(format!(
                "invariant 9: {name} says that {:?} is used, its pods come to {sum:?}",
                node.used
            ));
        }
    }
    wrong
}

/// Invariant 9, the other half, for nodes that a scheduler gave something to just now.
pub(super) fn overcommitted(before: &BTreeMap<String, Node>, nodes: &BTreeMap<String, Node>) -> Vec<String> {
    let none = Node::default();
    let over = |(name, node): &(&String, &Node)| {
        let had = &before.get(*name).unwrap_or(&none).used;
        (0..3).any(|i| node.used[i] > had[i] && node.used[i] > node.has[i])
    };
    let over = nodes.iter().filter(over);
    over.map(|(name, _)| format!("invariant 9: {name} was given more than it has")).collect()
}

fn slots(view: &View) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut holders = BTreeSet::new();
    for (service, slots) in &view.slots {
        for (replica, uuid) in slots {
            holders.insert(uuid);
            let fits = |pod: &Pod| pod.service == *service && pod.replica == *replica;
            if !view.pods.get(uuid).is_some_and(fits) {
                wrong.push(format!("slot {replica} of {service} is held by {uuid}, which is no such pod"));
            }
        }
    }
    let strays = view.pods.iter().filter(|(uuid, pod)| {
        pod.is_live() && !holders.contains(uuid) && !(pod.service.is_empty() && view.pushed.contains(*uuid))
    });
    wrong
        .extend(strays.map(|(uuid, pod)| {
            format!("pod {uuid} of {:?} is {}, nothing wants it", pod.service, pod.phase)
        }));
    wrong
}

/// Invariant 7: what can not be a pod is in a queue or among the dead letters, as often as it was pushed.
fn unaccounted(view: &View, wishes: &Wishes) -> Vec<String> {
    let mut wrong = Vec::new();
    let there = junk_in(view);
    for (junk, pushed) in wishes.junk() {
        let found = there.get(junk).copied().unwrap_or(0);
        if found != *pushed {
            wrong.push(format!("invariant 7: {junk:?} was pushed {pushed} times and is there {found} times"));
        }
    }
    wrong
}

/// How often each junk payload is there.
pub(super) fn junk_in(view: &View) -> BTreeMap<String, usize> {
    let mut there = BTreeMap::new();
    for (key, payloads) in &view.payloads {
        for raw in payloads {
            let text = String::from_utf8_lossy(raw);
            let junk = if key == "dq" {
                serde_json::from_str::<serde_json::Value>(&text)
                    .ok()
                    .and_then(|letter| Some(letter.get("payload")?.as_str()?.to_owned()))
            } else {
                Some(text.into_owned())
            };
            if let Some(junk) = junk.filter(|junk| junk.starts_with("junk")) {
                *there.entry(junk).or_insert(0) += 1;
            }
        }
    }
    there
}

/// Invariant 5: no pod that must never run twice runs twice under leases that are good.
pub(super) fn twice(world: &World) -> Vec<String> {
    let mut seen: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let awake = |host: &usize| world.now >= world.seats[Who::Worker(*host).index()].suspended_until;
    for host in (0..WORKERS).filter(awake).filter(|host| world.hosts[*host].is_leased()) {
        for container in world.hosts[host].running().into_iter().filter(never_twice) {
            seen.entry(container.pod.to_string()).or_default().push(host + 1);
        }
    }
    let twice = seen.into_iter().filter(|(_, hosts)| hosts.len() > 1);
    twice
        .map(|(uuid, hosts)| {
            format!("invariant 5: {} runs under good leases on workers {hosts:?}", short(&uuid))
        })
        .collect()
}

/// What keeps everything from rest. Invariant 1.
pub(super) fn unrest(world: &World) -> Vec<String> {
    let view = &world.view;
    let mut wrong = Vec::new();
    for (key, payloads) in &view.payloads {
        if key != "dq" && !key.starts_with("cs:") && !payloads.is_empty() {
            wrong.push(format!("{key} is not empty: {}", payloads.len()));
        }
    }
    for (node, stops) in view.stops.iter().filter(|(_, stops)| !stops.is_empty()) {
        wrong.push(format!("stop:{node} is not empty: {}", stops.len()));
    }
    for (name, node) in view.nodes.iter().filter(|(_, node)| node.state != "alive") {
        wrong.push(format!("{name} is {}", node.state));
    }
    wrong.extend(world.desk.lock().wishes.unfulfilled(view));
    wrong.extend(running(world));
    wrong
}

/// Exactly the pods that are running have exactly one container each, and their payload in their node's set.
fn running(world: &World) -> Vec<String> {
    let view = &world.view;
    let mut wrong = Vec::new();
    let mut expected = BTreeSet::new();
    for (uuid, pod) in &view.pods {
        let name = short(uuid);
        if pod.phase != "running" {
            let Pod { phase, node, reason, message, .. } = pod;
            wrong.push(format!("{name} is {phase} on {node:?} ({reason}: {message})"));
        }
        expected.insert((uuid.as_str(), pod.node.clone(), pod.assignment.as_str()));
    }
    let sets = view.payloads.iter().filter(|(key, _)| key.starts_with("cs:"));
    let in_sets: usize = sets.map(|(_, payloads)| payloads.len()).sum();
    if in_sets != expected.len() {
        wrong.push(format!("{in_sets} payloads in container sets, {} pods", expected.len()));
    }
    let containers: Vec<_> = world.hosts.iter().map(Host::containers).collect();
    for (host, container) in
        containers.iter().enumerate().flat_map(|(host, all)| all.iter().map(move |c| (host, c)))
    {
        let place = (container.pod.as_str(), format!("w{}", host + 1), container.assignment.as_str());
        if !expected.remove(&place) || container.state != ContainerState::Running {
            let name = container.pod.short();
            wrong.push(format!("a container of {name} is {:?} unasked on w{}", container.state, host + 1));
        }
    }
    wrong.extend(
        expected.into_iter().map(|(uuid, node, _)| format!("{} does not run on {node}", short(uuid))),
    );
    wrong
}
