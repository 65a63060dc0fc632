//! Properties of placement, on small clusters with every possible problem of a node.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use model::ids::{NodeName, PodId, ServiceName};
use model::node::{Node, NodeKind, NodeSettings, NodeState, Psi, Resource, ResourceIds, Resources};
use model::pod::Refusal;
use model::spec::{
    FORM_WITH_RULES, HostPorts, Placement, PlacementProfile, Preference, Relation, RelationKind, Spread,
    domain_of,
};
use proptest::prelude::*;

use super::testing::{NOW, generation, ids, node, pod};
use super::*;

mod profiles;
mod rebalance;
mod recorded;
mod related;

fn snapshot(nodes: &[Node]) -> ClusterSnapshot {
    snapshot_by(Weights::default(), nodes)
}

fn snapshot_by(weights: Weights, nodes: &[Node]) -> ClusterSnapshot {
    let mut snapshot = ClusterSnapshot::new(weights);
    nodes.iter().for_each(|node| snapshot.upsert(node.clone()));
    snapshot
}

fn place(nodes: &[Node], pods: &[PodRequest]) -> Vec<Option<NodeName>> {
    place_by(&PlacementPolicy::default(), nodes, pods)
}

fn place_by(policy: &PlacementPolicy, nodes: &[Node], pods: &[PodRequest]) -> Vec<Option<NodeName>> {
    place_in(&snapshot_by(policy.weights, nodes), policy, pods)
}

fn place_beside(placed: &PlacedPods, nodes: &[Node], pods: &[PodRequest]) -> Vec<Option<NodeName>> {
    let mut snapshot = snapshot(nodes);
    snapshot.set_placed(placed.clone());
    place_in(&snapshot, &PlacementPolicy::default(), pods)
}

fn place_in(
    snapshot: &ClusterSnapshot,
    policy: &PlacementPolicy,
    pods: &[PodRequest],
) -> Vec<Option<NodeName>> {
    let decisions = decide(snapshot, NOW, policy, pods);
    assert!(decisions.iter().enumerate().all(|(i, decision)| decision.pod == i));
    decisions.into_iter().map(|decision| node_of(&decision.outcome)).collect()
}

fn node_of(outcome: &Outcome) -> Option<NodeName> {
    match outcome {
        Outcome::Place(target) => Some(target.name.clone()),
        Outcome::Unschedulable { .. } => None,
    }
}

fn counts(placements: &[Option<NodeName>]) -> BTreeMap<NodeName, usize> {
    let mut counts = BTreeMap::new();
    placements.iter().flatten().for_each(|name| *counts.entry(name.clone()).or_default() += 1);
    counts
}

/// The rules once more, without the filters.
fn can_run(node: &Node, pod: &PodRequest) -> bool {
    let (used, has, needs) = (&node.used, &node.facts.capacity, &pod.requirements);
    could_run(node, pod)
        && used.pods < has.pods
        && Resource::ALL.into_iter().all(|resource| {
            let needed = needs.request.get(resource);
            needed == 0 || used.get(resource) + needed <= has.get(resource)
        })
        && (node.kind == NodeKind::Kubeleet || needs.needs_only_image)
        && !needs.host_ports.iter().any(|port| node.host_ports.contains_key(port))
        && needs.named.iter().flat_map(|named| named.iter()).all(|(name, count)| {
            let taken = |key: &String| node.given_ids.contains_key(key);
            let offered = node.offered_ids().keys().filter(|key| key.starts_with(&format!("{name}/")));
            offered.filter(|key| !taken(key)).count() as u64 >= count
        })
}

/// Whatever room it has.
fn could_run(node: &Node, pod: &PodRequest) -> bool {
    let mut constraints = pod.requirements.rules.iter().flat_map(|rules| &rules.constraints);
    node.state == NodeState::Alive
        && node.beat + 20_000 >= NOW
        && !node.cordoned
        && node.engine_problem.is_none()
        && constraints.all(|one| one.holds(&node.name, &node.facts.labels))
}

/// Examines all nodes for each pod.
fn reference(
    policy: &PlacementPolicy,
    nodes: &[Node],
    placed: &PlacedPods,
    pods: &[PodRequest],
) -> Vec<Option<NodeName>> {
    let (mut nodes, mut placed) = (nodes.to_vec(), placed.clone());
    let zones: BTreeMap<NodeName, String> =
        nodes.iter().map(|node| (node.name.clone(), node.zone().to_owned())).collect();
    let has_zones = zones.values().collect::<BTreeSet<_>>().len() > 1;
    let sibling_load = |placed: &PlacedPods, pod: &PodRequest, node: &Node| {
        let of = pod.generation.as_ref().and_then(|generation| placed.generations.get(generation));
        let Some(of) = of else { return 0 };
        let in_zone = |name: &NodeName| zones.get(name).is_some_and(|zone| zone == node.zone());
        let in_zone: u64 = of.iter().filter(|(name, _)| in_zone(name)).map(|(_, count)| count).sum();
        let on_node = of.get(&node.name).copied().unwrap_or(0);
        let counted = on_node.min(8) + if has_zones { in_zone.min(8) } else { 0 };
        counted * u64::from(policy.weights.sibling)
    };
    let mut pressures: Vec<u64> =
        nodes.iter().filter_map(|n| Some(score::pressure_load(n.psi.as_ref()?, &policy.weights))).collect();
    pressures.sort_unstable();
    let count = pressures.len();
    let typical = if count == 0 { 0 } else { (pressures[(count - 1) / 2] + pressures[count / 2]) / 2 };
    let load = |n: &Node| score::explain(n, policy, typical).iter().map(|c| c.points).sum::<u64>();
    let before = nodes.clone();
    pods.iter()
        .map(|pod| {
            let rule_load = |node: &Node| rule_load(policy, &before, &placed, pod, node);
            let score = |node: &Node| load(node) + sibling_load(&placed, pod, node) + rule_load(node);
            let fitting = nodes.iter_mut().filter(|node| can_run(node, pod));
            let fitting = fitting.filter(|node| rules_hold(&before, &placed, pod, node));
            let best = fitting.min_by_key(|node| (score(node), node.name.clone()))?;
            pod.generation.iter().for_each(|generation| placed.add(&best.name, generation));
            best.used = best.used.saturating_add(pod.requirements.resources());
            best.host_ports
                .extend(pod.requirements.host_ports.iter().map(|port| (port.into(), String::new())));
            pod.requirements.named.iter().for_each(|named| best.give_ids(named, ""));
            Some(best.name.clone())
        })
        .collect()
}

