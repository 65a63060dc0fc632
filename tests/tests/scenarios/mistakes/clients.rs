//! Clients that hold connections and read logs for ever delay neither writes nor heartbeats.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::{Cluster, ClusterTiming, Http};
use reqwest::Method;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use testkit::eventually::eventually_within;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{report, seconds};
use crate::{SOON, sleeper};

const SILENT: usize = 5_000;
const OTHER_FILES: usize = 400;

fn raise_file_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // Without a hard limit the soft one stays: it is none either, or was chosen.
    let raised = Rlimit { current: limit.maximum.or(limit.current), ..limit };
    let current = if setrlimit(Resource::Nofile, raised).is_ok() { raised.current } else { limit.current };
    current.map_or(usize::MAX, |files| files as usize)
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_slow_and_greedy_clients_hold_up_neither_posts_nor_heartbeats() {
    let _lock = beside_others().await;
    let sockets = SILENT.min(raise_file_limit().saturating_sub(OTHER_FILES));
    let cluster = Cluster::new(ClusterTiming::Default).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _workers = ["w1", "w2"].map(|short| cluster.worker(short, "process"));
    let http = api.http();
    http.nodes_ready(2).await;
    let talker = json!({"name": "talker", "image": "none", "command": ["/usr/bin/yes"], "replicas": 2,
        "stop_grace_period": 0});
    http.post("/service", &talker).await;
    http.runs(SOON, "talker", 2).await;
    let quiet = measure(&http, &cluster, seconds(6).min(Duration::from_secs(60)), "before").await;

    let (address, begun) = (http.address(), Instant::now());
    let mut silent = Vec::new();
    while silent.len() < sockets {
        match TcpStream::connect(&address).await {
            Ok(stream) => silent.push(stream),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{} sockets: {error}", silent.len()),
        }
    }
    let connected_after = begun.elapsed();
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
    // They wait for their connections behind the silent ones.
    eventually_within(SOON, "logs are read", || async { read.load(Ordering::Relaxed) > 0 }).await;
    clients.shutdown().await;
    let bytes = read.load(Ordering::Relaxed);
    report(&format!(
        "{} silent sockets (opened in {connected_after:.1?}), 200 slow ones, 50 readers of logs ({} MiB): \
         {quiet:?} before, {busy:?} during",
        silent.len(),
        bytes >> 20
    ));
    assert!(busy.longest_beat < Duration::from_secs(10), "no heartbeat may be left out: {busy:?}");
    assert!(busy.p99 < Duration::from_secs(2), "a POST may not wait for them: {busy:?}");
    assert!(busy.first < Duration::from_secs(10), "nor may a new connection wait for long: {busy:?}");
}

#[derive(Debug)]
struct Measured {
    #[allow(dead_code, reason = "it is printed")]
    posts: usize,
    /// It waits for its connection behind the new ones.
    first: Duration,
    p99: Duration,
    longest_beat: Duration,
}

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
    let (first, others) = took.split_first_mut().expect("there was one");
    others.sort_unstable();
    let (first, p99) = (*first, others[others.len() * 99 / 100]);
    Measured { posts: took.len(), first, p99, longest_beat }
}

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
