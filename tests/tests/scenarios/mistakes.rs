//! What operators and neighbours do to a cluster that runs: a full Redis, other clusters on the same engine,
//! and clients that hold connections and read logs for ever. Each runs for some seconds here; `MISTAKES_SECONDS=600`
//! is the long form.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kubeleet_tests::docker::{Docker, IMAGE};
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::{Cluster, Daemon, Http, Timing};
use reqwest::{Method, StatusCode};
use serde_json::json;
use testkit::eventually::{check, eventually_within};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::{SOON, sleeper};

/// How long the state under test lasts.
fn seconds(short: u64) -> Duration {
    let long = std::env::var("MISTAKES_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(long.unwrap_or(short))
}

#[allow(clippy::print_stderr, reason = "figures of the long form")]
fn report(line: &str) {
    eprintln!("{line}");
}

/// Writes filler until Redis refuses what adds, be it ever so small.
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

#[tokio::test(flavor = "multi_thread")]
async fn at_maxmemory_nothing_stops_and_what_frees_goes_on() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(Timing::Short).await;
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
    let mut deleted = 0;
    while Instant::now() < end || rounds < 3 {
        fill(&cluster).await;
        // What frees goes on meanwhile, and may make room for a moment.
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
        "a full Redis: {rounds} rounds, {deleted} services deleted, 10 of 10 `stop` pods as before"
    ));
}

async fn gone(http: &Http, service: &str) {
    eventually_within(SOON, &format!("{service} is gone"), || async {
        let (status, body) = http.send(Method::GET, &format!("/service/{service}"), None).await;
        check(status == StatusCode::NOT_FOUND, || format!("{status}: {body}"))
    })
    .await;
}

/// Two clusters with the same node names on one engine, of which one is killed, emptied and restarted.
#[tokio::test(flavor = "multi_thread")]
async fn clusters_on_one_engine_never_touch_each_others_containers() {
    let _lock = beside_others().await;
    let (quiet, noisy) = (Cluster::new(Timing::Short).await, Cluster::new(Timing::Short).await);
    let Some(docker) = Docker::find(&quiet.prefix).await else { return };
    // The same names: nothing but the id of the cluster tells them apart.
    let names = ["w1", "w2"].map(|short| quiet.node(short));
    let worker = |cluster: &Cluster, name: &str| {
        cluster.worker_with("w", "docker", &[("KUBELEET_NODE", name), ("KUBELEET_MAX_PODS", "20")])
    };
    let _quiet_daemons = (quiet.scheduler(), names.each_ref().map(|name| worker(&quiet, name)));
    let quiet_api = quiet.api().await;
    quiet_api.http().nodes_ready(2).await;
    let service =
        |replicas| json!({"name": "web", "image": IMAGE, "replicas": replicas, "stop_grace_period": 0});
    quiet_api.http().post("/service", &service(4)).await;
    quiet_api.http().runs(SOON * 2, "web", 4).await;
    let before = docker.containers().await;
    assert_eq!(before.len(), 4);

    let _scheduler = noisy.scheduler();
    let mut workers = names.each_ref().map(|name| worker(&noisy, name));
    let (api, end) = (noisy.api().await, Instant::now() + seconds(4));
    let http = api.http();
    http.nodes_ready(2).await;
    let mut rounds = 0;
    while Instant::now() < end || rounds < 2 {
        http.post("/service", &service(2)).await;
        http.runs(SOON * 2, "web", 2).await;
        disturb(rounds, &mut workers, &noisy).await;
        http.nodes_ready(2).await;
        let _ = http.send(Method::DELETE, "/service/web", None).await;
        gone(&http, "web").await;
        rounds += 1;
    }
    let still: BTreeMap<_, _> =
        docker.containers().await.into_iter().map(|found| (found.id.clone(), found)).collect();
    for container in &before {
        assert_eq!(still.get(&container.id), Some(container), "it is the quiet cluster's");
    }
    quiet_api.http().runs(SOON, "web", 4).await;
    report(&format!("two clusters on one engine: {rounds} rounds, 0 of {} containers touched", before.len()));
}

/// One of the things that happen to clusters of testers.
async fn disturb(round: usize, workers: &mut [Daemon; 2], cluster: &Cluster) {
    match round % 3 {
        0 => {
            for worker in workers {
                worker.kill();
                worker.start_again();
            }
        }
        1 => {
            // It knows nothing any more, and is told to forget its containers as well.
            let id: String = cluster.redis.cli(&["HGET", "meta", "cluster"]).await;
            let () = cluster.redis.cli(&["FLUSHALL"]).await;
            let () = cluster.redis.cli(&["HSET", "meta", "cluster", &id]).await;
        }
        _ => {
            workers[0].freeze();
            tokio::time::sleep(cluster.timing().dead_after() + Duration::from_secs(1)).await;
            workers[0].thaw();
        }
    }
}

