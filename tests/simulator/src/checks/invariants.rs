//! The invariants of the design, checked against Redis and the running containers.

use std::collections::{BTreeMap, BTreeSet};

use engine::{Container, ContainerState};
use model::ids::{PodId, ServiceName, VolumeName};
use model::pod::slot::Slot;

use crate::checks::known_jobs;
use crate::checks::observed_state::{
    ObservedNode, PodIdCache, SimulatedPod, SimulatedState, count_junk, short,
};
use crate::faults::schedule_faults::CopiedSlots;
use crate::machine::host::{SimulatedHost, pods_that_run_twice};
use crate::machine::process_id::{ProcessId, WORKERS};
use crate::workload::expected_state::ExpectedState;
use crate::workload::images::{
    CHECK_RETRIES, MAX_PER_NODE, away_from, has_check, has_ordinals, has_rules, has_several_containers,
    has_volume, is_global, keeps_away, priority_of, starts_first,
};
use crate::world::state::World;

pub(crate) fn violations(world: &mut World) -> Vec<String> {
    let observed = &world.observed;
    let locations = payload_locations(observed, &mut world.pod_ids);
    let clients = world.clients.lock();
    let mut found = misplaced_payloads(observed, &clients.expected, &locations);
    found.extend(wrong_accounts(observed));
    found.extend(wrong_ids(observed));
    found.extend(shared_ids(&world.cluster.hosts));
    let copied = &world.faults.copied_slots;
    found.extend(wrong_slots(observed, copied));
    found.extend(wrong_endpoints(observed));
    found.extend(above_surge(observed, copied));
    found.extend(unaccounted_junk(observed, &clients.expected));
    drop(clients);
    found.extend(known_jobs::violations(observed, &mut world.checks.jobs));
    found.extend(wrong_health(observed, &world.cluster.hosts));
    found.extend(out_of_order(observed, &mut world.checks.ready_ordinals));
    found.extend(runs_without_data(observed, &world.cluster.hosts, &mut world.checks.data_hosts));
    found
}

/// One silent node is no mass loss.
pub(crate) fn note_mass_loss(world: &mut World) {
    let is_alive = |worker: &usize| {
        let name = ProcessId::Worker(*worker).to_string();
        world.observed.nodes.get(&name).is_some_and(|node| node.state == "alive")
    };
    let alive: Vec<usize> = (0..WORKERS).filter(is_alive).collect();
    let dead = world.timing.dead;
    if alive.len() > 1 && alive.iter().all(|worker| world.silence(*worker) > 2 * dead) {
        world.checks.mass_loss_at = world.clock.now;
    }
}

/// Invariant 16.
pub(crate) fn unproven_death(world: &World, declared_by: ProcessId) -> Option<String> {
    let (now, dead) = (world.clock.now, world.timing.dead);
    let ProcessId::Scheduler(index) = declared_by else { return None };
    let wrong = |what: &str, since: u64| {
        let millis = now - since;
        format!("invariant 16: {declared_by} declares a node dead {millis} ms after {what}")
    };
    if world.checks.refused_beats[index] + dead > now {
        return Some(wrong("Redis refused its write", world.checks.refused_beats[index]));
    }
    (world.checks.mass_loss_at + dead > now).then(|| wrong("a mass loss", world.checks.mass_loss_at))
}

fn wrong_health(observed: &SimulatedState, hosts: &[SimulatedHost]) -> Vec<String> {
    let mut found = Vec::new();
    for (uuid, pod) in observed.pods.iter().filter(|(_, pod)| pod.phase == "running" && has_check(&pod.image))
    {
        let answers = hosts.iter().filter(|host| host.name() == pod.node);
        let Some(answers) = answers.filter_map(|host| host.check_answers(uuid, &pod.assignment)).next()
        else {
            continue;
        };
        let name = short(uuid);
        match pod.reason.as_str() {
            "" if !answers.has_passed => {
                found.push(format!("health: pod {name} is ready, and its check has never passed"));
            }
            "Unhealthy" if answers.most_failed < CHECK_RETRIES => {
                let count = answers.most_failed;
                found.push(format!("health: pod {name} is unhealthy after {count} failures in a row"));
            }
            _ => {}
        }
    }
    found
}

