//! Scenarios with several hosts on one machine, each with its own network and its own engine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use kubeleet_tests::exclusive::exclusive;
use kubeleet_tests::hosts::HostCluster;
use kubeleet_tests::invariants::Running;
use kubeleet_tests::life::{Watched, began, gap};
use kubeleet_tests::wait::that;
use kubeleet_tests::{Http, Timing, eventually};
use rustix::process::Pid;
use serde_json::json;

/// Without a master of Redis nothing moves; with a new one deaths wait for as long as it takes all to find it.
const MOVED: Duration = Duration::from_secs(60);

fn tries() -> usize {
    std::env::var("KUBELEET_GAPS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// What runs on all hosts, by the index of the host.
async fn everywhere(cluster: &HostCluster) -> Vec<(usize, Running, Pid)> {
    let mut found = Vec::new();
    for index in 0..cluster.hosts.all().len() {
        found.extend(cluster.running(index).await.into_iter().map(|(pod, pid)| (index, pod, pid)));
    }
    found
}

/// Pods of a service and the nodes they run on, as the API has it.
async fn placed(http: &Http, service: &str) -> BTreeMap<String, String> {
    let pods = http.pods(&format!("service={service}")).await;
    let word = |pod: &serde_json::Value, field: &str| pod[field].as_str().unwrap_or_default().to_owned();
    pods.iter().map(|pod| (word(pod, "uuid"), word(pod, "node"))).collect()
}

/// Every pod of both services runs once, where the API says, and nothing else does.
async fn comes_to_rest(cluster: &HostCluster, http: &Http) {
    eventually(MOVED, "all run once where they should", || async {
        let mut wanted = placed(http, "db").await;
        wanted.extend(placed(http, "web").await);
        let running = everywhere(cluster).await;
        let found: BTreeMap<_, _> =
            running.iter().map(|(_, pod, _)| (pod.pod.clone(), pod.node.clone())).collect();
        let once = running.len() == found.len();
        that(once && found == wanted, || format!("wanted {wanted:?}\nfound {running:?}"))
    })
    .await;
}

/// One try: cuts off the host with the most `db` pods, and joins it again. The smallest gap, in milliseconds.
async fn cut_and_join(cluster: &HostCluster) -> i64 {
    let before = everywhere(cluster).await;
    let db = placed(&cluster.http(0), "db").await;
    let stop = |index: usize| {
        before.iter().filter(move |(at, ..)| *at == index).filter(|(_, pod, _)| db.contains_key(&pod.pod))
    };
    let victim = (0..3).max_by_key(|index| stop(*index).count()).unwrap();
    let http = cluster.http((victim + 1) % 3);
    let watched: Vec<_> =
        stop(victim).map(|(_, pod, pid)| (pod.pod.clone(), Watched::process(*pid))).collect();
    cluster.hosts.host(victim).cut();
    let mut least = i64::MAX;
    for (pod, watched) in watched {
        let began_there = eventually(MOVED, &format!("pod {pod} starts elsewhere"), || async {
            let all = everywhere(cluster).await;
            let new = all.iter().find(|(index, running, _)| *index != victim && running.pod == pod);
            new.and_then(|(.., pid)| began(*pid)).ok_or_else(|| format!("{all:?}"))
        })
        .await;
        least = least.min(watched.ended().map_or(i64::MIN, |ended| gap(ended, began_there)));
    }
    for service in ["db", "web"] {
        http.runs(MOVED, service, 4).await;
    }
    cluster.hosts.host(victim).join();
    http.nodes_ready(3).await;
    comes_to_rest(cluster, &http).await;
    least
}

/// Invariant 5 with a whole host: cut off with its Redis, its Sentinel and its workers, and joined again.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_cut_off_stops_its_pods_before_they_start_elsewhere_and_is_welcome_again() {
    let _alone = exclusive("heavy").await;
    let Some(cluster) = HostCluster::start(Timing::Medium).await else { return };
    let http = cluster.http(0);
    let image = kubeleet_tests::docker::IMAGE;
    for (name, on_disconnect) in [("db", "stop"), ("web", "keep")] {
        let service = json!({"name": name, "image": image, "replicas": 4, "on_disconnect": on_disconnect});
        http.post("/service", &service).await;
        http.runs(MOVED, name, 4).await;
    }
    comes_to_rest(&cluster, &http).await;
    let mut gaps = Vec::new();
    for _ in 0..tries() {
        gaps.push(cut_and_join(&cluster).await);
    }
    gaps.sort_unstable();
    let line = format!(
        "| host cut off | containers | {} | {} | {} | {} |\n",
        gaps.len(),
        gaps[0],
        gaps[gaps.len() / 2],
        gaps[gaps.len() - 1]
    );
    // Not println!: the test runner swallows that of tests that pass.
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    assert!(gaps[0] >= 0, "a pod ran twice: {gaps:?}");
}
