//! Finds problems in a copy of all keys. Pure.

use std::collections::BTreeSet;

use super::finding::{Finding, Repair, finding};
use super::key_copy::{KeyCopy, PodCopy, is_placed, no_numbers, raw, text};
use super::{of_nodes, of_relations, of_routes, of_volumes};
use model::ids::PodId;
use model::node::HeldPod;
use model::pod::lifecycle::Phase;

const SERVICE_NUMBERS: [&str; 3] = ["created_at", "updated_at", "revision"];
/// A registering worker restores these; they default to zero.
const NODE_FIELDS: [&str; 21] = [
    "beat",
    "registered_at",
    "created_at",
    "pods",
    "cpu",
    "memory",
    "pids",
    "disk",
    "reserved",
    "used_pods",
    "used_cpu",
    "used_memory",
    "used_pids",
    "used_disk",
    "reservations",
    "labels",
    "own_labels",
    "labels_revision",
    "psi",
    "incarnation",
    "state",
];

pub(crate) fn findings(copy: &KeyCopy) -> Vec<Finding> {
    let mut found = wrong_types(copy);
    found.extend(broken_pods(copy));
    found.extend(broken_nodes(copy));
    found.extend(broken_services(copy));
    found.extend(broken_slots(copy));
    found.extend(void_slots(copy));
    found.extend(leaked_specs(copy));
    found.extend(missing_specs(copy));
    found.extend(unknown_members(copy));
    found.extend(slots_without_pods(copy));
    found.extend(pods_without_slots(copy));
    found.extend(held_pods(copy));
    found.extend(misplaced_payloads(copy));
    found.extend(doubled_payloads(copy));
    found.extend(of_nodes::wrong_sums(copy));
    found.extend(of_nodes::pointless_stops(copy));
    found.extend(of_volumes::unlisted_and_unknown(copy));
    found.extend(of_volumes::broken_or_without_node(copy));
    found.extend(of_routes::missing_and_stale(copy));
    found.extend(of_relations::missing_and_stale(copy));
    found.sort_by(|a, b| (&a.key, &a.problem).cmp(&(&b.key, &b.problem)));
    found
}

fn wrong_types(copy: &KeyCopy) -> Vec<Finding> {
    let each = copy.wrong_types.iter().map(|(key, expected, actual)| {
        finding(key, format!("is a {actual}, but must be a {expected}"), Repair::move_aside(actual))
    });
    each.collect()
}

fn broken_pods(copy: &KeyCopy) -> impl Iterator<Item = Finding> {
    copy.pods.iter().filter_map(|(id, pod)| {
        let (key, seen_phase) = (format!("pod:{id}"), pod.raw_phase.clone());
        if Phase::parse(&pod.phase).is_none() {
            let problem = format!("has the phase {:?}, which does not exist", pod.phase);
            return Some(finding(key, problem, Repair::move_broken(seen_phase)));
        }
        // As `read_record` in the scripts: no worker may act on it.
        if is_placed(pod) && (pod.node.is_empty() || pod.assignment.is_empty()) {
            let problem = format!("is {} without a node or an assignment", pod.phase);
            return Some(finding(key, problem, Repair::move_broken(seen_phase)));
        }
        let problem = pod.unreadable.as_ref()?;
        let repair = match pod.no_numbers.clone() {
            fields if fields.is_empty() => Repair::move_broken(seen_phase),
            fields => Repair::remove_fields(&fields, seen_phase),
        };
        Some(finding(key, format!("cannot be read: {problem}"), repair))
    })
}

/// A node without a session in its record registers again, and stays cordoned.
fn broken_nodes(copy: &KeyCopy) -> impl Iterator<Item = Finding> {
    copy.broken_nodes.iter().map(|(name, (problem, fields))| {
        // A dead node stays dead: its pods may still have to be moved.
        let is_dead = text(fields, "state") == "dead";
        let is_kept = |field: &&str| is_dead && matches!(*field, "state" | "incarnation");
        let fields: Vec<&str> = NODE_FIELDS.iter().copied().filter(|field| !is_kept(field)).collect();
        let repair = Repair::remove_fields(&fields.join("\n"), Vec::new());
        finding(format!("node:{name}"), format!("cannot be read: {problem}"), repair)
    })
}