/// An ordinal has no pod before all lower ones were ready once, and never a second one.
fn out_of_order(observed: &SimulatedState, ready: &mut BTreeSet<(String, u32)>) -> Vec<String> {
    let mut found = Vec::new();
    for (service, slots) in &observed.slots {
        let holders = slots.iter().filter_map(|(slot, uuid)| Some((slot, observed.pods.get(uuid)?)));
        for (slot, pod) in holders.filter(|(_, pod)| has_ordinals(&pod.image)) {
            let of = |replica| (service.clone(), replica);
            if slot.ends_with('+') {
                found.push(format!("ordinals: {slot} of {service} is a second pod of its ordinal"));
            }
            if let Some(lower) = (0..pod.replica).find(|lower| !ready.contains(&of(*lower))) {
                found.push(format!("ordinals: {slot} of {service} has a pod before {lower} was ready"));
            }
            if pod.phase == "succeeded" || (pod.phase == "running" && pod.reason.is_empty()) {
                ready.insert(of(pod.replica));
            }
        }
    }
    found
}

fn runs_without_data(
    observed: &SimulatedState,
    hosts: &[SimulatedHost],
    data_hosts: &mut BTreeMap<VolumeName, usize>,
) -> Vec<String> {
    // A machine that was replaced has lost its disk.
    data_hosts.retain(|name, host| hosts[*host].has_volume(name));
    let mut found = Vec::new();
    let with_volumes =
        observed.pods.iter().filter(|(_, pod)| pod.phase == "running" && has_volume(&pod.image));
    for (uuid, pod) in with_volumes {
        let service = ServiceName::new(pod.service.as_str()).unwrap();
        let name = VolumeName::of_replica(&service, "data", pod.replica).unwrap();
        let is_it = |host: &usize| hosts[*host].name() == pod.node && hosts[*host].runs(uuid);
        let Some(host) = (0..hosts.len()).find(is_it) else { continue };
        if !hosts[host].has_volume(&name) {
            continue;
        }
        let with_data = *data_hosts.entry(name.clone()).or_insert(host);
        if with_data != host {
            let of = |host: usize| hosts[host].engine_id();
            let (with_data, without) = (of(with_data), of(host));
            found.push(format!(
                "volume {name} has its data on the machine {with_data}, and its pod runs on {without}, as {}",
                pod.node
            ));
        }
    }
    found
}

fn payload_locations<'a>(
    observed: &'a SimulatedState,
    pod_ids: &mut PodIdCache,
) -> BTreeMap<String, Vec<&'a str>> {
    let mut locations: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (key, payloads) in observed.payloads.iter().filter(|(key, _)| *key != "dq") {
        for payload in payloads {
            if let Some(uuid) = pod_ids.pod_of(payload) {
                locations.entry(uuid.to_owned()).or_default().push(key);
            }
        }
    }
    locations
}

fn is_allowed(pod: &SimulatedPod, key: &str) -> bool {
    match (pod.phase.as_str(), key.split_once(':')) {
        ("pending", None) => matches!(key, "sq" | "uq"),
        ("pending", Some(("fq", _))) => true,
        ("assigned", Some(("pq" | "rq", node))) => node == pod.node,
        ("running", Some(("cs", node))) => node == pod.node,
        ("stopping", Some(("pq" | "rq" | "cs", node))) => node == pod.node,
        _ => false,
    }
}

/// Invariant 2. Copies from pushes or failovers may remain until they are dropped.
fn misplaced_payloads(
    observed: &SimulatedState,
    expected: &ExpectedState,
    locations: &BTreeMap<String, Vec<&str>>,
) -> Vec<String> {
    let mut found = Vec::new();
    for (uuid, pod) in observed.pods.iter().filter(|(_, pod)| pod.is_active()) {
        let keys = locations.get(uuid).map_or(&[][..], Vec::as_slice);
        let allowed = keys.iter().filter(|key| is_allowed(pod, key)).count();
        let is_missing = allowed == 0 && !expected.may_be_missing(uuid);
        let is_duplicated = keys.len() > 1 && !expected.may_be_duplicated(uuid);
        if is_missing || is_duplicated {
            found.push(format!(
                "invariant 2: pod {} is {} on node {:?}, its payload is in {keys:?}",
                short(uuid),
                pod.phase,
                pod.node
            ));
        }
    }
    for (uuid, keys) in locations {
        let is_active = observed.pods.get(uuid).is_some_and(SimulatedPod::is_active);
        let is_in_container_set = keys.iter().any(|key| key.starts_with("cs:"));
        if !is_active && is_in_container_set && !expected.may_be_duplicated(uuid) {
            let name = short(uuid);
            found.push(format!("invariant 2: pod {name} has ended, its payload is in {keys:?}"));
        }
    }
    found
}

