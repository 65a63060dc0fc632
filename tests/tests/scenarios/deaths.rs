//! Nodes that die or seem to.

use std::time::{Duration, Instant};

use kubeleet_tests::docker::{Docker, IMAGE};
use kubeleet_tests::exclusive::{alone, beside_others};
use kubeleet_tests::{Cluster, ClusterTiming};
use serde_json::json;
use testkit::eventually::{check, eventually_within};

use crate::{SOON, sleeper};

async fn pods_on(cluster: &Cluster, short: &str) -> usize {
    cluster.redis.cli(&["SCARD", &format!("cs:{}", cluster.node(short))]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_killed_worker_run_elsewhere_two_seconds_after_it_is_declared_dead() {
    let _lock = alone().await;
    let cluster = Cluster::new(ClusterTiming::Default).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let mut killed_worker = cluster.small_worker("w1", "process", 8);
    let _other = cluster.small_worker("w2", "process", 8);
    let http = api.http();
    http.nodes_ready(2).await;
    let service = json!({"name": "web", "image": "none", "command": ["sleep", "86400"], "replicas": 6});
    http.post("/service", &service).await;
    http.runs(SOON, "web", 6).await;
    assert_eq!((pods_on(&cluster, "w1").await, pods_on(&cluster, "w2").await), (3, 3));
    killed_worker.kill();
    let killed_at = Instant::now();
    http.runs(Duration::from_secs(40), "web", 6).await;
    eventually_within(Duration::from_secs(40), "all pods run on the other node", || async {
        check(pods_on(&cluster, "w2").await == 6, || "not yet".to_owned())
    })
    .await;
    http.runs(SOON, "web", 6).await;
    let took = killed_at.elapsed();
    // At most 5 s passed from the last heartbeat to the kill. Then come 20 s of silence, and 2 s to move the
    // pods.
    assert!((Duration::from_secs(14)..Duration::from_secs(23)).contains(&took), "{took:?}");
    assert_eq!(cluster.processes.running().len(), 9, "pods outlive a killed worker");
    killed_worker.start_again();
    cluster
        .comes_to_rest(Duration::from_secs(30), &["w1", "w2"], || async { cluster.processes.running() })
        .await;
    assert_eq!(pods_on(&cluster, "w2").await, 6, "nothing moves back");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_of_a_single_redis_a_dead_node_is_declared_dead_after_the_usual_silence() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Medium).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let (mut killed, _other) = (cluster.worker("w1", "process"), cluster.worker("w2", "process"));
    let http = api.http();
    http.nodes_ready(2).await;
    http.post("/service", &sleeper("web", 4, "keep")).await;
    http.runs(SOON, "web", 4).await;
    assert_eq!(http.get("/status").await["pause"], json!(null));
    killed.kill();
    let () = cluster.redis.cli(&["SAVE"]).await;
    cluster.redis.restart().await;
    eventually_within(SOON, "the status says what pauses", || async {
        let pause = http.get("/status").await["pause"].clone();
        let is_said = (1..=5).contains(&pause["no_deaths_for_seconds"].as_u64().unwrap_or_default());
        check(is_said, || format!("{pause}"))
    })
    .await;
    eventually_within(SOON, "its pods move", || async {
        check(pods_on(&cluster, "w2").await == 4, || "not yet".to_owned())
    })
    .await;
    let events: Vec<(String, Vec<String>)> = cluster.redis.cli(&["XRANGE", "events", "-", "+"]).await;
    let at = |reason: &str| {
        let (id, _) = events.iter().find(|(_, fields)| fields.iter().any(|field| field == reason)).unwrap();
        Duration::from_millis(id.split_once('-').unwrap().0.parse().unwrap())
    };
    let paused_for = at("NodeDead") - at("MasterChanged");
    let dead_after = cluster.timing().dead_after();
    assert!((dead_after..dead_after * 3 / 2).contains(&paused_for), "{paused_for:?}");
    assert_eq!(http.get("/status").await["pause"], json!(null));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_node_tells_of_the_containers_with_its_former_name() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let mut former = cluster.worker("former", "process");
    let http = api.http();
    http.nodes_ready(1).await;
    for (name, on_disconnect) in [("web", "keep"), ("db", "stop")] {
        http.post("/service", &sleeper(name, 2, on_disconnect)).await;
        http.runs(SOON, name, 2).await;
    }
    former.kill();
    let _renamed = cluster.worker("renamed", "process");
    eventually_within(SOON, "an event tells of them", || async {
        let events: Vec<(String, Vec<String>)> = cluster.redis.cli(&["XRANGE", "events", "-", "+"]).await;
        let told = events.iter().find(|(_, fields)| fields.iter().any(|field| field == "FormerName"));
        let Some((_, fields)) = told else { return Err(format!("{events:?}")) };
        let expected = format!("2 containers of the node name {} run on", cluster.node("former"));
        check(fields.last().is_some_and(|message| message.starts_with(&expected)), || format!("{fields:?}"))
    })
    .await;
    let named = format!("containers of the node name {} run on", cluster.node("former"));
    eventually_within(SOON, "they are a problem of the node", || async {
        let status = http.get("/status").await;
        check(status["problems"].to_string().contains(&named), || status["problems"].to_string())
    })
    .await;
    for name in ["web", "db"] {
        http.runs(SOON, name, 2).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_returning_worker_stops_the_pods_that_have_moved() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(docker) = Docker::find(&cluster.prefix).await else { return };
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let frozen = cluster.small_worker("w1", "docker", 8);
    let _other = cluster.small_worker("w2", "docker", 8);
    let http = api.http();
    http.nodes_ready(2).await;
    http.post("/service", &json!({"name": "web", "image": IMAGE, "replicas": 4})).await;
    http.runs(SOON, "web", 4).await;
    frozen.freeze();
    // An engine that other tests keep busy starts a container in ten seconds.
    eventually_within(SOON * 2, "its pods move", || async {
        check(pods_on(&cluster, "w2").await == 4, || "not yet".to_owned())
    })
    .await;
    let copies = docker.running().await.len();
    assert_eq!(copies, 6, "two stale copies run while the worker is frozen: on_disconnect is keep");
    frozen.thaw();
    cluster.comes_to_rest(SOON, &["w1", "w2"], || docker.running()).await;
    assert_eq!(docker.running().await.len(), 4);
    assert_eq!(pods_on(&cluster, "w2").await, 4, "the moved pods stay");
    http.nodes_ready(2).await;
    http.post("/service/web/scale", &json!({"replicas": 8})).await;
    http.runs(SOON, "web", 8).await;
    assert_eq!(pods_on(&cluster, "w1").await, 4);
    cluster.comes_to_rest(SOON, &["w1", "w2"], || docker.running()).await;
}

/// Invariant 5 from outside.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_must_not_run_twice_is_stopped_at_the_fence_before_it_starts_elsewhere() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
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
    // Every worker fences itself, and no scheduler can declare a node dead.
    cluster.redis.freeze();
    eventually_within(Duration::from_secs(10), "all pods are stopped at the fence", || async {
        let left = cluster.processes.running();
        check(left.is_empty(), || format!("{left:?}\n{}", first.log()))
    })
    .await;
    cluster.redis.thaw();
    let max_doubled = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    cluster
        .comes_to_rest(Duration::from_secs(40), &["w1", "w2"], || async {
            let running = cluster.processes.running();
            let mut pods: Vec<_> = running.iter().map(|one| &one.pod).collect();
            pods.sort_unstable();
            let doubled = pods.windows(2).filter(|pair| pair[0] == pair[1]).count();
            max_doubled.fetch_max(doubled, std::sync::atomic::Ordering::Relaxed);
            running
        })
        .await;
    assert_eq!(
        max_doubled.load(std::sync::atomic::Ordering::Relaxed),
        0,
        "pods that ran twice at the same time"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn keep_pods_run_on_while_redis_is_unavailable() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
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
    tokio::time::sleep(ClusterTiming::Short.dead_after() * 2).await;
    let mut during = cluster.processes.leaders();
    cluster.redis.thaw();
    cluster
        .comes_to_rest(Duration::from_secs(30), &["w1", "w2"], || async { cluster.processes.running() })
        .await;
    let mut after = cluster.processes.leaders();
    for leaders in [&mut before, &mut during, &mut after] {
        leaders.sort_unstable();
    }
    assert_eq!(before, during, "the pods run on");
    // One node may be declared dead before its heartbeat arrives, but not both: deaths are spaced.
    let kept = after.iter().filter(|leader| before.contains(leader)).count();
    assert!(kept >= 2, "of {before:?} only {kept} are the same in {after:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_worker_finds_its_pods_and_restarts_none() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
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
    assert!(status.is_some_and(|status| status.success()), "it shuts down: {status:?}\n{}", worker.log());
    worker.start_again();
    worker.kill();
    worker.start_again();
    cluster.comes_to_rest(SOON, &["w1"], || async { cluster.processes.running() }).await;
    let mut after = cluster.processes.leaders();
    before.sort_unstable();
    after.sort_unstable();
    assert_eq!(before, after, "the same processes");
}
