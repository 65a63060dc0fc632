//! Properties of placement, on small clusters with everything that can be wrong with a node.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use common::ids::NodeName;
use common::node::{Node, NodeKind, NodeState, Psi};
use proptest::prelude::*;

use super::testing::{NOW, node, pod};
use super::*;

fn snapshot(nodes: &[Node]) -> Snapshot {
    snapshot_by(Weights::default(), nodes)
}

fn snapshot_by(weights: Weights, nodes: &[Node]) -> Snapshot {
    let mut snapshot = Snapshot::new(weights);
    nodes.iter().for_each(|node| snapshot.upsert(node.clone()));
    snapshot
}

fn run(nodes: &[Node], pods: &[PodRequest]) -> Vec<Option<NodeName>> {
    run_by(&Policy::default(), nodes, pods)
}

fn run_by(policy: &Policy, nodes: &[Node], pods: &[PodRequest]) -> Vec<Option<NodeName>> {
    let decisions = decide(&snapshot_by(policy.weights, nodes), NOW, policy, pods);
    assert!(decisions.iter().enumerate().all(|(i, decision)| decision.pod == i));
    decisions.into_iter().map(|decision| placed(&decision.outcome)).collect()
}

fn placed(outcome: &Outcome) -> Option<NodeName> {
    match outcome {
        Outcome::Place(target) => Some(target.name.clone()),
        Outcome::Unschedulable { .. } => None,
    }
}

/// How many pods each node got.
fn counts(placements: &[Option<NodeName>]) -> BTreeMap<NodeName, usize> {
    let mut counts = BTreeMap::new();
    placements.iter().flatten().for_each(|name| *counts.entry(name.clone()).or_default() += 1);
    counts
}

/// Whether a node can take a pod, written down once more from the contract and without the filters.
fn can_take(node: &Node, pod: &PodRequest) -> bool {
    let (used, has, needs) = (&node.used, &node.facts.capacity, &pod.request);
    node.state == NodeState::Alive
        && node.beat + 20_000 >= NOW
        && !node.cordoned
        && node.engine_problem.is_none()
        && used.pods < has.pods
        && (needs.cpu_millis == 0 || used.cpu_millis + needs.cpu_millis <= has.cpu_millis)
        && (needs.memory_bytes == 0 || used.memory_bytes + needs.memory_bytes <= has.memory_bytes)
        && (node.kind == NodeKind::Kubeleet || pod.needs_only_an_image)
}

/// Placement as simple as it can be: for each pod, look at all nodes.
fn reference(policy: &Policy, nodes: &[Node], pods: &[PodRequest]) -> Vec<Option<NodeName>> {
    let mut nodes = nodes.to_vec();
    let load = |n: &Node| score::explain(n, policy).iter().map(|c| c.points).sum::<u64>();
    pods.iter()
        .map(|pod| {
            let fitting = nodes.iter_mut().filter(|node| can_take(node, pod));
            let best = fitting.min_by_key(|node| (load(node), node.name.clone()))?;
            best.used.pods += 1;
            best.used.cpu_millis += pod.request.cpu_millis;
            best.used.memory_bytes += pod.request.memory_bytes;
            Some(best.name.clone())
        })
        .collect()
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
    /// Mostly well, small enough to be filled; amounts in small units, so that they often just fit.
    fn any_node()(
        used in (0..8u64, 0..8u64, 0..8u64),
        has in (0..8u64, 0..8u64, 0..8u64),
        age in prop_oneof![4 => 0..20_000u64, 1 => 19_999..20_003u64, 1 => 20_000..90_000u64],
        ills in (prop::bool::weighted(0.1), prop::bool::weighted(0.1), prop::bool::weighted(0.1)),
        guest in prop::bool::weighted(0.2),
        psi in any_psi(),
    ) -> Node {
        let mut node = node("x").pods(used.0, has.0).cpu(used.1, has.1).memory(used.2, has.2).build();
        (node.beat, node.cordoned, node.psi) = (NOW - age, ills.0, psi);
        node.state = if ills.1 { NodeState::Dead } else { NodeState::Alive };
        node.engine_problem = ills.2.then(|| "ill".to_owned());
        node.kind = if guest { NodeKind::Guest } else { NodeKind::Kubeleet };
        node
    }
}

/// The usual ones, and the extremes: nothing counts, and everything counts as much as it can.
fn any_weights() -> impl Strategy<Value = Weights> {
    let all = |weight| Weights {
        pod_share: weight,
        pod_count: weight,
        cpu_some: weight,
        memory_some: weight,
        memory_full: weight,
        io_some: weight,
        io_full: weight,
        pressure_step: weight,
    };
    prop_oneof![2 => Just(Weights::default()), 1 => Just(all(0)), 1 => Just(all(u32::MAX)), 1 => (0..5u32).prop_map(all)]
}

