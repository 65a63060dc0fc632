//! Which pods of a lower priority are stopped for one that fits nowhere. Pure.
//!
//! On each node all pods that may go are taken, and given back as long as the pod still fits: so none is too
//! many. The best node loses pods of the lowest priority, then the fewest, then the least room beyond need.
//!
//! Tests: beside the code

use std::collections::HashMap;

use model::ids::{NodeName, PodId, ServiceName};
use model::node::{Resource, Resources};
use model::spec::Priority;

/// A pod on a node that may be stopped for another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resident {
    pub pod: PodId,
    pub service: ServiceName,
    pub priority: Priority,
    /// With its slot.
    pub request: Resources,
    /// Its service has one less in service without it.
    pub serves: bool,
}

/// A node whose filters and rules let the pod run there, but for its room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullNode {
    pub name: NodeName,
    pub capacity: Resources,
    pub used: Resources,
    pub residents: Vec<Resident>,
}

impl FullNode {
    /// Once pods that have `leaving` are gone.
    pub fn has_room(&self, request: &Resources, leaving: &Resources) -> bool {
        let has_room = |capacity: u64, used: u64, leaving: u64, needed: u64| {
            u128::from(capacity) + u128::from(leaving) >= u128::from(used) + u128::from(needed)
        };
        let of = |resource: Resource| {
            let needed = request.get(resource);
            let (capacity, used) = (self.capacity.get(resource), self.used.get(resource));
            needed == 0 || has_room(capacity, used, leaving.get(resource), needed)
        };
        has_room(self.capacity.pods, self.used.pods, leaving.pods, request.pods)
            && Resource::ALL.into_iter().all(of)
    }
}

/// `spare` is how many serving pods of a service may go; of a service that is not there, none may. Returns
/// the node and the pods that are stopped there; `None` if no node has enough of them.
pub fn choose_victims<'a>(
    request: &Resources,
    priority: Priority,
    nodes: &'a [FullNode],
    spare: &HashMap<ServiceName, usize>,
) -> Option<(&'a FullNode, Vec<&'a Resident>)> {
    let found = nodes.iter().filter_map(|node| Some((node, victims_on(node, request, priority, spare)?)));
    found.min_by_key(|(node, victims)| {
        let highest = victims.iter().map(|victim| victim.priority).max();
        (highest, victims.len(), surplus(node, request, victims), &node.name)
    })
}

fn victims_on<'a>(
    node: &'a FullNode,
    request: &Resources,
    priority: Priority,
    spare: &HashMap<ServiceName, usize>,
) -> Option<Vec<&'a Resident>> {
    let mut lower: Vec<&Resident> = node.residents.iter().filter(|pod| pod.priority < priority).collect();
    lower.sort_by_key(|pod| (pod.priority, pod.serves, &pod.pod));
    let mut left = spare.clone();
    lower.retain(|pod| match left.get_mut(&pod.service) {
        Some(left) if pod.serves => {
            let may = *left > 0;
            *left = left.saturating_sub(1);
            may
        }
        of_service => of_service.is_some(),
    });
    if fits(node, request, &[]) || !fits(node, request, &lower) {
        return None;
    }
    for at in (0..lower.len()).rev() {
        let given_back = lower.remove(at);
        if !fits(node, request, &lower) {
            lower.insert(at, given_back);
        }
    }
    Some(lower)
}

fn fits(node: &FullNode, request: &Resources, gone: &[&Resident]) -> bool {
    node.has_room(request, &freed(gone))
}

fn freed(gone: &[&Resident]) -> Resources {
    gone.iter().fold(Resources::default(), |sum, pod| sum.saturating_add(pod.request))
}

