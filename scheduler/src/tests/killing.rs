//! Schedulers that are killed on any line (invariants 1, 2 and 9).

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use common::ids::{PodId, ServiceName};
use common::lifecycle::Phase;
use common::payload::Payload;
use common::store::QueueName;

use super::cluster::{Cluster, FakeNode, healing};
use super::need_redis;
use super::redis::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_schedulers_over_and_over_loses_and_doubles_nothing() {
    need_redis!("killing_schedulers_over_and_over_loses_and_doubles_nothing");
    let cluster = Cluster::new(healing());
    let nodes = [cluster.node("a", 4000).await, cluster.node("b", 4000).await];
    let mut wanted: BTreeMap<String, u32> = BTreeMap::new();
    let mut in_hand = 0;
    for round in 0..60 {
        let schedulers = [cluster.scheduler(), cluster.scheduler()];
        tokio::join!(change_something(&cluster, round, &mut wanted), async {
            if round % 2 == 0 {
                tokio::time::sleep(Duration::from_millis(rand::random_range(0..100))).await;
            } else {
                until_one_has_pods_in_hand(&cluster).await;
            }
            for scheduler in schedulers {
                scheduler.kill().await;
            }
        });
        in_hand += cluster.store.queue_lengths().await.unwrap().in_flight;
        nodes[0].work().await;
        nodes[1].work().await;
    }
    assert!(in_hand > 0, "nothing was in the hands of the killed: no test of anything");
    let _schedulers = [cluster.scheduler(), cluster.scheduler()];
    eventually("everything is as it was asked for", async || {
        for node in &nodes {
            node.work().await;
        }
        at_rest(&cluster, &nodes, &wanted).await
    })
    .await;
}

/// Or until that has taken long enough.
async fn until_one_has_pods_in_hand(cluster: &Cluster) {
    let limit = Instant::now() + Duration::from_millis(200);
    while Instant::now() < limit && cluster.store.queue_lengths().await.unwrap().in_flight == 0 {}
}

/// Something new, something larger or smaller, something replaced, something deleted, of the last few.
async fn change_something(cluster: &Cluster, round: u32, wanted: &mut BTreeMap<String, u32>) {
    let name = format!("s{}", round % 12);
    let service = ServiceName::new(name.clone()).unwrap();
    if round % 5 == 4 {
        cluster.store.delete_service(&service).await.unwrap();
        wanted.insert(name, 0);
    } else if wanted.get(&name) != Some(&0) || cluster.store.service(&service).await.unwrap().is_none() {
        let replicas = rand::random_range(1..300);
        let json = format!(r#"{{"name":"{name}","image":"nginx:{round}","replicas":{replicas}}}"#);
        cluster.post(&json, Some(replicas / 2)).await;
        wanted.insert(name, replicas);
    }
}

/// Exactly the pods that are wanted, each running, each payload in one place, and counted right.
async fn at_rest(
    cluster: &Cluster,
    nodes: &[FakeNode],
    wanted: &BTreeMap<String, u32>,
) -> Result<(), String> {
    let mut expected: HashSet<PodId> = HashSet::new();
    for (name, replicas) in wanted {
        let pods = cluster.pods(name).await;
        let slots: Vec<u32> = pods.iter().map(|pod| pod.replica).collect();
        if slots != (0..*replicas).collect::<Vec<_>>() {
            return Err(format!("{name} has {} pods, not {replicas}", slots.len()));
        }
        if let Some(pod) = pods.iter().find(|pod| pod.phase != Phase::Running) {
            return Err(format!("{pod:?}"));
        }
        expected.extend(pods.into_iter().map(|pod| pod.id));
    }
    let lengths = cluster.store.queue_lengths().await.unwrap();
    if lengths.waiting + lengths.in_flight + lengths.unschedulable + lengths.dead > 0 {
        return Err(format!("{lengths:?}"));
    }
    let mut running = Vec::new();
    for node in nodes {
        let set = cluster.queue(QueueName::Running(node.name.clone())).await;
        let used = cluster.store.node(&node.name).await.unwrap().unwrap().used.pods;
        let queues = cluster.store.node_queues(std::slice::from_ref(&node.name)).await.unwrap()[0];
        if queues.pending + queues.starting > 0 || used != set.len() as u64 {
            return Err(format!("{} counts {used} pods and has {} ({queues:?})", node.name, set.len()));
        }
        running.extend(set.into_iter().map(|raw| Payload::parse(raw.into()).unwrap().id));
    }
    let distinct: HashSet<PodId> = running.iter().cloned().collect();
    if distinct.len() == running.len() && distinct == expected {
        return Ok(());
    }
    Err(format!("{} run, {} different ones, {} are wanted", running.len(), distinct.len(), expected.len()))
}
