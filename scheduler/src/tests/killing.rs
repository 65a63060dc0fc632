//! Schedulers that are killed at any instruction (invariants 1, 2 and 9).

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use model::ids::{PodId, ServiceName};
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use store::QueueName;

use super::cluster::{Cluster, FakeNode, fast_repair};
use testkit::{eventually, need_redis};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_schedulers_repeatedly_loses_and_duplicates_no_pod() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let nodes = [cluster.node("a", 4000).await, cluster.node("b", 4000).await];
    let mut desired: BTreeMap<String, u32> = BTreeMap::new();
    let mut in_flight = 0;
    for round in 0..60 {
        let schedulers = [cluster.scheduler(), cluster.scheduler()];
        tokio::join!(change_a_service(&cluster, round, &mut desired), async {
            if round % 2 == 0 {
                tokio::time::sleep(Duration::from_millis(rand::random_range(0..100))).await;
            } else {
                until_pods_are_in_flight(&cluster).await;
            }
            for scheduler in schedulers {
                scheduler.kill().await;
            }
        });
        in_flight += cluster.store.queue_lengths().await.unwrap().in_flight;
        nodes[0].work().await;
        nodes[1].work().await;
    }
    assert!(in_flight > 0, "no scheduler was killed with pods in flight: the test is void");
    let _schedulers = [cluster.scheduler(), cluster.scheduler()];
    eventually("the cluster converges", async || {
        for node in &nodes {
            node.work().await;
        }
        check_converged(&cluster, &nodes, &desired).await
    })
    .await;
}

async fn until_pods_are_in_flight(cluster: &Cluster) {
    let limit = Instant::now() + Duration::from_millis(200);
    while Instant::now() < limit && cluster.store.queue_lengths().await.unwrap().in_flight == 0 {}
}

async fn change_a_service(cluster: &Cluster, round: u32, desired: &mut BTreeMap<String, u32>) {
    let name = format!("s{}", round % 12);
    let service = ServiceName::new(name.clone()).unwrap();
    if round % 5 == 4 {
        cluster.store.delete_service(&service).await.unwrap();
        desired.insert(name, 0);
    } else if desired.get(&name) != Some(&0) || cluster.store.service(&service).await.unwrap().is_none() {
        let replicas = rand::random_range(1..300);
        let json = format!(r#"{{"name":"{name}","image":"nginx:{round}","replicas":{replicas}}}"#);
        cluster.post(&json, Some(replicas / 2)).await;
        desired.insert(name, replicas);
    }
}

async fn check_converged(
    cluster: &Cluster,
    nodes: &[FakeNode],
    desired: &BTreeMap<String, u32>,
) -> Result<(), String> {
    let mut expected: HashSet<PodId> = HashSet::new();
    for (name, replicas) in desired {
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
        let queues = cluster.store.node_queues(std::slice::from_ref(&node.name)).await.unwrap().0[0];
        if queues.pending + queues.starting > 0 || used != set.len() as u64 {
            return Err(format!("{} counts {used} pods and has {} ({queues:?})", node.name, set.len()));
        }
        running.extend(set.into_iter().map(|raw| Payload::parse(raw.into()).unwrap().id));
    }
    let distinct: HashSet<PodId> = running.iter().cloned().collect();
    if distinct.len() == running.len() && distinct == expected {
        return Ok(());
    }
    Err(format!("{} pods run, {} distinct, {} are desired", running.len(), distinct.len(), expected.len()))
}
