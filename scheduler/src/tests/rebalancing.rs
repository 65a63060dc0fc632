//! Balancing nodes: a node that joined gets its share while all replicas serve, and a second run moves
//! nothing. The same without being asked; and one pod leaves a node under pressure.

use std::collections::BTreeMap;
use std::time::Duration;

use model::ids::{NodeName, ServiceName};
use model::node::usage::{PodUsage, Usage, UsageReport};
use model::node::{Psi, RebalancePolicy};
use model::service::Service;
use model::spec::PlacementProfile;
use pending::{BegunMove, ClusterState, PlannedChange, begin_moves, plan};
use placement::PlacementPolicy;

use super::cluster::{Cluster, FakeNode, fast_repair};
use super::draining::{places, run_all, running};
use crate::timings::LoopTimings;
use testkit::{eventually, need_redis};

const WEB: &str = r#"{"name":"web","image":"nginx","replicas":12,"update":{"monitor":0,"parallelism":3}}"#;

async fn web(cluster: &Cluster) -> Service {
    cluster.store.service(&ServiceName::new("web").unwrap()).await.unwrap().unwrap()
}

/// Of the service `web`.
async fn moves(cluster: &Cluster) -> Vec<BegunMove> {
    let state = ClusterState::read(&cluster.store).await.unwrap().unwrap();
    let change = [PlannedChange::Rebalance { max_moves: 100 }];
    let outcome = plan(state, &PlacementPolicy::default(), PlacementProfile::Default, &change).unwrap();
    let begun = outcome.moves.into_iter().map(|pod| BegunMove {
        replica: pod.replica,
        pod: pod.id.unwrap(),
        to: pod.to.unwrap(),
    });
    begun.collect()
}

async fn counts(cluster: &Cluster) -> BTreeMap<NodeName, usize> {
    let mut counts = BTreeMap::new();
    places(&cluster.pods("web").await).into_values().for_each(|node| *counts.entry(node).or_default() += 1);
    counts
}

async fn twelve_pods(cluster: &Cluster) -> [FakeNode; 2] {
    let nodes = [cluster.node("a", 100).await, cluster.node("b", 100).await];
    cluster.post(WEB, None).await;
    run_all(cluster, &nodes.each_ref(), "web", 12).await;
    eventually("the service is settled", async || {
        let service = web(cluster).await;
        if service.rollout.is_settled { Ok(()) } else { Err(format!("{:?}", service.rollout)) }
    })
    .await;
    nodes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_joined_gets_its_share_while_all_replicas_serve() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let _scheduler = cluster.scheduler();
    let [a, b] = twelve_pods(&cluster).await;
    assert_eq!(moves(&cluster).await, [], "two nodes share them evenly");
    let c = cluster.node("c", 100).await;
    let begun = moves(&cluster).await;
    assert!(begun.len() == 4 && begun.iter().all(|one| one.to == c.name), "{begun:?}");
    let until = cluster.store.redis_now().await.unwrap() + Duration::from_secs(600).as_millis() as u64;
    let stored = begin_moves(&cluster.store, &web(&cluster).await, begun, Some(until), "a test").await;
    assert_eq!(stored.unwrap(), 4);
    let all: [&FakeNode; 3] = [&a, &b, &c];
    eventually("the pods have moved", async || {
        for node in all {
            node.work().await;
        }
        let pods = cluster.pods("web").await;
        assert!(running(&pods) >= 12, "only {} run", running(&pods));
        let is_over = pods.len() == 12 && web(&cluster).await.moves.is_empty();
        if is_over { Ok(()) } else { Err(format!("{:?}", counts(&cluster).await)) }
    })
    .await;
    assert_eq!(counts(&cluster).await.into_values().collect::<Vec<_>>(), [4, 4, 4]);
    assert_eq!(moves(&cluster).await, [], "a second run moves nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_joined_gets_its_share_without_being_asked() {
    need_redis!();
    let calm_time = Duration::from_millis(600);
    let cluster = Cluster::new(LoopTimings { calm_time, ..fast_repair() });
    let _scheduler = cluster.scheduler_with("joined".parse().unwrap());
    let [a, b] = twelve_pods(&cluster).await;
    let c = cluster.node("c", 100).await;
    eventually("each node has its share", async || {
        for node in [&a, &b, &c] {
            node.work().await;
        }
        assert!(running(&cluster.pods("web").await) >= 12, "all replicas serve");
        let counts: Vec<usize> = counts(&cluster).await.into_values().collect();
        let is_over = counts == [4, 4, 4] && web(&cluster).await.moves.is_empty();
        if is_over { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pod_that_suffers_most_leaves_a_node_under_pressure_and_no_other() {
    need_redis!();
    let (calm_time, pressure_time) = (Duration::from_millis(300), Duration::from_millis(200));
    let cluster = Cluster::new(LoopTimings { calm_time, pressure_time, ..fast_repair() });
    let _scheduler = cluster.scheduler_with(RebalancePolicy { pressure: true, ..Default::default() });
    let [a, b] = twelve_pods(&cluster).await;
    let mut pods = cluster.pods("web").await;
    pods.retain(|pod| pod.node.as_ref() == Some(&a.name));
    let usage = |uuid, cpu_some, cpu_throttled_millis| PodUsage {
        uuid,
        name: "web".to_owned(),
        service: None,
        usage: Usage {
            psi: Some(Psi { cpu_some, ..Psi::default() }),
            cpu_throttled_millis,
            ..Usage::default()
        },
    };
    let limited = usage(pods[0].id.clone(), 90.0, Some(800));
    let report = UsageReport {
        pods: vec![usage(pods[1].id.clone(), 20.0, None), limited, usage(pods[2].id.clone(), 50.0, None)],
        ..UsageReport::default()
    };
    a.wait_for_cpu(60.0);
    b.wait_for_cpu(5.0);
    eventually("one pod has moved", async || {
        for node in [&a, &b] {
            node.work().await;
        }
        cluster.store.write_usage(&a.name, &report).await.unwrap();
        let there = counts(&cluster).await;
        let is_over = there.get(&b.name) == Some(&7) && web(&cluster).await.moves.is_empty();
        if is_over { Ok(()) } else { Err(format!("{there:?}")) }
    })
    .await;
    let left = cluster.pods("web").await;
    let is_there = |id| left.iter().any(|pod| pod.id == id);
    assert_eq!(
        pods.into_iter().map(|pod| is_there(pod.id)).collect::<Vec<_>>(),
        [true, true, false, true, true, true]
    );
}