/// Freed amounts beyond need, in thousandths of the node.
fn surplus(node: &FullNode, request: &Resources, victims: &[&Resident]) -> u64 {
    let freed = freed(victims);
    let part = |resource: Resource| {
        let beyond = freed.left(resource, request);
        beyond.saturating_mul(1000).checked_div(node.capacity.get(resource)).unwrap_or(0)
    };
    Resource::ALL.into_iter().map(part).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::cmp::Reverse;

    use proptest::prelude::*;

    use super::*;

    fn memory(amount: u64) -> Resources {
        Resources { memory_bytes: amount, pods: 1, ..Resources::default() }
    }

    fn resident(id: &str, service: &str, priority: i16, request: Resources) -> Resident {
        let (pod, service) = (PodId::new(id).unwrap(), ServiceName::new(service).unwrap());
        Resident { pod, service, priority: Priority::new(priority).unwrap(), request, serves: true }
    }

    fn node(name: &str, capacity: u64, residents: Vec<Resident>) -> FullNode {
        let used = freed(&residents.iter().collect::<Vec<_>>());
        let capacity = Resources { memory_bytes: capacity, pods: 100, ..Resources::default() };
        FullNode { name: NodeName::new(name).unwrap(), capacity, used, residents }
    }

    fn spare(services: &[(&str, usize)]) -> HashMap<ServiceName, usize> {
        services.iter().map(|(name, count)| (ServiceName::new(*name).unwrap(), *count)).collect()
    }

    /// "node: pods"
    fn chosen(needed: u64, priority: i16, nodes: &[FullNode], spare: &HashMap<ServiceName, usize>) -> String {
        let priority = Priority::new(priority).unwrap();
        match choose_victims(&memory(needed), priority, nodes, spare) {
            Some((node, victims)) => {
                let pods: Vec<&str> = victims.iter().map(|victim| victim.pod.as_str()).collect();
                format!("{}: {}", node.name, pods.join(" "))
            }
            None => "none".to_owned(),
        }
    }

    #[test]
    fn the_lowest_and_fewest_that_are_enough_go() {
        let one = |id: &str, priority, amount| resident(id, "web", priority, memory(amount));
        let all = spare(&[("web", 9)]);
        for (nodes, expected, case) in [
            (vec![node("a", 10, vec![one("x", 0, 5), one("y", 0, 5)])], "a: x", "one is enough"),
            (vec![node("a", 10, vec![one("x", 5, 10)])], "none", "an equal priority"),
            (vec![node("a", 10, vec![one("x", 9, 10)])], "none", "a higher one"),
            (vec![node("a", 10, vec![one("x", 0, 5)])], "none", "there is room"),
            (vec![node("a", 4, vec![one("x", 0, 4)])], "none", "the node is too small"),
            (vec![node("a", 10, vec![one("x", 4, 5), one("y", -9, 5)])], "a: y", "the lower one"),
            (
                vec![
                    node("a", 10, vec![one("x", 3, 10)]),
                    node("b", 10, vec![one("y", 0, 4), one("z", 0, 6)]),
                ],
                "b: z",
                "the node with the lower ones",
            ),
            (
                vec![
                    node("a", 10, vec![one("u", 0, 3), one("v", 0, 3), one("w", 0, 4)]),
                    node("b", 10, vec![one("y", 0, 10)]),
                ],
                "b: y",
                "the fewest",
            ),
            (
                vec![node("a", 10, vec![one("x", 0, 9)]), node("b", 10, vec![one("y", 0, 6)])],
                "b: y",
                "the least beyond need",
            ),
        ] {
            assert_eq!(chosen(5, 5, &nodes, &all), expected, "{case}");
        }
        let two = [node("a", 10, vec![one("x", 0, 5), one("y", 0, 5)])];
        assert_eq!(chosen(10, 5, &two, &all), "a: x y");
        assert_eq!(chosen(10, 5, &two, &spare(&[("web", 1)])), "none", "one has to stay");
        assert_eq!(chosen(5, 5, &two, &spare(&[])), "none", "its service is unknown");
        let starting = Resident { serves: false, ..one("y", 0, 5) };
        let two = [node("a", 10, vec![one("x", 0, 5), starting])];
        assert_eq!(chosen(10, 5, &two, &spare(&[("web", 1)])), "a: y x", "one of them does not serve");
        assert_eq!(chosen(5, 5, &two, &spare(&[("web", 1)])), "a: y", "the one that does not serve");
    }

    fn any_cluster() -> impl Strategy<Value = (Vec<FullNode>, HashMap<ServiceName, usize>)> {
        let pod = (0..4usize, 0..8u64, 0..8u64, any::<bool>());
        let one_node = (4..24u64, 4..24u64, 1..10u64, prop::collection::vec(pod, 0..9));
        let nodes = prop::collection::vec(one_node, 1..4);
        (nodes, prop::collection::vec((-3..4i16, 0..4usize), 4)).prop_map(|(nodes, services)| {
            let made =
                nodes.into_iter().enumerate().map(|(n, (memory_bytes, cpu_millis, pods, residents))| {
                    let residents =
                        residents.into_iter().enumerate().map(|(p, (service, memory, cpu, serves))| {
                            let request = Resources {
                                memory_bytes: memory,
                                cpu_millis: cpu,
                                pods: 1,
                                ..Resources::default()
                            };
                            let name = format!("s{service}");
                            Resident {
                                serves,
                                ..resident(&format!("p{n}-{p}"), &name, services[service].0, request)
                            }
                        });
                    let capacity = Resources { memory_bytes, cpu_millis, pods, ..Resources::default() };
                    FullNode { capacity, ..node(&format!("n{n}"), 0, residents.collect()) }
                });
            let spare = (0..4).map(|s| (ServiceName::new(format!("s{s}")).unwrap(), services[s].1));
            (made.collect(), spare.collect())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

        #[test]
        fn victims_are_enough_none_too_many_lower_and_leave_their_services_what_they_need(
            (nodes, spare) in any_cluster(),
            needed in (0..20u64, 0..20u64),
            priority in -3..5i16,
        ) {
            let request =
                Resources { memory_bytes: needed.0, cpu_millis: needed.1, pods: 1, ..Resources::default() };
            let priority = Priority::new(priority).unwrap();
            let Some((node, victims)) = choose_victims(&request, priority, &nodes, &spare) else {
                // None found: there is room, or all that may go are not enough.
                for node in &nodes {
                    let mut lower: Vec<&Resident> = Vec::new();
                    let mut left = spare.clone();
                    for pod in node.residents.iter().filter(|pod| pod.priority < priority) {
                        let left = left.get_mut(&pod.service).unwrap();
                        if !pod.serves || *left > 0 {
                            *left -= usize::from(pod.serves);
                            lower.push(pod);
                        }
                    }
                    let is_whole = node.residents.iter().filter(|pod| pod.priority < priority).count() == lower.len();
                    prop_assert!(!is_whole || fits(node, &request, &[]) || !fits(node, &request, &lower));
                }
                return Ok(());
            };
            prop_assert!(!victims.is_empty() && fits(node, &request, &victims));
            for at in 0..victims.len() {
                // Whatever a smaller set lacks, one that lacks a single pod lacks less.
                let mut fewer = victims.clone();
                fewer.remove(at);
                prop_assert!(!fits(node, &request, &fewer), "{} is one too many", victims[at].pod);
            }
            prop_assert!(victims.iter().all(|victim| victim.priority < priority));
            for (service, spare) in &spare {
                let gone = victims.iter().filter(|victim| victim.serves && victim.service == *service).count();
                prop_assert!(gone <= *spare, "{service} has too few");
            }
        }

        #[test]
        fn a_run_of_preemptions_ends(
            (mut nodes, spare) in any_cluster(),
            waiting in prop::collection::vec((0..12u64, -3..5i16), 1..6),
        ) {
            // Victims wait again, as pods of their priority; whatever fits is placed first.
            let mut waiting: Vec<Resident> = waiting
                .into_iter()
                .enumerate()
                .map(|(n, (amount, priority))| resident(&format!("w{n}"), "s0", priority, memory(amount)))
                .collect();
            let (total, mut preemptions) = (waiting.len() + nodes.iter().map(|n| n.residents.len()).sum::<usize>(), 0);
            loop {
                waiting.sort_by_key(|pod| (Reverse(pod.priority), pod.pod.clone()));
                let mut moved = None;
                for (at, pod) in waiting.iter().enumerate() {
                    if let Some(n) = nodes.iter().position(|node| fits(node, &pod.request, &[])) {
                        moved = Some((at, n, Vec::new()));
                        break;
                    }
                    if let Some((node, victims)) = choose_victims(&pod.request, pod.priority, &nodes, &spare) {
                        let gone: Vec<PodId> = victims.iter().map(|victim| victim.pod.clone()).collect();
                        let n = nodes.iter().position(|other| other.name == node.name).unwrap();
                        moved = Some((at, n, gone));
                        break;
                    }
                }
                let Some((at, n, gone)) = moved else { break };
                preemptions += usize::from(!gone.is_empty());
                let pod = waiting.remove(at);
                let (left, stopped): (Vec<Resident>, Vec<Resident>) =
                    nodes[n].residents.drain(..).partition(|resident| !gone.contains(&resident.pod));
                nodes[n].residents = left;
                nodes[n].residents.push(pod);
                waiting.extend(stopped);
                nodes[n].used = freed(&nodes[n].residents.iter().collect::<Vec<_>>());
                prop_assert!(preemptions <= total * total * 8, "no end");
            }
        }
    }
}
