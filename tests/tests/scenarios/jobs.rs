//! Jobs: each index completes once, what fails is tried again or says why, whichever scheduler dies.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::http::Http;
use kubeleet_tests::{Cluster, Timing};
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::SOON;

/// A container that writes its index as a line of a file, at its start.
fn writes_index(file: &Path, then: &str) -> Value {
    json!(["/bin/sh", "-c", format!("echo $KUBELEET_JOB_INDEX >> {}; {then}", file.display())])
}

/// Returns how often each index is in the file.
fn starts(file: &Path) -> BTreeMap<String, usize> {
    let mut starts = BTreeMap::new();
    for line in std::fs::read_to_string(file).unwrap_or_default().lines() {
        *starts.entry(line.to_owned()).or_default() += 1;
    }
    starts
}

async fn until(http: &Http, name: &str, what: &str, is_reached: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + SOON;
    loop {
        let service = http.get(&format!("/service/{name}")).await;
        if is_reached(&service) {
            return service;
        }
        check(Instant::now() < deadline, || format!("{what}: {service}")).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn is_in(phase: &'static str) -> impl Fn(&Value) -> bool {
    move |service| service["job_status"]["phase"] == phase
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_each_of_its_indices_once_a_few_at_a_time() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(Timing::Short).await;
    let api = cluster.api().await;
    let _schedulers = [cluster.scheduler_named("s1"), cluster.scheduler_named("s2")];
    let _workers = ["w1", "w2"].map(|short| cluster.worker(short, "process"));
    let http = api.http();
    http.nodes_ready(2).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("starts");
    let job = json!({
        "kind": "job", "name": "sums", "image": "none", "command": writes_index(&file, "sleep 0.3; echo done"),
        "job": {"completions": 10, "parallelism": 3},
    });
    let created = http.post("/service", &job).await;
    assert_eq!(created["job_status"]["phase"], "running");
    let complete = until(&http, "sums", "it is complete", |service| {
        let status = &service["job_status"];
        assert!(status["active"].as_u64().unwrap() <= 3, "more than three at a time: {status}");
        is_in("complete")(service)
    })
    .await;
    assert_eq!(complete["job_status"]["succeeded"], 10);
    assert_eq!(complete["status"]["summary"], "complete");
    let expected: BTreeMap<String, usize> = (0..10).map(|index: u32| (index.to_string(), 1)).collect();
    assert_eq!(starts(&file), expected);
    let results = http.get("/service/sums/results").await;
    let results = results["items"].as_array().unwrap();
    assert_eq!(results.len(), 10);
    for (index, result) in results.iter().enumerate() {
        assert_eq!(result["index"], index);
        assert_eq!((&result["succeeded"], &result["attempts"]), (&json!(true), &json!(1)));
        assert_eq!((&result["exit_code"], &result["last_output"]), (&json!(0), &json!("done\n")), "{result}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_fails_too_often_fails_and_says_why() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(Timing::Short).await;
    let api = cluster.api().await;
    let _scheduler = cluster.scheduler_named("s1");
    let _worker = cluster.worker("w1", "process");
    let http = api.http();
    http.nodes_ready(1).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("starts");
    // Index 0 goes on for ever, index 1 fails.
    let then = "[ $KUBELEET_JOB_INDEX = 0 ] && exec sleep 86400; echo no database; exit 3";
    let job = json!({
        "kind": "job", "name": "sums", "image": "none", "command": writes_index(&file, then), "stop_grace_period": 0,
        "job": {"completions": 3, "parallelism": 2, "backoff_limit": 2, "backoff": "100ms"},
    });
    http.post("/service", &job).await;
    let failed = until(&http, "sums", "it has failed", is_in("failed")).await;
    let status = &failed["job_status"];
    assert_eq!((&status["reason"], &status["failures"]), (&json!("BackoffLimitExceeded"), &json!(3)));
    let why = status["message"].as_str().unwrap();
    assert!(why.contains("backoff_limit is 2") && why.contains("\"no database\""), "{why}");
    until(&http, "sums", "its pods are stopped", |service| service["job_status"]["active"] == 0).await;
    assert_eq!(starts(&file).get("0"), Some(&1));
    // What a job runs does not change; how it runs may.
    let changed =
        json!({"kind": "job", "name": "sums", "image": "none", "command": ["true"], "job": job["job"]});
    let (status, problem) = http.send(reqwest::Method::PUT, "/service/sums", Some(&changed)).await;
    assert_eq!((status.as_u16(), &problem["type"]), (409, &json!("/problems/job-immutable")));
    let (status, problem) =
        http.send(reqwest::Method::POST, "/service/sums/scale", Some(&json!({"replicas": 3}))).await;
    assert_eq!((status.as_u16(), &problem["type"]), (409, &json!("/problems/wrong-kind")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_ends_at_its_deadline_and_is_forgotten_after_its_ttl() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(Timing::Short).await;
    let api = cluster.api().await;
    let _scheduler = cluster.scheduler_named("s1");
    let _worker = cluster.worker("w1", "process");
    let http = api.http();
    http.nodes_ready(1).await;
    let job = json!({
        "kind": "job", "name": "sums", "image": "none", "command": ["/bin/sleep", "86400"], "stop_grace_period": 0,
        "job": {"deadline": "1s", "ttl": "2s"},
    });
    http.post("/service", &job).await;
    let failed = until(&http, "sums", "it has failed", is_in("failed")).await;
    assert_eq!(failed["job_status"]["reason"], "DeadlineExceeded");
    eventually_within(SOON, "it is forgotten", || async {
        let (status, body) = http.send(reqwest::Method::GET, "/service/sums", None).await;
        check(status.as_u16() == 404, || body.to_string())
    })
    .await;
    let left: Vec<String> = cluster.redis.cli(&["KEYS", "*sums*"]).await;
    assert!(left.is_empty(), "{left:?}");
}
