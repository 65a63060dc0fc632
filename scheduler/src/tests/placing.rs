//! From `sq` to the nodes.

use common::ids::PodId;
use common::lifecycle::Phase;
use common::store::QueueName;

use super::cluster::{Cluster, calm, healing, pushed};
use super::need_redis;
use super::redis::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_spread_evenly() {
    need_redis!("a_service_is_spread_evenly");
    let cluster = Cluster::new(calm());
    let (a, b, c) =
        (cluster.node("a", 500).await, cluster.node("b", 500).await, cluster.node("c", 500).await);
    let _scheduler = cluster.scheduler();
    cluster.post(r#"{"name":"web","image":"nginx","replicas":900}"#, None).await;
    let spread = eventually("all are placed", async || {
        let spread = cluster.spread(&[&a, &b, &c]).await;
        if spread.iter().sum::<u64>() == 900 { Ok(spread) } else { Err(format!("{spread:?}")) }
    })
    .await;
    assert_eq!(spread, [300, 300, 300]);
    let lengths = cluster.store.queue_lengths().await.unwrap();
    assert_eq!((lengths.waiting, lengths.in_flight, lengths.unschedulable, lengths.dead), (0, 0, 0, 0));
    let used = cluster.store.node(&a.name).await.unwrap().unwrap().used;
    assert_eq!(used.pods, 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_joined_a_moment_ago_is_not_overlooked() {
    need_redis!("a_node_that_joined_a_moment_ago_is_not_overlooked");
    const ROUNDS: usize = 8;
    // A hint travels on a connection of its own: on a busy machine one or the other comes too late, seldom most of them.
    let mut best = 0;
    for _ in 0..3 {
        best = best.max(new_nodes_seen_in_time(ROUNDS).await);
        if best >= ROUNDS - 2 {
            return;
        }
    }
    panic!("only {best} of {ROUNDS} new nodes were seen in time");
}

/// Each new node is the emptiest: the pod that is posted right after it belongs there. The hint that tells of it comes
/// while the scheduler's last look at all nodes is only milliseconds old.
async fn new_nodes_seen_in_time(rounds: usize) -> usize {
    let cluster = Cluster::new(calm());
    let _scheduler = cluster.scheduler();
    let mut nodes = Vec::new();
    let mut seen = 0;
    for round in 0..rounds {
        let node = cluster.node(&format!("n{round}"), 10).await;
        cluster.post(&format!(r#"{{"name":"s{round}","image":"nginx","replicas":1}}"#), None).await;
        let pod = eventually("it is placed", async || {
            let pod = cluster.pods(&format!("s{round}")).await.remove(0);
            if pod.phase == Phase::Assigned { Ok(pod) } else { Err(format!("{pod:?}")) }
        })
        .await;
        seen += usize::from(pod.node.as_ref() == Some(&node.name));
        nodes.push(node);
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_schedulers_place_each_pod_once_and_overcommit_nothing() {
    need_redis!("many_schedulers_place_each_pod_once_and_overcommit_nothing");
    let cluster = Cluster::new(calm());
    let (a, b) = (cluster.node("a", 700).await, cluster.node("b", 700).await);
    let _schedulers = [cluster.scheduler(), cluster.scheduler(), cluster.scheduler()];
    cluster.post(r#"{"name":"web","image":"nginx","replicas":1500}"#, None).await;
    eventually("1,400 fit, 100 do not", async || {
        let spread = cluster.spread(&[&a, &b]).await;
        let lengths = cluster.store.queue_lengths().await.unwrap();
        let right = spread == [700, 700] && lengths.unschedulable == 100;
        if right { Ok(()) } else { Err(format!("{spread:?} {lengths:?}")) }
    })
    .await;
    let pods = cluster.pods("web").await;
    assert_eq!(pods.iter().filter(|pod| pod.phase == Phase::Assigned).count(), 1400);
    assert_eq!(pods.iter().filter(|pod| pod.phase == Phase::Pending).count(), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fits_nowhere_says_why_and_is_placed_as_soon_as_there_is_room() {
    need_redis!("what_fits_nowhere_says_why_and_is_placed_as_soon_as_there_is_room");
    let cluster = Cluster::new(calm());
    let _scheduler = cluster.scheduler();
    cluster.post(r#"{"name":"early","image":"nginx","replicas":1}"#, None).await;
    let message = eventually("it is recorded that there is no node", async || {
        let pod = cluster.pods("early").await.remove(0);
        if pod.reason == "Unschedulable" { Ok(pod.message) } else { Err(format!("{pod:?}")) }
    })
    .await;
    assert!(message.contains("there is none"), "{message}");

    // Its own wait is not what places it.
    let id = cluster.pods("early").await.remove(0).id;
    let in_a_while = cluster.store.redis_now().await.unwrap() + 100_000;
    let _: u64 = cluster.server.cli(&["ZADD", "uq:at", "XX", &in_a_while.to_string(), id.as_str()]);
    let small = cluster.node("small", 10).await;
    eventually("the new node gets it", async || {
        let waiting = cluster.spread(&[&small]).await;
        if waiting == [1] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;

    cluster.post(r#"{"name":"large","image":"nginx","replicas":1,"memory":"2GiB"}"#, None).await;
    let pod = eventually("it is recorded that it is too large", async || {
        let pod = cluster.pods("large").await.remove(0);
        if pod.reason == "Unschedulable" { Ok(pod) } else { Err(format!("{pod:?}")) }
    })
    .await;
    assert_eq!(pod.message, "0/1 nodes take it: 1 InsufficientMemory");
    let refusals = cluster.store.refusals(&pod.id).await.unwrap().unwrap();
    assert_eq!(
        (refusals[0].reason.as_str(), refusals[0].nodes[0].node.as_str()),
        ("InsufficientMemory", "small")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cordon_is_heeded_and_lifting_it_places_what_waited() {
    need_redis!("a_cordon_is_heeded_and_lifting_it_places_what_waited");
    let cluster = Cluster::new(calm());
    let node = cluster.node("a", 10).await;
    let _scheduler = cluster.scheduler();
    cluster.push("sq", pushed("before"));
    let waits = async |expected: u64| {
        eventually("so many wait on the node", async || {
            let waiting = cluster.spread(&[&node]).await;
            if waiting == [expected] { Ok(()) } else { Err(format!("{waiting:?}")) }
        })
        .await;
    };
    waits(1).await;
    assert!(cluster.store.cordon(&node.name, true).await.unwrap());
    cluster.push("sq", pushed("after"));
    eventually("it is refused", async || {
        let pod = cluster.store.pod(&PodId::new("after").unwrap()).await.unwrap();
        match pod {
            Some(pod) if pod.message == "0/1 nodes take it: 1 Cordoned" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert!(cluster.store.cordon(&node.name, false).await.unwrap());
    waits(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_pushed_twice_is_one_and_its_payload_stays_as_it_is() {
    need_redis!("a_pod_pushed_twice_is_one_and_its_payload_stays_as_it_is");
    let cluster = Cluster::new(calm());
    let node = cluster.node("a", 10).await;
    let payload =
        r#"{ "replica":3, "uuid":"djkf…","image":"spaster/alpine-sleep", "name":"test", "mine":[1, 2] }"#;
    cluster.push("sq", payload);
    cluster.push("sq", payload);
    let _scheduler = cluster.scheduler();
    eventually("the queue is empty, and one of them on the node", async || {
        let lengths = cluster.store.queue_lengths().await.unwrap();
        let placed = cluster.queue(QueueName::Pending(node.name.clone())).await;
        let is_so = lengths.waiting + lengths.in_flight == 0 && placed == [payload.as_bytes()];
        if is_so { Ok(()) } else { Err(format!("{lengths:?} {placed:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_scheduler_had_in_hand_is_placed_by_another() {
    need_redis!("what_a_killed_scheduler_had_in_hand_is_placed_by_another");
    let cluster = Cluster::new(healing());
    let node = cluster.node("a", 100).await;
    for i in 0..40 {
        cluster.push("sq", pushed(&format!("p{i}")));
    }
    // One that took all and was never heard of again.
    let killed = common::ids::SchedulerId::random();
    assert_eq!(cluster.store.take(&killed, 100).await.unwrap().len(), 40);
    let _scheduler = cluster.scheduler();
    eventually("another one places them", async || {
        let waiting = cluster.spread(&[&node]).await;
        if waiting == [40] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orderly_end_leaves_nothing_in_hand() {
    need_redis!("an_orderly_end_leaves_nothing_in_hand");
    let cluster = Cluster::new(calm());
    let scheduler = cluster.scheduler();
    eventually("it lives", async || {
        let seen = cluster.store.schedulers().await.unwrap();
        if seen.iter().any(|(id, _)| *id == scheduler.id) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    // As if it had just taken this.
    cluster.push(&format!("fq:{}", scheduler.id), pushed("in-hand"));
    scheduler.stop.cancel();
    let ended = tokio::time::timeout(std::time::Duration::from_secs(10), scheduler.task).await;
    ended.unwrap().unwrap().unwrap();
    let lengths = cluster.store.queue_lengths().await.unwrap();
    assert_eq!(lengths.in_flight, 0, "{lengths:?}");
}
