//! Ordinals of stateful services: their order and their zones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::ids::NodeName;
use model::pod::lifecycle::Phase;
use testkit::{eventually, need_redis};

use super::cluster::{Cluster, FakeNode, defaults, fast_repair};

const DEAD_AFTER: Duration = Duration::from_secs(20);

/// Named after their zones.
async fn in_zones(cluster: &Cluster, names: &[&str]) -> Vec<FakeNode> {
    let mut nodes = Vec::new();
    for name in names {
        let node = cluster.node(name, 100).await;
        let labels = [("zone".to_owned(), Some(name[..1].to_owned()))].into();
        cluster.store.label_node(&node.name, &labels).await.unwrap();
        // New volumes wait for the reports of all nodes.
        let first = node.session().report_volumes(&[], None, DEAD_AFTER).await.unwrap().unwrap();
        node.session().report_volumes(&[], Some(&first.redis_run), DEAD_AFTER).await.unwrap().unwrap();
        nodes.push(node);
    }
    nodes
}

async fn node_of(cluster: &Cluster, service: &str) -> BTreeMap<u32, NodeName> {
    let pods = cluster.pods(service).await;
    pods.into_iter().filter_map(|pod| Some((pod.replica, pod.node?))).collect()
}

fn zones(node_of: &BTreeMap<u32, NodeName>) -> Vec<&str> {
    node_of.values().map(|node| &node.as_str()[..1]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordinals_of_two_schedulers_are_in_different_zones() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let _nodes = in_zones(&cluster, &["a1", "a2", "b1", "b2", "c1", "c2"]).await;
    let _schedulers = [cluster.scheduler(), cluster.scheduler()];
    for number in 0..8 {
        let service = format!("db{number}");
        let input =
            format!(r#"{{"name":"{service}","image":"a","replicas":6,"stateful":{{"start":"parallel"}}}}"#);
        cluster.post(&input, None).await;
        let placed = eventually("all are placed", async || {
            let placed = node_of(&cluster, &service).await;
            if placed.len() == 6 { Ok(placed) } else { Err(format!("{placed:?}")) }
        })
        .await;
        for block in zones(&placed).chunks(3) {
            assert_eq!(block.iter().collect::<BTreeSet<_>>().len(), 3, "{placed:?}");
        }
    }
}

/// Returns the ordinals with a pod, and whether all of these run.
async fn work(cluster: &Cluster, nodes: &[FakeNode]) -> (Vec<u32>, Vec<Phase>) {
    for node in nodes {
        node.work().await;
    }
    cluster.pods("db").await.into_iter().map(|pod| (pod.replica, pod.phase)).unzip()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordinals_start_and_stop_one_by_one_and_return_to_their_data() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let nodes = in_zones(&cluster, &["a", "b", "c"]).await;
    let _scheduler = cluster.scheduler();
    let input = r#"{"name":"db","image":"a","replicas":4,"stateful":true,"volumes":["data:/data"]}"#;
    let service = cluster.post(input, Some(1)).await;
    assert_eq!(service.first_replicas(), [0]);
    let scaled_to = async |replicas: u32| {
        eventually("the ordinals start and stop one by one", async || {
            let (ordinals, phases) = work(&cluster, &nodes).await;
            assert_eq!(ordinals, (0..ordinals.len() as u32).collect::<Vec<_>>(), "none is left out");
            let running = phases.iter().filter(|phase| **phase == Phase::Running).count();
            assert!(running + 1 >= phases.len(), "one at a time: {phases:?}");
            let is_done = phases.len() == replicas as usize && running == phases.len();
            if is_done { Ok(()) } else { Err(format!("{ordinals:?} {phases:?}")) }
        })
        .await;
    };
    scaled_to(4).await;
    let before = node_of(&cluster, "db").await;
    assert_eq!(zones(&before), ["a", "b", "c", "a"]);
    for replicas in [1, 4] {
        cluster.store.scale_service(&service.name, replicas).await.unwrap();
        scaled_to(replicas).await;
    }
    assert_eq!(node_of(&cluster, "db").await, before);
}
