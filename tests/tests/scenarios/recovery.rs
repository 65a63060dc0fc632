//! A Redis has lost the cluster: the workers' saved state is written again, and no container is restarted.

use std::collections::BTreeSet;

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::{Checkpoint, Cluster, ClusterTiming, DaemonProcess, Http};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::SOON;

async fn pods(http: &Http) -> BTreeSet<String> {
    let all = http.pods("limit=100").await;
    let text = |pod: &Value| {
        let fields = ["id", "service", "replica", "node", "restarts", "phase"];
        fields.map(|field| pod[field].to_string()).join(" ")
    };
    all.iter().map(text).collect()
}

fn leaders(cluster: &Cluster) -> BTreeSet<(String, i64)> {
    cluster.processes.leaders().into_iter().collect()
}

struct Running {
    cluster: Cluster,
    api: DaemonProcess,
    scheduler: DaemonProcess,
    workers: [DaemonProcess; 2],
}

async fn start() -> Running {
    let cluster = Cluster::new(ClusterTiming::Medium).await;
    let (api, scheduler) = (cluster.api().await, cluster.scheduler());
    let workers = [cluster.worker("w1", "process"), cluster.worker("w2", "process")];
    api.http().nodes_ready(2).await;
    Running { cluster, api, scheduler, workers }
}

async fn run(http: &Http, name: &str, replicas: u64) {
    let service = json!({
        "name": name, "image": "none", "command": ["sleep", "86400"], "replicas": replicas,
        "environment": {"PASSWORD": "hunter2"},
    });
    http.post("/service", &service).await;
    http.runs(SOON, name, replicas).await;
}

async fn until_saved(cluster: &Cluster, count: usize) {
    eventually_within(SOON, "all pods are saved", || async {
        let file = |short| cluster.folder().join("data").join(format!("{}.pods", cluster.node(short)));
        let text =
            ["w1", "w2"].map(|short| std::fs::read_to_string(file(short)).unwrap_or_default()).concat();
        let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        let found = lines("{\"pod\"");
        check(found == count && lines("{\"service\"") > 0, || format!("{found} pods are saved"))
    })
    .await;
}

async fn until_held(http: &Http, reason: &str) {
    eventually_within(SOON, "both workers hold", || async {
        let status = http.get("/status").await;
        let problems = status["problems"].as_array().cloned().unwrap_or_default();
        let holding = |problem: &&Value| problem.as_str().is_some_and(|text| text.contains(reason));
        check(problems.iter().filter(holding).count() == 2, || status["problems"].to_string())
    })
    .await;
}

async fn recover(http: &Http, apply: bool) -> Value {
    let path = format!("/cluster/recover?wait_seconds=15&apply={apply}");
    let (status, view) = http.send(Method::POST, &path, None).await;
    assert!(status.is_success(), "{status}: {view}");
    view
}