/// Invariant 9, first half.
fn wrong_accounts(observed: &SimulatedState) -> Vec<String> {
    let mut found = Vec::new();
    for (name, node) in &observed.nodes {
        let pods = observed.pods.values().filter(|pod| pod.has_reservation() && pod.node == *name);
        let sum = pods.fold([0; 5], |sum, pod| std::array::from_fn(|at| sum[at] + pod.request[at]));
        if sum != node.used {
            found.push(format!(
                "invariant 9: node {name} has {:?} reserved, its pods request {sum:?}",
                node.used
            ));
        }
    }
    found
}

/// Ids of named resources belong to one pod of their node.
fn wrong_ids(observed: &SimulatedState) -> Vec<String> {
    let mut found = Vec::new();
    for (name, node) in &observed.nodes {
        let pods = observed.pods.iter().filter(|(_, pod)| pod.has_reservation() && pod.node == *name);
        let mut of_pods = BTreeMap::new();
        for (uuid, id) in pods.flat_map(|(uuid, pod)| pod.ids.keys().map(move |id| (uuid, id))) {
            if let Some(other) = of_pods.insert(id.clone(), uuid.clone()) {
                let (other, name) = (short(&other), short(uuid));
                found.push(format!("resources: {id} of a node belongs to pod {other} and pod {name}"));
            }
        }
        if of_pods != node.given_ids {
            let given = &node.given_ids;
            found.push(format!("resources: {name} has given {given:?}, and its pods have {of_pods:?}"));
        }
    }
    found
}

/// Whatever Redis says.
fn shared_ids(hosts: &[SimulatedHost]) -> Vec<String> {
    let mut found = Vec::new();
    for host in hosts {
        let running = host.running();
        for (at, one) in running.iter().enumerate().filter(|(_, one)| !one.resources.is_empty()) {
            let shares =
                |other: &&Container| other.pod != one.pod && other.resources.has_common(&one.resources);
            if let Some(other) = running[..at].iter().find(shares) {
                let (host, one, other) = (host.name(), one.pod.short(), other.pod.short());
                found.push(format!("resources: containers of pods {one} and {other} share an id on {host}"));
            }
        }
    }
    found
}

/// Invariant 9, second half: nodes to which a scheduler has just assigned pods.
pub(crate) fn overcommitted(
    before: &BTreeMap<String, ObservedNode>,
    nodes: &BTreeMap<String, ObservedNode>,
    now: u64,
) -> Vec<String> {
    let unused = ObservedNode::default();
    let is_over = |(name, node): &(&String, &ObservedNode)| {
        let used_before = &before.get(*name).unwrap_or(&unused).used;
        let kept = kept_room(node, now);
        (0..5).any(|i| node.used[i] > used_before[i] && node.used[i] + kept[i] > node.capacity[i])
    };
    let over = nodes.iter().filter(is_over);
    over.map(|(name, _)| format!("invariant 9: node {name} was assigned more than its capacity")).collect()
}

/// For the pod that is nominated; it is not assigned there yet.
fn kept_room(node: &ObservedNode, now: u64) -> [i64; 5] {
    let Some(kept) = node.nomination.as_ref().filter(|kept| kept.holds(now)) else { return [0; 5] };
    let [pods, amounts @ ..] = kept.request.to_array().map(|amount| amount as i64);
    let [cpu, memory, pids, disk] = amounts;
    [cpu, memory, pids, disk, pods]
}

/// Pods that were just stopped for another one whose priority is not above theirs.
pub(crate) fn stopped_for_no_higher(
    before: &BTreeMap<String, SimulatedPod>,
    observed: &SimulatedState,
) -> Vec<String> {
    // Of the service, whatever generation the pod is.
    let priority = |pod: &SimulatedPod| {
        let service = observed.services.get(&pod.service);
        service.and_then(|service| priority_of(&service.image)).unwrap_or_default()
    };
    let was_placed = |uuid: &String| {
        before.get(uuid).is_some_and(|pod| matches!(pod.phase.as_str(), "assigned" | "running"))
    };
    let is_new = |(uuid, pod): &(&String, &SimulatedPod)| {
        pod.phase == "stopping" && pod.reason == "Preempted" && was_placed(uuid)
    };
    let is_wrong = |(_, pod): &(&String, &SimulatedPod)| {
        let kept = observed.nodes.get(&pod.node).and_then(|node| node.nomination.as_ref());
        let nominee = kept.and_then(|kept| observed.pods.get(kept.pod.as_str()));
        nominee.is_none_or(|nominee| priority(nominee) <= priority(pod))
    };
    let wrong = observed.pods.iter().filter(is_new).filter(is_wrong);
    wrong.map(|(uuid, _)| format!("preemption: pod {} is stopped for no higher one", short(uuid))).collect()
}

