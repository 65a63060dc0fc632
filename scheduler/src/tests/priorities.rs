//! Priorities of services.

use model::pod::lifecycle::Phase;

use super::cluster::{Cluster, defaults};
use testkit::{eventually, need_redis};

fn service(name: &str, replicas: u32, more: &str) -> String {
    format!(r#"{{"name":"{name}","image":"nginx","replicas":{replicas}{more}}}"#)
}

async fn assigned(cluster: &Cluster, services: &[&str]) -> Vec<usize> {
    let mut counts = Vec::new();
    for service in services {
        let pods = cluster.pods(service).await;
        counts.push(pods.iter().filter(|pod| pod.phase == Phase::Assigned).count());
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_a_higher_priority_are_placed_first_although_they_are_behind_in_the_queue() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let _nodes = (cluster.node("a", 3).await, cluster.node("b", 3).await);
    let services = ["low", "web", "cron", "high"];
    for (name, more) in [
        ("low", r#","priority":-5"#),
        ("web", ""),
        ("cron", r#","priority":"1""#),
        ("high", r#","priority":1000"#),
    ] {
        cluster.post(&service(name, 2, more), None).await;
    }
    let _scheduler = cluster.scheduler();
    eventually("six fit", async || {
        let lengths = cluster.store.queue_lengths().await.unwrap();
        let counts = assigned(&cluster, &services).await;
        if lengths.unschedulable == 2 { Ok(counts) } else { Err(format!("{lengths:?} {counts:?}")) }
    })
    .await;
    assert_eq!(assigned(&cluster, &services).await, [0, 2, 2, 2]);
    let lengths = cluster.store.queue_lengths().await.unwrap();
    assert_eq!((lengths.waiting, lengths.in_flight, lengths.dead), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_long_enough_comes_first() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let _node = cluster.node("a", 1).await;
    for (name, more) in [("high", r#","priority":20"#), ("old", "")] {
        cluster.post(&service(name, 1, more), None).await;
    }
    let old = cluster.pods("old").await.remove(0);
    let since = (old.since - 30_000).to_string();
    let key = format!("pod:{}", old.id);
    let _kept: u64 = cluster.server.blocking_cli(&["HSET", &key, "since", &since]);
    let _scheduler = cluster.scheduler();
    eventually("one fits", async || {
        let counts = assigned(&cluster, &["high", "old"]).await;
        if counts.iter().sum::<usize>() == 1 { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    assert_eq!(assigned(&cluster, &["high", "old"]).await, [0, 1]);
}
