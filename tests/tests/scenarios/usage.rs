//! Usage of pods, as users see it.

use kubeleet_tests::cluster::command;
use kubeleet_tests::docker::{Docker, IMAGE};
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::{Cluster, ClusterTiming};
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::SOON;

/// Thousandths of a core and bytes of memory; zero if unknown.
fn used(stats: &Value, name: &str) -> (u64, u64) {
    let pods = stats["pods"].as_array().map_or(&[][..], Vec::as_slice);
    let usage = pods.iter().find(|pod| pod["name"] == name).map(|pod| &pod["usage"]);
    let amount = |field: &str| usage.and_then(|usage| usage[field].as_u64()).unwrap_or(0);
    (amount("cpu_millis"), amount("memory_bytes"))
}

async fn a_busy_pod_is_told_from_an_idle_one(runtime: &str) {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let docker = Docker::find(&cluster.prefix).await;
    if runtime == "docker" && docker.is_none() {
        return;
    }
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _worker = cluster.small_worker("w1", runtime, 6);
    let http = api.http();
    http.nodes_ready(1).await;
    for (name, script) in [("busy", "while :; do :; done"), ("idle", "while :; do sleep 60; done")] {
        let service = json!({"name": name, "image": IMAGE, "command": ["/bin/sh", "-c", script],
            "stop_grace_period": 0});
        http.post("/service", &service).await;
        http.runs(SOON, name, 1).await;
    }
    eventually_within(SOON, "usage is measured", || async {
        let stats = http.get("/stats").await;
        let ((busy, busy_memory), (idle, idle_memory)) = (used(&stats, "busy-0"), used(&stats, "idle-0"));
        // Other tests share the machine's cores: a busy pod may get only a part of one.
        let is_told = busy > 150 && busy < 1500 && idle < 50 && busy_memory > 0 && idle_memory > 0;
        check(is_told, || format!("{stats:#}"))
    })
    .await;
    let busy = &http.pods("service=busy").await[0];
    let stats = http.get(&format!("/pod/{}/stats", busy["uuid"].as_str().unwrap())).await;
    assert_eq!((&stats["name"], &stats["node"]), (&json!("busy-0"), &busy["node"]), "{stats}");
    let node = http.get(&format!("/node/{}/stats", cluster.node("w1"))).await;
    assert_eq!(node["pods"], 2, "{node}");
    assert!(node["usage"]["memory_bytes"].as_u64() < node["memory_total_bytes"].as_u64(), "{node}");
    let without_pods = http.get("/stats?pods=false").await;
    assert_eq!(without_pods["pods"], json!([]), "{without_pods}");
    let (status, _) = http.send(reqwest::Method::GET, "/node/none/stats", None).await;
    assert_eq!(status.as_u16(), 404);
    let top = command(&http, &["top"]).await.unwrap();
    assert!(top.starts_with("POD") && top.contains("busy-0"), "{top}");
    eventually_within(SOON, "reports expire", || async {
        let keys: Vec<String> = cluster.redis.cli(&["KEYS", "usage*"]).await;
        check(keys.is_empty(), || format!("{keys:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_container_is_told_from_an_idle_one() {
    a_busy_pod_is_told_from_an_idle_one("docker").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_process_is_told_from_an_idle_one() {
    a_busy_pod_is_told_from_an_idle_one("process").await;
}
