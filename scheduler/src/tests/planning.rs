//! Plans say what happens: they are made of a cluster in Redis, and the loops of a scheduler are driven then.

use std::collections::{BTreeMap, BTreeSet};

use daemon::control_loop::Loop;
use model::ids::{NodeName, ServiceName};
use model::node::Resources;
use model::pod::lifecycle::Phase;
use model::spec::PlacementProfile;
use pending::{ClusterState, LeavingPod, Place, PlanOutcome, PlannedChange, plan, plan_drain};
use placement::PlacementPolicy;
use testkit::{eventually, need_redis};

use super::cluster::{Cluster, FakeNode, defaults, fast_repair};
use crate::loops::drain::DrainLoop;
use crate::loops::place::PlacementLoop;

/// More with PLANNED_CLUSTERS.
const CLUSTERS: u64 = 150;
const MIB: u64 = 1 << 20;

type Places = BTreeMap<(ServiceName, u32), Option<NodeName>>;

/// A sequence of numbers that a seed determines.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }
}

async fn random_nodes(cluster: &Cluster, numbers: &mut Numbers) -> Vec<FakeNode> {
    let mut nodes = Vec::new();
    for index in 0..2 + numbers.below(5) {
        let zone = ["a", "b", "c"][numbers.below(3) as usize];
        let (memory_bytes, pods) = ((1 + numbers.below(16)) * 64 * MIB, 1 + numbers.below(20));
        let capacity = Resources { memory_bytes, pods, ..Resources::default() };
        nodes.push(cluster.node_in(&format!("w{index}"), Some(zone), capacity).await);
    }
    nodes
}

