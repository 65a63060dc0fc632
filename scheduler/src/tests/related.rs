//! Services that keep away from each other, or run near each other.

use std::collections::{BTreeMap, BTreeSet};

use model::node::Resources;
use model::pod::PodRecord;

use super::cluster::{Cluster, FakeNode, defaults};
use testkit::{eventually, need_redis};

const TRIES: usize = 20;
const PODS: usize = 8;

/// Six nodes in three zones.
async fn nodes(cluster: &Cluster) -> Vec<FakeNode> {
    let capacity = Resources { memory_bytes: 1 << 30, pods: 200, ..Resources::default() };
    let mut nodes = Vec::new();
    for zone in ["a", "b", "c"] {
        for number in [1, 2] {
            nodes.push(cluster.node_in(&format!("{zone}{number}"), Some(zone), capacity).await);
        }
    }
    nodes
}

/// A node, or the zone that its name begins with.
fn places(pods: &[PodRecord], by: &str) -> BTreeSet<String> {
    let place = |pod: &PodRecord| {
        let node = pod.node.as_ref()?.as_str();
        Some(if by == "node" { node } else { &node[..1] }.to_owned())
    };
    pods.iter().filter_map(place).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_schedulers_never_place_services_together_that_keep_away_from_each_other() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let _nodes = nodes(&cluster).await;
    let _schedulers = [cluster.scheduler(), cluster.scheduler()];
    for number in 0..TRIES {
        let by = ["node", "zone"][number % 2];
        let (web, db) = (format!("web{number}"), format!("db{number}"));
        let rule = format!(r#""placement":{{"anti_affinity":[{{"service":"{web}","by":"{by}"}}]}}"#);
        let of_db = format!(r#"{{"name":"{db}","image":"nginx","replicas":0,{rule}}}"#);
        let of_web = format!(r#"{{"name":"{web}","image":"nginx","replicas":0}}"#);
        cluster.post(&of_db, None).await;
        cluster.post(&of_web, None).await;
        // One pod of each at a time, so that each of the schedulers has some.
        for replicas in 1..=PODS {
            let scaled = |text: &str| text.replace(r#""replicas":0"#, &format!(r#""replicas":{replicas}"#));
            let (scaled_web, scaled_db) = (scaled(&of_web), scaled(&of_db));
            tokio::join!(cluster.post(&scaled_web, None), cluster.post(&scaled_db, None));
        }
        let decided = eventually("each pod is placed, or has no place", async || {
            let (of_web, of_db) = (cluster.pods(&web).await, cluster.pods(&db).await);
            let waits = |pod: &&PodRecord| pod.node.is_none() && pod.reason != "Unschedulable";
            let waiting = of_web.iter().chain(&of_db).filter(waits).count();
            let is_complete = of_web.len() == PODS && of_db.len() == PODS && waiting == 0;
            if is_complete { Ok((of_web, of_db)) } else { Err(format!("{waiting} wait")) }
        })
        .await;
        let (of_web, of_db) = (places(&decided.0, by), places(&decided.1, by));
        assert!(!of_web.is_empty() || !of_db.is_empty());
        assert!(of_web.is_disjoint(&of_db), "try {number}, by {by}: {of_web:?} and {of_db:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_waits_for_the_service_that_it_must_be_near_to_and_says_so() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let _nodes = nodes(&cluster).await;
    let _scheduler = cluster.scheduler();
    let web = r#"{"name":"web","image":"nginx","replicas":4,"placement":{"affinity":[{"service":"cache","by":"zone","hard":true}]}}"#;
    cluster.post(web, None).await;
    let message = eventually("it has no place", async || {
        let pod = cluster.pods("web").await.remove(0);
        if pod.reason == "Unschedulable" { Ok(pod.message) } else { Err(format!("{pod:?}")) }
    })
    .await;
    let expected = "0/6 nodes are available: 6 Affinity (the service runs near cache, which has no pods)";
    assert_eq!(message, expected);
    cluster.post(r#"{"name":"cache","image":"nginx","replicas":1}"#, None).await;
    let (of_web, of_cache) = eventually("all are placed", async || {
        let (of_web, of_cache) = (cluster.pods("web").await, cluster.pods("cache").await);
        let placed = of_web.iter().chain(&of_cache).filter(|pod| pod.node.is_some()).count();
        if placed == 5 { Ok((of_web, of_cache)) } else { Err(format!("{placed} are placed")) }
    })
    .await;
    assert_eq!(places(&of_web, "zone"), places(&of_cache, "zone"));
    let by_node: BTreeMap<_, usize> = of_web.iter().fold(BTreeMap::new(), |mut counts, pod| {
        *counts.entry(pod.node.clone()).or_default() += 1;
        counts
    });
    assert_eq!(by_node.into_values().collect::<Vec<_>>(), [2, 2], "on both nodes of the zone");
}
