//! Rules of services for the nodes of their pods, with real processes.

use std::time::{Duration, Instant};

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::http::Http;
use kubeleet_tests::{Cluster, ClusterTiming, command};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::{SOON, sleeper};

fn with_constraint(constraint: &str, replicas: u64) -> Value {
    let mut service = sleeper("web", replicas, "keep");
    service["placement"] = json!({"constraints": [constraint]});
    service
}

/// Returns the nodes of the running pods, ascending.
async fn nodes_of(http: &Http) -> Vec<String> {
    let pods = http.pods("service=web").await;
    let running = pods.iter().filter(|pod| pod["phase"] == "running");
    let mut nodes: Vec<String> = running.map(|pod| pod["node"].as_str().unwrap().to_owned()).collect();
    nodes.sort_unstable();
    nodes
}

async fn put(http: &Http, query: &str, service: &Value) -> Value {
    let (status, stored) = http.send(Method::PUT, &format!("/service/web{query}"), Some(service)).await;
    assert!(status.is_success(), "{status}: {stored}");
    stored
}

#[tokio::test(flavor = "multi_thread")]
async fn constraints_hold_when_a_pod_is_placed_and_a_label_lets_a_waiting_pod_run() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Default).await;
    let (api, _schedulers) =
        (cluster.api().await, [cluster.scheduler_named("s1"), cluster.scheduler_named("s2")]);
    let labels = [("w1", "disk=ssd"), ("w2", "disk=hdd")];
    let _workers =
        labels.map(|(short, label)| cluster.worker_with(short, "process", &[("KUBELEET_LABELS", label)]));
    let [w1, w2] = ["w1", "w2"].map(|short| cluster.node(short).to_string());
    let http = api.http();
    http.nodes_ready(2).await;

    let nowhere = with_constraint("disk == nvme", 2);
    let (status, problem) = http.send(Method::POST, "/service", Some(&nowhere)).await;
    assert_eq!(
        (status.as_u16(), &problem["type"]),
        (409, &json!("/problems/placement-impossible")),
        "{problem}"
    );
    assert!(problem["detail"].as_str().unwrap().contains("has disk=ssd, but the service needs disk == nvme"));

    let created = http.post("/service", &with_constraint("disk == ssd", 2)).await;
    http.runs(SOON, "web", 2).await;
    assert_eq!(nodes_of(&http).await, [&w1[..], &w1]);

    let changed = put(&http, "", &with_constraint("disk == hdd", 3)).await;
    assert_eq!(changed["generation"], created["generation"], "a change of rules restarts nothing");
    http.runs(SOON, "web", 3).await;
    assert_eq!(nodes_of(&http).await, [&w1[..], &w1, &w2]);

    put(&http, "?allow_partial=true", &with_constraint("disk == nvme", 4)).await;
    eventually_within(SOON, "the fourth pod waits and says why", || async {
        let pods = http.pods("service=web&phase=pending").await;
        let message = pods.first().map(|pod| pod["message"].to_string()).unwrap_or_default();
        check(message.contains("2 Constraint (has disk="), || message)
    })
    .await;
    let waiting = http.pods("service=web&phase=pending").await.remove(0);
    let why = http.get(&format!("/pod/{}/why", waiting["uuid"].as_str().unwrap())).await;
    assert_eq!((&why["fitting"], &why["node_count"]), (&json!(0), &json!(2)), "{why}");
    assert!(
        why["nodes"].as_array().unwrap().iter().all(|node| node["objections"][0]["reason"] == "Constraint")
    );
    let change = format!("`kubeleet node label {w1} disk=nvme` lets it run there");
    assert_eq!(why["change"], change.as_str(), "{why}");
    let told = command(&http, &["explain", "pod", "web-3"]).await.unwrap();
    assert!(told.contains(&change) && told.contains("Constraint: has disk=ssd"), "{told}");
    let begun = Instant::now();
    command(&http, &["node", "label", &w2, "disk=nvme"]).await.unwrap();
    http.runs(SOON, "web", 4).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "woken by the label, and not by the resync");
    assert_eq!(nodes_of(&http).await, [&w1[..], &w1, &w2, &w2]);
    let why = http.get(&format!("/pod/{}/why", waiting["uuid"].as_str().unwrap())).await;
    assert_eq!((&why["node"], &why["nodes"][0]["node"]), (&json!(w2), &json!(w2)), "{why}");
}

/// Until all pods have this version.
async fn update(http: &Http, mut service: Value, version: &str) {
    service["environment"] = json!({"VERSION": version});
    let replicas = service["replicas"].clone();
    put(http, "", &service).await;
    eventually_within(SOON, "all pods are replaced", || async {
        let service = http.get("/service/web").await;
        let status = &service["status"];
        let is_complete = [&status["ready"], &status["updated"]] == [&replicas; 2] && status["stopping"] == 0;
        check(is_complete, || service.to_string())
    })
    .await;
}

/// Two schedulers share the pods, and an update replaces them all.
#[tokio::test(flavor = "multi_thread")]
async fn rules_that_count_pods_hold_between_schedulers_and_through_an_update() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Default).await;
    let (api, _schedulers) =
        (cluster.api().await, [cluster.scheduler_named("s1"), cluster.scheduler_named("s2")]);
    let zones = [("w1", "zone=a"), ("w2", "zone=a"), ("w3", "zone=b"), ("w4", "zone=c")];
    let _workers =
        zones.map(|(short, label)| cluster.worker_with(short, "process", &[("KUBELEET_LABELS", label)]));
    let [w1, w2, w3, w4] = ["w1", "w2", "w3", "w4"].map(|short| cluster.node(short).to_string());
    let http = api.http();
    http.nodes_ready(4).await;

    let with_rules = |replicas: u64, rules: Value| {
        let mut service = sleeper("web", replicas, "keep");
        service["placement"] = rules;
        service
    };
    let too_many = with_rules(9, json!({"max_per_node": 2}));
    let (status, problem) = http.send(Method::POST, "/service", Some(&too_many)).await;
    assert_eq!(
        (status.as_u16(), &problem["type"]),
        (409, &json!("/problems/placement-impossible")),
        "{problem}"
    );
    assert!(problem["detail"].as_str().unwrap().contains("room for 8 of 9 pods"), "{problem}");
    let without = with_rules(1, json!({"spread": [{"by": "rack", "hard": true}]}));
    let (status, problem) = http.send(Method::POST, "/service", Some(&without)).await;
    assert!(
        status.as_u16() == 409 && problem["detail"].as_str().unwrap().contains("no label rack"),
        "{problem}"
    );

    http.post("/service", &with_rules(8, json!({"max_per_node": 2}))).await;
    http.runs(SOON, "web", 8).await;
    let two_each = [&w1, &w1, &w2, &w2, &w3, &w3, &w4, &w4].map(String::as_str);
    assert_eq!(nodes_of(&http).await, two_each);
    let mut next = with_rules(8, json!({"max_per_node": 2}));
    next["update"] = json!({"order": "stop-first", "parallelism": 4});
    update(&http, next, "2").await;
    assert_eq!(nodes_of(&http).await, two_each, "no node had room for a pod beside the old ones");

    update(&http, with_rules(9, json!({"spread": [{"by": "zone", "hard": true}]})), "3").await;
    let nodes = nodes_of(&http).await;
    let on = |names: &[&String]| nodes.iter().filter(|node| names.contains(node)).count();
    assert_eq!((on(&[&w1, &w2]), on(&[&w3]), on(&[&w4])), (3, 3, 3), "{nodes:?}");
}