/// The pods that a scheduler has just assigned although the node breaks the rules of their service. A deleted
/// one has none.
pub(crate) fn misplaced(before: &BTreeMap<String, SimulatedPod>, observed: &SimulatedState) -> Vec<String> {
    let has_label = |node: &String| observed.nodes.get(node).is_some_and(|node| node.has_label_disk);
    let wrong = assigned_by_rules(before, observed)
        .filter(|(_, pod)| !keeps_away(&pod.image) && !has_label(&pod.node));
    let elsewhere = assigned_by_rules(before, observed).filter(|(_, pod)| is_on_other_node(pod, observed));
    let told = |(uuid, pod): (&String, &SimulatedPod)| {
        format!("rules: pod {} is assigned to {}, which lacks the label", short(uuid), pod.node)
    };
    let told_elsewhere = |(uuid, pod): (&String, &SimulatedPod)| {
        let SimulatedPod { service, replica, node, .. } = pod;
        format!(
            "global: pod {} is assigned to {node}, which has not number {replica} of {service}",
            short(uuid)
        )
    };
    wrong.map(told).chain(elsewhere.map(told_elsewhere)).collect()
}

/// A pod of a global service that is not on the node of its number.
fn is_on_other_node(pod: &SimulatedPod, observed: &SimulatedState) -> bool {
    let members = observed.services.get(&pod.service).map(|service| &service.members);
    let own = members.and_then(|members| members.wanted_on(pod.replica));
    is_global(&pod.image) && own.is_none_or(|own| own.as_str() != pod.node)
}

fn most_on_a_node(image: &str) -> usize {
    match image {
        image if is_global(image) => 1,
        image if keeps_away(image) => usize::MAX,
        _ => MAX_PER_NODE,
    }
}

fn assigned_by_rules<'a>(
    before: &BTreeMap<String, SimulatedPod>,
    observed: &'a SimulatedState,
) -> impl Iterator<Item = (&'a String, &'a SimulatedPod)> {
    observed.pods.iter().filter(|(uuid, pod)| {
        let was_assigned = before.get(*uuid).is_some_and(|before| before.phase == "assigned");
        let has_service = observed.services.get(&pod.service).is_some_and(|service| service.is_active);
        pod.phase == "assigned"
            && !was_assigned
            && has_service
            && (has_rules(&pod.image) || keeps_away(&pod.image) || is_global(&pod.image))
    })
}

/// The nodes to which schedulers have just assigned more pods of a service than its rules allow, or pods of
/// services that keep away from each other. Pods that Redis had lost meanwhile are excepted, and those of a
/// deleted service.
pub(crate) fn crowded(
    placed: &mut BTreeMap<(String, String), BTreeSet<(String, String)>>,
    before: &BTreeMap<String, SimulatedPod>,
    observed: &SimulatedState,
) -> Vec<String> {
    placed.retain(|(service, node), pods| {
        pods.retain(|(uuid, assignment)| {
            let is_there = |pod: &SimulatedPod| (&pod.node, &pod.assignment) == (node, assignment);
            let in_slot = |slots: &BTreeMap<String, String>| slots.values().any(|other| other == uuid);
            observed.pods.get(uuid).is_some_and(|pod| pod.has_reservation() && is_there(pod))
                && observed.slots.get(service).is_some_and(in_slot)
        });
        !pods.is_empty()
    });
    let mut wrong = Vec::new();
    for (uuid, pod) in assigned_by_rules(before, observed) {
        let pods = placed.entry((pod.service.clone(), pod.node.clone())).or_default();
        let is_new = pods.insert((uuid.clone(), pod.assignment.clone()));
        if is_new && pods.len() > most_on_a_node(&pod.image) {
            wrong.push(format!("rules: {} has {} pods of {}", pod.node, pods.len(), pod.service));
        }
        let other = away_from(&pod.service).filter(|_| is_new && keeps_away(&pod.image));
        if let Some(other) =
            other.filter(|other| placed.contains_key(&((*other).to_owned(), pod.node.clone())))
        {
            wrong.push(format!("rules: {} has pods of {} and of {other}", pod.node, pod.service));
        }
    }
    wrong
}

