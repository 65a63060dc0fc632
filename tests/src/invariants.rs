//! Checks the invariants on the whole content of Redis. [`violations`] must be empty at every instant,
//! because scripts are atomic. [`unrest`] lists the obstacles to convergence.

use std::collections::{BTreeMap, BTreeSet};

use model::node::Resource;
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;

use crate::Keyspace;
use crate::keyspace::KeyEntry;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum PodLocation {
    /// `sq`.
    Waiting,
    /// `fq:<scheduler>`.
    InFlight(String),
    /// `uq`.
    Unschedulable,
    /// `pq:<node>`.
    Queued(String),
    /// `rq:<node>`.
    Starting(String),
    /// `cs:<node>`.
    Running(String),
}

struct Found<'a> {
    place: PodLocation,
    raw: &'a [u8],
}

struct CheckedPod {
    phase: Phase,
    node: String,
    request: [i64; Resource::ALL.len()],
}

impl CheckedPod {
    fn has_reservation(&self) -> bool {
        matches!(self.phase, Phase::Assigned | Phase::Running | Phase::Stopping)
    }

    fn is_active(&self) -> bool {
        self.phase == Phase::Pending || self.has_reservation()
    }

    fn allows(&self, place: &PodLocation) -> bool {
        match (self.phase, place) {
            (
                Phase::Pending,
                PodLocation::Waiting | PodLocation::InFlight(_) | PodLocation::Unschedulable,
            ) => true,
            (Phase::Assigned, PodLocation::Queued(node) | PodLocation::Starting(node)) => *node == self.node,
            (Phase::Running, PodLocation::Running(node)) => *node == self.node,
            (
                Phase::Stopping,
                PodLocation::Queued(node) | PodLocation::Starting(node) | PodLocation::Running(node),
            ) => *node == self.node,
            _ => false,
        }
    }
}

/// Empty unless a test pushed copies.
pub fn violations(keyspace: &Keyspace) -> Vec<String> {
    let pods = records(keyspace);
    let found = payloads(keyspace);
    let mut wrong = Vec::new();
    for (uuid, pod) in &pods {
        let places = found.get(uuid.as_str()).map_or(&[][..], Vec::as_slice);
        let allowed = places.iter().filter(|found| pod.allows(&found.place)).count();
        // The process that reads a leftover payload of an ended pod drops it.
        if pod.is_active() && (allowed != 1 || places.len() != 1) {
            let shown: Vec<_> = places.iter().map(|found| &found.place).collect();
            wrong.push(format!(
                "pod {uuid} is {} on {:?} and its payload is in {shown:?}",
                pod.phase, pod.node
            ));
        }
        for other in
            places.iter().filter(|found| !pod.is_active() && matches!(found.place, PodLocation::Running(_)))
        {
            wrong.push(format!("pod {uuid} is {} and its payload is in {:?}", pod.phase, other.place));
        }
    }
    wrong.extend(reservation_mismatches(keyspace, &pods));
    wrong.extend(wrong_endpoints(keyspace));
    wrong
}

pub fn wrong_endpoints(keyspace: &Keyspace) -> Vec<String> {
    let mut wrong = Vec::new();
    for (service, _) in keyspace.below("ep:") {
        let key = format!("ep:{service}");
        // Without a version it is incomplete.
        if keyspace.field(&key, "v").is_empty() {
            continue;
        }
        let lines: BTreeMap<String, String> = keyspace.fields(&key).into_iter().collect();
        let in_slots = keyspace.fields(&format!("slots:{service}")).into_iter().map(|(_, uuid)| uuid);
        let listed = lines.keys().filter(|field| !["v", "m", "s"].contains(&field.as_str())).cloned();
        for uuid in in_slots.chain(listed).collect::<BTreeSet<_>>() {
            let expected = endpoint_line(keyspace, service, &uuid);
            if lines.get(&uuid) != expected.as_ref() {
                let found = lines.get(&uuid);
                wrong.push(format!("{key} has {found:?} for {uuid}, and its record says {expected:?}"));
            }
        }
    }
    wrong
}

/// `None` if the pod is no endpoint.
fn endpoint_line(keyspace: &Keyspace, service: &str, uuid: &str) -> Option<String> {
    let field = |name| keyspace.field(&format!("pod:{uuid}"), name);
    if field("service") != service {
        return None;
    }
    let state = match (field("phase").as_str(), field("reason").as_str()) {
        ("running", "") => "ready",
        ("running", _) => "running",
        ("stopping", _) => "leaving",
        _ => return None,
    };
    Some(format!("{} {} {} {state}", field("replica"), field("node"), field("assignment")))
}