fn domain_pods<'a>(
    nodes: &'a [Node],
    of: &BTreeMap<NodeName, u64>,
    rule: &'a Spread,
) -> BTreeMap<&'a str, u64> {
    let mut pods = BTreeMap::new();
    for node in nodes {
        if let Some(domain) = rule.domain(&node.name, &node.facts.labels) {
            *pods.entry(domain).or_default() += of.get(&node.name).copied().unwrap_or(0);
        }
    }
    pods
}

fn placed_of<'a>(placed: &'a PlacedPods, pod: &PodRequest) -> Cow<'a, BTreeMap<NodeName, u64>> {
    let of = pod.generation.as_ref().and_then(|generation| placed.generations.get(generation));
    of.map_or_else(Cow::default, Cow::Borrowed)
}

/// The rules that count, once more. `before` are the nodes before the batch.
fn rules_hold(before: &[Node], placed: &PlacedPods, pod: &PodRequest, node: &Node) -> bool {
    let Some(rules) = &pod.requirements.rules else { return true };
    let of_service = pod.generation.as_ref().and_then(|of| placed.services.get(&of.service));
    let on_node = of_service.and_then(|counts| counts.get(&node.name)).copied().unwrap_or(0);
    let of = placed_of(placed, pod);
    let has_place = |rule: &Spread| {
        let all = domain_pods(before, &of, rule);
        let eligible = before.iter().filter(|node| could_run(node, pod));
        let eligible: BTreeSet<&str> =
            eligible.filter_map(|node| rule.domain(&node.name, &node.facts.labels)).collect();
        let least = eligible.iter().map(|domain| all[domain]).min().unwrap_or(0);
        let few = rule.min_domains.is_some_and(|least| (eligible.len() as u64) < least.get());
        let least = if few { 0 } else { least };
        let domain = rule.domain(&node.name, &node.facts.labels);
        !rule.hard || domain.is_some_and(|domain| all[domain] < least + rule.max_skew.get())
    };
    rules.max_per_node.is_none_or(|most| on_node < most.get())
        && rules.spread.iter().all(has_place)
        && rules.relations.iter().all(|rule| relation_holds(before, placed, pod, node, rule))
}

/// How many pods of the other service are beside the node, and on all nodes.
fn related_pods(before: &[Node], placed: &PlacedPods, node: &Node, rule: &Relation) -> (u64, u64) {
    let of = match rule.kind {
        RelationKind::Near => placed.staying.get(&rule.service),
        RelationKind::Apart => placed.services.get(&rule.service),
    };
    let on = |node: &Node| of.and_then(|of| of.get(&node.name)).copied().unwrap_or(0);
    let domain = |node: &'_ Node| domain_of(&rule.key, &node.name, &node.facts.labels).map(str::to_owned);
    let own = domain(node);
    let beside = before.iter().filter(|other| own.is_some() && domain(other) == own).map(on).sum();
    (beside, before.iter().map(on).sum())
}

fn relation_holds(
    before: &[Node],
    placed: &PlacedPods,
    pod: &PodRequest,
    node: &Node,
    rule: &Relation,
) -> bool {
    let (beside, all) = related_pods(before, placed, node, rule);
    let is_to_itself = pod.generation.as_ref().is_some_and(|of| of.service == rule.service);
    !rule.hard
        || match rule.kind {
            RelationKind::Apart => beside == 0,
            RelationKind::Near => beside > 0 || is_to_itself && all == 0,
        }
}