/// Copies by users are excepted.
fn wrong_slots(observed: &SimulatedState, copied: &CopiedSlots) -> Vec<String> {
    let mut found = Vec::new();
    let mut holders = BTreeSet::new();
    for (service, slots) in &observed.slots {
        for (slot, uuid) in slots {
            holders.insert(uuid);
            let replica = slot.parse::<Slot>().map(|slot| slot.replica);
            let fits = |pod: &SimulatedPod| pod.service == *service && Ok(pod.replica) == replica;
            if !observed.pods.get(uuid).is_some_and(fits) && !copied.is_void(service, slot, uuid) {
                found.push(format!("slot {slot} of service {service} is held by {uuid}, not a pod of it"));
            }
        }
    }
    for (uuid, pod) in observed.pods.iter().filter(|(_, pod)| pod.is_active()) {
        let is_pushed = pod.service.is_empty() && observed.pushed.contains(uuid);
        if !holders.contains(uuid) && !is_pushed && !copied.unlisted.contains(uuid) {
            let SimulatedPod { service, phase, .. } = pod;
            found.push(format!("pod {uuid} of service {service:?} is {phase} and nothing wants it"));
        }
    }
    found
}

fn above_surge(observed: &SimulatedState, copied: &CopiedSlots) -> Vec<String> {
    let starts_first = |name: &str| observed.services.get(name).is_some_and(|one| starts_first(&one.image));
    let services = observed.slots.iter().filter(|(name, _)| starts_first(name));
    let with_two = services.map(|(name, slots)| {
        let second = slots.iter().filter(|(slot, _)| slot.ends_with('+'));
        (name, second.filter(|(slot, uuid)| !copied.is_void(name, slot, uuid)).count())
    });
    let above = with_two.filter(|(_, count)| *count > 1);
    above
        .map(|(name, count)| format!("promise: service {name} has {count} pods beyond its replicas"))
        .collect()
}

/// With `start-first`, a ready pod is only replaced while another pod of its replica is ready.
pub(crate) fn below_promised(
    before: &BTreeMap<String, SimulatedPod>,
    observed: &SimulatedState,
) -> Vec<String> {
    let is_ready = |pod: &SimulatedPod| pod.phase == "running" && pod.reason.is_empty();
    let mut found = Vec::new();
    for (uuid, pod) in observed.pods.iter().filter(|(_, pod)| pod.reason == "Replaced") {
        let was_ready = before.get(uuid).is_some_and(is_ready);
        if !was_ready || pod.phase != "stopping" || !starts_first(&pod.image) {
            continue;
        }
        let same = |other: &&SimulatedPod| other.service == pod.service && other.replica == pod.replica;
        if !observed.pods.values().filter(same).any(is_ready) {
            let (name, replica) = (short(uuid), pod.replica);
            found.push(format!(
                "promise: pod {name} is stopped, and no other one of replica {replica} is ready"
            ));
        }
    }
    found
}

fn wrong_endpoints(observed: &SimulatedState) -> Vec<String> {
    let mut found = Vec::new();
    for (service, lines) in &observed.endpoints {
        let line = |pod: &SimulatedPod| {
            let state = match (pod.phase.as_str(), pod.reason.as_str()) {
                ("running", "") => "ready",
                ("running", _) => "running",
                ("stopping", _) => "leaving",
                _ => return None,
            };
            Some(format!("{} {} {} {state}", pod.replica, pod.node, pod.assignment))
        };
        let of_service = observed.pods.iter().filter(|(_, pod)| pod.service == *service);
        let expected: BTreeMap<&str, String> =
            of_service.filter_map(|(uuid, pod)| Some((uuid.as_str(), line(pod)?))).collect();
        let lines = lines.iter().filter(|(field, _)| !["v", "m", "s", "making"].contains(&field.as_str()));
        let lines: BTreeMap<&str, String> = lines.map(|(uuid, line)| (uuid.as_str(), line.clone())).collect();
        if lines != expected {
            found.push(format!("the endpoints of {service} are {lines:?}, and its records say {expected:?}"));
        }
    }
    found
}

