//! Scenarios of nodes that die, and of nodes that only seemed to.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use kubeleet_tests::docker::{Docker, IMAGE};
use kubeleet_tests::exclusive::exclusive;
use kubeleet_tests::wait::that;
use kubeleet_tests::{Cluster, Timing, eventually};
use serde_json::json;

const SOON: Duration = Duration::from_secs(20);

/// How many pods of a service run on this node, as Redis has it.
async fn on(cluster: &Cluster, short: &str) -> usize {
    cluster.redis.cli(&["SCARD", &format!("cs:{}", cluster.node(short))]).await
}

/// With the timings that people get who set nothing: heartbeat 5 s, dead after 20 s.
#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_killed_worker_run_elsewhere_two_seconds_after_its_death() {
    let _alone = exclusive("heavy").await;
    let cluster = Cluster::new(Timing::Default).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let mut doomed = cluster.small_worker("w1", "process", 8);
    let _other = cluster.small_worker("w2", "process", 8);
    let http = api.http();
    http.nodes_ready(2).await;
    let service = json!({"name": "web", "image": "none", "command": ["sleep", "86400"], "replicas": 6});
    http.post("/service", &service).await;
    http.runs(SOON, "web", 6).await;
    assert_eq!((on(&cluster, "w1").await, on(&cluster, "w2").await), (3, 3));
    doomed.kill();
    let killed = Instant::now();
    http.runs(Duration::from_secs(40), "web", 6).await;
    eventually(Duration::from_secs(40), "all run on the other node", || async {
        that(on(&cluster, "w2").await == 6, || "not yet".to_owned())
    })
    .await;
    http.runs(SOON, "web", 6).await;
    let took = killed.elapsed();
    // The last beat may have come up to 5 s before the kill; then 20 s of silence and 2 s to move.
    assert!((Duration::from_secs(14)..Duration::from_secs(23)).contains(&took), "{took:?}");
    // What the dead worker left running is stopped when it comes back, and nothing else is.
    assert_eq!(cluster.processes.running().len(), 9, "its pods outlive a killed worker");
    doomed.start_again();
    cluster
        .comes_to_rest(Duration::from_secs(30), &["w1", "w2"], || async { cluster.processes.running() })
        .await;
    assert_eq!(on(&cluster, "w2").await, 6, "nothing moves back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zombie_that_returns_stops_what_is_not_its_own_any_more() {
    let _alone = exclusive("heavy").await;
    let cluster = Cluster::new(Timing::Short).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let zombie = cluster.small_worker("w1", "docker", 8);
    let _other = cluster.small_worker("w2", "docker", 8);
    let http = api.http();
    http.nodes_ready(2).await;
    http.post("/service", &json!({"name": "web", "image": IMAGE, "replicas": 4})).await;
    http.runs(SOON, "web", 4).await;
    zombie.freeze();
    eventually(Duration::from_secs(12), "its pods move", || async {
        that(on(&cluster, "w2").await == 4, || "not yet".to_owned())
    })
    .await;
    let copies = docker.running().await.len();
    assert_eq!(copies, 6, "two stale copies run while it can be told nothing: on_disconnect is keep");
    zombie.thaw();
    cluster.comes_to_rest(SOON, &["w1", "w2"], || docker.running()).await;
    assert_eq!(docker.running().await.len(), 4);
    assert_eq!(on(&cluster, "w2").await, 4, "what moved stays");
    // And it takes new pods again.
    http.post("/service/web/scale", &json!({"replicas": 8})).await;
    http.runs(SOON, "web", 8).await;
    assert_eq!(on(&cluster, "w1").await, 4);
    cluster.comes_to_rest(SOON, &["w1", "w2"], || docker.running()).await;
}