fn recovered(view: &Value) -> u64 {
    let services = view["services"].as_array().unwrap();
    services.iter().map(|service| service["recovered"].as_u64().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_flushall_twenty_pods_are_recovered_with_their_ids_and_without_a_restart() {
    let _lock = beside_others().await;
    let running = start().await;
    let http = running.api.http();
    run(&http, "web", 12).await;
    run(&http, "db", 8).await;
    until_saved(&running.cluster, 20).await;
    let (before, processes) = (pods(&http).await, leaders(&running.cluster));
    assert_eq!((before.len(), processes.len()), (20, 20));
    let () = running.cluster.redis.cli(&["FLUSHALL"]).await;
    until_held(&http, "which this Redis does not know").await;
    let planned = recover(&http, false).await;
    assert_eq!((recovered(&planned), planned["applied"].as_bool()), (20, Some(false)), "{planned}");
    assert!(!planned.to_string().contains("hunter2"));
    assert_eq!(pods(&http).await, BTreeSet::new(), "nothing was changed");
    let done = recover(&http, true).await;
    assert_eq!(recovered(&done), 20, "{done}");
    http.nodes_ready(2).await;
    http.runs(SOON, "web", 12).await;
    http.runs(SOON, "db", 8).await;
    assert_eq!(pods(&http).await, before);
    let cluster = &running.cluster;
    cluster.comes_to_rest(SOON, &["w1", "w2"], || async { cluster.processes.running() }).await;
    assert_eq!(leaders(cluster), processes, "no process was restarted");
    let again = recover(&http, false).await;
    assert_eq!((recovered(&again), again["present_pods"].as_u64()), (0, Some(20)), "{again}");
    http.post("/service/web/scale", &json!({"replicas": 3})).await;
    http.runs(SOON, "web", 3).await;
}

/// Only the other worker still knows that the node exists.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_waits_for_the_node_that_is_down_when_the_cluster_is_recovered() {
    let _lock = beside_others().await;
    let mut running = start().await;
    let http = running.api.http();
    run(&http, "web", 2).await;
    let cluster = &running.cluster;
    let (w1, w2) = (cluster.node("w1"), cluster.node("w2"));
    eventually_within(SOON, "the second worker has saved the names of both", || async {
        let file = cluster.folder().join("data").join(format!("{w2}.pods"));
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let header = text.lines().next().unwrap_or_default();
        check(header.contains(&format!("[\"{w1}\",\"{w2}\"]")), || header.to_owned())
    })
    .await;
    running.workers[0].kill();
    let () = cluster.redis.cli(&["FLUSHALL"]).await;
    recover(&http, true).await;
    http.nodes_ready(1).await;
    let service =
        json!({"name": "db", "image": "none", "command": ["sleep", "1"], "volumes": ["data:/data"]});
    http.post("/service", &service).await;
    let expected = format!("VolumeUnreported (volume db_data_0 may be on {w1}, not heard of");
    eventually_within(SOON, "it waits and says for whom", || async {
        let pods = http.pods("service=db").await;
        let message = pods.first().and_then(|pod| pod["message"].as_str()).unwrap_or_default();
        check(message.contains(&expected), || format!("{pods:?}"))
    })
    .await;
    running.workers[0] = cluster.worker("w1", "process");
    // The `process` runtime has no volumes: the pod's refusal shows that it was placed.
    eventually_within(SOON, "it waits no longer", || async {
        let pods = http.pods("service=db").await;
        check(pods.iter().any(|pod| pod["phase"] == "failed"), || format!("{pods:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_are_recovered_in_another_database_too() {
    let _lock = beside_others().await;
    let Running { cluster, mut api, mut scheduler, mut workers } = start().await;
    run(&api.http(), "web", 6).await;
    until_saved(&cluster, 6).await;
    let (before, processes) = (pods(&api.http()).await, leaders(&cluster));
    let other = [("KUBELEET_REDIS_URL", format!("{}/5", cluster.redis.url()))];
    let other: Vec<(&str, &str)> = other.iter().map(|(name, value)| (*name, value.as_str())).collect();
    for daemon in [&mut api, &mut scheduler] {
        daemon.start_again_with(&other);
    }
    workers.iter_mut().for_each(|worker| worker.start_again_with(&other));
    let http = api.http();
    eventually_within(SOON, "the API is back", || async {
        let answer = http.try_send(Method::GET, "/status", None).await;
        check(answer.is_ok(), || "not yet".to_owned())
    })
    .await;
    until_held(&http, "which this Redis does not know").await;
    let done = recover(&http, true).await;
    assert_eq!(recovered(&done), 6, "{done}");
    http.nodes_ready(2).await;
    http.runs(SOON, "web", 6).await;
    assert_eq!((pods(&http).await, leaders(&cluster)), (before, processes));
}

async fn held_at(database: &redis::aio::MultiplexedConnection, node: &str) -> u64 {
    let mut read = redis::cmd("HGET");
    let entry: String = read.arg("held").arg(node).query_async(&mut database.clone()).await.unwrap();
    entry.split(' ').nth(2).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_a_mistyped_database_number_holds_and_stops_nothing() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Default).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let (mut worker, _other) = (cluster.worker("w1", "process"), cluster.worker("w2", "process"));
    let http = api.http();
    http.nodes_ready(2).await;
    run(&http, "web", 6).await;
    let (before, processes) = (pods(&http).await, leaders(&cluster));
    let wrong = format!("{}/1", cluster.redis.url());
    worker.start_again_with(&[("KUBELEET_REDIS_URL", &wrong)]);
    eventually_within(SOON, "the worker holds", || async {
        let log = worker.log();
        let says_so =
            log.contains("holding: this Redis does not know cluster") && log.contains("database number");
        check(says_so, || log)
    })
    .await;
    let database = redis::Client::open(wrong).unwrap().get_multiplexed_async_connection().await.unwrap();
    let first = held_at(&database, &cluster.node("w1")).await;
    eventually_within(SOON, "it has asked that database for three seconds", || async {
        let last = held_at(&database, &cluster.node("w1")).await;
        check(last >= first + 3000, || format!("{first} {last}"))
    })
    .await;
    assert_eq!(leaders(&cluster), processes, "nothing was stopped or started");
    let found: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut database.clone()).await.unwrap();
    assert!(found.iter().all(|key| key == "held" || key == "meta"), "no record was written there: {found:?}");
    worker.start_again_with(&[("KUBELEET_REDIS_URL", &cluster.redis.url())]);
    http.nodes_ready(2).await;
    http.runs(SOON, "web", 6).await;
    cluster.comes_to_rest(SOON, &["w1", "w2"], || async { cluster.processes.running() }).await;
    assert_eq!((pods(&http).await, leaders(&cluster)), (before, processes));
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_state_of_yesterday_the_pods_of_today_are_recovered() {
    let _lock = beside_others().await;
    let mut running = start().await;
    let http = running.api.http();
    run(&http, "web", 2).await;
    let yesterday = Checkpoint::take(&running.cluster.redis).await;
    http.post("/service/web/scale", &json!({"replicas": 12})).await;
    http.runs(SOON, "web", 12).await;
    run(&http, "db", 8).await;
    until_saved(&running.cluster, 20).await;
    let (before, processes) = (pods(&http).await, leaders(&running.cluster));
    // Young pods are not held, as a failover may have lost their records. A restarted worker does not know
    // their start.
    running.workers.iter_mut().for_each(DaemonProcess::kill);
    yesterday.restore(&running.cluster.redis).await;
    running.workers.iter_mut().for_each(DaemonProcess::start_again);
    until_held(&http, "whose pods have no records").await;
    eventually_within(SOON, "the workers have all pods", || async {
        let plan = recover(&http, false).await;
        check(plan["present_pods"] == 2, || plan.to_string())
    })
    .await;
    let done = recover(&http, true).await;
    assert_eq!((recovered(&done), done["present_pods"].as_u64()), (18, Some(2)), "{done}");
    http.runs(SOON, "web", 12).await;
    http.runs(SOON, "db", 8).await;
    let cluster = &running.cluster;
    cluster.comes_to_rest(SOON, &["w1", "w2"], || async { cluster.processes.running() }).await;
    assert_eq!((pods(&http).await, leaders(cluster)), (before, processes));
    assert!(running.scheduler.ended().is_none());
}
