//! Properties of rebalancing: it ends, a second run finds nothing, and each pod could be placed where it
//! goes.

use super::*;
use crate::explain::Evaluator;
use crate::rebalance::{Relocation, RunningPod, rebalance};

/// Pods on nodes, as they may have come by failures and hand: also where they would not go today.
fn running(nodes: &[Node], pods: Vec<PodRequest>, places: &[usize]) -> (ClusterSnapshot, Vec<RunningPod>) {
    let mut placed = PlacedPods::default();
    let mut nodes = nodes.to_vec();
    let mut running = Vec::new();
    let drawn = drawn(&pods);
    for (request, place) in pods.into_iter().zip(places) {
        let Some(generation) = request.generation.clone().filter(|_| !nodes.is_empty()) else { continue };
        let index = place % nodes.len();
        let node = &mut nodes[index];
        node.used = node.used.saturating_add(request.requirements.resources());
        placed.generations.entry(generation.clone()).or_default();
        placed.services.entry(generation.service.clone()).or_default();
        placed.add(&node.name, &generation);
        if !drawn.contains(&generation.service) {
            running.push(RunningPod { request, node: node.name.clone() });
        }
    }
    let mut snapshot = snapshot(&nodes);
    snapshot.set_placed(placed);
    (snapshot, running)
}

/// Services near others or softly away from them, and those that these name: their pods are not balanced.
fn drawn(pods: &[PodRequest]) -> BTreeSet<ServiceName> {
    let mut drawn = BTreeSet::new();
    for pod in pods {
        let rules = pod.requirements.rules.iter().flat_map(|rules| &rules.relations);
        let drawing = rules.filter(|rule| !rule.hard || rule.kind == RelationKind::Near);
        let services = pod.generation.iter().map(|generation| generation.service.clone());
        drawn.extend(drawing.flat_map(|rule| services.clone().chain([rule.service.clone()])));
    }
    drawn
}

fn carried_out(
    snapshot: &ClusterSnapshot,
    pods: &[RunningPod],
    moves: &[Relocation],
) -> (ClusterSnapshot, Vec<RunningPod>) {
    let (mut snapshot, mut pods) = (snapshot.clone(), pods.to_vec());
    for one in moves {
        let RunningPod { request, node } = &mut pods[one.pod];
        let generation = request.generation.clone().unwrap();
        snapshot.release(node, request.requirements.resources());
        snapshot.release_placed(node, &generation);
        *node = one.to.clone();
        snapshot.commit(node, request.requirements.resources());
        snapshot.commit_placed(node, &generation);
    }
    (snapshot, pods)
}

fn plan(snapshot: &ClusterSnapshot, pods: &[RunningPod], max: usize) -> Vec<Relocation> {
    rebalance(snapshot, NOW, &PlacementPolicy::default(), pods, max)
}

/// With the pod taken out.
fn could_be_placed(snapshot: &ClusterSnapshot, pod: &RunningPod) -> bool {
    let mut without = snapshot.clone();
    without.release(&pod.node, pod.request.requirements.resources());
    pod.request.generation.iter().for_each(|generation| without.release_placed(&pod.node, generation));
    let policy = PlacementPolicy::default();
    let evaluator = Evaluator::new(&without, NOW, &policy, &pod.request);
    evaluator.evaluate(without.entry(&pod.node).unwrap()).is_feasible()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn rebalancing_ends_and_a_second_run_moves_nothing(
        nodes in any_nodes(),
        pods in any_pods(),
        places in prop::collection::vec(0..12usize, 40),
        max in prop_oneof![2 => Just(usize::MAX), 1 => 0..4usize],
    ) {
        let (mut snapshot, mut pods) = running(&nodes, pods, &places);
        for _ in 0..200 {
            let moves = plan(&snapshot, &pods, max);
            prop_assert!(moves.len() <= max);
            let is_last = moves.is_empty() || max == usize::MAX;
            (snapshot, pods) = carried_out(&snapshot, &pods, &moves);
            for one in &moves {
                prop_assert!(could_be_placed(&snapshot, &pods[one.pod]), "{:?}", one);
            }
            if is_last {
                break;
            }
        }
        prop_assert_eq!(plan(&snapshot, &pods, max), []);
    }
}

fn alike(service: &str, id: usize, node: &str) -> RunningPod {
    let request = PodRequest { generation: Some(generation(service, "a")), ..pod(id, 0, 0) };
    RunningPod { request, node: NodeName::new(node).unwrap() }
}

fn counts_after(snapshot: &ClusterSnapshot, pods: &[RunningPod]) -> (usize, Vec<u64>) {
    let moves = plan(snapshot, pods, usize::MAX);
    let (after, _) = carried_out(snapshot, pods, &moves);
    (moves.len(), after.nodes().map(|node| node.used.pods).collect())
}

#[test]
fn a_new_node_gets_its_share_with_the_fewest_moves() {
    let empty: Vec<Node> = ["w1", "w2", "w3"].map(|name| node(name).pods(0, 100).build()).into();
    // A service of two, so that siblings decide nothing.
    let pods: Vec<PodRequest> = (0..30)
        .map(|id| PodRequest { generation: Some(generation(&format!("s{id}"), "a")), ..pod(id, 0, 0) })
        .collect();
    let (snapshot, pods) = running(&empty, pods, &[0, 1].repeat(15));
    assert_eq!(counts_after(&snapshot, &pods), (10, vec![10, 10, 10]));
    let best = plan(&snapshot, &pods, 4);
    assert_eq!(best.len(), 4);
    assert!(best.iter().all(|one| one.to.as_str() == "w3"));
}

#[test]
fn replicas_that_met_on_one_node_part_again() {
    let mut nodes: Vec<Node> = ["w1", "w2", "w3"].map(|name| node(name).pods(0, 100).build()).into();
    nodes[1].cordoned = true;
    let three: Vec<PodRequest> = (0..3).map(|id| alike("web", id, "w1").request).collect();
    let (snapshot, pods) = running(&nodes, three.clone(), &[0, 0, 0]);
    assert_eq!(counts_after(&snapshot, &pods), (1, vec![2, 0, 1]), "a cordoned node gets none");
    nodes[1].cordoned = false;
    let (snapshot, pods) = running(&nodes, three, &[0, 0, 0]);
    assert_eq!(counts_after(&snapshot, &pods), (2, vec![1, 1, 1]));
}

#[test]
fn a_small_difference_is_worth_no_move() {
    for (first, second, slots, moved) in
        [(11, 10, 100, 0), (12, 10, 100, 1), (15, 10, 1000, 0), (16, 10, 1000, 0), (17, 10, 1000, 1)]
    {
        let nodes: Vec<Node> = ["w1", "w2"].map(|name| node(name).pods(0, slots).build()).into();
        let pods: Vec<PodRequest> = (0..first + second)
            .map(|id| PodRequest { generation: Some(generation(&format!("s{id}"), "a")), ..pod(id, 0, 0) })
            .collect();
        let places: Vec<usize> = (0..first + second).map(|id| usize::from(id >= first)).collect();
        let (snapshot, pods) = running(&nodes, pods, &places);
        let found = counts_after(&snapshot, &pods).0;
        assert_eq!(found, moved, "{first} {second} of {slots}");
    }
}
