//! Stateful services, with real processes.

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::http::Http;
use kubeleet_tests::{Cluster, ClusterTiming, command};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::{SOON, sleeper};

fn stateful(replicas: u64) -> Value {
    let mut service = sleeper("db", replicas, "stop");
    service["stateful"] = json!(true);
    service
}

/// In the order of their ordinals.
async fn pods(http: &Http) -> Vec<Value> {
    let mut pods = http.pods("service=db&phase=running").await;
    pods.sort_by_key(|pod| pod["replica"].as_u64());
    pods
}

fn nodes_of(pods: &[Value]) -> Vec<String> {
    pods.iter().map(|pod| pod["node"].as_str().unwrap().to_owned()).collect()
}

fn times<'a>(pods: &'a [Value], field: &str) -> Vec<&'a str> {
    pods.iter().map(|pod| pod[field].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn ordinals_start_in_order_in_three_zones_and_are_replaced_the_highest_first() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Default).await;
    let (api, _schedulers) =
        (cluster.api().await, [cluster.scheduler_named("s1"), cluster.scheduler_named("s2")]);
    let zones = [("w1", "zone=a"), ("w2", "zone=b"), ("w3", "zone=c")];
    let _workers =
        zones.map(|(short, label)| cluster.worker_with(short, "process", &[("KUBELEET_LABELS", label)]));
    let [w1, w2, w3] = ["w1", "w2", "w3"].map(|short| cluster.node(short).to_string());
    let http = api.http();
    http.nodes_ready(3).await;

    let mut beside = stateful(6);
    beside["update"] = json!({"order": "start-first"});
    let (status, problem) = http.send(Method::POST, "/service", Some(&beside)).await;
    assert!(status.as_u16() == 422 && problem["errors"][0]["pointer"] == "/update", "{problem}");

    http.post("/service", &stateful(6)).await;
    http.runs(SOON, "db", 6).await;
    let first = pods(&http).await;
    assert_eq!(nodes_of(&first), [&w1, &w2, &w3, &w1, &w2, &w3].map(String::as_str));
    assert!(times(&first, "created_at").is_sorted(), "{first:?}");
    let told = command(&http, &["service", "describe", "db"]).await.unwrap();
    assert!(told.contains("pods start in order"), "{told}");

    let mut changed = stateful(6);
    changed["environment"] = json!({"VERSION": "2"});
    changed["update"] = json!({"monitor": "1s"});
    let (status, stored) = http.send(Method::PUT, "/service/db", Some(&changed)).await;
    assert!(status.is_success(), "{stored}");
    eventually_within(SOON, "all pods are replaced", || async {
        let service = http.get("/service/db").await;
        let status = &service["status"];
        let is_complete = status["ready"] == 6 && status["updated"] == 6 && status["stopping"] == 0;
        check(is_complete, || service.to_string())
    })
    .await;
    let second = pods(&http).await;
    assert_eq!(nodes_of(&second), nodes_of(&first), "each stays in its zone");
    assert!(times(&second, "created_at").iter().rev().is_sorted(), "the highest first: {second:?}");

    command(&http, &["scale", "--replicas", "3", "db"]).await.unwrap();
    eventually_within(SOON, "three are left", || async {
        let all = http.pods("service=db").await;
        check(all.len() == 3, || format!("{all:?}"))
    })
    .await;
    assert_eq!(nodes_of(&pods(&http).await), [w1, w2, w3]);
}