pub fn unrest(keyspace: &Keyspace) -> Vec<String> {
    let mut wrong = violations(keyspace);
    for (key, _) in keyspace.entries() {
        let queue = matches!(key, "sq" | "uq");
        if (queue || ["fq:", "pq:", "rq:", "stop:"].iter().any(|prefix| key.starts_with(prefix)))
            && !keyspace.elements(key).is_empty()
        {
            wrong.push(format!("{key} is not empty: {}", keyspace.elements(key).len()));
        }
    }
    let pods = records(keyspace);
    for (uuid, found) in payloads(keyspace) {
        if !pods.contains_key(uuid.as_str()) {
            wrong.push(format!("pod {uuid:?} has no record, and its payload is in {:?}", found[0].place));
        }
    }
    for (service, entry) in keyspace.below("service:") {
        let KeyEntry::Hash(_) = entry else { continue };
        wrong.extend(service_unrest(keyspace, service, &pods, Newer::IsWrong));
    }
    wrong.extend(strays(keyspace, &pods));
    wrong
}

/// A pod of a newer generation is never replaced: a person broke its number.
pub fn services_unrest<'a>(keyspace: &Keyspace, services: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let pods = records(keyspace);
    let mut wrong = strays(keyspace, &pods);
    for service in services {
        wrong.extend(service_unrest(keyspace, service, &pods, Newer::IsRight));
    }
    wrong
}

#[derive(Clone, Copy)]
enum Newer {
    IsWrong,
    IsRight,
}

fn service_unrest(
    keyspace: &Keyspace,
    service: &str,
    pods: &BTreeMap<String, CheckedPod>,
    newer: Newer,
) -> Vec<String> {
    let key = format!("service:{service}");
    let state = keyspace.field(&key, "state");
    if state != "active" {
        return vec![format!("service {service} is {state}")];
    }
    let wanted: BTreeSet<String> =
        (0..number(keyspace, &key, "replicas")).map(|index| index.to_string()).collect();
    let generation = keyspace.field(&key, "generation");
    let is_current = |made: &str| match newer {
        Newer::IsWrong => made == generation,
        Newer::IsRight => made.parse().unwrap_or(0_u64) >= generation.parse().unwrap_or(0),
    };
    let mut wrong = Vec::new();
    let mut taken = BTreeSet::new();
    if let Some(KeyEntry::Hash(slots)) = keyspace.get(&format!("slots:{service}")) {
        for (index, uuid) in slots {
            let uuid = String::from_utf8_lossy(uuid).into_owned();
            let phase = pods.get(&uuid).map(|pod| pod.phase);
            if phase != Some(Phase::Running) {
                wrong.push(format!("service {service}, replica {index}: pod {uuid} is {phase:?}"));
            }
            let made = keyspace.field(&format!("pod:{uuid}"), "generation");
            if !is_current(&made) {
                wrong.push(format!("service {service}, replica {index}: pod {uuid} is of generation {made}"));
            }
            taken.insert(index.clone());
        }
    }
    if wanted != taken {
        wrong.push(format!("service {service} wants replicas {wanted:?} and has {taken:?}"));
    }
    wrong
}

fn strays(keyspace: &Keyspace, pods: &BTreeMap<String, CheckedPod>) -> Vec<String> {
    let mut wanted: BTreeSet<&[u8]> = keyspace.elements("pushed").into_iter().collect();
    for (service, _) in keyspace.below("slots:") {
        wanted.extend(keyspace.elements(&format!("slots:{service}")));
    }
    pods.iter()
        .filter(|(uuid, pod)| pod.is_active() && !wanted.contains(uuid.as_bytes()))
        .map(|(uuid, pod)| format!("pod {uuid} is {} and nothing wants it", pod.phase))
        .collect()
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Running {
    pub pod: String,
    pub assignment: String,
    pub node: String,
}

pub fn against_containers(keyspace: &Keyspace, nodes: &[String], containers: &[Running]) -> Vec<String> {
    let mut wanted: Vec<Running> = records(keyspace)
        .into_iter()
        .filter(|(_, pod)| pod.phase == Phase::Running && nodes.contains(&pod.node))
        .map(|(uuid, pod)| {
            let assignment = keyspace.field(&format!("pod:{uuid}"), "assignment");
            Running { pod: uuid, assignment, node: pod.node }
        })
        .collect();
    let mut found = containers.to_vec();
    wanted.sort();
    found.sort();
    let missing =
        wanted.iter().filter(|one| !found.contains(one)).map(|one| format!("does not run: {one:?}"));
    let surplus = found
        .iter()
        .filter(|one| !wanted.contains(one))
        .map(|one| format!("runs without being wanted: {one:?}"));
    let twice =
        found.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| format!("runs twice: {:?}", pair[0]));
    missing.chain(surplus).chain(twice).collect()
}

