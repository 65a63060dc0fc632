//! Renamed slots, deleted records, keys that expire one after the other.

use std::collections::BTreeSet;

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::{Cluster, ClusterTiming, DaemonProcess, Http};
use reqwest::Method;
use serde_json::Value;
use testkit::eventually::{check, eventually_within};

use crate::{SOON, sleeper};

const KEEP: u64 = 5;
const STOP: u64 = 3;

struct Small {
    cluster: Cluster,
    api: DaemonProcess,
    _others: [DaemonProcess; 3],
}

async fn start() -> (Small, Http) {
    let cluster = Cluster::new(ClusterTiming::Medium).await;
    let (api, scheduler) = (cluster.api().await, cluster.scheduler());
    let [one, other] = ["w1", "w2"].map(|short| cluster.worker(short, "process"));
    let http = api.http();
    http.nodes_ready(2).await;
    http.post("/service", &sleeper("web", KEEP, "keep")).await;
    http.post("/service", &sleeper("db", STOP, "stop")).await;
    http.runs(SOON, "web", KEEP).await;
    http.runs(SOON, "db", STOP).await;
    (Small { cluster, api, _others: [scheduler, one, other] }, http)
}

fn leaders(cluster: &Cluster) -> BTreeSet<(String, i64)> {
    cluster.processes.leaders().into_iter().collect()
}

async fn of_service(small: &Small, http: &Http, service: &str) -> BTreeSet<(String, i64)> {
    let pods = http.pods(&format!("service={service}&limit=100")).await;
    let ids: BTreeSet<&str> = pods.iter().filter_map(|pod| pod["uuid"].as_str()).collect();
    leaders(&small.cluster).into_iter().filter(|(pod, _)| ids.contains(pod.as_str())).collect()
}

async fn keys(cluster: &Cluster, pattern: &str) -> Vec<String> {
    cluster.redis.cli(&["KEYS", pattern]).await
}

async fn is_said(http: &Http, path: &str, part: &str) {
    eventually_within(SOON, part, || async {
        let said = http.get(path).await.to_string();
        check(said.contains(part), || said)
    })
    .await;
}

async fn recover(http: &Http) -> Value {
    let (status, view) = http.send(Method::POST, "/cluster/recover?apply=true", None).await;
    assert!(status.is_success(), "{status}: {view}");
    view
}

async fn is_one_pod_in_each_slot(small: &Small, http: &Http) -> Result<(), String> {
    let all = leaders(&small.cluster);
    let (web, db) = (of_service(small, http, "web").await, of_service(small, http, "db").await);
    let is_right = web.len() as u64 == KEEP && db.len() as u64 == STOP && all.len() == web.len() + db.len();
    check(is_right, || format!("{all:?} {web:?} {db:?}"))
}

async fn one_pod_in_each_slot(small: &Small, http: &Http) {
    eventually_within(SOON, "one pod runs in each slot", || is_one_pod_in_each_slot(small, http)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_that_are_renamed_stop_no_container() {
    let _lock = beside_others().await;
    let (small, http) = start().await;
    let before = leaders(&small.cluster);
    // Younger services lack pods for other reasons.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    for mistake in [&["RENAME", "slots:web", "slots:db"][..], &["COPY", "slots:db", "slots:web", "REPLACE"]] {
        let _: redis::Value = small.cluster.redis.cli(mistake).await;
        let ready = http.get("/service/db").await["status"]["ready"].clone();
        assert!(
            ready.as_u64().is_some_and(|ready| ready <= STOP),
            "no pod of another service counts: {ready}"
        );
        http.runs(SOON, "web", KEEP).await;
        http.runs(SOON, "db", STOP).await;
        one_pod_in_each_slot(&small, &http).await;
        assert_eq!(leaders(&small.cluster), before, "{mistake:?}");
    }
    let (status, repaired) = http.send(Method::POST, "/cluster/repair", None).await;
    assert!(status.is_success() && repaired["items"] == serde_json::json!([]), "{status}: {repaired}");
}

/// A failover may lose only younger pods.
#[tokio::test(flavor = "multi_thread")]
async fn records_that_are_deleted_by_hand_end_nothing_and_start_nothing_twice() {
    let _lock = beside_others().await;
    let (small, http) = start().await;
    let before = leaders(&small.cluster);
    let web = of_service(&small, &http, "web").await;
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    let records = [vec!["DEL".to_owned()], keys(&small.cluster, "pod:*").await].concat();
    let _: u64 = small.cluster.redis.cli(&records).await;
    is_said(&http, "/status", "whose pods have no records").await;
    is_said(&http, "/service/web", "has containers whose records are lost").await;
    is_said(&http, "/cluster/check", "which has no record").await;
    // Pods with `on_disconnect: stop` may have been moved, so they are stopped.
    http.runs(SOON, "db", STOP).await;
    let kept: BTreeSet<_> = leaders(&small.cluster).intersection(&before).cloned().collect();
    assert_eq!(kept, web, "those that must not run twice are stopped, and no others");
    recover(&http).await;
    http.runs(SOON, "web", KEEP).await;
    http.runs(SOON, "db", STOP).await;
    one_pod_in_each_slot(&small, &http).await;
    assert_eq!(of_service(&small, &http, "web").await, web);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_expire_one_after_the_other_are_recovered_and_no_pod_runs_twice() {
    let _lock = beside_others().await;
    let (small, http) = start().await;
    let web = of_service(&small, &http, "web").await;
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    for (index, key) in keys(&small.cluster, "*").await.into_iter().enumerate() {
        let after = (1000 + index * 37 % 2000).to_string();
        let _: u64 = small.cluster.redis.cli(&["PEXPIRE", &key, &after]).await;
    }
    is_said(&http, "/status", "kubeleet cluster recover").await;
    // As an operator does, for as long as `status` asks for it.
    eventually_within(SOON, "all is recovered", || async {
        let status = http.get("/status").await.to_string();
        let is_asked = status.contains("kubeleet cluster recover");
        if is_asked {
            recover(&http).await;
        }
        let others = is_one_pod_in_each_slot(&small, &http).await;
        check(!is_asked && others.is_ok(), || format!("{status}\n{others:?}"))
    })
    .await;
    assert_eq!(of_service(&small, &http, "web").await, web, "they were held");
    assert!(small.api.ended().is_none());
}