fn random_service(index: u64, numbers: &mut Numbers) -> String {
    let rules = match numbers.below(7) {
        0 => r#","placement":{"max_per_node":2}"#,
        1 => r#","placement":{"spread":[{"by":"zone","hard":true,"max_skew":2}]}"#,
        2 => r#","placement":{"spread":[{"by":"node.hostname","weight":20}]}"#,
        3 => r#","placement":{"constraints":["zone in (a,b)"]}"#,
        4 => r#","stateful":{"start":"parallel"}"#,
        5 => r#","scheduler":"pack""#,
        _ => "",
    };
    let (replicas, memory) = (1 + numbers.below(12), 16 * (1 + numbers.below(8)));
    format!(r#"{{"name":"s{index}","image":"nginx","replicas":{replicas},"memory":"{memory}MiB"{rules}}}"#)
}

/// Until no pod waits for a scheduler.
async fn schedule(cluster: &Cluster) {
    let mut place = PlacementLoop::new(&cluster.context());
    while cluster.store.waiting_pods().await.unwrap() > 0 {
        place.step().await.unwrap();
    }
}

async fn places(cluster: &Cluster, services: &[ServiceName]) -> Places {
    let mut places = Places::new();
    for service in services {
        let pods = cluster.pods(service.as_str()).await;
        places.extend(pods.into_iter().map(|pod| ((service.clone(), pod.replica), pod.node)));
    }
    places
}

async fn planned(cluster: &Cluster, changes: &[PlannedChange]) -> PlanOutcome {
    let state = ClusterState::read(&cluster.store).await.unwrap().unwrap();
    plan(state, &PlacementPolicy::default(), PlacementProfile::Default, changes).unwrap()
}

fn after(before: &Places, outcome: &PlanOutcome) -> Places {
    let mut after = before.clone();
    let stuck = outcome.stuck.iter().map(|stuck| &stuck.pod);
    for pod in outcome.moves.iter().chain(&outcome.starts).chain(stuck) {
        after.insert((pod.service.clone().unwrap(), pod.replica), pod.to.clone());
    }
    after
}

/// All at once, as if they had been silent.
async fn lose(cluster: &Cluster, nodes: &[&FakeNode]) {
    for node in nodes {
        node.fall_silent();
        let key = format!("node:{}", node.name);
        let _: u64 = cluster.server.blocking_cli(&["HSET", &key, "state", "dead"]);
        let _: u64 = cluster.server.blocking_cli(&["ZREM", "beats", node.name.as_str()]);
    }
    DrainLoop::new(&cluster.context()).step().await.unwrap();
    schedule(cluster).await;
    // Fewer zones may let pods run that waited.
    loop {
        let waiting = cluster.store.queue_lengths().await.unwrap().unschedulable;
        cluster.unpark_all().await;
        schedule(cluster).await;
        if cluster.store.queue_lengths().await.unwrap().unschedulable == waiting {
            return;
        }
    }
}

fn counts(
    places: &Places,
    of: impl Fn(&(ServiceName, u32)) -> bool,
) -> BTreeMap<(ServiceName, Option<NodeName>), u32> {
    let mut counts = BTreeMap::new();
    for (pod, node) in places.iter().filter(|(pod, _)| of(pod)) {
        *counts.entry((pod.0.clone(), node.clone())).or_default() += 1;
    }
    counts
}

async fn a_random_cluster(seed: u64) {
    let numbers = &mut Numbers(seed);
    let cluster = Cluster::new(defaults());
    let nodes = random_nodes(&cluster, numbers).await;
    let mut services = Vec::new();
    for index in 0..1 + numbers.below(4) {
        services.push(cluster.post(&random_service(index, numbers), None).await.name);
    }
    schedule(&cluster).await;
    for node in &nodes {
        node.work_on(numbers.below(10) as usize).await;
    }
    let before = places(&cluster, &services).await;

    let drained = &nodes[numbers.below(nodes.len() as u64) as usize].name;
    let outcome = planned(&cluster, &[PlannedChange::Drain(drained.clone())]).await;
    let (policy, profile) = (PlacementPolicy::default(), PlacementProfile::Default);
    let leaving = plan_drain(&cluster.store, &policy, profile, drained).await.unwrap();
    let to = |pod: &LeavingPod| match &pod.place {
        Place::On(to) => Some((pod.record.id.clone(), to.clone())),
        _ => None,
    };
    let drain: BTreeSet<_> = leaving.iter().filter_map(to).collect();
    let moves: BTreeSet<_> =
        outcome.moves.iter().filter_map(|pod| Some((pod.id.clone()?, pod.to.clone()?))).collect();
    assert_eq!(moves, drain, "seed {seed}: the drain of {drained}");

    let lost: Vec<&FakeNode> = nodes.iter().filter(|_| numbers.below(3) == 0).collect();
    let names = lost.iter().map(|node| node.name.clone()).collect();
    let expected = after(&before, &planned(&cluster, &[PlannedChange::Lose(names)]).await);
    lose(&cluster, &lost).await;
    let found = places(&cluster, &services).await;
    let ran = |pod: &(ServiceName, u32)| before.get(pod).is_some_and(Option::is_some);
    for (pod, node) in expected.iter().filter(|(pod, _)| ran(pod)) {
        assert_eq!(found.get(pod), Some(node), "seed {seed}: {pod:?}");
    }
    // Pods that waited are taken in any order.
    let waited = |pod: &(ServiceName, u32)| !ran(pod);
    assert_eq!(counts(&found, waited), counts(&expected, waited), "seed {seed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_clusters_do_what_was_planned() {
    need_redis!();
    let asked = std::env::var("PLANNED_CLUSTERS").ok().and_then(|count| count.parse().ok());
    for seed in 0..asked.unwrap_or(CLUSTERS) {
        a_random_cluster(seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_of_a_zone_with_300_pods_is_predicted_to_the_pod() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let mut nodes = Vec::new();
    for (zone, index) in ["a", "b", "c"].into_iter().flat_map(|zone| (0..3).map(move |index| (zone, index))) {
        let capacity = Resources { memory_bytes: 64 << 30, pods: 150, ..Resources::default() };
        nodes.push(cluster.node_in(&format!("{zone}{index}"), Some(zone), capacity).await);
    }
    let mut services = Vec::new();
    for index in 0..9 {
        let service =
            format!(r#"{{"name":"s{index}","image":"nginx","replicas":100,"memory":"{}MiB"}}"#, 8 + index);
        services.push(cluster.post(&service, None).await.name);
    }
    schedule(&cluster).await;
    for node in &nodes {
        node.work_on(40).await;
    }
    let before = places(&cluster, &services).await;
    let lost: Vec<&FakeNode> = nodes[..3].iter().collect();
    let names: Vec<NodeName> = lost.iter().map(|node| node.name.clone()).collect();
    let count = before.values().flatten().filter(|node| names.contains(node)).count();
    assert_eq!(count, 300);
    let outcome = planned(&cluster, &[PlannedChange::Lose(names)]).await;
    assert!(outcome.fits());
    assert_eq!(outcome.moves.len(), 300);
    lose(&cluster, &lost).await;
    assert_eq!(places(&cluster, &services).await, after(&before, &outcome));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_of_50_pods_is_carried_out_as_planned() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let (a, b, c) =
        (cluster.node("a", 200).await, cluster.node("b", 200).await, cluster.node("c", 200).await);
    let _scheduler = cluster.scheduler();
    let update = r#""update":{"monitor":0,"parallelism":50}"#;
    let web = format!(r#"{{"name":"web","image":"nginx","replicas":150,{update}}}"#);
    let services = [cluster.post(&web, None).await.name];
    let all_run = async |count: usize| {
        for node in [&a, &b, &c] {
            node.work().await;
        }
        let pods = cluster.pods("web").await;
        let running = pods.iter().filter(|pod| pod.phase == Phase::Running).count();
        let on_a = pods.iter().filter(|pod| pod.node.as_ref() == Some(&a.name)).count();
        let is_done = (running, pods.len(), on_a) == (150, 150, count);
        if is_done { Ok(()) } else { Err(format!("{running} of {} run, {on_a} on a", pods.len())) }
    };
    eventually("all pods run", async || all_run(50).await).await;
    let before = places(&cluster, &services).await;
    let outcome = planned(&cluster, &[PlannedChange::Drain(a.name.clone())]).await;
    assert_eq!((outcome.moves.len(), outcome.fits()), (50, true));
    cluster.store.drain_node(&a.name, None, false).await.unwrap();
    eventually("all have left", async || all_run(0).await).await;
    assert_eq!(places(&cluster, &services).await, after(&before, &outcome));
}