fn rule_load(
    policy: &PlacementPolicy,
    before: &[Node],
    placed: &PlacedPods,
    pod: &PodRequest,
    node: &Node,
) -> u64 {
    let Some(rules) = &pod.requirements.rules else { return 0 };
    let missed = rules.preferences.iter().filter(|(when, _)| !when.holds(&node.name, &node.facts.labels));
    let missed: u64 = missed.map(|(_, weight)| u64::from(*weight) * 110).sum();
    let of = placed_of(placed, pod);
    let of_spread = |rule: &Spread| {
        let domain = rule.domain(&node.name, &node.facts.labels)?;
        let pods = domain_pods(before, &of, rule)[domain].min(8);
        (!rule.hard).then(|| pods * u64::from(policy.weights.sibling) * u64::from(rule.weight) / 50)
    };
    let of_relation = |rule: &&Relation| {
        let (beside, _) = related_pods(before, placed, node, rule);
        let counted = if rule.kind == RelationKind::Apart { beside.min(8) } else { u64::from(beside == 0) };
        counted * u64::from(policy.weights.sibling) * u64::from(rule.weight) / 50
    };
    let related: u64 = rules.relations.iter().filter(|rule| !rule.hard).map(|rule| of_relation(&rule)).sum();
    missed + related + rules.spread.iter().filter_map(of_spread).sum::<u64>()
}

fn any_psi() -> impl Strategy<Value = Option<Psi>> {
    let percent = || prop_oneof![3 => Just(0.0f32), 1 => 0.0f32..100.0];
    let psi = (percent(), percent(), percent(), percent(), percent());
    prop::option::of(psi.prop_map(|(cpu_some, memory_some, memory_full, io_some, io_full)| Psi {
        cpu_some,
        memory_some,
        memory_full,
        io_some,
        io_full,
    }))
}

prop_compose! {
    /// Small amounts, so that pods often just fit.
    fn any_node()(
        used in (0..8u64, 0..8u64, 0..8u64),
        has in (0..8u64, 0..8u64, 0..8u64),
        age in prop_oneof![4 => 0..20_000u64, 1 => 19_999..20_003u64, 1 => 20_000..90_000u64],
        problems in (prop::bool::weighted(0.1), prop::bool::weighted(0.1), prop::bool::weighted(0.1)),
        external in prop::bool::weighted(0.2),
        zone in prop_oneof![2 => Just(""), 1 => Just("a"), 1 => Just("b"), 1 => Just("c")],
        rack in prop_oneof![1 => Just(""), 2 => Just("1"), 2 => Just("2")],
        psi in any_psi(),
        ids in prop_oneof![2 => Just(("", "")), 1 => Just(("gpu=3 slots=2", "gpu/1")), 1 => Just(("gpu=7,", "gpu/0"))],
    ) -> Node {
        let mut node = node("x").pods(used.0, has.0).cpu(used.1, has.1).memory(used.2, has.2).build();
        (node.beat, node.cordoned, node.psi) = (NOW - age, problems.0, psi);
        node.state = if problems.1 { NodeState::Dead } else { NodeState::Alive };
        node.engine_problem = problems.2.then(|| "no space left".to_owned());
        node.kind = if external { NodeKind::External } else { NodeKind::Kubeleet };
        node.facts.labels = BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
        node.facts.labels.extend((!rack.is_empty()).then(|| ("rack".to_owned(), rack.to_owned())));
        let resources: ResourceIds = ids.0.parse().unwrap();
        let settings = NodeSettings { resources, forms: FORM_WITH_RULES, ..NodeSettings::default() };
        node.facts.settings = (!settings.resources.is_empty()).then_some(settings);
        node.given_ids = ResourceIds::from_text(ids.1).keys().map(|key| (key, "before".to_owned())).collect();
        node
    }
}

fn any_weights() -> impl Strategy<Value = Weights> {
    let all = |weight| Weights {
        pod_share: weight,
        pod_count: weight,
        cpu_some: weight,
        memory_some: weight,
        memory_full: weight,
        io_some: weight,
        io_full: weight,
        sibling: weight,
        pressure_step: weight,
    };
    prop_oneof![
        2 => Just(Weights::default()),
        1 => Just(all(0)),
        1 => Just(all(u32::MAX)),
        1 => (0..5u32).prop_map(all),
    ]
}

fn any_nodes() -> impl Strategy<Value = Vec<Node>> {
    prop::collection::vec(any_node(), 0..12).prop_map(|mut nodes| {
        let name = |i| NodeName::new(format!("n{i}")).unwrap();
        nodes.iter_mut().enumerate().for_each(|(i, node)| node.name = name(i));
        nodes
    })
}

fn any_spread() -> impl Strategy<Value = Spread> {
    let by = prop_oneof![3 => Just("zone"), 1 => Just("rack"), 1 => Just("node.hostname")];
    (by, 1..4u64, any::<bool>(), prop::option::of(1..5u64), 1..=100u32).prop_map(
        |(by, max_skew, hard, min_domains, weight)| Spread {
            by: by.to_owned(),
            max_skew: NonZeroU64::new(max_skew).unwrap(),
            hard,
            min_domains: min_domains.and_then(NonZeroU64::new),
            weight,
        },
    )
}

fn any_relation() -> impl Strategy<Value = Relation> {
    let key = prop_oneof![2 => Just("zone"), 1 => Just("rack"), 2 => Just("node.hostname")];
    let kind = prop_oneof![Just(RelationKind::Near), Just(RelationKind::Apart)];
    (0..3u8, key, kind, any::<bool>(), 1..=100u32, any::<bool>()).prop_map(
        |(service, key, kind, hard, weight, is_of_other)| Relation {
            service: ServiceName::new(format!("s{service}")).unwrap(),
            key: key.to_owned(),
            kind,
            hard,
            weight,
            is_of_other,
        },
    )
}

