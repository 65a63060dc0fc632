//! Replicas go to different nodes and zones. `KUBELEET_SPREAD` sets the number of tries.

use std::collections::BTreeMap;

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::http::Http;
use kubeleet_tests::{Cluster, ClusterTiming, command};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::{SOON, sleeper};

fn tries() -> usize {
    std::env::var("KUBELEET_SPREAD").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

/// Returns the numbers of the service's pods by node, ascending.
async fn counts(http: &Http, service: &str) -> Vec<usize> {
    let mut by_node = BTreeMap::new();
    for pod in http.pods(&format!("service={service}")).await {
        if pod["phase"] == "running" {
            *by_node.entry(pod["node"].to_string()).or_insert(0) += 1;
        }
    }
    let mut counts: Vec<usize> = by_node.into_values().collect();
    counts.sort_unstable();
    counts
}

async fn has_settled(http: &Http, service: &str, generation: &Value, replicas: u64) {
    eventually_within(SOON, "the update is complete", || async {
        let found = http.get(&format!("/service/{service}")).await;
        let status = &found["status"];
        let is_complete = status["ready"] == replicas
            && status["updated"] == replicas
            && status["stopping"] == 0
            && found["generation"] == *generation;
        check(is_complete, || found.to_string())
    })
    .await;
}

async fn delete(http: &Http, service: &str) {
    let (status, body) = http.send(Method::DELETE, &format!("/service/{service}"), None).await;
    assert!(status.is_success(), "{status}: {body}");
    eventually_within(SOON, "the service is gone", || async {
        let (status, _) = http.send(Method::GET, &format!("/service/{service}"), None).await;
        check(status == 404, || status.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_on_different_nodes_although_one_is_emptier_and_stay_so_through_updates() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Default).await;
    let (api, _schedulers) =
        (cluster.api().await, [cluster.scheduler_named("s1"), cluster.scheduler_named("s2")]);
    let _workers = ["w1", "w2", "w3"].map(|short| cluster.worker(short, "process"));
    let http = api.http();
    http.nodes_ready(3).await;
    let emptier = cluster.node("w3");
    http.post(&format!("/node/{emptier}/cordon"), &Value::Null).await;
    http.post("/service", &sleeper("others", 16, "keep")).await;
    http.runs(SOON, "others", 16).await;
    assert_eq!(counts(&http, "others").await, [8, 8]);
    http.post(&format!("/node/{emptier}/uncordon"), &Value::Null).await;

    for attempt in 0..tries() {
        for (replicas, expected) in [(3, [1, 1, 1]), (6, [2, 2, 2])] {
            // Beside others, as on a busy cluster.
            http.post("/service", &sleeper("busy", 5, "keep")).await;
            http.post("/service", &sleeper("web", replicas, "keep")).await;
            http.runs(SOON, "web", replicas).await;
            assert_eq!(counts(&http, "web").await, expected, "{attempt}: created");
            let changed = json!({"environment": {"CHANGED": "1"}, "update": {"monitor": "100ms"}});
            let changed = sleeper_with(replicas, &changed);
            let (status, updated) = http.send(Method::PUT, "/service/web", Some(&changed)).await;
            assert!(status.is_success(), "{status}: {updated}");
            has_settled(&http, "web", &updated["generation"], replicas).await;
            assert_eq!(counts(&http, "web").await, expected, "{attempt}: updated");
            delete(&http, "busy").await;
            delete(&http, "web").await;
        }
    }

    http.post("/service", &sleeper_with(3, &json!({"update": {"monitor": "100ms"}}))).await;
    http.runs(SOON, "web", 3).await;
    command(&http, &["drain", &cluster.node("w1")]).await.unwrap();
    assert_eq!(counts(&http, "web").await, [1, 2]);
    http.post(&format!("/node/{}/uncordon", cluster.node("w1")), &Value::Null).await;
    let restarted = http.post("/service/web/restart", &json!({})).await;
    has_settled(&http, "web", &restarted["generation"], 3).await;
    assert_eq!(counts(&http, "web").await, [1, 1, 1], "restarted after a drain");
}

fn sleeper_with(replicas: u64, fields: &Value) -> Value {
    let mut service = sleeper("web", replicas, "keep");
    service.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    service
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_in_different_zones() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Default).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let zones = [
        ("w1", "zone=a"),
        ("w2", "zone=a"),
        ("w3", "zone=b"),
        ("w4", "zone=b"),
        ("w5", "zone=c"),
        ("w6", "zone=c"),
    ];
    let _workers =
        zones.map(|(short, labels)| cluster.worker_with(short, "process", &[("KUBELEET_LABELS", labels)]));
    let http = api.http();
    http.nodes_ready(6).await;
    for attempt in 0..tries() {
        http.post("/service", &sleeper("web", 3, "keep")).await;
        http.runs(SOON, "web", 3).await;
        let pods = http.pods("service=web").await;
        let zone_of = |pod: &Value| {
            let is_on = |(short, _): &&(&str, &str)| pod["node"] == cluster.node(short).as_str();
            zones.iter().find(is_on).unwrap().1
        };
        let mut seen: Vec<&str> = pods.iter().map(zone_of).collect();
        seen.sort_unstable();
        assert_eq!(seen, ["zone=a", "zone=b", "zone=c"], "{attempt}");
        delete(&http, "web").await;
    }
}