fn broken_services(copy: &KeyCopy) -> impl Iterator<Item = Finding> {
    copy.broken_services.iter().map(|(name, (problem, fields))| {
        let seen_phase = raw(fields, "phase");
        let repair = match no_numbers(fields, &SERVICE_NUMBERS) {
            fields if fields.is_empty() => Repair::move_broken(seen_phase),
            fields => Repair::remove_fields(&fields, seen_phase),
        };
        finding(format!("service:{name}"), format!("cannot be read: {problem}"), repair)
    })
}

fn broken_slots(copy: &KeyCopy) -> impl Iterator<Item = Finding> {
    copy.broken_slots.iter().map(|(service, field, value)| {
        let problem = format!("{:.100?} is no slot", String::from_utf8_lossy(field));
        finding(format!("slots:{service}"), problem, Repair::remove_slot(field, value))
    })
}

/// The pod is left alone, but a record that names a missing service was overwritten.
fn void_slots(copy: &KeyCopy) -> Vec<Finding> {
    let mut found = Vec::new();
    for (service, slots) in &copy.slots {
        for (slot, id) in slots {
            let Some(pod) = copy.pods.get(id).filter(|pod| pod.unreadable.is_none()) else { continue };
            if !names_slot(pod, service, slot) && !has_owner(copy, id, pod) {
                let problem = format!(
                    "has slot {slot} of service {service}, but names slot {:?} of service {:?}",
                    pod.replica, pod.service
                );
                let repair = Repair::move_broken(pod.raw_phase.clone());
                found.push(finding(format!("pod:{id}"), problem, repair));
                continue;
            }
            let place = match (names_slot(pod, service, slot), pod.service.as_str()) {
                (true, _) if slot.ends_with('+') && slots.get(&pod.replica) == Some(id) => {
                    "has the first place of that replica".to_owned()
                }
                (true, _) => continue,
                (false, "") => "is of no service".to_owned(),
                (false, other) => format!("is of slot {} of service {other}", pod.replica),
            };
            let problem = format!("slot {slot} names the pod {id}, which {place}");
            let repair = Repair::remove_slot(slot.as_bytes(), id.as_bytes());
            found.push(finding(format!("slots:{service}"), problem, repair));
        }
    }
    found
}

fn has_owner(copy: &KeyCopy, id: &String, pod: &PodCopy) -> bool {
    match pod.service.as_str() {
        "" => copy.pushed.contains(id),
        service => copy.service_specs.contains_key(service),
    }
}

fn names_slot(pod: &PodCopy, service: &str, slot: &str) -> bool {
    pod.service == service && pod.replica == slot.strip_suffix('+').unwrap_or(slot)
}

fn leaked_specs(copy: &KeyCopy) -> impl Iterator<Item = Finding> {
    let named: BTreeSet<&String> = copy
        .service_specs
        .values()
        .chain(copy.pods.values().map(|pod| &pod.spec))
        .chain(&copy.former_specs)
        .collect();
    let leaked = copy.lasting_specs.iter().filter(move |spec| !named.contains(spec));
    leaked.map(|spec| finding(format!("spec:{spec}"), "no service and no pod names it", Repair::expire()))
}

/// No pod of the service can start.
fn missing_specs(copy: &KeyCopy) -> impl Iterator<Item = Finding> {
    copy.missing_specs.iter().map(|(service, (spec, seen))| {
        let problem = format!("service {service} names it, and it is missing, unreadable or expires");
        finding(format!("spec:{spec}"), problem, Repair::restore_spec(service, spec, seen))
    })
}

