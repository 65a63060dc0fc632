//! Balancing nodes: a node that joined gets its share while all replicas serve, and a second run moves
//! nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use model::ids::{NodeName, ServiceName};
use model::service::Service;
use model::spec::PlacementProfile;
use pending::{BegunMove, ClusterState, PlannedChange, begin_moves, plan};
use placement::PlacementPolicy;

use super::cluster::{Cluster, FakeNode, fast_repair};
use super::draining::{places, run_all, running};
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_joined_gets_its_share_while_all_replicas_serve() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let _scheduler = cluster.scheduler();
    let (a, b) = (cluster.node("a", 100).await, cluster.node("b", 100).await);
    cluster.post(WEB, None).await;
    run_all(&cluster, &[&a, &b], "web", 12).await;
    eventually("the service is settled", async || {
        let service = web(&cluster).await;
        if service.rollout.is_settled { Ok(()) } else { Err(format!("{:?}", service.rollout)) }
    })
    .await;
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
