//! Broken updates are rolled back while schedulers are killed. `KUBELEET_UPDATES` sets the number of rounds.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::http::Http;
use kubeleet_tests::{Cluster, ClusterTiming};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::SOON;

const REPLICAS: u64 = 4;

fn rounds() -> usize {
    std::env::var("KUBELEET_UPDATES").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

fn service(command: &Value, round: usize) -> Value {
    json!({
        "name": "web", "image": "none", "command": command, "replicas": REPLICAS, "stop_grace_period": 0,
        "environment": {"ROUND": round.to_string()},
        "update": {"order": "stop-first", "parallelism": 1, "monitor": "1s", "on_failure": "rollback"},
    })
}

fn sleeps() -> Value {
    json!(["/bin/sleep", "86400"])
}

async fn put(http: &Http, service: &Value) -> u64 {
    let (status, body) = http.send(Method::PUT, "/service/web", Some(service)).await;
    assert!(status.is_success(), "{status}: {body}");
    body["generation"].as_u64().unwrap()
}

async fn pods(http: &Http) -> BTreeSet<String> {
    let pods = http.pods("service=web").await;
    pods.iter().filter(|pod| pod["phase"] == "running").map(|pod| pod["uuid"].to_string()).collect()
}

/// Checks meanwhile that at most one pod is out of service.
async fn until(http: &Http, what: &str, is_reached: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + SOON;
    loop {
        let service = http.get("/service/web").await;
        let ready = service["status"]["ready"].as_u64().unwrap();
        assert!(ready + 1 >= REPLICAS, "{what}: more than one pod is out of service: {}", service["status"]);
        if is_reached(&service) {
            return service;
        }
        check(Instant::now() < deadline, || format!("{what}: {service}")).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn has_settled(http: &Http, generation: u64) {
    let settled = format!("generation {generation}: all pods are ready");
    eventually_within(SOON, "it has settled", || async {
        let events = http.get("/event?tail=200&follow=false").await;
        check(events.to_string().contains(&settled), || events.to_string())
    })
    .await;
}

fn is_complete(service: &Value) -> bool {
    let status = &service["status"];
    status["ready"] == REPLICAS && status["updated"] == REPLICAS && status["stopping"] == 0
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_updates_are_rolled_back_whichever_scheduler_dies() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let api = cluster.api().await;
    let mut schedulers = [cluster.scheduler_named("s1"), cluster.scheduler_named("s2")];
    let _workers = ["w1", "w2"].map(|short| cluster.worker(short, "process"));
    let http = api.http();
    http.nodes_ready(2).await;
    http.post("/service", &service(&sleeps(), 0)).await;
    http.runs(SOON, "web", REPLICAS).await;
    until(&http, "the first generation is ready", is_complete).await;
    for round in 1..=rounds() {
        let before = pods(&http).await;
        let broken = json!(["/bin/sh", "-c", format!("echo no database in round {round}; exit 3")]);
        let generation = put(&http, &service(&broken, round)).await;
        schedulers[round % 2].kill();
        let rolled_back = until(&http, "the broken one is rolled back", |service| {
            service["generation"] == generation + 1 && is_complete(service)
        })
        .await;
        schedulers[round % 2].start_again();
        let rollout = &rolled_back["rollout"];
        assert_eq!((&rollout["state"], &rollout["generation"]), (&json!("rolled_back"), &json!(generation)));
        let why = rollout["message"].as_str().unwrap();
        assert!(why.contains(&format!("no database in round {round}")), "{why}");
        let kept = pods(&http).await.intersection(&before).count();
        assert_eq!(kept as u64, REPLICAS - 1, "one pod was tried, and the others never stopped");

        let good = put(&http, &service(&sleeps(), round)).await;
        let updated = until(&http, "the good one is complete", |service| {
            service["generation"] == good && is_complete(service)
        })
        .await;
        assert!(updated["rollout"].is_null(), "{updated}");
        assert_eq!(pods(&http).await.intersection(&before).count(), 0, "all were replaced");
        has_settled(&http, good).await;
    }
}

/// Checks meanwhile that the only replica is in service.
async fn until_in_service(http: &Http, what: &str, is_reached: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + SOON;
    loop {
        let service = http.get("/service/web").await;
        assert!(service["status"]["ready"].as_u64().unwrap() > 0, "{what}: {}", service["status"]);
        if is_reached(&service) {
            return service;
        }
        check(Instant::now() < deadline, || format!("{what}: {service}")).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_pod_stays_until_its_successor_is_good_and_an_undo_goes_back_to_it() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let api = cluster.api().await;
    let _scheduler = cluster.scheduler_named("s1");
    let _worker = cluster.worker("w1", "process");
    let http = api.http();
    http.nodes_ready(1).await;
    let web =
        |command: &Value| json!({"name": "web", "image": "none", "command": command, "stop_grace_period": 0});
    http.post("/service", &web(&sleeps())).await;
    http.runs(SOON, "web", 1).await;
    let before = pods(&http).await;
    let crashes = json!(["/bin/sh", "-c", "echo no database; exit 3"]);
    for (round, broken) in [crashes, json!(["/bin/no-such-program"])].iter().enumerate() {
        put(&http, &web(broken)).await;
        let is_held = |service: &Value| service["held"].is_string();
        let held = until_in_service(&http, "the broken one is held", is_held).await;
        let why = held["held"].as_str().unwrap();
        assert!(round > 0 || why.contains("no database"), "{why}");
        let (status, body) = http.send(Method::POST, "/service/web/undo", None).await;
        assert!(status.is_success(), "{body}");
        let undone = |service: &Value| service["status"]["running"] == 1 && service["held"].is_null();
        until_in_service(&http, "it is undone", undone).await;
        assert_eq!(pods(&http).await, before, "the pod was never touched");
    }
    let history = http.get("/service/web/history").await;
    assert_eq!(history["items"][1]["outcome"], "failed", "{history}");
}

/// A generation that was good before is not judged again.
#[tokio::test(flavor = "multi_thread")]
async fn a_canary_holds_up_what_is_new_and_neither_a_rollback_nor_an_undo() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let api = cluster.api().await;
    let _scheduler = cluster.scheduler_named("s1");
    let _worker = cluster.worker("w1", "process");
    let http = api.http();
    http.nodes_ready(1).await;
    let with_canary = |command: &Value, round| {
        let mut service = service(command, round);
        service["update"]["canary"] = json!(1);
        service
    };
    http.post("/service", &with_canary(&sleeps(), 0)).await;
    http.runs(SOON, "web", REPLICAS).await;
    until(&http, "the first generation is ready", is_complete).await;
    has_settled(&http, 1).await;

    let broken = json!(["/bin/sh", "-c", "echo no database; exit 3"]);
    put(&http, &with_canary(&broken, 1)).await;
    let is_back = |service: &Value| service["generation"] == 3 && is_complete(service);
    let rolled_back = until(&http, "the bad canary is rolled back", is_back).await;
    assert_eq!(rolled_back["rollout"]["state"], "rolled_back", "{rolled_back}");

    put(&http, &with_canary(&sleeps(), 2)).await;
    let waiting =
        until(&http, "the good canary waits", |service| service["rollout"]["state"] == "at_canary").await;
    assert_eq!(waiting["status"]["updated"], 1, "{waiting}");
    let (status, body) = http.send(Method::POST, "/service/web/undo", None).await;
    assert!(status.is_success(), "{body}");
    let undone =
        until(&http, "it is undone", |service| service["generation"] == 5 && is_complete(service)).await;
    assert!(undone["rollout"].is_null(), "{undone}");
}
