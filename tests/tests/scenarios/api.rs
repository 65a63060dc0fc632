//! The HTTP API. API processes share only Redis and serve the same.

use std::time::Duration;

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::{Cluster, ClusterTiming, Redis};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::SOON;

#[tokio::test(flavor = "multi_thread")]
async fn two_apis_serve_the_same() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (mut first, second) = (cluster.api().await, cluster.api().await);
    let (_scheduler, _worker) = (cluster.scheduler(), cluster.worker("w1", "sim"));
    let (one, other) = (first.http(), second.http());
    one.post("/service", &json!({"name": "web", "image": "nginx", "replica": 3})).await;
    other.runs(SOON, "web", 3).await;
    other.post("/service/web/scale", &json!({"replicas": 5})).await;
    one.runs(SOON, "web", 5).await;
    for path in ["/service/web", "/pod", "/queue"] {
        assert_eq!(one.get(path).await, other.get(path).await, "{path}");
    }
    first.kill();
    let (status, _) = other.send(Method::DELETE, "/service/web", None).await;
    assert_eq!(status.as_u16(), 202);
    eventually_within(SOON, "the service is gone", || async {
        let (status, body) = other.send(Method::GET, "/service/web", None).await;
        check(status.as_u16() == 404, || body.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_the_token_are_refused() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let api = cluster.api_with(&[("KUBELEET_TOKEN", "a very secret one")]).await;
    let anonymous = api.http();
    for (method, path) in [
        (Method::GET, "/service"),
        (Method::POST, "/service"),
        (Method::GET, "/event"),
        (Method::GET, "/pod/x"),
    ] {
        let (status, problem) =
            anonymous.send(method, path, Some(&json!({"name": "web", "image": "i"}))).await;
        assert_eq!((status.as_u16(), problem["status"].as_u64()), (401, Some(401)), "{path}: {problem}");
        let wrong = anonymous.with_token("a very secret two").send(Method::GET, "/service", None).await;
        assert_eq!(wrong.0.as_u16(), 401);
    }
    assert!(anonymous.send(Method::GET, "/healthz", None).await.0.is_success());
    assert!(anonymous.send(Method::GET, "/readyz", None).await.0.is_success());
    let authorized = anonymous.with_token("a very secret one");
    authorized.post("/service", &json!({"name": "web", "image": "i"})).await;
    assert_eq!(authorized.get("/service").await["items"][0]["name"], "web");
    assert!(!api.whole_log().contains("very secret"), "{}", api.whole_log());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_streamed_in_order_and_the_stream_can_be_resumed() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, _scheduler, _worker) = (cluster.api().await, cluster.scheduler(), cluster.worker("w1", "sim"));
    let http = api.http();
    let mut stream = http.stream("/event?tail=0").await;
    http.post("/service", &json!({"name": "web", "image": "nginx"})).await;
    let mut text = String::new();
    while !text.contains("event: PodStarted") {
        let chunk = tokio::time::timeout(SOON, stream.chunk()).await.expect("the stream goes on").unwrap();
        text.push_str(&String::from_utf8_lossy(&chunk.expect("the stream does not end")));
    }
    let events: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
    let reasons: Vec<_> = events.iter().map(|event| event["reason"].as_str().unwrap()).collect();
    let wanted = ["ServiceCreated", "PodCreated", "PodScheduled", "PodStarted"];
    let seen: Vec<_> = reasons.iter().copied().filter(|reason| wanted.contains(reason)).collect();
    assert_eq!(seen, wanted, "in order: {reasons:?}");
    let created = events.iter().find(|event| event["reason"] == "PodCreated").unwrap();
    let since = created["id"].as_str().unwrap();
    let after = http.get(&format!("/event?since={since}&follow=false")).await;
    let first = &after["items"][0];
    assert!(first["reason"] != "PodCreated" && after.to_string().contains("PodStarted"), "{after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_reports_that_redis_is_unavailable_and_recovers() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, mut scheduler, mut worker) =
        (cluster.api().await, cluster.scheduler(), cluster.worker("w1", "sim"));
    let http = api.http();
    http.post("/service", &json!({"name": "web", "image": "nginx", "replicas": 2})).await;
    http.runs(SOON, "web", 2).await;
    cluster.redis.freeze();
    let (status, problem) = http.send(Method::GET, "/service/web", None).await;
    assert_eq!((status.as_u16(), problem["status"].as_u64()), (503, Some(503)), "{problem}");
    let (status, ready) = http.send(Method::GET, "/readyz", None).await;
    assert!(
        status.as_u16() == 503 && ready.to_string().to_lowercase().contains("redis"),
        "{status}: {ready}"
    );
    assert!(http.send(Method::GET, "/healthz", None).await.0.is_success(), "the process itself is healthy");
    cluster.redis.thaw();
    http.runs(Duration::from_secs(30), "web", 2).await;
    http.post("/service/web/scale", &json!({"replicas": 4})).await;
    http.runs(SOON, "web", 4).await;
    for daemon in [&mut scheduler, &mut worker] {
        assert!(daemon.ended().is_none(), "{}", daemon.log());
    }
}

/// One API responds, another one ends before the replica has confirmed.
#[tokio::test(flavor = "multi_thread")]
async fn an_unconfirmed_write_is_confirmed_later_and_an_event_reports_it() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &cluster.redis.port().to_string()]).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let ending = cluster.api_with(&[("KUBELEET_FAILPOINT", "redis.WAIT.before")]).await;
    let (http, service) = (api.http(), |name| json!({"name": name, "image": "nginx", "replicas": 0}));
    eventually_within(SOON, "the replica confirms", || async {
        let (status, body) = http.send(Method::PUT, "/service/before", Some(&service("before"))).await;
        check(status.is_success() && body["durability"]["state"] == "confirmed", || {
            format!("{status}: {body}")
        })
    })
    .await;
    replica.freeze();
    let (status, body) = http.send(Method::POST, "/service", Some(&service("answered"))).await;
    assert_eq!(status.as_u16(), 202, "{body}");
    let unanswered = ending.http().try_send(Method::POST, "/service", Some(&service("left"))).await;
    assert!(unanswered.is_err(), "the process ends at this step: {unanswered:?}");
    let status = http.get("/status").await;
    assert_eq!(
        (&status["durability"]["state"], &status["unconfirmed_writes"]),
        (&json!("unconfirmed"), &json!(2))
    );
    replica.thaw();
    eventually_within(SOON, "both writes are confirmed", || async {
        let events = http.get("/event?since=0&follow=false").await;
        let confirmed = events["items"].as_array().into_iter().flatten();
        let confirmed = confirmed.filter(|event| event["reason"] == "WriteConfirmed");
        let names: Vec<&str> = confirmed.filter_map(|event| event["object"].as_str()).collect();
        let status = http.get("/status").await;
        let is_durable = status["durability"]["state"] == "confirmed" && status["unconfirmed_writes"] == 0;
        check(names.contains(&"answered") && names.contains(&"left") && is_durable, || {
            format!("{names:?} {status}")
        })
    })
    .await;
}

