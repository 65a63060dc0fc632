//! Placement, from `sq` to the queues of the nodes.

use model::ids::PodId;
use model::pod::lifecycle::Phase;
use placement::DecisionRecord;
use store::QueueName;

use super::cluster::{Cluster, defaults, fast_repair, pushed};
use testkit::{eventually, need_redis};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_spread_evenly() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let (a, b, c) =
        (cluster.node("a", 500).await, cluster.node("b", 500).await, cluster.node("c", 500).await);
    let _scheduler = cluster.scheduler();
    cluster.post(r#"{"name":"web","image":"nginx","replicas":900}"#, None).await;
    let counts = eventually("all are placed", async || {
        let counts = cluster.pending_counts(&[&a, &b, &c]).await;
        if counts.iter().sum::<u64>() == 900 { Ok(counts) } else { Err(format!("{counts:?}")) }
    })
    .await;
    assert_eq!(counts, [300, 300, 300]);
    let lengths = cluster.store.queue_lengths().await.unwrap();
    assert_eq!((lengths.waiting, lengths.in_flight, lengths.unschedulable, lengths.dead), (0, 0, 0, 0));
    let used = cluster.store.node(&a.name).await.unwrap().unwrap().used;
    assert_eq!(used.pods, 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_has_just_joined_gets_the_next_pod() {
    need_redis!();
    const ROUNDS: usize = 8;
    // On a busy machine some hints come too late, but rarely most.
    let mut best = 0;
    for _ in 0..3 {
        best = best.max(new_nodes_seen_in_time(ROUNDS).await);
        if best >= ROUNDS - 2 {
            return;
        }
    }
    panic!("only {best} of {ROUNDS} new nodes were seen in time");
}

/// Its hint arrives milliseconds after all nodes were read.
async fn new_nodes_seen_in_time(rounds: usize) -> usize {
    let cluster = Cluster::new(defaults());
    let _scheduler = cluster.scheduler();
    let mut nodes = Vec::new();
    let mut seen = 0;
    for round in 0..rounds {
        let node = cluster.node(&format!("n{round}"), 10).await;
        cluster.post(&format!(r#"{{"name":"s{round}","image":"nginx","replicas":1}}"#), None).await;
        let pod = eventually("the pod is placed", async || {
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
async fn the_decision_about_each_pod_is_kept_and_is_made_again_from_its_facts() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let _nodes = (cluster.node("a", 500).await, cluster.node("b", 500).await, cluster.node("c", 3).await);
    let _scheduler = cluster.scheduler();
    let web = r#"{"name":"web","image":"nginx","replicas":20,"placement":{"max_per_node":9}}"#;
    cluster.post(web, None).await;
    cluster.push("sq", pushed("alone"));
    let ids = eventually("all are placed", async || {
        let mut pods = cluster.pods("web").await;
        pods.extend(cluster.store.pod(&PodId::new("alone").unwrap()).await.unwrap());
        let placed = pods.iter().filter(|pod| pod.node.is_some()).count();
        if placed == 21 { Ok(pods) } else { Err(format!("{placed} are placed")) }
    })
    .await;
    for pod in ids {
        let stored = eventually("the decision is stored", async || {
            let stored = cluster.store.decision_about(&pod.id, pod.created_at).await.unwrap();
            stored.ok_or(format!("none about {}", pod.id))
        })
        .await;
        let decision = DecisionRecord::parse(&stored).unwrap();
        assert_eq!(Some(&decision.node), pod.node.as_ref(), "{}", String::from_utf8_lossy(&stored));
        assert_eq!(decision.replay(), pod.node, "{}", String::from_utf8_lossy(&stored));
    }
    let of_unknown = cluster.store.decision_about(&PodId::new("x").unwrap(), 0).await.unwrap();
    assert_eq!(of_unknown, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_schedulers_place_each_pod_once_and_overcommit_nothing() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let (a, b) = (cluster.node("a", 700).await, cluster.node("b", 700).await);
    let _schedulers = [cluster.scheduler(), cluster.scheduler(), cluster.scheduler()];
    cluster.post(r#"{"name":"web","image":"nginx","replicas":1500}"#, None).await;
    eventually("1,400 fit, 100 do not", async || {
        let counts = cluster.pending_counts(&[&a, &b]).await;
        let lengths = cluster.store.queue_lengths().await.unwrap();
        let is_done = counts == [700, 700] && lengths.unschedulable == 100;
        if is_done { Ok(()) } else { Err(format!("{counts:?} {lengths:?}")) }
    })
    .await;
    let pods = cluster.pods("web").await;
    assert_eq!(pods.iter().filter(|pod| pod.phase == Phase::Assigned).count(), 1400);
    assert_eq!(pods.iter().filter(|pod| pod.phase == Phase::Pending).count(), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_with_a_host_port_go_to_different_nodes_and_the_one_too_many_says_which_pod_has_the_port() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let (a, b) = (cluster.node("a", 10).await, cluster.node("b", 10).await);
    let _schedulers = [cluster.scheduler(), cluster.scheduler()];
    cluster.post(r#"{"name":"web","image":"nginx","replicas":3,"ports":["8080:80"]}"#, None).await;
    let message = eventually("two are placed and one is not", async || {
        let pods = cluster.pods("web").await;
        let counts = cluster.pending_counts(&[&a, &b]).await;
        let waiting = pods.iter().find(|pod| pod.reason == "Unschedulable" && counts == [1, 1]);
        waiting.map(|pod| pod.message.clone()).ok_or(format!("{counts:?} {pods:?}"))
    })
    .await;
    assert_eq!(message, "0/2 nodes are available: 2 HostPortTaken (port 8080/tcp is taken by web)");
    cluster.post(r#"{"name":"dns","image":"nginx","replicas":2,"ports":["53:53/udp"]}"#, None).await;
    eventually("the others are placed", async || {
        let counts = cluster.pending_counts(&[&a, &b]).await;
        if counts == [2, 2] { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    let third = cluster.node("c", 10).await;
    eventually("a new node gets the waiting pod", async || {
        let counts = cluster.pending_counts(&[&third]).await;
        if counts == [1] { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_port_that_no_pod_has_is_free_again_after_a_while() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let a = cluster.node("a", 10).await;
    for port in ["port:8080/tcp", "port:9090/tcp"] {
        let holder = if port.contains("8080") { "- another program" } else { "gone web" };
        let _: u64 = cluster.server.cli(&["HSET", "node:a", port, holder]).await;
    }
    let _scheduler = cluster.scheduler();
    cluster.post(r#"{"name":"web","image":"nginx","replicas":1,"ports":["8080:80","9090:90"]}"#, None).await;
    eventually("the pod is placed", async || {
        let counts = cluster.pending_counts(&[&a]).await;
        if counts == [1] { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unschedulable_pod_has_a_message_and_is_placed_when_resources_are_free() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let _scheduler = cluster.scheduler();
    cluster.post(r#"{"name":"early","image":"nginx","replicas":1}"#, None).await;
    let message = eventually("the message says that there are no nodes", async || {
        let pod = cluster.pods("early").await.remove(0);
        if pod.reason == "Unschedulable" { Ok(pod.message) } else { Err(format!("{pod:?}")) }
    })
    .await;
    assert!(message.contains("has no nodes"), "{message}");

    // Its own backoff must not be over.
    let id = cluster.pods("early").await.remove(0).id;
    let later = cluster.store.redis_now().await.unwrap() + 100_000;
    let _: u64 = cluster.server.cli(&["ZADD", "uq:at", "XX", &later.to_string(), id.as_str()]).await;
    let small = cluster.node("small", 10).await;
    eventually("the new node gets the pod", async || {
        let waiting = cluster.pending_counts(&[&small]).await;
        if waiting == [1] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;

    cluster.post(r#"{"name":"large","image":"nginx","replicas":1,"memory":"2GiB"}"#, None).await;
    let pod = eventually("the message says that the pod is too large", async || {
        let pod = cluster.pods("large").await.remove(0);
        if pod.reason == "Unschedulable" { Ok(pod) } else { Err(format!("{pod:?}")) }
    })
    .await;
    assert_eq!(pod.message, "0/1 nodes are available: 1 InsufficientMemory");
    let refusals = cluster.store.refusals(&pod.id).await.unwrap().unwrap();
    assert_eq!(
        (refusals[0].reason.as_str(), refusals[0].nodes[0].node.as_str()),
        ("InsufficientMemory", "small")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cordoned_node_gets_no_pods_until_it_is_uncordoned() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let node = cluster.node("a", 10).await;
    let _scheduler = cluster.scheduler();
    cluster.push("sq", pushed("before"));
    let waits = async |expected: u64| {
        eventually("the expected number of pods wait on the node", async || {
            let waiting = cluster.pending_counts(&[&node]).await;
            if waiting == [expected] { Ok(()) } else { Err(format!("{waiting:?}")) }
        })
        .await;
    };
    waits(1).await;
    assert!(cluster.store.cordon(&node.name, true).await.unwrap());
    cluster.push("sq", pushed("after"));
    eventually("the node refuses the pod", async || {
        let pod = cluster.store.pod(&PodId::new("after").unwrap()).await.unwrap();
        match pod {
            Some(pod) if pod.message == "0/1 nodes are available: 1 Cordoned" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert!(cluster.store.cordon(&node.name, false).await.unwrap());
    waits(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_pushed_twice_is_placed_once_with_its_payload_unchanged() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let node = cluster.node("a", 10).await;
    let payload =
        r#"{ "replica":3, "uuid":"djkf…","image":"spaster/alpine-sleep", "name":"test", "mine":[1, 2] }"#;
    cluster.push("sq", payload);
    cluster.push("sq", payload);
    let _scheduler = cluster.scheduler();
    eventually("the queue is empty, and one payload is on the node", async || {
        let lengths = cluster.store.queue_lengths().await.unwrap();
        let placed = cluster.queue(QueueName::Pending(node.name.clone())).await;
        let is_done = lengths.waiting + lengths.in_flight == 0 && placed == [payload.as_bytes()];
        if is_done { Ok(()) } else { Err(format!("{lengths:?} {placed:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_in_flight_pods_of_a_killed_scheduler_are_placed_by_another() {
    need_redis!();
    let cluster = Cluster::new(fast_repair());
    let node = cluster.node("a", 100).await;
    for i in 0..40 {
        cluster.push("sq", pushed(&format!("p{i}")));
    }
    let killed = model::ids::SchedulerId::random();
    assert_eq!(cluster.store.take(&killed, 100).await.unwrap().len(), 40);
    let _scheduler = cluster.scheduler();
    eventually("the other scheduler places them", async || {
        let waiting = cluster.pending_counts(&[&node]).await;
        if waiting == [40] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graceful_shutdown_leaves_nothing_in_flight_and_no_scheduler_that_counts_as_alive() {
    need_redis!();
    let cluster = Cluster::new(defaults());
    let (scheduler, other) = (cluster.scheduler(), cluster.scheduler());
    eventually("the scheduler is known", async || {
        let seen = cluster.store.schedulers().await.unwrap();
        if seen.len() == 2 { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    let in_flight = format!("fq:{}", scheduler.id);
    cluster.push(&in_flight, pushed("in-flight"));
    scheduler.stop.cancel();
    let ended = tokio::time::timeout(std::time::Duration::from_secs(10), scheduler.task).await;
    ended.unwrap().unwrap().unwrap();
    // The other scheduler may have it in flight for a moment.
    let left: u64 = cluster.server.blocking_cli(&["LLEN", &in_flight]);
    assert_eq!(left, 0);
    eventually("nothing is in flight", async || {
        let lengths = cluster.store.queue_lengths().await.unwrap();
        if lengths.in_flight == 0 { Ok(()) } else { Err(format!("{lengths:?}")) }
    })
    .await;
    let now = cluster.store.redis_now().await.unwrap();
    let mut seen = cluster.store.schedulers().await.unwrap();
    seen.retain(|(_, at)| now.saturating_sub(*at) < 20_000);
    assert_eq!(seen.into_iter().map(|(id, _)| id).collect::<Vec<_>>(), [other.id]);
}