/// Of a service, or of a pod without one.
fn any_rules() -> impl Strategy<Value = Option<Arc<NodeRules>>> {
    let constraint = || {
        prop_oneof![
            6 => Just(""),
            1 => Just("zone in (a,b)"),
            1 => Just("node.hostname notin (n0,n3)"),
            1 => Just("rack"),
        ]
    };
    let preferences = prop::collection::vec((constraint(), 1..=100u32), 0..3);
    let spread = prop_oneof![2 => Just(Vec::new()), 2 => prop::collection::vec(any_spread(), 1..3)];
    let max_per_node = prop_oneof![2 => Just(None), 1 => (1..4u64).prop_map(NonZeroU64::new)];
    let relations = prop_oneof![2 => Just(Vec::new()), 2 => prop::collection::vec(any_relation(), 1..3)];
    (constraint(), preferences, spread, max_per_node, relations).prop_map(
        |(constraint, preferences, spread, max_per_node, relations)| {
            let named = |text: &&str| !text.is_empty();
            let preferences = preferences.into_iter().filter(|(when, _)| named(when));
            let placement = Placement {
                constraints: [constraint].into_iter().filter(named).map(str::to_owned).collect(),
                preferences: preferences
                    .map(|(when, weight)| Preference { when: when.to_owned(), weight })
                    .collect(),
                spread,
                max_per_node,
                ..Placement::default()
            };
            NodeRules::with_relations(&placement, relations, false)
        },
    )
}

fn any_pods() -> impl Strategy<Value = Vec<PodRequest>> {
    let ports =
        prop_oneof![4 => Just(""), 1 => Just("80/tcp"), 1 => Just("443/tcp 80/tcp"), 1 => Just("80/udp")];
    let named = prop_oneof![
        6 => Just(None),
        2 => Just(ids("gpu=1")),
        1 => Just(ids("gpu=2")),
        1 => Just(ids("gpu=1 slots=1")),
    ];
    let requirements = (0..3u64, 0..3u64, 0..3u64, any::<bool>(), ports, named).prop_map(
        |(cpu_millis, memory_bytes, pids, needs_only_image, ports, named)| Requirements {
            request: Resources { cpu_millis, memory_bytes, pids, disk_bytes: 0, pods: 0 },
            needs_only_image,
            host_ports: HostPorts::from_text(ports.to_owned()),
            named,
            host: None,
            needs_shared_directory: false,
            needs_newest_form: false,
            rules: None,
            zone: None,
            profile: PlacementProfile::Default,
            volumes: None,
        },
    );
    let named = prop::option::of(prop::sample::select(vec![(0, 0), (0, 1), (1, 0), (2, 0)]));
    let rules = (any_rules(), any_rules());
    (prop::collection::vec((requirements, named), 0..40), rules).prop_map(|(pods, rules)| {
        let of = |(service, spec)| generation(&format!("s{service}"), &format!("spec{spec}"));
        let all = rules.0.iter().chain(&rules.1).flat_map(|rules| &rules.relations);
        let related: BTreeSet<ServiceName> = all.map(|rule| rule.service.clone()).collect();
        let rules_of = |(service, _)| {
            let own = [&rules.0, &rules.1].into_iter().nth(service).cloned().flatten();
            if !related.contains(&of((service, 0)).service) {
                return own;
            }
            let own = own.map(|own| (*own).clone()).unwrap_or_default();
            Some(Arc::new(NodeRules { is_related: true, ..own }))
        };
        let pods = pods.into_iter().enumerate();
        let one = |(i, (requirements, named)): (usize, (Requirements, Option<_>))| PodRequest {
            requirements: Requirements { rules: named.and_then(rules_of), ..requirements },
            generation: named.map(of),
            ..pod(i, 0, 0)
        };
        pods.map(one).collect()
    })
}