/// As images without a shell run `kubeleet healthcheck`.
#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_is_healthy_while_it_renews_its_lease() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let reports = async |code: i32, message: &str| {
        eventually_within(SOON, &format!("the health check ends with {code} {message}"), || async {
            let healthcheck = cluster.healthcheck("scheduler");
            let ended =
                eventually_within(SOON, "it ends", || async { healthcheck.ended_with().ok_or("it runs") })
                    .await;
            check(ended == code && healthcheck.log().contains(message), || {
                format!("{ended}\n{}", healthcheck.log())
            })
        })
        .await;
    };
    reports(1, "has no scheduler").await;
    let mut scheduler = cluster.scheduler();
    reports(0, "").await;
    scheduler.freeze();
    reports(1, "last reported").await;
    scheduler.thaw();
    reports(0, "").await;
    scheduler.kill();
    reports(1, "last reported").await;
}

/// Redis comes back empty. Nothing that runs is stopped.
#[tokio::test(flavor = "multi_thread")]
async fn after_redis_lost_everything_pods_run_on_and_with_its_id_the_cluster_works_again() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let worker = cluster.worker("w1", "process");
    let http = api.http();
    let service = json!({"name": "web", "image": "none", "command": ["sleep", "86400"], "replicas": 3});
    http.post("/service", &service).await;
    http.runs(SOON, "web", 3).await;
    let mut before = cluster.processes.leaders();
    before.sort();
    let id: String = cluster.redis.cli(&["HGET", "meta", "cluster"]).await;
    cluster.redis.restart().await;
    eventually_within(Duration::from_secs(40), "the status names the node that holds", || async {
        let (status, body) = http.send(Method::GET, "/status", None).await;
        let names_it = body["problems"].to_string().contains(&cluster.node("w1"));
        check(names_it, || format!("{status}: {body}\n{}", worker.log()))
    })
    .await;
    let leaders = || {
        let mut leaders = cluster.processes.leaders();
        leaders.sort();
        leaders
    };
    assert_eq!(leaders(), before, "nothing was stopped or started");
    let _added: u64 = cluster.redis.cli(&["HSET", "meta", "cluster", &id]).await;
    eventually_within(Duration::from_secs(40), "the node is ready again", || async {
        let (status, nodes) = http.send(Method::GET, "/node", None).await;
        check(nodes["items"][0]["ready"] == true, || format!("{status}: {nodes}\n{}", worker.log()))
    })
    .await;
    http.post("/service", &service).await;
    http.runs(Duration::from_secs(40), "web", 3).await;
    let after = leaders();
    assert!(
        before.iter().all(|pod| after.contains(pod)),
        "pods that Redis does not know are kept: {after:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_specification_replaces_the_pods_a_few_at_a_time() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, _scheduler, _worker) =
        (cluster.api().await, cluster.scheduler(), cluster.worker("w1", "process"));
    let http = api.http();
    let service =
        |seconds: &str| json!({"name": "web", "image": "none", "command": ["sleep", seconds], "replicas": 8});
    http.post("/service", &service("86400")).await;
    http.runs(SOON, "web", 8).await;
    let (status, replaced) = http.send(Method::PUT, "/service/web", Some(&service("86401"))).await;
    assert!(status.is_success() && replaced["generation"] == 2, "{status}: {replaced}");
    let fewest = std::cell::Cell::new(u64::MAX);
    eventually_within(Duration::from_secs(60), "all pods are of the new generation", || async {
        let status = http.get("/service/web").await["status"].clone();
        fewest.set(fewest.get().min(status["running"].as_u64().unwrap()));
        check(status["updated"] == 8 && status["running"] == 8, || status.to_string())
    })
    .await;
    assert!(fewest.get() >= 5, "at most a quarter is missing at a time, give or take one: {}", fewest.get());
    cluster.comes_to_rest(SOON, &["w1"], || async { cluster.processes.running() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordoned_node_keeps_its_pods_and_gets_no_new_ones() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _workers = ["w1", "w2"].map(|short| cluster.small_worker(short, "sim", 10));
    let http = api.http();
    http.nodes_ready(2).await;
    http.post("/service", &json!({"name": "web", "image": "nginx", "replicas": 4})).await;
    http.runs(SOON, "web", 4).await;
    let node = cluster.node("w1");
    http.post(&format!("/node/{node}/cordon"), &Value::Null).await;
    http.post("/service/web/scale", &json!({"replicas": 10})).await;
    http.runs(SOON, "web", 10).await;
    assert_eq!(http.pods(&format!("node={node}")).await.len(), 2);
    http.post(&format!("/node/{node}/uncordon"), &Value::Null).await;
    http.nodes_ready(2).await;
    http.post("/service/web/scale", &json!({"replicas": 16})).await;
    http.runs(SOON, "web", 16).await;
    assert_eq!(http.pods(&format!("node={node}")).await.len(), 8);
}