/// Invariant 7: as many in queues and dead letters as were pushed.
fn unaccounted_junk(observed: &SimulatedState, expected: &ExpectedState) -> Vec<String> {
    let counts = count_junk(observed);
    let mut found = Vec::new();
    for (junk, pushed) in expected.junk() {
        let existing = counts.get(junk).copied().unwrap_or(0);
        if existing != *pushed {
            found
                .push(format!("invariant 7: {junk:?} was pushed {pushed} times and exists {existing} times"));
        }
    }
    found
}

/// Invariant 5.
pub(crate) fn double_runs(world: &World) -> Vec<String> {
    let is_concerned = |(index, host): &(usize, &SimulatedHost)| {
        let slot = world.cluster.slot(ProcessId::of_host(*index));
        !slot.is_suspended(world.clock.now) && host.has_lease()
    };
    let hosts: Vec<_> = world.cluster.hosts.iter().enumerate().filter(is_concerned).collect();
    let report = |(pod, hosts): (PodId, Vec<usize>)| {
        let workers: Vec<usize> = hosts.into_iter().map(|host| host + 1).collect();
        format!("invariant 5: pod {} runs with valid leases on workers {workers:?}", pod.short())
    };
    pods_that_run_twice(&hosts).into_iter().map(report).collect()
}

/// Invariant 1.
pub(crate) fn not_converged(world: &World) -> Vec<String> {
    let observed = &world.observed;
    let mut found = Vec::new();
    for (key, payloads) in &observed.payloads {
        if key != "dq" && !key.starts_with("cs:") && !payloads.is_empty() {
            found.push(format!("{key} is not empty: {}", payloads.len()));
        }
    }
    for (node, stops) in observed.stops.iter().filter(|(_, stops)| !stops.is_empty()) {
        found.push(format!("stop:{node} is not empty: {}", stops.len()));
    }
    for (name, node) in observed.nodes.iter().filter(|(_, node)| node.state != "alive") {
        found.push(format!("node {name} is {}", node.state));
    }
    found.extend(world.clients.lock().expected.differences(observed));
    found.extend(wrong_containers(world));
    found
}

/// The unnamed container is the only one, or the sandbox of the others.
fn container_names(pod: &SimulatedPod) -> &'static [&'static str] {
    if has_several_containers(&pod.image) { &["", "main", "side"] } else { &[""] }
}

fn wrong_containers(world: &World) -> Vec<String> {
    let observed = &world.observed;
    let mut found = Vec::new();
    let mut expected = BTreeSet::new();
    for (uuid, pod) in &observed.pods {
        if pod.phase != "running" {
            let SimulatedPod { phase, node, reason, message, .. } = pod;
            found.push(format!("pod {} is {phase} on {node:?} ({reason}: {message})", short(uuid)));
        } else if has_check(&pod.image) && !pod.reason.is_empty() {
            found.push(format!("pod {} is not ready ({}: {})", short(uuid), pod.reason, pod.message));
        }
        for name in container_names(pod) {
            expected.insert((uuid.as_str(), pod.node.clone(), pod.assignment.as_str(), *name));
        }
    }
    let sets = observed.payloads.iter().filter(|(key, _)| key.starts_with("cs:"));
    let in_sets: usize = sets.map(|(_, payloads)| payloads.len()).sum();
    if in_sets != observed.pods.len() {
        found.push(format!("{in_sets} payloads in container sets, {} pods", observed.pods.len()));
    }
    let containers: Vec<_> = world.cluster.hosts.iter().map(SimulatedHost::containers).collect();
    for (host, containers) in containers.iter().enumerate() {
        for container in containers {
            let name = container.name.as_ref().map_or("", |name| name.as_str());
            let (pod, node) = (container.pod.as_str(), format!("w{}", host + 1));
            let identity = (pod, node, container.assignment.as_str(), name);
            if !expected.remove(&identity) || container.state != ContainerState::Running {
                let (pod, state) = (container.pod.short(), &container.state);
                found.push(format!("unexpected container of pod {pod} on w{}: {state:?}", host + 1));
            }
        }
    }
    let missing = expected.into_iter();
    found.extend(missing.map(|(uuid, node, _, name)| {
        format!("container {name:?} of pod {} does not run on {node}", short(uuid))
    }));
    found
}