fn any_nodes() -> impl Strategy<Value = Vec<Node>> {
    prop::collection::vec(any_node(), 0..12).prop_map(|mut nodes| {
        let name = |i| NodeName::new(format!("n{i}")).unwrap();
        nodes.iter_mut().enumerate().for_each(|(i, node)| node.name = name(i));
        nodes
    })
}

fn any_pods() -> impl Strategy<Value = Vec<PodRequest>> {
    let asks = (0..3u64, 0..3u64, any::<bool>());
    prop::collection::vec(asks, 0..40).prop_map(|pods| {
        let pods = pods.into_iter().enumerate();
        pods.map(|(i, (cpu, memory, only_an_image))| PodRequest {
            needs_only_an_image: only_an_image,
            ..pod(i, cpu, memory)
        })
        .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The order that is kept, the pool and the classes choose what looking at everything would choose. With
    /// `reference` as it is, this says too: never on a node that can not take the pod, never more than fits, and
    /// unschedulable exactly when no node takes the pod at that moment.
    #[test]
    fn the_choice_is_that_of_a_full_scan(nodes in any_nodes(), pods in any_pods(), weights in any_weights()) {
        let policy = Policy { weights, ..Policy::default() };
        prop_assert_eq!(run_by(&policy, &nodes, &pods), reference(&policy, &nodes, &pods));
    }

    #[test]
    fn nothing_is_overcommitted(nodes in any_nodes(), pods in any_pods()) {
        let mut used: HashMap<_, _> = nodes.iter().map(|n| (n.name.clone(), (n, n.used))).collect();
        for (pod, name) in pods.iter().zip(run(&nodes, &pods)) {
            let Some(name) = name else { continue };
            let (node, used) = used.get_mut(&name).unwrap();
            candidate::add(used, &pod.request);
            let has = node.facts.capacity;
            prop_assert!(used.pods <= has.pods);
            prop_assert!(pod.request.cpu_millis == 0 || used.cpu_millis <= has.cpu_millis);
            prop_assert!(pod.request.memory_bytes == 0 || used.memory_bytes <= has.memory_bytes);
        }
    }

    #[test]
    fn deciding_twice_gives_the_same(nodes in any_nodes(), pods in any_pods()) {
        let mut shuffled = nodes.clone();
        shuffled.reverse();
        let once = decide(&snapshot(&nodes), NOW, &Policy::default(), &pods);
        prop_assert_eq!(&once, &decide(&snapshot(&nodes), NOW, &Policy::default(), &pods));
        prop_assert_eq!(&once, &decide(&snapshot(&shuffled), NOW, &Policy::default(), &pods));
    }

    /// Placing pods in one batch or one by one, each committed, is the same.
    #[test]
    fn a_batch_is_its_pods_one_by_one(nodes in any_nodes(), pods in any_pods()) {
        let mut snapshot = snapshot(&nodes);
        let mut one_by_one = Vec::new();
        for pod in &pods {
            let decision = decide(&snapshot, NOW, &Policy::default(), std::slice::from_ref(pod)).remove(0);
            let name = placed(&decision.outcome);
            let verdicts = explain(&snapshot, NOW, &Policy::default(), pod);
            let best = verdicts.iter().find(|v| v.fits()).map(|v| v.node.clone());
            prop_assert_eq!(&best, &name, "explain tells where decide places");
            name.iter().for_each(|name| assert!(snapshot.commit(name, pod.request)));
            one_by_one.push(name);
        }
        prop_assert_eq!(one_by_one, run(&nodes, &pods));
    }

    /// Weights other than those the snapshot is ordered by change nothing but the speed.
    #[test]
    fn the_policy_decides_not_the_snapshot(nodes in any_nodes(), pods in any_pods()) {
        let other = snapshot_by(Weights { pod_count: 0, cpu_some: 90_000, ..Weights::default() }, &nodes);
        let policy = Policy::default();
        let decisions = decide(&other, NOW, &policy, &pods);
        prop_assert_eq!(decisions, decide(&snapshot(&nodes), NOW, &policy, &pods));
    }

    #[test]
    fn every_node_says_why_it_refuses(nodes in any_nodes(), pods in any_pods()) {
        for decision in decide(&snapshot(&nodes), NOW, &Policy::default(), &pods) {
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
    fn equal_idle_nodes_fill_evenly(nodes in 1..20usize, pods in 0..200usize, noise in prop::collection::vec(0.0..4.9f32, 20)) {
        let nodes: Vec<_> = (0..nodes).map(|i| node(&format!("n{i}")).psi(|p| p.memory_full = noise[i]).build()).collect();
        let pods: Vec<_> = (0..pods).map(|i| pod(i, 0, 0)).collect();
        let counts = counts(&run(&nodes, &pods));
        let most = counts.values().max().copied().unwrap_or(0);
        let least = nodes.iter().map(|n| counts.get(&n.name).copied().unwrap_or(0)).min().unwrap();
        prop_assert!(most - least <= 1, "{counts:?}");
    }

    /// For pods that all ask for the same, a node gets no more of them when its pressure is higher.
    #[test]
    fn pressure_never_attracts(nodes in any_nodes(), pods in 1..40usize, which in any::<prop::sample::Index>(), more in any_psi()) {
        prop_assume!(!nodes.is_empty());
        let pods: Vec<_> = (0..pods).map(|i| pod(i, 1, 1)).collect();
        let which = which.index(nodes.len());
        let mut pressed = nodes.clone();
        let (old, more) = (nodes[which].psi.unwrap_or_default(), more.unwrap_or_default());
        pressed[which].psi = Some(Psi {
            cpu_some: old.cpu_some + more.cpu_some,
            memory_some: old.memory_some + more.memory_some,
            memory_full: old.memory_full + more.memory_full,
            io_some: old.io_some + more.io_some,
            io_full: old.io_full + more.io_full,
        });
        let got = |nodes: &[Node]| counts(&run(nodes, &pods)).get(&nodes[which].name).copied().unwrap_or(0);
        prop_assert!(got(&pressed) <= got(&nodes));
    }
}

#[test]
fn pressure_sends_pods_elsewhere() {
    let nodes = [node("a").psi(|p| p.memory_full = 60.0).build(), node("b").pods(50, 110).build()];
    let pods: Vec<_> = (0..10).map(|i| pod(i, 0, 0)).collect();
    assert!(run(&nodes, &pods).iter().flatten().all(|name| name.as_str() == "b"));
}

#[test]
fn a_placement_names_the_life_that_was_looked_at() {
    let decisions = decide(&snapshot(&[node("a").build()]), NOW, &Policy::default(), &[pod(0, 0, 0)]);
    let Outcome::Place(target) = &decisions[0].outcome else { panic!("{decisions:?}") };
    assert_eq!(target.incarnation.as_ref().unwrap().as_str(), "1/a");
}

#[test]
fn dead_after_is_the_policys() {
    let snapshot = snapshot(&[node("a").with(|n| n.beat = NOW - 30_000).build()]);
    for (seconds, fits) in [(29, false), (30, true)] {
        let policy = Policy { dead_after: Duration::from_secs(seconds), ..Policy::default() };
        let decisions = decide(&snapshot, NOW, &policy, &[pod(0, 0, 0)]);
        assert_eq!(placed(&decisions[0].outcome).is_some(), fits, "{seconds}");
    }
}

#[test]
fn no_nodes_is_a_reason_too() {
    let decisions = decide(&Snapshot::default(), NOW, &Policy::default(), &[pod(0, 0, 0)]);
    let Outcome::Unschedulable { refusals } = &decisions[0].outcome else { panic!("{decisions:?}") };
    assert_eq!((refusals[0].reason.as_str(), refusals.len()), ("NoNodes", 1));
}

#[test]
fn refusals_are_counted_but_few_are_named_and_all_share_them() {
    let mut nodes: Vec<_> = (0..30).map(|i| node(&format!("n{i:02}")).cpu(3_000, 4_000).build()).collect();
    nodes[7].cordoned = true;
    let pods: Vec<_> = (0..35).map(|i| pod(i, 1_000, 0)).collect();
    let decisions = decide(&snapshot(&nodes), NOW, &Policy::default(), &pods);
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
    assert_eq!(cpu.nodes[0].detail, "needs 1 core, 0 of 4 free", "what the batch has placed counts");
    assert_eq!((cordoned.reason.as_str(), cordoned.count), ("Cordoned", 1));
    assert_eq!(cordoned.nodes[0].node, "n07");
}

#[test]
fn explain_shows_the_best_first_and_the_refusing_last() {
    let nodes = [
        node("a").with(|n| n.cordoned = true).build(),
        node("b").pods(20, 110).build(),
        node("c").pods(10, 110).build(),
    ];
    let verdicts = explain(&snapshot(&nodes), NOW, &Policy::default(), &pod(0, 0, 0));
    assert_eq!(verdicts.iter().map(|v| v.node.as_str()).collect::<Vec<_>>(), ["c", "b", "a"]);
    assert_eq!(verdicts.iter().map(NodeVerdict::fits).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(verdicts[2].refusals[0].reason, Reason::Cordoned);
    for verdict in verdicts {
        assert_eq!(verdict.load, verdict.terms.iter().map(|term| term.points).sum::<u64>());
    }
}