/// True if the pod must never run twice.
pub fn twice(running: &[(Running, bool)]) -> BTreeMap<(Running, Running), bool> {
    let mut by_pod: BTreeMap<&str, Vec<&(Running, bool)>> = BTreeMap::new();
    for one in running {
        by_pod.entry(&one.0.pod).or_default().push(one);
    }
    let mut pairs = BTreeMap::new();
    for group in by_pod.values().filter(|group| group.len() > 1) {
        for (index, one) in group.iter().enumerate() {
            for other in &group[index + 1..] {
                let (first, second) = if one.0 < other.0 { (one, other) } else { (other, one) };
                pairs.insert((first.0.clone(), second.0.clone()), one.1 && other.1);
            }
        }
    }
    pairs
}

fn records(keyspace: &Keyspace) -> BTreeMap<String, CheckedPod> {
    let read = |uuid: &str| {
        let key = format!("pod:{uuid}");
        let phase = Phase::parse(&keyspace.field(&key, "phase"))?;
        let node = keyspace.field(&key, "node");
        let request = Resource::ALL.map(|resource| number(keyspace, &key, resource.field()));
        Some((uuid.to_owned(), CheckedPod { phase, node, request }))
    };
    keyspace.below("pod:").filter_map(|(uuid, _)| read(uuid)).collect()
}

fn payloads(keyspace: &Keyspace) -> BTreeMap<String, Vec<Found<'_>>> {
    let mut found: BTreeMap<String, Vec<Found<'_>>> = BTreeMap::new();
    for (key, _) in keyspace.entries() {
        let Some(place) = place(key) else { continue };
        for raw in keyspace.elements(key) {
            // It will become a dead letter.
            let Ok(payload) = Payload::parse(raw.to_vec().into()) else { continue };
            found.entry(payload.id.to_string()).or_default().push(Found { place: place.clone(), raw });
        }
    }
    found
}

fn place(key: &str) -> Option<PodLocation> {
    match key.split_once(':') {
        None if key == "sq" => Some(PodLocation::Waiting),
        None if key == "uq" => Some(PodLocation::Unschedulable),
        Some(("fq", scheduler)) => Some(PodLocation::InFlight(scheduler.to_owned())),
        Some(("pq", node)) => Some(PodLocation::Queued(node.to_owned())),
        Some(("rq", node)) => Some(PodLocation::Starting(node.to_owned())),
        Some(("cs", node)) => Some(PodLocation::Running(node.to_owned())),
        _ => None,
    }
}

pub fn payloads_of<'a>(keyspace: &'a Keyspace, uuid: &str) -> Vec<&'a [u8]> {
    let mut all = payloads(keyspace);
    all.remove(uuid).unwrap_or_default().into_iter().map(|found| found.raw).collect()
}

/// Returns the number of pods with a reservation on the node, and what they request of each resource.
fn reserved_on(node: &str, pods: &BTreeMap<String, CheckedPod>) -> (i64, [i64; Resource::ALL.len()]) {
    let (mut count, mut sums) = (0, [0; Resource::ALL.len()]);
    for pod in pods.values().filter(|pod| pod.has_reservation() && pod.node == node) {
        count += 1;
        sums.iter_mut().zip(pod.request).for_each(|(sum, amount)| *sum += amount);
    }
    (count, sums)
}

fn reservation_mismatches(keyspace: &Keyspace, pods: &BTreeMap<String, CheckedPod>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (node, _) in keyspace.below("node:") {
        let (count, sums) = reserved_on(node, pods);
        let sums = Resource::ALL.map(Resource::used_field).into_iter().zip(sums);
        for (field, sum) in sums.chain([("used_pods".to_owned(), count)]) {
            let reserved = number(keyspace, &format!("node:{node}"), &field);
            if reserved != sum {
                wrong.push(format!("node {node} has {field} {reserved}, and its pods request {sum}"));
            }
        }
    }
    wrong
}

pub fn host_port_mismatches(keyspace: &Keyspace) -> Vec<String> {
    holder_mismatches(keyspace, "ports", "port:", "host port")
}

pub fn resource_id_mismatches(keyspace: &Keyspace) -> Vec<String> {
    holder_mismatches(keyspace, "ids", "id:", "id")
}

