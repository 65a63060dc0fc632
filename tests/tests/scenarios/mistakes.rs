//! Mistakes of operators and neighbours on a running cluster. `MISTAKES_SECONDS=600` is the long form.

mod clients;
mod in_redis;
mod lost_keys;
mod neighbours;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::{Cluster, ClusterTiming, Http};
use reqwest::{Method, StatusCode};
use serde_json::json;
use testkit::eventually::{check, eventually_within};
use tokio_util::sync::CancellationToken;

use crate::{SOON, sleeper};

fn seconds(short: u64) -> Duration {
    let long = std::env::var("MISTAKES_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(long.unwrap_or(short))
}

#[allow(clippy::print_stderr, reason = "figures of the long form")]
fn report(line: &str) {
    eprintln!("{line}");
}

async fn fill(cluster: &Cluster) {
    for size in [64 * 1024, 1024, 1] {
        let filler = "x".repeat(size);
        let is_written = async || {
            let key = format!("filler:{}", uuid::Uuid::new_v4());
            let written: Result<(), _> = cluster.redis.try_cli(&["SET", &key, &filler]).await;
            written.is_ok()
        };
        while is_written().await {}
    }
}

#[derive(Default)]
struct Posted {
    stored: u64,
    refused: u64,
    others: Vec<String>,
}

async fn post_without_pause(http: Http, stop: CancellationToken) -> Posted {
    let (mut posted, mut number) = (Posted::default(), 0);
    let mut interval = tokio::time::interval(Duration::from_millis(20));
    while stop.run_until_cancelled(interval.tick()).await.is_some() {
        number += 1;
        let name = format!("load-{number}");
        let (status, body) = http.send(Method::POST, "/service", Some(&sleeper(&name, 1, "keep"))).await;
        match status {
            StatusCode::INSUFFICIENT_STORAGE => posted.refused += 1,
            StatusCode::CREATED | StatusCode::ACCEPTED => {
                posted.stored += 1;
                let (status, body) = http.send(Method::DELETE, &format!("/service/{name}"), None).await;
                if status != StatusCode::ACCEPTED {
                    posted.others.push(format!("DELETE {name}: {status} {body}"));
                }
            }
            status => posted.others.push(format!("POST {name}: {status} {body}")),
        }
    }
    posted
}

#[tokio::test(flavor = "multi_thread")]
async fn at_maxmemory_nothing_stops_and_what_frees_goes_on() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _workers = ["w1", "w2"].map(|short| cluster.worker(short, "process"));
    let http = api.http();
    http.nodes_ready(2).await;
    http.post("/service", &sleeper("db", 10, "stop")).await;
    http.runs(SOON, "db", 10).await;
    let end = Instant::now() + seconds(8);
    let mut rounds = 0;
    for number in 0..30 {
        http.post("/service", &sleeper(&format!("spare-{number}"), 2, "stop")).await;
    }
    http.runs(SOON, "spare-29", 2).await;
    let info: String = cluster.redis.cli(&["INFO", "memory"]).await;
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    let limit = used.trim().parse::<u64>().unwrap() + (4 << 20);
    let () = cluster.redis.cli(&["CONFIG", "SET", "maxmemory", &limit.to_string()]).await;
    let before: BTreeSet<_> = cluster.processes.leaders().into_iter().collect();
    let stop = CancellationToken::new();
    let load = tokio::spawn(post_without_pause(http.clone(), stop.clone()));
    let mut deleted = 0;
    while Instant::now() < end || rounds < 3 {
        fill(&cluster).await;
        // Deletions continue meanwhile, and may free memory for a moment.
        eventually_within(SOON, "what adds is refused", || async {
            let more = sleeper(&format!("more-{}", uuid::Uuid::new_v4()), 1, "keep");
            let (status, body) = http.send(Method::POST, "/service", Some(&more)).await;
            let is_refused = status == StatusCode::INSUFFICIENT_STORAGE
                && body["type"].as_str().is_some_and(|kind| kind.ends_with("redis-memory"));
            check(is_refused, || format!("{status}: {body}"))
        })
        .await;
        if deleted < 20 {
            let name = format!("spare-{deleted}");
            let (status, body) = http.send(Method::DELETE, &format!("/service/{name}"), None).await;
            assert_eq!(status, StatusCode::ACCEPTED, "{name}: {body}");
            gone(&http, &name).await;
            let name = format!("spare-{}", 20 + deleted % 10);
            let scale = format!("/service/{name}/scale");
            let (status, body) = http.send(Method::POST, &scale, Some(&json!({"replicas": 1}))).await;
            assert!(status.is_success(), "{name}: {status} {body}");
            http.runs(SOON, &name, 1).await;
            deleted += 1;
        }
        rounds += 1;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    stop.cancel();
    let Posted { stored, refused, others } = load.await.unwrap();
    assert!(others.is_empty() && refused > 0, "{stored} stored, {refused} refused, {others:?}");
    let after: BTreeSet<_> = cluster.processes.leaders().into_iter().collect();
    let pods: BTreeSet<String> =
        http.pods("service=db").await.iter().map(|pod| pod["uuid"].to_string()).collect();
    let of_db = |(pod, _): &&(String, i64)| pods.contains(&format!("\"{pod}\""));
    let missing: Vec<_> = before.difference(&after).filter(of_db).collect();
    assert!(missing.is_empty(), "stopped or restarted while Redis was full: {missing:?}");
    assert_eq!(before.iter().filter(of_db).count(), 10);
    let fillers: Vec<String> = cluster.redis.cli(&["KEYS", "filler:*"]).await;
    let () = cluster.redis.cli(&[vec!["DEL".to_owned()], fillers].concat()).await;
    eventually_within(SOON, "there is room again", || async {
        let (status, body) = http.send(Method::POST, "/service", Some(&sleeper("more", 1, "stop"))).await;
        check(status == StatusCode::CREATED, || format!("{status}: {body}"))
    })
    .await;
    http.runs(SOON, "more", 1).await;
    report(&format!(
        "a full Redis: {rounds} rounds, {deleted} services deleted, 10 of 10 `stop` pods as before; \
         {refused} services of a client refused, {stored} stored and deleted"
    ));
}

async fn gone(http: &Http, service: &str) {
    eventually_within(SOON, &format!("{service} is gone"), || async {
        let (status, body) = http.send(Method::GET, &format!("/service/{service}"), None).await;
        check(status == StatusCode::NOT_FOUND, || format!("{status}: {body}"))
    })
    .await;
}