fn unknown_members(copy: &KeyCopy) -> Vec<Finding> {
    let mut found = Vec::new();
    for node in copy.nodes.difference(&copy.node_records) {
        let key = format!("node:{node}");
        found.push(finding(
            "nodes",
            format!("lists {node:.100}, but there is no {key:.100}"),
            Repair::remove(node.as_str(), key),
        ));
    }
    for service in copy.services.iter().filter(|name| !copy.service_specs.contains_key(*name)) {
        let key = format!("service:{service}");
        let problem = format!("lists {service:.100}, but there is no {key:.100}");
        found.push(match copy.slots.get(service).is_some_and(|slots| !slots.is_empty()) {
            true => finding(
                "services",
                problem,
                Repair::Decide {
                    what: "create the service again, or stop its pods with `kubeleet pod stop`",
                },
            ),
            false => finding("services", problem, Repair::remove(service.as_str(), key)),
        });
    }
    // Only slots and pods still name such a service.
    let vanished = copy.slots.iter().filter(|(service, slots)| {
        !copy.services.contains(*service)
            && !copy.service_specs.contains_key(*service)
            && slots
                .iter()
                .any(|(slot, id)| copy.pods.get(id).is_some_and(|pod| names_slot(pod, service, slot)))
    });
    found.extend(vanished.map(|(service, slots)| {
        let problem = format!("has {} pods, but there is no service:{service}", slots.len());
        let what = "`kubeleet cluster recover` records it again, or stop its pods with `kubeleet pod stop`";
        finding(format!("slots:{service}"), problem, Repair::Decide { what })
    }));
    for service in copy.service_specs.keys().filter(|name| !copy.services.contains(*name)) {
        found.push(finding(
            "services",
            format!("does not list {service}, although there is a service:{service}"),
            Repair::add(service, format!("service:{service}")),
        ));
    }
    for (id, pod) in copy.pushed.iter().filter_map(|id| Some((id, copy.pods.get(id)?))) {
        if !pod.service.is_empty() && pod.unreadable.is_none() {
            let problem = format!("lists {id}, which is of service {}", pod.service);
            found.push(finding("pushed", problem, Repair::Wait));
        }
    }
    for pod in copy.pushed.iter().filter(|id| !has_key(copy, id)) {
        // The reconcile loop skips invalid pod ids.
        let repair = match PodId::new(pod.as_str()) {
            Ok(_) => Repair::Wait,
            Err(_) => Repair::remove(pod.as_str(), format!("pod:{pod}")),
        };
        found.push(finding("pushed", format!("lists {pod:.100}, which has no record"), repair));
    }
    found
}

fn has_key(copy: &KeyCopy, pod: &str) -> bool {
    copy.pods.contains_key(pod) || copy.unreadable_pods.contains(pod)
}

fn slots_without_pods(copy: &KeyCopy) -> Vec<Finding> {
    let mut found = Vec::new();
    for (service, slots) in &copy.slots {
        let key = format!("slots:{service}");
        for (slot, pod) in slots.iter().filter(|(_, pod)| !has_key(copy, pod)) {
            let problem = format!("slot {slot} names {pod}, which has no record");
            let repair = match copy.service_specs.contains_key(service) {
                true => Repair::Wait,
                false => Repair::remove(slot.as_str(), format!("pod:{pod}")),
            };
            found.push(finding(&key, problem, repair));
        }
    }
    found
}

fn pods_without_slots(copy: &KeyCopy) -> Vec<Finding> {
    let mut found = Vec::new();
    let has_slot = |id: &String, pod: &PodCopy| {
        let slots = copy.slots.get(&pod.service).into_iter().flatten();
        slots.filter(|(slot, _)| names_slot(pod, &pod.service, slot)).any(|(_, holder)| holder == id)
    };
    let readable = copy.pods.iter().filter(|(_, pod)| is_placed(pod) && pod.unreadable.is_none());
    for (id, pod) in readable.filter(|(id, pod)| !has_slot(id, pod)) {
        if pod.service.is_empty() && copy.pushed.contains(id) {
            continue;
        }
        let repair = match pod.service.is_empty() || copy.service_specs.contains_key(&pod.service) {
            true => Repair::Wait,
            false => Repair::Decide { what: "create its service again, or stop it with `kubeleet pod stop`" },
        };
        let problem = match (pod.service.as_str(), slot_holder(copy, &pod.service, &pod.replica)) {
            ("", _) => "runs, but is not listed in pushed".to_owned(),
            (service, None) => format!("runs, but is in no slot of service {service}"),
            (service, Some(holder)) => format!(
                "runs, and so does the pod {holder}, which has its slot {} of service {service}: {holder} is kept, \
                 and this one is stopped",
                pod.replica
            ),
        };
        found.push(finding(format!("pod:{id}"), problem, repair));
    }
    found
}

fn slot_holder<'a>(copy: &'a KeyCopy, service: &str, replica: &str) -> Option<&'a String> {
    let holder = copy.slots.get(service)?.get(replica)?;
    copy.pods.get(holder).filter(|pod| is_placed(pod) && names_slot(pod, service, replica)).map(|_| holder)
}