/// Sockets that say nothing, sockets that say a byte a second, and readers of logs that do not end.
#[tokio::test(flavor = "multi_thread")]
async fn silent_slow_and_greedy_clients_hold_up_neither_posts_nor_heartbeats() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(Timing::Default).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _workers = ["w1", "w2"].map(|short| cluster.worker(short, "process"));
    let http = api.http();
    http.nodes_ready(2).await;
    let talker = json!({"name": "talker", "image": "none", "command": ["/usr/bin/yes"], "replicas": 2,
        "stop_grace_period": 0});
    http.post("/service", &talker).await;
    http.runs(SOON, "talker", 2).await;
    let quiet = measure(&http, &cluster, seconds(6), "before").await;

    let address = http.address();
    let mut silent = Vec::new();
    for _ in 0..5_000 {
        match TcpStream::connect(&address).await {
            Ok(stream) => silent.push(stream),
            // This process has no more files to open.
            Err(error) if error.raw_os_error() == Some(24) => break,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{error}"),
        }
    }
    // Without these there would be no file left for the others.
    silent.truncate(silent.len().saturating_sub(400));
    let (mut clients, read) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..200 {
        clients.spawn(speak_slowly(address.clone()));
    }
    let pods = http.pods("service=talker").await;
    for number in 0..50 {
        let pod = pods[number % pods.len()]["uuid"].as_str().unwrap();
        clients.spawn(read_for_ever(http.clone(), format!("/pod/{pod}/log?follow=true"), Arc::clone(&read)));
    }
    let busy = measure(&http, &cluster, seconds(6), "during").await;
    clients.shutdown().await;
    let bytes = read.load(Ordering::Relaxed);
    report(&format!(
        "{} silent sockets, 200 slow ones, 50 readers of logs ({} MiB): {quiet:?} before, {busy:?} during",
        silent.len(),
        bytes >> 20
    ));
    assert!(bytes > 0, "logs were read");
    assert!(busy.longest_beat < Duration::from_secs(10), "no heartbeat may be left out: {busy:?}");
    assert!(busy.p99 < Duration::from_secs(2), "a POST may not wait for them: {busy:?}");
}

/// How the cluster did.
#[derive(Debug)]
struct Measured {
    #[allow(dead_code, reason = "it is printed")]
    posts: usize,
    /// Of a POST.
    p99: Duration,
    /// The longest time between two heartbeats of a node.
    longest_beat: Duration,
}

/// Posts ten services a second and looks at the heartbeats.
async fn measure(http: &Http, cluster: &Cluster, duration: Duration, prefix: &str) -> Measured {
    let nodes = ["w1", "w2"].map(|short| format!("hb:{}", cluster.node(short)));
    let mut beats = BTreeMap::<String, (String, Instant)>::new();
    let (mut took, mut longest_beat) = (Vec::new(), Duration::ZERO);
    let (end, mut ticks) = (Instant::now() + duration, tokio::time::interval(Duration::from_millis(100)));
    while Instant::now() < end {
        ticks.tick().await;
        let (name, begun) = (format!("{prefix}-{}", took.len()), Instant::now());
        http.post("/service", &sleeper(&name, 0, "keep")).await;
        took.push(begun.elapsed());
        for node in &nodes {
            let beat: String = cluster.redis.cli(&["GET", node]).await;
            let (last, since) = beats.entry(node.clone()).or_insert_with(|| (beat.clone(), Instant::now()));
            longest_beat = longest_beat.max(since.elapsed());
            if *last != beat {
                (*last, *since) = (beat, Instant::now());
            }
        }
    }
    took.sort_unstable();
    Measured { posts: took.len(), p99: took[took.len() * 99 / 100], longest_beat }
}

/// Sends a request a byte a second, again and again.
async fn speak_slowly(address: String) {
    loop {
        let Ok(mut stream) = TcpStream::connect(&address).await else { continue };
        for byte in b"GET /service HTTP/1.1\r\nhost: localhost\r\n" {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if stream.write_all(&[*byte]).await.is_err() {
                break;
            }
        }
    }
}

/// Reads a stream and counts its bytes. A refusal is tried again a second later.
async fn read_for_ever(http: Http, path: String, bytes: Arc<AtomicUsize>) {
    loop {
        if let Ok(mut response) = http.try_send(Method::GET, &path, None).await
            && response.status().is_success()
        {
            while let Ok(Some(chunk)) = response.chunk().await {
                bytes.fetch_add(chunk.len(), Ordering::Relaxed);
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
