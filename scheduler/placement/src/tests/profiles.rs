//! Properties of placement with other profiles than `default`, mixed with it in one batch.

use super::*;

/// All pods of a service have the same profile.
fn any_profiled_pods() -> impl Strategy<Value = Vec<PodRequest>> {
    let any_profile = || prop::sample::select(PlacementProfile::ALL.to_vec());
    let profiles = (any_profile(), any_profile(), any_profile(), any_profile());
    (any_pods(), profiles).prop_map(|(mut pods, profiles)| {
        for pod in &mut pods {
            let service = pod.generation.as_ref().map(|generation| generation.service.as_str());
            pod.requirements.profile = match service {
                Some("s0") => profiles.0,
                Some("s1") => profiles.1,
                Some(_) => profiles.2,
                None => profiles.3,
            };
        }
        pods
    })
}

fn any_needs() -> impl Strategy<Value = Vec<(Resources, u64)>> {
    let need = (0..4u64, 0..4u64, 1..9u64).prop_map(|(cpu_millis, memory_bytes, pods)| {
        (Resources { cpu_millis, memory_bytes, ..Resources::default() }, pods)
    });
    prop::collection::vec(need, 0..4)
}

fn cluster(nodes: &[Node], placed: &PlacedPods, needs: &[(Resources, u64)]) -> ClusterSnapshot {
    let mut snapshot = snapshot(nodes);
    snapshot.set_placed(placed.clone());
    snapshot.set_needs(needs);
    snapshot
}

fn place_all(snapshot: &ClusterSnapshot, pods: &[PodRequest]) -> Vec<Option<NodeName>> {
    place_in(snapshot, &PlacementPolicy::default(), pods)
}