fn held_pods(copy: &KeyCopy) -> Vec<Finding> {
    let mut found = Vec::new();
    let of_live = copy.held_pods.iter().filter(|(node, _)| copy.live_nodes.contains(*node));
    let held = of_live.flat_map(|(node, pods)| pods.iter().map(move |held| (node, held)));
    for (node, HeldPod { service, replica, pod }) in
        held.filter(|(_, held)| !has_key(copy, held.pod.as_str()))
    {
        let what = format!("holds a container of {service}-{replica}, pod {pod}, which has no record");
        let (problem, what_to_do) = match slot_holder(copy, service.as_str(), &replica.to_string()) {
            Some(kept) => (
                format!(
                    "{what}, while the pod {kept} runs in its slot and is kept: on that node, `docker rm -f \
                     $(docker ps -aq --filter label=kubeleet.pod={pod})`"
                ),
                "remove the container on its node",
            ),
            None => (what, "`kubeleet cluster recover` records it again"),
        };
        found.push(finding(format!("node:{node}"), problem, Repair::Decide { what: what_to_do }));
    }
    found
}

/// Payloads in a container set whose pod is on another node or on none.
fn misplaced_payloads(copy: &KeyCopy) -> Vec<Finding> {
    let mut found = Vec::new();
    for (key, payloads) in &copy.container_sets {
        let node = key.strip_prefix("cs:").unwrap_or_default();
        for (raw, id) in payloads.iter().filter(|(_, id)| !copy.unreadable_pods.contains(id)) {
            let pod = copy.pods.get(id).cloned().unwrap_or_default();
            if is_placed(&pod) && pod.node == node
                || Phase::parse(&pod.phase).is_none() && !pod.phase.is_empty()
            {
                continue;
            }
            let problem = match pod.phase.as_str() {
                "" => format!("has the payload of {id}, which has no record"),
                phase => format!("has the payload of {id}, which is {phase} on {:?}", pod.node),
            };
            found.push(finding(key, problem, Repair::remove_of_pod(raw, id, pod)));
        }
    }
    found
}

