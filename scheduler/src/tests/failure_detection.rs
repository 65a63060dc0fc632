//! Nodes that fall silent (invariants 4 and 16), and the mass-loss circuit breaker.

use std::time::{Duration, Instant};

use model::ids::NodeName;
use model::node::NodeState;
use model::pod::lifecycle::Phase;

use super::cluster::{Cluster, FakeNode, Scheduler, fast_failure_detection, pushed};
use testkit::{eventually, need_redis};

async fn state(cluster: &Cluster, node: &FakeNode) -> NodeState {
    cluster.store.node(&node.name).await.unwrap().unwrap().state
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_schedulers_move_the_pods_of_a_dead_node_once() {
    need_redis!();
    let cluster = Cluster::new(fast_failure_detection());
    let doomed = cluster.node("doomed", 2000).await;
    let _schedulers = [cluster.scheduler(), cluster.scheduler()];
    cluster.post(r#"{"name":"web","image":"nginx","replicas":1000}"#, None).await;
    eventually("all are on the first node", async || {
        let waiting = cluster.pending_counts(&[&doomed]).await;
        if waiting == [1000] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
    // With pods in all three of its queues.
    doomed.work_on(400).await;
    doomed.session().pop_more(300).await.unwrap();
    let names = [doomed.name.clone()];
    let queues = cluster.store.node_queues(&names).await.unwrap().0[0];
    assert_eq!((queues.running, queues.starting, queues.pending), (400, 300, 300));
    let survivor = cluster.node("survivor", 2000).await;
    let name = doomed.name.clone();
    drop(doomed);
    eventually("the node is declared dead", async || {
        let node = cluster.store.node(&name).await.unwrap().unwrap();
        if node.state == NodeState::Dead { Ok(()) } else { Err(format!("{node:?}")) }
    })
    .await;
    let declared = Instant::now();
    eventually("all have moved", async || {
        let waiting = cluster.pending_counts(&[&survivor]).await;
        if waiting == [1000] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
    assert!(declared.elapsed() < Duration::from_secs(5), "{:?}", declared.elapsed());
    let lengths = cluster.store.queue_lengths().await.unwrap();
    assert_eq!((lengths.waiting, lengths.in_flight, lengths.dead, lengths.unschedulable), (0, 0, 0, 0));
    let pods = cluster.pods("web").await;
    assert!(pods.iter().all(|pod| pod.phase == Phase::Assigned && pod.node.as_ref() == Some(&survivor.name)));
    let dead = cluster.store.node(&name).await.unwrap().unwrap();
    assert_eq!((dead.used.pods, cluster.pending_counts(&[&survivor]).await), (0, vec![1000]));

    cluster.push(&format!("pq:{name}"), pushed("late"));
    eventually("the late pod moves too", async || {
        let waiting = cluster.pending_counts(&[&survivor]).await;
        if waiting == [1001] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_proxy_of_a_node_that_has_been_dead_for_long_is_forgotten() {
    need_redis!();
    let cluster = Cluster::new(fast_failure_detection());
    let (node, lives) = (cluster.node("w1", 10).await, cluster.node("w2", 10).await);
    let names = [node.name.clone(), lives.name.clone()];
    cluster.store.announce_proxy(&names, "10.0.0.1:7079 ab").await.unwrap();
    let _scheduler = cluster.scheduler();
    let known = async || {
        let proxies = cluster.store.proxies().await.unwrap();
        proxies.into_iter().map(|(name, _)| name.to_string()).collect::<std::collections::BTreeSet<_>>()
    };
    node.fall_silent();
    death_of(&cluster, &node.name).await;
    assert_eq!(known().await.len(), 2, "it may come back");
    let an_hour_ago = cluster.store.redis_now().await.unwrap() - 3_600_000;
    let () = cluster.server.cli(&["HSET", "node:w1", "beat", &an_hour_ago.to_string()]).await;
    eventually("only the proxy of the node that lives is known", async || {
        let known = known().await;
        if known.iter().eq(["w2"]) { Ok(()) } else { Err(format!("{known:?}")) }
    })
    .await;
    let () = cluster.server.cli(&["CONFIG", "RESETSTAT"]).await;
    cluster.store.forget_proxies(&names[..1]).await.unwrap();
    let calls: String = cluster.server.cli(&["INFO", "commandstats"]).await;
    assert!(!calls.contains("cmdstat_hdel:"), "what is forgotten is not deleted again: {calls}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mass_loss_moves_no_pods_until_nodes_are_cordoned() {
    need_redis!();
    let cluster = Cluster::new(fast_failure_detection());
    let mut nodes = Vec::new();
    for i in 0..6 {
        nodes.push(cluster.node(&format!("n{i}"), 10).await);
    }
    let (_scheduler, _other) = (cluster.scheduler(), cluster.scheduler());
    let lost: Vec<FakeNode> = nodes.drain(..4).collect();
    lost.iter().for_each(FakeNode::fall_silent);
    tokio::time::sleep(Duration::from_secs(6)).await;
    for node in &lost {
        assert_eq!(state(&cluster, node).await, NodeState::Alive);
    }
    assert!(cluster.store.cordon(&lost[0].name, true).await.unwrap());
    eventually("the cordoned node is dead", async || match state(&cluster, &lost[0]).await {
        NodeState::Dead => Ok(()),
        NodeState::Alive => Err("alive"),
    })
    .await;
    assert_eq!(state(&cluster, &lost[1]).await, NodeState::Alive);

    // The one that does not is no longer a mass loss.
    let (_a, _b) = (cluster.node("n2", 10).await, cluster.node("n3", 10).await);
    eventually("the last silent node is dead", async || match state(&cluster, &lost[1]).await {
        NodeState::Dead => Ok(()),
        NodeState::Alive => Err("alive"),
    })
    .await;
    eventually("each of the two schedulers saw it, and one told it", async || {
        let told = [told(&cluster, "MassLoss").await, told(&cluster, "MassLossEnded").await];
        if told == [1, 1] { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
}

async fn told(cluster: &Cluster, reason: &str) -> usize {
    let events = cluster.store.last_events(1000).await.unwrap();
    events.iter().filter(|event| event.reason == reason).count()
}

/// The new clock is an hour behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_node_whose_last_heartbeat_lies_in_the_future_is_declared_dead() {
    need_redis!();
    let cluster = Cluster::new(fast_failure_detection());
    let doomed = cluster.node("doomed", 100).await;
    let name = doomed.name.clone();
    drop(doomed);
    let ahead = (cluster.store.redis_now().await.unwrap() + 3_600_000).to_string();
    let () = cluster.server.cli(&["HSET", "node:doomed", "beat", &ahead]).await;
    let () = cluster.server.cli(&["ZADD", "beats", &ahead, "doomed"]).await;
    let _scheduler = cluster.scheduler();
    eventually("the node is declared dead", async || {
        let node = cluster.store.node(&name).await.unwrap().unwrap();
        if node.state == NodeState::Dead { Ok(()) } else { Err(format!("{node:?}")) }
    })
    .await;
}

async fn death_of(cluster: &Cluster, name: &NodeName) -> u64 {
    let key = format!("node:{name}");
    eventually("the node is declared dead", async || {
        let died_at: Option<u64> = cluster.server.cli(&["HGET", &key, "dead_at"]).await;
        died_at.ok_or("alive")
    })
    .await
}

async fn wait_for_silence(cluster: &Cluster, name: &NodeName, silence: Duration) {
    // Unanswered writes delay the reads of its connection.
    let store = cluster.server.store();
    eventually("the node is silent", async || {
        let beat = store.node(name).await.unwrap().unwrap().beat;
        let silent = store.redis_now().await.unwrap() - beat;
        if silent > silence.as_millis() as u64 { Ok(()) } else { Err(silent) }
    })
    .await;
}

async fn the_scheduler_writes(cluster: &Cluster, scheduler: &Scheduler) {
    eventually("the scheduler writes", async || {
        let found = cluster.store.scheduler_timings(std::slice::from_ref(&scheduler.id)).await.unwrap();
        found[0].ok_or("it has not yet")
    })
    .await;
}

async fn no_node_dies_because_of(outage: &str, begin: &[&str], end: &[&str]) {
    let timings = fast_failure_detection();
    let cluster = Cluster::new(timings.clone());
    let node = cluster.node("w1", 10).await;
    let scheduler = cluster.scheduler();
    the_scheduler_writes(&cluster, &scheduler).await;
    let () = cluster.server.cli(begin).await;
    // A busy machine may have delayed the last heartbeat: the outage itself must be long.
    tokio::time::sleep(timings.max_write_gap * 2).await;
    wait_for_silence(&cluster, &node.name, timings.dead_after + Duration::from_secs(1)).await;
    // The scheduler decides when it dies.
    node.fall_silent();
    let ended_at = cluster.server.store().redis_now().await.unwrap();
    let () = cluster.server.cli(end).await;
    let died_after = death_of(&cluster, &node.name).await - ended_at;
    assert!(died_after >= timings.dead_after.as_millis() as u64, "{outage}: after {died_after} ms");
    assert_eq!(told(&cluster, "WritesResumed").await, 1, "{outage}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_of_writes_every_silence_counts_anew() {
    need_redis!();
    tokio::join!(
        no_node_dies_because_of(
            "NOREPLICAS",
            &["CONFIG", "SET", "min-replicas-to-write", "1"],
            &["CONFIG", "SET", "min-replicas-to-write", "0"],
        ),
        no_node_dies_because_of(
            "NOPERM",
            &["ACL", "SETUSER", "default", "-@write"],
            &["ACL", "SETUSER", "default", "+@all"],
        ),
        no_node_dies_because_of("a pause", &["CLIENT", "PAUSE", "600000", "WRITE"], &["CLIENT", "UNPAUSE"]),
    );
}

/// A worker holds meanwhile, and the scheduler's writes succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_node_dies_for_a_silence_while_the_scheduler_wrote_to_another_database() {
    need_redis!();
    let timings = fast_failure_detection();
    let cluster = Cluster::new(timings.clone());
    let node = cluster.node("w1", 10).await;
    let scheduler = cluster.scheduler();
    the_scheduler_writes(&cluster, &scheduler).await;
    node.fall_silent();
    let () = cluster.server.cli(&["SWAPDB", "0", "1"]).await;
    let swapped_at = cluster.store.redis_now().await.unwrap();
    the_scheduler_writes(&cluster, &scheduler).await;
    eventually("the node is silent for too long", async || {
        let silent = cluster.store.redis_now().await.unwrap() - swapped_at;
        if silent > timings.dead_after.as_millis() as u64 + 1_000 { Ok(()) } else { Err(silent) }
    })
    .await;
    let taken_back_at = cluster.store.redis_now().await.unwrap();
    let () = cluster.server.cli(&["SWAPDB", "0", "1"]).await;
    let died_after = death_of(&cluster, &node.name).await - taken_back_at;
    assert!(died_after >= timings.dead_after.as_millis() as u64, "after {died_after} ms");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduler_that_has_just_started_declares_no_node_dead_for_an_earlier_silence() {
    need_redis!();
    let timings = fast_failure_detection();
    let cluster = Cluster::new(timings.clone());
    let node = cluster.node("w1", 10).await;
    node.fall_silent();
    wait_for_silence(&cluster, &node.name, timings.dead_after + Duration::from_secs(1)).await;
    let started_at = cluster.store.redis_now().await.unwrap();
    let _scheduler = cluster.scheduler();
    let died_after = death_of(&cluster, &node.name).await - started_at;
    assert!(died_after >= timings.dead_after.as_millis() as u64, "after {died_after} ms");
}

async fn every_silence_counts_anew_when_the_first_of(count: usize) {
    let timings = fast_failure_detection();
    let cluster = Cluster::new(timings.clone());
    let mut nodes = Vec::new();
    for i in 0..count {
        nodes.push(cluster.node(&format!("n{i}"), 10).await);
    }
    let _scheduler = cluster.scheduler();
    nodes.iter().for_each(FakeNode::fall_silent);
    wait_for_silence(&cluster, &nodes[0].name, timings.dead_after * 2).await;
    for node in &nodes {
        assert_eq!(state(&cluster, node).await, NodeState::Alive, "{count} nodes");
    }
    let returned_at = cluster.store.redis_now().await.unwrap();
    let _first = cluster.node("n0", 10).await;
    let died_after = death_of(&cluster, &nodes[1].name).await - returned_at;
    assert!(died_after >= timings.dead_after.as_millis() as u64, "{count} nodes: after {died_after} ms");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_first_node_returns_from_a_mass_loss_the_others_get_as_much_time_again() {
    need_redis!();
    tokio::join!(
        every_silence_counts_anew_when_the_first_of(2),
        every_silence_counts_anew_when_the_first_of(3)
    );
}
