//! Logs of services: merged, followed, kept.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kubeleet_tests::docker::{Docker, IMAGE};
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::{Cluster, ClusterTiming, Http, command};
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};
use tokio::sync::Mutex;

use crate::SOON;

fn talker(replicas: u64) -> Value {
    let script = "n=0; while :; do n=$((n+1)); echo line $n; sleep 0.1; done";
    json!({
        "name": "talk", "image": "none", "command": ["/bin/sh", "-c", script], "replicas": replicas,
        "stop_grace_period": 0,
    })
}

fn follow(http: &Http, path: &str) -> (Arc<Mutex<Vec<Value>>>, tokio::task::JoinHandle<()>) {
    let lines: Arc<Mutex<Vec<Value>>> = Arc::default();
    let (http, path, sink) = (http.clone(), path.to_owned(), lines.clone());
    let task = tokio::spawn(async move {
        let mut response = http.stream(&path).await;
        let mut rest = Vec::new();
        while let Ok(Some(bytes)) = response.chunk().await {
            rest.extend_from_slice(&bytes);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                sink.lock().await.extend(serde_json::from_slice::<Value>(&line));
            }
        }
    });
    (lines, task)
}

fn uuids(lines: &[Value]) -> BTreeSet<String> {
    lines.iter().filter_map(|line| line["uuid"].as_str()).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_logs_of_twenty_pods_are_merged_while_they_are_replaced_and_kept_afterwards() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _workers = ["w1", "w2"].map(|short| cluster.small_worker(short, "process", 40));
    let http = api.http();
    http.nodes_ready(2).await;
    http.post("/service", &talker(20)).await;
    http.runs(SOON, "talk", 20).await;
    let before = uuids_of(&http).await;
    let (lines, task) = follow(&http, "/log?service=talk&follow=true&tail=5");
    eventually_within(SOON, "all pods are followed", || async {
        let seen = uuids(&lines.lock().await);
        check(seen.is_superset(&before), || format!("{} of {}", seen.len(), before.len()))
    })
    .await;
    http.post("/service/talk/restart", &json!({})).await;
    eventually_within(SOON * 2, "all pods were replaced", || async {
        let now = uuids_of(&http).await;
        check(now.len() == 20 && now.is_disjoint(&before), || format!("{now:?}"))
    })
    .await;
    http.runs(SOON, "talk", 20).await;
    let after = uuids_of(&http).await;
    eventually_within(SOON, "the new pods are followed", || async {
        let seen = uuids(&lines.lock().await);
        check(seen.is_superset(&after), || {
            format!("{} of {}", after.intersection(&seen).count(), after.len())
        })
    })
    .await;
    task.abort();
    let lines = lines.lock().await.clone();
    println!("{}", assert_in_order(&lines));
    assert_no_line_is_twice(&lines);
    let read = text(&http, "/log?service=talk&tail=3&grep=line").await;
    let read: Vec<Value> = read.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let times: Vec<&str> = read.iter().map(|line| line["time"].as_str().unwrap()).collect();
    let of_each = |id: &String| read.iter().filter(|line| line["uuid"] == **id).count();
    assert!(
        after.iter().all(|id| of_each(id) == 3) && read.len() == 60,
        "three lines of each pod: {read:#?}"
    );
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(text(&http, "/log?service=talk&grep=no-such-text").await, "");
    let kept = text(&http, "/log?service=talk&previous=true").await;
    let kept: Vec<Value> = kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(uuids(&kept).is_superset(&before), "{} of {}", uuids(&kept).len(), before.len());
    let one = before.iter().next().unwrap();
    let shown = command(&http, &["logs", "--previous", "--timestamps", one]).await.unwrap();
    assert!(shown.contains("line 1\n"), "{shown}");
    for followed in lines.iter().filter(|line| line["uuid"] == *one.as_str()) {
        let line = format!("{}\n", followed["text"].as_str().unwrap());
        assert!(shown.contains(&line), "{line:?} was followed, and is not kept: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_logs_of_several_pods_of_a_node_begin_with_their_last_lines_while_they_are_followed() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _workers = ["w1", "w2"].map(|short| cluster.small_worker(short, "process", 10));
    let http = api.http();
    http.nodes_ready(2).await;
    let script = "n=0; while [ $n -lt 50 ]; do n=$((n+1)); echo line $n; done; exec sleep 1000";
    let service = json!({
        "name": "said", "image": "none", "command": ["/bin/sh", "-c", script], "replicas": 6,
        "stop_grace_period": 0,
    });
    http.post("/service", &service).await;
    http.runs(SOON, "said", 6).await;
    eventually_within(SOON, "all pods have written all", || async {
        let written = text(&http, "/log?service=said&grep=line%2050").await.lines().count();
        check(written == 6, || format!("{written} of 6"))
    })
    .await;
    let (lines, task) = follow(&http, "/log?service=said&follow=true&tail=2");
    eventually_within(SOON, "all pods are followed", || async {
        let seen = uuids(&lines.lock().await).len();
        check(seen == 6, || format!("{seen} of 6"))
    })
    .await;
    task.abort();
    let lines = lines.lock().await.clone();
    let early: Vec<&str> = lines.iter().filter_map(|line| line["text"].as_str()).collect();
    assert!(early.iter().all(|text| ["line 49", "line 50"].contains(text)), "{early:?}");
}

async fn uuids_of(http: &Http) -> BTreeSet<String> {
    let pods = http.pods("service=talk").await;
    pods.iter().map(|pod| pod["uuid"].as_str().unwrap().to_owned()).collect()
}

async fn text(http: &Http, path: &str) -> String {
    http.stream(path).await.text().await.unwrap()
}

/// A busy machine may be late once in a while.
fn assert_in_order(lines: &[Value]) -> String {
    let times: Vec<jiff::Timestamp> =
        lines.iter().filter_map(|line| line["time"].as_str()?.parse().ok()).collect();
    let late = times.windows(2).filter(|pair| pair[1] < pair[0]).count();
    let shown = format!("{} lines, {late} of them after a younger one", times.len());
    assert!(late * 50 <= times.len(), "{shown}");
    shown
}

fn assert_no_line_is_twice(lines: &[Value]) {
    let mut seen = BTreeSet::new();
    for line in lines.iter().filter(|line| line.get("mark").is_none()) {
        let key = (line["uuid"].to_string(), line["text"].to_string());
        assert!(seen.insert(key), "twice: {line}");
    }
}

/// A short form of the measurement in `docs/internals/performance.md`.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_followers_of_a_loud_pod_do_not_hold_up_heartbeats() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, _scheduler) =
        (cluster.api_with(&[("KUBELEET_MAX_CONNECTIONS", "1000")]).await, cluster.scheduler());
    let _worker = cluster.small_worker("w1", "process", 4);
    let http = api.http();
    http.nodes_ready(1).await;
    let script = "while :; do echo 0123456789012345678901234567890123456789; done";
    let loud = json!({"name": "loud", "image": "none", "command": ["/bin/sh", "-c", script],
        "stop_grace_period": 0});
    http.post("/service", &loud).await;
    http.runs(SOON, "loud", 1).await;
    let bytes = Arc::new(AtomicUsize::new(0));
    let readers: Vec<_> = (0..100)
        .map(|_| {
            let (http, bytes) = (http.clone(), bytes.clone());
            tokio::spawn(async move {
                let mut response = http.stream("/log?service=loud&follow=true&tail=10").await;
                while let Ok(Some(chunk)) = response.chunk().await {
                    bytes.fetch_add(chunk.len(), Ordering::Relaxed);
                }
            })
        })
        .collect();
    let (mut longest, mut last) = (Duration::ZERO, (String::new(), Instant::now()));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        let beat: String =
            cluster.redis.cli(&["HGET", &format!("node:{}", cluster.node("w1")), "beat"]).await;
        if beat != last.0 {
            longest = longest.max(if last.0.is_empty() { Duration::ZERO } else { last.1.elapsed() });
            last = (beat, Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    readers.iter().for_each(|reader| reader.abort());
    let read = bytes.load(Ordering::Relaxed);
    println!("100 followers: {} KiB in 10 s, longest gap between heartbeats {longest:?}", read / 1024);
    assert!(longest < ClusterTiming::Short.dead_after(), "{longest:?}");
    assert!(read > 100 * 1024, "{read} bytes");
}

/// In its first minute, before any container is removed.
#[tokio::test(flavor = "multi_thread")]
async fn the_runs_before_the_present_one_are_in_the_previous_logs() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let Some(_docker) = Docker::find(&cluster.prefix).await else { return };
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _worker = cluster.worker("w1", "docker");
    let http = api.http();
    http.nodes_ready(1).await;
    let script = "if [ -e /ran ]; then echo second; exec sleep 1000; fi; echo first; echo > /ran; exit 3";
    let crash = json!({"name": "crash", "image": IMAGE, "entrypoint": ["/bin/sh", "-c", script], "stop_grace_period": 0});
    http.post("/service", &crash).await;
    eventually_within(SOON, "it was started again", || async {
        let written = text(&http, "/log?service=crash&grep=second").await;
        check(!written.is_empty(), || written)
    })
    .await;
    for name in ["crash", "crash-0"] {
        let shown = command(&http, &["logs", "--previous", name]).await.unwrap();
        assert!(shown.ends_with("first\n") && !shown.contains("second"), "{shown}");
    }
}
