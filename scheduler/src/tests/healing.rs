//! Services become what they shall be, whatever was lost (invariants 1 and 2).

use std::time::{Duration, Instant};

use common::ids::ServiceName;
use common::lifecycle::Phase;

use super::cluster::{Cluster, FakeNode, calm, healing};
use super::need_redis;
use super::redis::eventually;

/// Works until the service has just so many pods, all running, all of this generation, and nothing is queued.
async fn runs(cluster: &Cluster, nodes: &[&FakeNode], service: &str, replicas: usize, generation: u64) {
    eventually("the service has its pods", async || {
        for node in nodes {
            node.work().await;
        }
        let pods = cluster.pods(service).await;
        let right = pods.iter().filter(|p| p.phase == Phase::Running && p.generation == generation).count();
        let lengths = cluster.store.queue_lengths().await.unwrap();
        if right == replicas && pods.len() == replicas && lengths.waiting + lengths.in_flight == 0 {
            return Ok(());
        }
        Err(format!("{right} of {} {lengths:?}", pods.len()))
    })
    .await;
}

/// Everything is looked at every 30 s; this one must not wait for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_service_whose_maker_died_is_made_soon() {
    need_redis!("a_new_service_whose_maker_died_is_made_soon");
    let cluster = Cluster::new(calm());
    let node = cluster.node("a", 100).await;
    let _scheduler = cluster.scheduler();
    for name in ["first", "second"] {
        let input = format!(r#"{{"name":"{name}","image":"nginx","replicas":4}}"#);
        let begun = Instant::now();
        cluster.post(&input, Some(1)).await;
        runs(&cluster, &[&node], name, 4, 1).await;
        assert!(begun.elapsed() < Duration::from_secs(15), "{name}: {:?}", begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_makes_scales_replaces_and_deletes() {
    need_redis!("it_makes_scales_replaces_and_deletes");
    let cluster = Cluster::new(healing());
    let (a, b) = (cluster.node("a", 100).await, cluster.node("b", 100).await);
    let nodes = [&a, &b];
    let _schedulers = [cluster.scheduler(), cluster.scheduler()];
    // The API was killed after it had stored the service and made three of ten pods.
    cluster.post(r#"{"name":"web","image":"nginx","replicas":10}"#, Some(3)).await;
    runs(&cluster, &nodes, "web", 10, 1).await;

    let name = ServiceName::new("web").unwrap();
    cluster.store.scale_service(&name, 4).await.unwrap();
    runs(&cluster, &nodes, "web", 4, 1).await;
    let kept: Vec<u32> = cluster.pods("web").await.iter().map(|pod| pod.replica).collect();
    assert_eq!(kept, [0, 1, 2, 3]);

    cluster.post(r#"{"name":"web","image":"nginx:2","replicas":6}"#, Some(0)).await;
    runs(&cluster, &nodes, "web", 6, 2).await;
    assert!(cluster.pods("web").await.iter().all(|pod| pod.image == "nginx:2"));

    cluster.store.delete_service(&name).await.unwrap();
    eventually("it is forgotten", async || {
        for node in &nodes {
            node.work().await;
        }
        match cluster.store.service(&name).await.unwrap() {
            None => Ok(()),
            Some(_) => Err(format!("{} pods", cluster.pods("web").await.len())),
        }
    })
    .await;
    for node in nodes {
        let used = cluster.store.node(&node.name).await.unwrap().unwrap().used;
        assert_eq!(used.pods, 0, "{}", node.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_lost_by_hand_is_healed() {
    need_redis!("what_was_lost_by_hand_is_healed");
    let cluster = Cluster::new(healing());
    // Nobody takes from sq yet.
    cluster.post(r#"{"name":"web","image":"nginx","replicas":5}"#, None).await;
    let payload: Vec<u8> = cluster.server.cli(&["LPOP", "sq"]);
    assert!(!payload.is_empty());
    let node = cluster.node("a", 100).await;
    let _scheduler = cluster.scheduler();
    runs(&cluster, &[&node], "web", 5, 1).await;

    // Out of the container set: put back. A record: its slot is freed and its pod made anew. A slot: made anew.
    let pods = cluster.pods("web").await;
    let member: Vec<u8> = cluster.server.cli(&["SRANDMEMBER", "cs:a"]);
    let _: u64 = cluster.server.cli(&[&b"SREM"[..], b"cs:a", &member[..]]);
    eventually("it is in the set again", async || {
        let found: bool = cluster.server.cli(&[&b"SISMEMBER"[..], b"cs:a", &member[..]]);
        if found { Ok(()) } else { Err("not".into()) }
    })
    .await;
    let _: u64 = cluster.server.cli(&["DEL", &format!("pod:{}", pods[2].id)]);
    let _: u64 = cluster.server.cli(&["HDEL", "slots:web", "4"]);
    runs(&cluster, &[&node], "web", 5, 1).await;
    let after = cluster.pods("web").await;
    assert!(after[2].id != pods[2].id && after[4].id != pods[4].id && after[0].id == pods[0].id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_assigned_pod_that_stands_in_no_queue_is_queued_again() {
    need_redis!("an_assigned_pod_that_stands_in_no_queue_is_queued_again");
    let cluster = Cluster::new(healing());
    let node = cluster.node("a", 100).await;
    let _scheduler = cluster.scheduler();
    cluster.post(r#"{"name":"web","image":"nginx","replicas":3}"#, None).await;
    cluster.push("sq", super::cluster::pushed("mine"));
    eventually("all are placed", async || {
        let waiting = cluster.spread(&[&node]).await;
        if waiting == [4] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
    let _: u64 = cluster.server.cli(&["DEL", "pq:a"]);
    eventually("all are back", async || {
        let waiting = cluster.spread(&[&node]).await;
        if waiting == [4] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
}