/// Invariant 5, from outside: with `on_disconnect: stop` no second copy starts while the first one runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_must_not_run_twice_is_stopped_at_the_fence_before_it_starts_elsewhere() {
    let _alone = exclusive("heavy").await;
    let cluster = Cluster::new(Timing::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let (first, _second) = (cluster.worker("w1", "process"), cluster.worker("w2", "process"));
    let http = api.http();
    http.nodes_ready(2).await;
    let service = json!({
        "name": "db", "image": "none", "command": ["sleep", "86400"], "replicas": 4,
        "on_disconnect": "stop", "stop_grace_period": "0s",
    });
    http.post("/service", &service).await;
    http.runs(SOON, "db", 4).await;
    // Redis is cut off from all: every worker fences itself, and nobody can declare anybody dead.
    cluster.redis.freeze();
    eventually(Duration::from_secs(10), "all are stopped at the fence", || async {
        let left = cluster.processes.running();
        that(left.is_empty(), || format!("{left:?}\n{}", first.log()))
    })
    .await;
    cluster.redis.thaw();
    let most = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    cluster
        .comes_to_rest(Duration::from_secs(40), &["w1", "w2"], || async {
            let running = cluster.processes.running();
            let mut pods: Vec<_> = running.iter().map(|one| &one.pod).collect();
            pods.sort_unstable();
            let twice = pods.windows(2).filter(|pair| pair[0] == pair[1]).count();
            most.fetch_max(twice, std::sync::atomic::Ordering::Relaxed);
            running
        })
        .await;
    assert_eq!(most.load(std::sync::atomic::Ordering::Relaxed), 0, "pods that ran twice at a time");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_may_run_on_do_so_while_redis_is_away_and_keep_their_processes() {
    let _alone = exclusive("heavy").await;
    let cluster = Cluster::new(Timing::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _workers = ["w1", "w2"].map(|short| cluster.worker(short, "process"));
    let http = api.http();
    http.nodes_ready(2).await;
    http.post(
        "/service",
        &json!({"name": "web", "image": "none", "command": ["sleep", "86400"], "replicas": 4}),
    )
    .await;
    http.runs(SOON, "web", 4).await;
    let mut before = cluster.processes.leaders();
    cluster.redis.freeze();
    // Longer than the fence and the death of a node.
    tokio::time::sleep(Timing::Short.dead_after() * 2).await;
    let mut during = cluster.processes.leaders();
    cluster.redis.thaw();
    cluster
        .comes_to_rest(Duration::from_secs(30), &["w1", "w2"], || async { cluster.processes.running() })
        .await;
    let mut after = cluster.processes.leaders();
    for leaders in [&mut before, &mut during, &mut after] {
        leaders.sort_unstable();
    }
    assert_eq!(before, during, "they run on");
    // Whoever beats first after the thaw may see the other as silent; at most one node per gap is given up.
    let kept = after.iter().filter(|leader| before.contains(leader)).count();
    assert!(kept >= 2, "of {before:?} only {kept} are the same in {after:?}");
}

/// A node that is asked to end orderly leaves its pods running and finds them again.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_worker_finds_its_pods_and_restarts_none() {
    let _alone = exclusive("heavy").await;
    let cluster = Cluster::new(Timing::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let mut worker = cluster.worker("w1", "process");
    let http = api.http();
    http.nodes_ready(1).await;
    http.post(
        "/service",
        &json!({"name": "web", "image": "none", "command": ["sleep", "86400"], "replicas": 5}),
    )
    .await;
    http.runs(SOON, "web", 5).await;
    let mut before = cluster.processes.leaders();
    let status = worker.terminate();
    assert!(status.is_some_and(|status| status.success()), "it ends orderly: {status:?}\n{}", worker.log());
    worker.start_again();
    worker.kill();
    worker.start_again();
    cluster.comes_to_rest(SOON, &["w1"], || async { cluster.processes.running() }).await;
    let mut after = cluster.processes.leaders();
    before.sort_unstable();
    after.sort_unstable();
    assert_eq!(before, after, "the same processes");
}