/// The third service of `any_pods` is not counted.
fn any_placed() -> impl Strategy<Value = PlacedPods> {
    let of_one = || prop::collection::btree_map(0..14u8, 0..12u64, 0..6);
    prop::collection::vec(of_one(), 3).prop_map(|placed| {
        let name = |(i, count)| (NodeName::new(format!("n{i}")).unwrap(), count);
        let generations = [("s0", "spec0"), ("s0", "spec1"), ("s1", "spec0")];
        let generations = generations.into_iter().map(|(service, spec)| generation(service, spec));
        let counts = placed.into_iter().map(|nodes| nodes.into_iter().map(name).collect());
        let generations: HashMap<Generation, PodsByNode> = generations.zip(counts).collect();
        let mut services = HashMap::new();
        for (generation, nodes) in &generations {
            let of_service: &mut PodsByNode = services.entry(generation.service.clone()).or_default();
            nodes.iter().for_each(|(node, count)| *of_service.entry(node.clone()).or_default() += count);
        }
        let (s2, of_s2) = (ServiceName::new("s2").unwrap(), generations[&generation("s1", "spec0")].clone());
        services.insert(s2, of_s2);
        let few = |nodes: &PodsByNode| nodes.iter().map(|(node, pods)| (node.clone(), pods / 4)).collect();
        let staying = services.iter().map(|(name, nodes)| (name.clone(), few(nodes))).collect();
        PlacedPods { generations, services, staying, ordinals: HashMap::new() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn decisions_equal_those_of_a_full_scan(
        nodes in any_nodes(),
        pods in any_pods(),
        placed in any_placed(),
        weights in any_weights(),
    ) {
        let policy = PlacementPolicy { weights, ..PlacementPolicy::default() };
        let mut snapshot = snapshot_by(weights, &nodes);
        snapshot.set_placed(placed.clone());
        prop_assert_eq!(place_in(&snapshot, &policy, &pods), reference(&policy, &nodes, &placed, &pods));
    }

    #[test]
    fn nothing_is_overcommitted(nodes in any_nodes(), pods in any_pods()) {
        let mut used: HashMap<_, _> = nodes.iter().map(|n| (n.name.clone(), (n, n.used))).collect();
        for (pod, name) in pods.iter().zip(place(&nodes, &pods)) {
            let Some(name) = name else { continue };
            let (node, used) = used.get_mut(&name).unwrap();
            *used = used.saturating_add(pod.requirements.resources());
            let has = node.facts.capacity;
            prop_assert!(used.pods <= has.pods);
            for resource in Resource::ALL {
                let needed = pod.requirements.request.get(resource);
                prop_assert!(needed == 0 || used.get(resource) <= has.get(resource), "{:?}", resource);
            }
        }
    }

    #[test]
    fn no_named_resource_is_overcommitted(nodes in any_nodes(), pods in any_pods()) {
        let mut nodes: HashMap<_, _> = nodes.into_iter().map(|node| (node.name.clone(), node)).collect();
        for (pod, name) in pods.iter().zip(place(&nodes.values().cloned().collect::<Vec<_>>(), &pods)) {
            let Some((name, named)) = name.zip(pod.requirements.named.as_ref()) else { continue };
            let node = nodes.get_mut(&name).unwrap();
            let wanted: u64 = named.iter().map(|(_, count)| count).sum();
            let before = node.given_ids.len() as u64;
            node.give_ids(named, "pod");
            prop_assert_eq!(node.given_ids.len() as u64 - before, wanted, "each id is given once");
        }
    }

    #[test]
    fn constraints_hold(nodes in any_nodes(), pods in any_pods()) {
        let labels: HashMap<_, _> = nodes.iter().map(|n| (&n.name, &n.facts.labels)).collect();
        for (pod, name) in pods.iter().zip(place(&nodes, &pods)) {
            let Some((name, rules)) = name.zip(pod.requirements.rules.as_ref()) else { continue };
            prop_assert!(rules.constraints.iter().all(|one| one.holds(&name, labels[&name])));
        }
    }

    #[test]
    fn rules_that_count_hold(nodes in any_nodes(), pods in any_pods(), placed in any_placed()) {
        let mut placed = placed;
        for (pod, name) in pods.iter().zip(place_beside(&placed.clone(), &nodes, &pods)) {
            let Some(name) = name else { continue };
            let node = nodes.iter().find(|node| node.name == name).unwrap();
            prop_assert!(rules_hold(&nodes, &placed, pod, node), "{:?} on {:?}", pod, node);
            pod.generation.iter().for_each(|generation| placed.add(&name, generation));
        }
    }

    #[test]
    fn equal_arguments_give_equal_decisions(nodes in any_nodes(), pods in any_pods()) {
        let mut shuffled = nodes.clone();
        shuffled.reverse();
        let once = decide(&snapshot(&nodes), NOW, &PlacementPolicy::default(), &pods);
        prop_assert_eq!(&once, &decide(&snapshot(&nodes), NOW, &PlacementPolicy::default(), &pods));
        prop_assert_eq!(&once, &decide(&snapshot(&shuffled), NOW, &PlacementPolicy::default(), &pods));
    }

    #[test]
    fn a_batch_equals_its_pods_placed_one_by_one(
        nodes in any_nodes(),
        pods in any_pods(),
        placed in any_placed(),
    ) {
        let mut snapshot = snapshot(&nodes);
        snapshot.set_placed(placed.clone());
        let mut one_by_one = Vec::new();
        for pod in &pods {
            let decision = decide(&snapshot, NOW, &PlacementPolicy::default(), std::slice::from_ref(pod)).remove(0);
            let name = node_of(&decision.outcome);
            let evaluations = explain(&snapshot, NOW, &PlacementPolicy::default(), pod);
            let best = evaluations.iter().find(|e| e.is_feasible()).map(|e| e.node.clone());
            prop_assert_eq!(&best, &name, "explain agrees with decide");
            if let Some(name) = &name {
                assert!(snapshot.commit(name, pod.requirements.resources()));
                snapshot.commit_ports(name, &pod.requirements.host_ports, "web");
                pod.requirements.named.iter().for_each(|named| snapshot.commit_ids(name, named, "web"));
                pod.generation.iter().for_each(|generation| snapshot.commit_placed(name, generation));
            }
            one_by_one.push(name);
        }
        prop_assert_eq!(one_by_one, place_beside(&placed, &nodes, &pods));
    }

    #[test]
    fn the_weights_of_the_snapshot_do_not_change_decisions(nodes in any_nodes(), pods in any_pods()) {
        let other = snapshot_by(Weights { pod_count: 0, cpu_some: 90_000, ..Weights::default() }, &nodes);
        let policy = PlacementPolicy::default();
        let decisions = decide(&other, NOW, &policy, &pods);
        prop_assert_eq!(decisions, decide(&snapshot(&nodes), NOW, &policy, &pods));
    }

    #[test]
    fn pods_that_are_alike_are_placed_equally_in_any_order(
        nodes in any_nodes(),
        pods in any_pods(),
        placed in any_placed(),
        first in any::<prop::sample::Index>(),
    ) {
        prop_assume!(!pods.is_empty());
        let alike = PodRequest { id: PodId::new("another").unwrap(), ..pods[first.index(pods.len())].clone() };
        let others: Vec<_> = pods.iter().map(|pod| PodRequest { id: pod.id.clone(), ..alike.clone() }).collect();
        let reversed: Vec<_> = others.iter().rev().cloned().collect();
        prop_assert_eq!(
            place_beside(&placed, &nodes, &others),
            place_beside(&placed, &nodes, &reversed),
        );
    }

    #[test]
    fn one_more_node_never_makes_fewer_pods_fit(
        nodes in any_nodes(),
        pods in any_pods(),
        placed in any_placed(),
        more in any_node(),
    ) {
        let mut with_more = nodes.clone();
        with_more.push(Node { name: NodeName::new("n00").unwrap(), ..more });
        // A new domain has the fewest pods, and those of a hard spread wait for it. The first pod may choose
        // a small one for those that are near to it.
        let is_hard = |rules: &NodeRules| {
            let mut near = rules.relations.iter().filter(|rule| rule.kind == RelationKind::Near);
            rules.has_hard_spread() || near.any(|rule| rule.hard)
        };
        let first = pods.iter().find(|pod| pod.requirements.rules.as_deref().is_none_or(|rules| !is_hard(rules)));
        let alike: Vec<_> = first.into_iter().flat_map(|pod| std::iter::repeat_n(pod.clone(), 10)).collect();
        let fitting = |nodes: &[Node]| place_beside(&placed, nodes, &alike).iter().flatten().count();
        prop_assert!(fitting(&with_more) >= fitting(&nodes));
    }

    #[test]
    fn every_node_gives_a_reason_for_its_refusal(nodes in any_nodes(), pods in any_pods()) {
        for decision in decide(&snapshot(&nodes), NOW, &PlacementPolicy::default(), &pods) {
            let Outcome::Unschedulable { refusals } = decision.outcome else { continue };
            let mut named: Vec<_> = refusals.iter().flat_map(|r| &r.nodes).map(|n| n.node.as_str()).collect();
            named.sort_unstable();
            named.dedup();
            prop_assert_eq!(named.len(), nodes.len());
            prop_assert!(!refusals.is_empty());
            prop_assert!(refusals.windows(2).all(|pair| pair[0].count >= pair[1].count));
        }
    }

    #[test]
    fn equal_idle_nodes_fill_evenly(
        nodes in 1..20usize,
        pods in 0..200usize,
        noise in prop::collection::vec(0.0..4.9f32, 20),
    ) {
        let idle = |i: usize| node(&format!("n{i}")).psi(|p| p.memory_full = noise[i]).build();
        let nodes: Vec<_> = (0..nodes).map(idle).collect();
        let pods: Vec<_> = (0..pods).map(|i| pod(i, 0, 0)).collect();
        let counts = counts(&place(&nodes, &pods));
        let most = counts.values().max().copied().unwrap_or(0);
        let least = nodes.iter().map(|n| counts.get(&n.name).copied().unwrap_or(0)).min().unwrap();
        prop_assert!(most - least <= 1, "{counts:?}");
    }

    /// A node without a report counts as a typical one: its first low pressure may attract pods.
    #[test]
    fn higher_pressure_never_attracts_pods(
        mut nodes in any_nodes(),
        pods in 1..40usize,
        which in any::<prop::sample::Index>(),
        more in any_psi(),
    ) {
        prop_assume!(!nodes.is_empty());
        let pods: Vec<_> = (0..pods).map(|i| pod(i, 1, 1)).collect();
        let which = which.index(nodes.len());
        let (old, more) = (nodes[which].psi.unwrap_or_default(), more.unwrap_or_default());
        nodes[which].psi = Some(old);
        let mut pressed = nodes.clone();
        pressed[which].psi = Some(Psi {
            cpu_some: old.cpu_some + more.cpu_some,
            memory_some: old.memory_some + more.memory_some,
            memory_full: old.memory_full + more.memory_full,
            io_some: old.io_some + more.io_some,
            io_full: old.io_full + more.io_full,
        });
        let got = |nodes: &[Node]| counts(&place(nodes, &pods)).get(&nodes[which].name).copied().unwrap_or(0);
        prop_assert!(got(&pressed) <= got(&nodes));
    }
}

#[test]
fn pods_avoid_a_node_under_pressure() {
    let nodes = [node("a").psi(|p| p.memory_full = 60.0).build(), node("b").pods(50, 110).build()];
    let pods: Vec<_> = (0..10).map(|i| pod(i, 0, 0)).collect();
    assert!(place(&nodes, &pods).iter().flatten().all(|name| name.as_str() == "b"));
}

fn in_zone(zone: &'static str) -> impl Fn(&mut Node) {
    move |node| drop(node.facts.labels.insert("zone".to_owned(), zone.to_owned()))
}

/// `count` pods of web, with those of its generation that were placed before.
fn place_web(placed: &[(&str, u64)], nodes: &[Node], count: usize) -> BTreeMap<NodeName, usize> {
    let web = generation("web", "1");
    let placed = placed.iter().map(|(name, count)| (NodeName::new(*name).unwrap(), *count)).collect();
    let request = |i| PodRequest { generation: Some(web.clone()), ..pod(i, 0, 0) };
    let pods: Vec<_> = (0..count).map(request).collect();
    counts(&place_beside(
        &PlacedPods { generations: [(web.clone(), placed)].into(), ..PlacedPods::default() },
        nodes,
        &pods,
    ))
}

fn named(counts: &[(&str, usize)]) -> BTreeMap<NodeName, usize> {
    counts.iter().map(|(name, count)| (NodeName::new(*name).unwrap(), *count)).collect()
}

#[test]
fn pods_of_a_generation_go_to_different_nodes_and_zones() {
    let with_pods = |name: &str, pods| node(name).pods(pods, 100).build();
    let three = [with_pods("a", 8), with_pods("b", 0), with_pods("c", 8)];
    let pressed = |percent: f32| node("c").psi(move |psi| psi.memory_full = percent).build();
    let busy = node("c").pods(8, 100).psi(|psi| psi.cpu_some = 100.0).build();
    let zoned = |name: &str, zone, pods| node(name).pods(pods, 100).with(in_zone(zone)).build();
    let zones = [
        zoned("a1", "a", 0),
        zoned("a2", "a", 0),
        zoned("b1", "b", 10),
        zoned("b2", "b", 10),
        zoned("c1", "c", 20),
        zoned("c2", "c", 20),
    ];
    let two = |third| [with_pods("a", 0), with_pods("b", 0), third];
    for (placed, nodes, count, expected, case) in [
        (&[][..], &three[..], 3, &[("a", 1), ("b", 1), ("c", 1)][..], "one is emptier by eight pods"),
        (&[], &three, 6, &[("a", 2), ("b", 2), ("c", 2)], "twice"),
        (&[("b", 1)], &three, 2, &[("a", 1), ("c", 1)], "beside those that were placed before"),
        (&[("gone", 3), ("a", 1)], &three, 2, &[("b", 1), ("c", 1)], "a node that is gone"),
        (&[], &two(busy), 3, &[("a", 1), ("b", 1), ("c", 1)], "a busy CPU"),
        (&[], &two(pressed(15.0)), 3, &[("a", 2), ("b", 1)], "pressure that hurts"),
        (&[], &zones, 3, &[("a1", 1), ("b1", 1), ("c1", 1)], "three zones"),
        (&[], &zones, 6, &[("a1", 1), ("a2", 1), ("b1", 1), ("b2", 1), ("c1", 1), ("c2", 1)], "all nodes"),
        (&[("a1", 1)], &zones, 2, &[("b1", 1), ("c1", 1)], "zones before nodes"),
    ] {
        assert_eq!(place_web(placed, nodes, count), named(expected), "{case}");
    }
}

#[test]
fn load_decides_about_the_rest_of_a_large_generation() {
    let nodes = [node("a").pods(0, 1_000).build(), node("b").pods(200, 1_000).build()];
    let placed = place_web(&[], &nodes, 200);
    assert_eq!(placed, named(&[("a", 192), ("b", 8)]));
}

#[test]
fn a_placement_names_the_incarnation_of_the_snapshot() {
    let decisions =
        decide(&snapshot(&[node("a").build()]), NOW, &PlacementPolicy::default(), &[pod(0, 0, 0)]);
    let Outcome::Place(target) = &decisions[0].outcome else { panic!("{decisions:?}") };
    assert_eq!(target.incarnation.as_ref().unwrap().as_str(), "1/a");
}

#[test]
fn a_pod_of_a_global_service_goes_to_its_node_or_nowhere() {
    let nodes =
        [node("a").build(), node("b").pods(109, 110).build(), node("c").with(|n| n.cordoned = true).build()];
    let target = |index, target| PodRequest { target: Some(target), ..pod(index, 0, 0) };
    let only = |index, name: &str| target(index, Target::Only(NodeName::new(name).unwrap()));
    let pods =
        [only(0, "b"), only(1, "b"), only(2, "c"), only(3, "d"), target(4, Target::Nowhere), pod(5, 0, 0)];
    let snapshot = snapshot(&nodes);
    let decisions = decide(&snapshot, NOW, &PlacementPolicy::default(), &pods);
    let told = |outcome: &Outcome| match outcome {
        Outcome::Place(target) => target.name.to_string(),
        Outcome::Unschedulable { refusals } => {
            let told = refusals.iter().map(|refusal| format!("{} {}", refusal.count, refusal.reason));
            told.collect::<Vec<_>>().join(", ")
        }
    };
    let told: Vec<String> = decisions.iter().map(|decision| told(&decision.outcome)).collect();
    let full = "1 TooManyPods, 2 OtherNode";
    assert_eq!(told, ["b", full, "1 Cordoned, 2 OtherNode", "3 OtherNode", "3 OtherNode", "a"]);
    for pod in &pods[2..5] {
        let judged = explain(&snapshot, NOW, &PlacementPolicy::default(), pod);
        let own =
            |judged: &NodeEvaluation| judged.refusals.iter().all(|one| one.reason != Reason::OTHER_NODE);
        let own: Vec<String> = judged.iter().filter(|one| own(one)).map(|one| one.node.to_string()).collect();
        let expected: &[&str] = if pod == &pods[2] { &["c"] } else { &[] };
        assert_eq!(own, expected, "{:?}", pod.target);
    }
    let change = |pod| suggest(&snapshot, NOW, &PlacementPolicy::default(), pod);
    assert_eq!(change(&pods[2]).unwrap(), "`kubeleet uncordon c` lets it run there");
    assert_eq!((change(&pods[3]), change(&pods[4])), (None, None), "no other node is of use");
}

#[test]
fn the_policy_sets_dead_after() {
    let snapshot = snapshot(&[node("a").with(|n| n.beat = NOW - 30_000).build()]);
    for (seconds, fits) in [(29, false), (30, true)] {
        let policy =
            PlacementPolicy { dead_after: Duration::from_secs(seconds), ..PlacementPolicy::default() };
        let decisions = decide(&snapshot, NOW, &policy, &[pod(0, 0, 0)]);
        assert_eq!(node_of(&decisions[0].outcome).is_some(), fits, "{seconds}");
    }
}

#[test]
fn a_cluster_without_nodes_has_its_own_reason() {
    let decisions = decide(&ClusterSnapshot::default(), NOW, &PlacementPolicy::default(), &[pod(0, 0, 0)]);
    let Outcome::Unschedulable { refusals } = &decisions[0].outcome else { panic!("{decisions:?}") };
    assert_eq!((refusals[0].reason.as_str(), refusals.len()), ("NoNodes", 1));
}

#[test]
fn refusals_are_counted_with_few_examples_and_shared_by_a_class() {
    let mut nodes: Vec<_> = (0..30).map(|i| node(&format!("n{i:02}")).cpu(3_000, 4_000).build()).collect();
    nodes[7].cordoned = true;
    let pods: Vec<_> = (0..35).map(|i| pod(i, 1_000, 0)).collect();
    let decisions = decide(&snapshot(&nodes), NOW, &PlacementPolicy::default(), &pods);
    let unschedulable: Vec<_> = decisions
        .iter()
        .filter_map(|decision| match &decision.outcome {
            Outcome::Place(_) => None,
            Outcome::Unschedulable { refusals } => Some(refusals),
        })
        .collect();
    assert_eq!(unschedulable.len(), 6, "29 nodes take one each");
    assert!(unschedulable.iter().all(|refusals| Arc::ptr_eq(refusals, unschedulable[0])));
    let [cpu, cordoned] = &unschedulable[0][..] else { panic!("{unschedulable:?}") };
    assert_eq!(
        (cpu.reason.as_str(), cpu.count, cpu.nodes.len()),
        ("InsufficientCpu", 29, Refusal::MAX_EXAMPLES)
    );
    assert_eq!(cpu.nodes[0].detail, "needs 1 core, 0 of 4 free", "pods of the same batch count");
    assert_eq!((cordoned.reason.as_str(), cordoned.count), ("Cordoned", 1));
    assert_eq!(cordoned.nodes[0].node, "n07");
}

#[test]
fn explain_lists_the_best_node_first_and_refusing_nodes_last() {
    let nodes = [
        node("a").with(|n| n.cordoned = true).build(),
        node("b").pods(20, 110).build(),
        node("c").pods(10, 110).build(),
    ];
    let evaluations = explain(&snapshot(&nodes), NOW, &PlacementPolicy::default(), &pod(0, 0, 0));
    assert_eq!(evaluations.iter().map(|e| e.node.as_str()).collect::<Vec<_>>(), ["c", "b", "a"]);
    assert_eq!(evaluations.iter().map(NodeEvaluation::is_feasible).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(evaluations[2].refusals[0].reason.as_str(), "Cordoned");
    for evaluation in evaluations {
        assert_eq!(evaluation.load, evaluation.terms.iter().map(|term| term.points).sum::<u64>());
    }
}

#[test]
fn a_node_that_reports_no_pressure_counts_as_the_median_of_the_others() {
    let pressed = |name: &str, percent: f32| node(name).psi(|psi| psi.cpu_some = percent).build();
    let external = node("ext").with(|n| (n.kind, n.psi) = (NodeKind::External, None)).build();
    let no_psi = node("old").with(|n| n.psi = None).build();
    for (nodes, expected, case) in [
        (vec![pressed("busy", 80.0), external.clone()], &[("busy", 3), ("ext", 3)][..], "a busy one"),
        (vec![pressed("idle", 0.0), no_psi.clone()], &[("idle", 3), ("old", 3)], "an idle one"),
        (vec![external, no_psi.clone()], &[("ext", 3), ("old", 3)], "none reports"),
        (
            vec![pressed("a", 0.0), pressed("b", 0.0), pressed("c", 90.0), no_psi],
            &[("a", 2), ("b", 2), ("old", 2)],
            "the typical node is idle",
        ),
    ] {
        let expected = expected.iter().map(|(name, count)| (NodeName::new(*name).unwrap(), *count));
        let pods: Vec<_> = (0..6).map(|i| pod(i, 0, 0)).collect();
        assert_eq!(counts(&place(&nodes, &pods)), expected.collect(), "beside {case}");
    }
}
