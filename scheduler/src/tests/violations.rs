//! Pods leave nodes that no longer satisfy their service's constraints, and a slip with labels moves none.

use std::time::Duration;

use model::ids::{NodeName, ServiceName};
use model::service::Service;

use super::cluster::{Cluster, FakeNode, fast_repair};
use super::draining::{leave, places, run_all};
use testkit::{eventually, need_redis};

const CONSTRAINED: &str = r#"{"name":"web","image":"nginx","replicas":6,"update":{"monitor":0},
    "placement":{"constraints":["zone == a"]}}"#;

async fn relabel(cluster: &Cluster, node: &NodeName, zone: &str) {
    let changes = [("zone".to_owned(), Some(zone.to_owned()))].into();
    cluster.store.label_node(node, &changes).await.unwrap();
}

async fn web(cluster: &Cluster) -> Service {
    cluster.store.service(&ServiceName::new("web").unwrap()).await.unwrap().unwrap()
}

/// Six pods with the constraint `zone == a`, and twelve without.
async fn zones(cluster: &Cluster) -> [FakeNode; 3] {
    let nodes = [cluster.node("a", 100).await, cluster.node("b", 100).await, cluster.node("c", 100).await];
    for node in &nodes {
        relabel(cluster, &node.name, "a").await;
    }
    let all: Vec<&FakeNode> = nodes.iter().collect();
    for (json, name, replicas) in
        [(CONSTRAINED, "web", 6), (r#"{"name":"free","image":"nginx","replicas":12}"#, "free", 12)]
    {
        cluster.post(json, None).await;
        run_all(cluster, &all, name, replicas).await;
    }
    nodes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_leave_a_node_that_was_relabelled_and_all_replicas_serve_meanwhile() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let _scheduler = cluster.scheduler();
    let nodes = zones(&cluster).await;
    let (a, all): (_, Vec<&FakeNode>) = (&nodes[0], nodes.iter().collect());
    let free = places(&cluster.pods("free").await);
    relabel(&cluster, &a.name, "b").await;
    leave(&cluster, &all, ("web", 6), &a.name, 6).await;
    assert_eq!(places(&cluster.pods("free").await), free, "others stay");
    let events = cluster.store.last_events(50).await.unwrap();
    let said = events.iter().find(|event| event.reason == "PodsMoving").unwrap();
    assert!(said.message.ends_with(": a has zone=b, but the service needs zone == a"), "{}", said.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slip_with_the_labels_of_many_moves_none_and_is_said() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let _scheduler = cluster.scheduler();
    let nodes = zones(&cluster).await;
    let before = places(&cluster.pods("web").await);
    for node in &nodes {
        relabel(&cluster, &node.name, "x").await;
    }
    eventually("it is said", async || {
        let held = cluster.store.held_violations().await.unwrap();
        let expected = "6 of 18 pods are on nodes that no longer satisfy the constraints";
        if held.as_ref().is_some_and(|why| why.starts_with(expected)) {
            Ok(())
        } else {
            Err(format!("{held:?}"))
        }
    })
    .await;
    // Longer than a lasting violation takes.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(web(&cluster).await.moves.is_empty());
    assert_eq!(places(&cluster.pods("web").await), before);
    for node in &nodes {
        relabel(&cluster, &node.name, "a").await;
    }
    eventually("it is over", async || {
        let held = cluster.store.held_violations().await.unwrap();
        if held.is_none() { Ok(()) } else { Err(format!("{held:?}")) }
    })
    .await;
    assert_eq!(places(&cluster.pods("web").await), before);
    let events = cluster.store.last_events(50).await.unwrap();
    assert_eq!(events.iter().filter(|event| event.reason == "ViolationsHeld").count(), 1);
}