fn doubled_payloads(copy: &KeyCopy) -> Vec<Finding> {
    let mut found = Vec::new();
    for (key, payloads) in &copy.lists {
        let mut seen = BTreeSet::new();
        for (raw, id) in payloads {
            if seen.insert(raw) || id.is_empty() {
                continue;
            }
            let pod = copy.pods.get(id).cloned().unwrap_or_default();
            let problem = format!("has the payload of {id} more than once");
            found.push(finding(key, problem, Repair::remove_of_pod(raw, id, pod)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeMap;

    use super::*;

    fn pod(phase: &str, node: &str, service: &str) -> PodCopy {
        let text = str::to_owned;
        PodCopy {
            phase: text(phase),
            raw_phase: phase.as_bytes().to_vec(),
            node: text(node),
            assignment: text("a1"),
            service: text(service),
            spec: if service.is_empty() { String::new() } else { text("s1") },
            replica: text("0"),
            ..PodCopy::default()
        }
    }

    fn healthy() -> KeyCopy {
        let set = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<BTreeSet<_>>();
        KeyCopy {
            services: set(&["web"]),
            service_specs: BTreeMap::from([("web".to_owned(), "s1".to_owned())]),
            pods: BTreeMap::from([
                ("a".to_owned(), pod("running", "w1", "web")),
                ("b".to_owned(), pod("assigned", "w1", "")),
            ]),
            slots: BTreeMap::from([("web".to_owned(), BTreeMap::from([("0".to_owned(), "a".to_owned())]))]),
            pushed: set(&["b"]),
            lasting_specs: set(&["s1"]),
            nodes: set(&["w1"]),
            node_records: set(&["w1"]),
            container_sets: BTreeMap::from([("cs:w1".to_owned(), vec![(b"A".to_vec(), "a".to_owned())])]),
            lists: BTreeMap::from([("pq:w1".to_owned(), vec![(b"B".to_vec(), "b".to_owned())])]),
            ..KeyCopy::default()
        }
    }

    #[test]
    fn nothing_is_found_in_a_healthy_cluster() {
        assert_eq!(findings(&healthy()), []);
    }

    #[test]
    fn each_fault_is_found_with_its_key_and_its_repair() {
        type Fault = fn(&mut KeyCopy);
        let cases: [(&str, Fault, &[&str]); 21] = [
            (
                "wrong type",
                |c| c.wrong_types.push(("sq".into(), "list", "string".into())),
                &["sq: is a string, but must be a list; renames it to broken:sq, which expires in a week"],
            ),
            (
                "phase",
                |c| c.pods.get_mut("a").unwrap().phase = "Running".into(),
                &["pod:a: has the phase \"Running\", which does not exist; renames"],
            ),
            (
                "assignment",
                |c| c.pods.get_mut("a").unwrap().assignment = String::new(),
                &["pod:a: is running without a node or an assignment; renames"],
            ),
            (
                "leaked",
                |c| {
                    c.lasting_specs.insert("old".into());
                },
                &["spec:old: no service and no pod names it; lets it expire"],
            ),
            (
                "missing",
                |c| {
                    c.missing_specs.insert("web".into(), ("s1".into(), Vec::new()));
                },
                &["spec:s1: service web names it, and it is missing, unreadable or expires; writes it again"],
            ),
            (
                "node",
                |c| {
                    c.nodes.insert("w2".into());
                },
                &["nodes: lists w2, but"],
            ),
            (
                "service",
                |c| {
                    c.services.insert("gone".into());
                },
                &["services: lists gone, but"],
            ),
            (
                "lost service",
                |c| c.service_specs.clear(),
                &["services: lists web, but there is no service:web; nothing: create the service again"],
            ),
            (
                "vanished",
                |c| {
                    c.services.clear();
                    c.service_specs.clear();
                },
                &["slots:web: has 1 pods, but there is no service:web; nothing: `kubeleet cluster recover`"],
            ),
            (
                "unlisted",
                |c| c.services.clear(),
                &["services: does not list web, although there is a service:web; adds web"],
            ),
            (
                "pushed",
                |c| {
                    c.pushed.insert("gone".into());
                },
                &["pushed: lists gone"],
            ),
            (
                "slot",
                |c| {
                    c.slots.get_mut("web").unwrap().insert("1".into(), "gone".into());
                },
                &["slots:web: slot 1 names gone, which has no record; nothing: the reconcile loop"],
            ),
            (
                "another's pod",
                |c| {
                    c.slots.get_mut("web").unwrap().insert("1".into(), "b".into());
                },
                &["slots:web: slot 1 names the pod b, which is of no service; removes the entry"],
            ),
            (
                "renamed slots",
                |c| {
                    let slots = c.slots.remove("web").unwrap();
                    c.slots.insert("db".into(), slots);
                },
                &[
                    "pod:a: runs, but is in no slot of service web; nothing: the reconcile loop",
                    "slots:db: slot 0 names the pod a, which is of slot 0 of service web; removes the entry",
                ],
            ),
            (
                "twice in a replica",
                |c| {
                    c.slots.get_mut("web").unwrap().insert("0+".into(), "a".into());
                },
                &["slots:web: slot 0+ names the pod a, which has the first place of that replica; removes"],
            ),
            (
                "two run",
                |c| {
                    c.pods.insert("c".into(), pod("running", "w1", "web"));
                },
                &["pod:c: runs, and so does the pod a, which has its slot 0 of service web: a is kept"],
            ),
            (
                "held",
                |c| {
                    c.live_nodes.insert("w1".into());
                    c.held_pods.insert("w1".into(), vec![HeldPod::from_line("web 0 lost").unwrap()]);
                },
                &[
                    "node:w1: holds a container of web-0, pod lost, which has no record, while the pod a runs in its",
                ],
            ),
            (
                "pushed",
                |c| {
                    c.pushed.insert("a".into());
                },
                &["pushed: lists a, which is of service web; nothing: the reconcile loop"],
            ),
            ("slots", |c| c.slots.clear(), &["pod:a: runs, but is in no slot of service web; nothing"]),
            (
                "elsewhere",
                |c| c.pods.get_mut("a").unwrap().node = "w2".into(),
                &["cs:w1: has the payload of a, which is running on \"w2\"; removes the entry"],
            ),
            (
                "doubled",
                |c| c.lists.get_mut("pq:w1").unwrap().push((b"B".to_vec(), "b".into())),
                &["pq:w1: has the payload of b more than once; removes the entry"],
            ),
        ];
        for (case, fault, expected) in cases {
            let mut copy = healthy();
            fault(&mut copy);
            let found: Vec<String> = findings(&copy)
                .iter()
                .map(|finding| format!("{}: {}; {}", finding.key, finding.problem, finding.repair()))
                .collect();
            let fits = |(line, part): (&String, &&str)| line.starts_with(part);
            let is_expected = found.len() == expected.len() && found.iter().zip(expected).all(fits);
            assert!(is_expected, "{case}: {found:#?}");
        }
    }
}