fn commit(snapshot: &mut ClusterSnapshot, name: &NodeName, pod: &PodRequest) {
    assert!(snapshot.commit(name, pod.requirements.resources()));
    snapshot.commit_ports(name, &pod.requirements.host_ports, "web");
    pod.requirements.named.iter().for_each(|named| snapshot.commit_ids(name, named, "web"));
    pod.generation.iter().for_each(|generation| snapshot.commit_placed(name, generation));
    if pod.requirements.profile == PlacementProfile::RoundRobin {
        snapshot.commit_use(name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn a_batch_equals_its_pods_placed_one_by_one_as_explained(
        nodes in any_nodes(),
        pods in any_profiled_pods(),
        placed in any_placed(),
        needs in any_needs(),
    ) {
        let mut snapshot = cluster(&nodes, &placed, &needs);
        let at_once = place_all(&snapshot, &pods);
        let mut one_by_one = Vec::new();
        for pod in &pods {
            let name = place_all(&snapshot, std::slice::from_ref(pod)).remove(0);
            let evaluations = explain(&snapshot, NOW, &PlacementPolicy::default(), pod);
            let best = evaluations.iter().find(|e| e.is_feasible()).map(|e| e.node.clone());
            prop_assert_eq!(&best, &name, "explain agrees with decide");
            name.iter().for_each(|name| commit(&mut snapshot, name, pod));
            one_by_one.push(name);
        }
        prop_assert_eq!(one_by_one, at_once);
    }

    #[test]
    fn nothing_is_overcommitted_and_rules_hold(
        nodes in any_nodes(),
        pods in any_profiled_pods(),
        placed in any_placed(),
        needs in any_needs(),
    ) {
        let names = place_all(&cluster(&nodes, &placed, &needs), &pods);
        let (mut now, mut placed) = (nodes.clone(), placed);
        for (pod, name) in pods.iter().zip(names) {
            let Some(name) = name else { continue };
            let node = now.iter_mut().find(|node| node.name == name).unwrap();
            prop_assert!(can_run(node, pod), "{:?} on {:?}", pod, node);
            prop_assert!(rules_hold(&nodes, &placed, pod, node), "{:?} on {:?}", pod, node);
            node.used = node.used.saturating_add(pod.requirements.resources());
            let ports = pod.requirements.host_ports.iter();
            node.host_ports.extend(ports.map(|port| (port.to_owned(), String::new())));
            pod.requirements.named.iter().for_each(|named| node.give_ids(named, ""));
            pod.generation.iter().for_each(|generation| placed.add(&name, generation));
        }
    }

    #[test]
    fn the_order_of_nodes_changes_nothing(
        nodes in any_nodes(),
        pods in any_profiled_pods(),
        placed in any_placed(),
        needs in any_needs(),
    ) {
        let reversed: Vec<_> = nodes.iter().rev().cloned().collect();
        let (one, other) = (cluster(&nodes, &placed, &needs), cluster(&reversed, &placed, &needs));
        prop_assert_eq!(place_all(&one, &pods), place_all(&other, &pods));
    }

    #[test]
    fn the_order_of_pods_that_are_alike_changes_nothing(
        nodes in any_nodes(),
        pods in any_profiled_pods(),
        placed in any_placed(),
        first in any::<prop::sample::Index>(),
    ) {
        prop_assume!(!pods.is_empty());
        let alike = &pods[first.index(pods.len())];
        let named = |i: usize| PodRequest { id: pod(i, 0, 0).id, ..alike.clone() };
        let snapshot = cluster(&nodes, &placed, &[]);
        let (pods, reversed): (Vec<_>, Vec<_>) = ((0..20).map(named).collect(), (0..20).rev().map(named).collect());
        prop_assert_eq!(place_all(&snapshot, &pods), place_all(&snapshot, &reversed));
    }

    #[test]
    fn one_more_node_never_makes_fewer_pods_fit(
        nodes in any_nodes(),
        pods in any_profiled_pods(),
        placed in any_placed(),
        needs in any_needs(),
        more in any_node(),
    ) {
        let mut with_more = nodes.clone();
        with_more.push(Node { name: NodeName::new("n00").unwrap(), ..more });
        // A new domain has the fewest pods, and those of a hard spread wait for it.
        let first = pods.iter().find(|pod| pod.requirements.rules.as_ref().is_none_or(|r| !r.has_hard_spread()));
        let alike: Vec<_> = first.into_iter().flat_map(|pod| std::iter::repeat_n(pod.clone(), 10)).collect();
        let fitting = |nodes: &[Node]| place_all(&cluster(nodes, &placed, &needs), &alike).iter().flatten().count();
        prop_assert!(fitting(&with_more) >= fitting(&nodes));
    }

    #[test]
    fn pods_of_other_profiles_fit_wherever_those_of_default_do(
        nodes in any_nodes(),
        pods in any_profiled_pods(),
        placed in any_placed(),
    ) {
        for pod in pods {
            let mut of_default = pod.clone();
            of_default.requirements.profile = PlacementProfile::Default;
            let fits = |pod: &PodRequest| place_all(&cluster(&nodes, &placed, &[]), std::slice::from_ref(pod))[0].is_some();
            let is_refused = pod.requirements.profile == PlacementProfile::Greedy;
            prop_assert!(is_refused || fits(&pod) == fits(&of_default));
        }
    }
}

/// Placements of `count` pods without requests, by node.
fn placed_by(profile: PlacementProfile, nodes: &[Node], count: usize) -> Vec<String> {
    place_with(profile, &snapshot(nodes), (0..count).map(|i| pod(i, 0, 0)))
}

fn place_with(
    profile: PlacementProfile,
    snapshot: &ClusterSnapshot,
    pods: impl Iterator<Item = PodRequest>,
) -> Vec<String> {
    let profiled = pods.map(|mut pod| {
        pod.requirements.profile = profile;
        pod
    });
    let names = place_all(snapshot, &profiled.collect::<Vec<_>>());
    names.into_iter().map(|name| name.map_or_else(String::new, |name| name.to_string())).collect()
}

#[test]
fn pods_without_requests_are_together_or_apart_as_the_profile_says() {
    let nodes = [node("a").build(), node("b").build(), node("c").pods(1, 110).build()];
    for (profile, expected) in [
        (PlacementProfile::Default, "ababc"),
        (PlacementProfile::Pack, "aaaaa"),
        (PlacementProfile::Spread, "ababc"),
        (PlacementProfile::Kubernetes, "ababc"),
        (PlacementProfile::Nomad, "aaaaa"),
        (PlacementProfile::Epvm, "ababc"),
        (PlacementProfile::Greedy, "ababc"),
        (PlacementProfile::RoundRobin, "abcab"),
        (PlacementProfile::Fragmentation, "aaaaa"),
    ] {
        let placed = placed_by(profile, &nodes, 5).concat();
        assert_eq!(placed, expected, "{profile}");
    }
}

#[test]
fn spread_counts_own_pods_before_those_of_others() {
    let nodes = [node("a").pods(50, 110).build(), node("b").build()];
    let web = generation("web", "1");
    let own = PodRequest { generation: Some(web.clone()), ..pod(0, 0, 0) };
    let of_web = PodsByNode::from([(NodeName::new("b").unwrap(), 1)]);
    let placed = PlacedPods { generations: [(web, of_web)].into(), ..PlacedPods::default() };
    let placed = place_with(PlacementProfile::Spread, &cluster(&nodes, &placed, &[]), [own].into_iter());
    assert_eq!(placed, ["a"]);
}

#[test]
fn round_robin_goes_on_after_the_batch_and_passes_over_a_refusing_node() {
    let nodes = [node("a").build(), node("b").with(|n| n.cordoned = true).build(), node("c").build()];
    let mut snapshot = snapshot(&nodes);
    let mut used = Vec::new();
    for round in 0..4 {
        let placed = place_with(PlacementProfile::RoundRobin, &snapshot, [pod(round, 0, 0)].into_iter());
        snapshot.commit_use(&NodeName::new(placed[0].as_str()).unwrap());
        used.extend(placed);
        // Nodes are read again with each heartbeat.
        snapshot.upsert(nodes[0].clone());
        if round == 2 {
            snapshot.upsert(node("b").build());
        }
    }
    assert_eq!(used, ["a", "c", "a", "b"], "a node that was passed over is the next");
}

#[test]
fn greedy_refuses_a_node_that_reports_no_cpu() {
    let unknown = node("a").cpu(0, 0).build();
    assert_eq!(placed_by(PlacementProfile::Greedy, &[unknown.clone(), node("b").build()], 2), ["b", "b"]);
    let mut greedy = pod(0, 0, 0);
    greedy.requirements.profile = PlacementProfile::Greedy;
    let decisions = decide(&snapshot(&[unknown]), NOW, &PlacementPolicy::default(), &[greedy]);
    let Outcome::Unschedulable { refusals } = &decisions[0].outcome else { panic!("{decisions:?}") };
    assert_eq!(refusals[0].reason, "CpuUnknown");
}

#[test]
fn fragmentation_leaves_room_for_what_the_services_need() {
    let gib = 1 << 30;
    // The services need 2 cores with 4 GiB.
    let nodes = [
        node("a").cpu(3_500, 4_000).build(),
        node("b").cpu(2_000, 4_000).memory(4 * gib, 8 * gib).build(),
        node("c").build(),
    ];
    let needs = [(Resources { cpu_millis: 2_000, memory_bytes: 4 * gib, ..Resources::default() }, 5)];
    let snapshot = cluster(&nodes, &PlacedPods::default(), &needs);
    for (cpu, memory, expected, case) in [
        (100, gib, "a", "what is stranded is taken first"),
        (2_000, 4 * gib, "b", "a pod that fits exactly loses no more than itself"),
        (1_000, gib, "c", "a node with much room has room for others still"),
    ] {
        let placed =
            place_with(PlacementProfile::Fragmentation, &snapshot, [pod(0, cpu, memory)].into_iter());
        assert_eq!(placed, [expected], "{case}");
    }
}