/// `field` of a pod lists what it has alone on its node, whose fields with `prefix` name the pod.
fn holder_mismatches(keyspace: &Keyspace, field: &str, prefix: &str, word: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let pods = records(keyspace);
    let held_by = |uuid: &str| keyspace.field(&format!("pod:{uuid}"), field);
    for (node, _) in keyspace.below("node:") {
        let mut holders: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (uuid, _) in pods.iter().filter(|(_, pod)| pod.has_reservation() && pod.node == node) {
            for held in held_by(uuid).split_ascii_whitespace() {
                holders.entry(held.to_owned()).or_default().push(uuid);
            }
        }
        let several = holders.iter().filter(|(_, holders)| holders.len() > 1);
        wrong.extend(several.map(|(held, pods)| format!("{pods:?} on {node} have the {word} {held}")));
        for (field, holder) in keyspace.fields(&format!("node:{node}")) {
            let Some(held) = field.strip_prefix(prefix) else { continue };
            let uuid = holder.split(' ').next().unwrap_or_default();
            if uuid != "-" && !holders.get(held).is_some_and(|pods| pods.contains(&uuid)) {
                wrong.push(format!("{node} keeps the {word} {held} for {holder}"));
            }
        }
    }
    wrong
}

pub fn overcommitted(keyspace: &Keyspace) -> Vec<String> {
    let pods = records(keyspace);
    let mut wrong = Vec::new();
    for (node, _) in keyspace.below("node:") {
        let (count, sums) = reserved_on(node, &pods);
        let sums = Resource::ALL.map(Resource::field).into_iter().zip(sums);
        for (field, sum) in sums.chain([("pods", count)]) {
            let capacity = number(keyspace, &format!("node:{node}"), field);
            if sum > capacity {
                wrong.push(format!(
                    "node {node} has a capacity of {field} {capacity}, and its pods request {sum}"
                ));
            }
        }
    }
    wrong
}

fn number(keyspace: &Keyspace, key: &str, field: &str) -> i64 {
    keyspace.field(key, field).parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: &[u8] = br#"{"name":"web","uuid":"one","image":"i","replica":0}"#;

    fn hash(fields: &[(&str, &str)]) -> KeyEntry {
        let field = |(name, value): &(&str, &str)| ((*name).to_owned(), value.as_bytes().to_vec());
        KeyEntry::Hash(fields.iter().map(field).collect())
    }

    fn cluster(phase: &str, used: &str, places: &[&'static str]) -> Keyspace {
        let mut entries = vec![
            ("pod:one", hash(&[("phase", phase), ("node", "w1"), ("cpu", "5"), ("memory", "0")])),
            ("node:w1", hash(&[("used_pods", used), ("used_cpu", if used == "0" { "0" } else { "5" })])),
        ];
        for place in places {
            let entry = match place.starts_with("cs:") {
                true => KeyEntry::Set([PAYLOAD.to_vec()].into()),
                false => KeyEntry::List(vec![PAYLOAD.to_vec()]),
            };
            entries.push((place, entry));
        }
        Keyspace::with(entries)
    }

    #[test]
    fn a_payload_must_be_in_exactly_the_place_of_its_pod() {
        let table: &[(&str, &str, &[&str], usize)] = &[
            ("running", "1", &["cs:w1"], 0),
            ("running", "1", &[], 1),
            ("running", "1", &["cs:w2"], 1),
            ("running", "1", &["rq:w1"], 1),
            ("running", "1", &["rq:w1", "cs:w1"], 1),
            ("running", "0", &["cs:w1"], 2),
            ("assigned", "1", &["pq:w1"], 0),
            ("assigned", "1", &["sq"], 1),
            ("pending", "0", &["sq"], 0),
            ("pending", "0", &["sq", "fq:s1"], 1),
            ("pending", "1", &["sq"], 2),
            ("stopped", "0", &["pq:w1"], 0),
            ("stopped", "0", &["cs:w1"], 1),
        ];
        for (phase, used, places, count) in table {
            let wrong = violations(&cluster(phase, used, places));
            assert_eq!(wrong.len(), *count, "{phase}, {used} used, {places:?}: {wrong:?}");
        }
    }

    #[test]
    fn two_containers_of_one_pod_are_a_pair() {
        let on = |pod: &str, node: &str, stop| {
            let [pod, node] = [pod, node].map(str::to_owned);
            (Running { pod, assignment: format!("of {node}"), node }, stop)
        };
        let (one, other) = (on("a", "w1", true), on("a", "w2", true));
        assert!(twice(&[one.clone(), on("b", "w1", true)]).is_empty());
        let pair = BTreeMap::from([((one.0.clone(), other.0.clone()), true)]);
        assert_eq!(twice(&[one.clone(), other.clone()]), pair);
        assert_eq!(twice(&[other.clone(), on("b", "w1", true), one.clone()]), pair);
        assert_eq!(twice(&[one.clone(), other.clone(), on("a", "w3", true)]).len(), 3);
        let keeps = twice(&[one, on("a", "w2", false)]);
        assert_eq!(keeps.values().collect::<Vec<_>>(), [&false]);
    }
}
