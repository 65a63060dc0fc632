//! Several hosts with an engine each on one machine.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use kubeleet_tests::exclusive::alone;
use kubeleet_tests::hosts::HostCluster;
use kubeleet_tests::invariants::Running;
use kubeleet_tests::pod_life::{Watched, gap, started};
use kubeleet_tests::{ClusterTiming, Http};
use rustix::process::Pid;
use serde_json::json;
use testkit::eventually::{check, eventually_within};

use crate::tries;

/// Deaths are declared only once all had time to find the new master.
const MOVE_TIMEOUT: Duration = Duration::from_secs(60);

async fn running_everywhere(cluster: &HostCluster) -> Vec<(usize, Running, Pid)> {
    let mut found = Vec::new();
    for index in 0..cluster.hosts.all().len() {
        found.extend(cluster.running(index).await.into_iter().map(|(pod, pid)| (index, pod, pid)));
    }
    found
}

async fn placements(http: &Http, service: &str) -> BTreeMap<String, String> {
    let pods = http.pods(&format!("service={service}")).await;
    let text = |pod: &serde_json::Value, field: &str| pod[field].as_str().unwrap_or_default().to_owned();
    pods.iter().map(|pod| (text(pod, "uuid"), text(pod, "node"))).collect()
}

async fn comes_to_rest(cluster: &HostCluster, http: &Http) {
    eventually_within(MOVE_TIMEOUT, "all pods run once, on their nodes", || async {
        let mut wanted = placements(http, "db").await;
        wanted.extend(placements(http, "web").await);
        let running = running_everywhere(cluster).await;
        let found: BTreeMap<_, _> =
            running.iter().map(|(_, pod, _)| (pod.pod.clone(), pod.node.clone())).collect();
        let once = running.len() == found.len();
        check(once && found == wanted, || format!("wanted {wanted:?}\nfound {running:?}"))
    })
    .await;
}

/// In milliseconds.
async fn cut_and_join(cluster: &HostCluster) -> i64 {
    let before = running_everywhere(cluster).await;
    let db = placements(&cluster.http(0), "db").await;
    let stop = |index: usize| {
        before.iter().filter(move |(at, ..)| *at == index).filter(|(_, pod, _)| db.contains_key(&pod.pod))
    };
    let victim = (0..3).max_by_key(|index| stop(*index).count()).unwrap();
    let http = cluster.http((victim + 1) % 3);
    let watched: Vec<_> =
        stop(victim).map(|(_, pod, pid)| (pod.pod.clone(), Watched::process(*pid))).collect();
    cluster.hosts.host(victim).cut();
    let mut smallest = i64::MAX;
    for (pod, watched) in watched {
        let started_at = eventually_within(MOVE_TIMEOUT, &format!("pod {pod} starts elsewhere"), || async {
            let all = running_everywhere(cluster).await;
            let new = all.iter().find(|(index, running, _)| *index != victim && running.pod == pod);
            new.and_then(|(.., pid)| started(*pid)).ok_or_else(|| format!("{all:?}"))
        })
        .await;
        smallest = smallest.min(watched.ended().map_or(i64::MIN, |ended| gap(ended, started_at)));
    }
    for service in ["db", "web"] {
        http.runs(MOVE_TIMEOUT, service, 4).await;
    }
    cluster.hosts.host(victim).join();
    http.nodes_ready(3).await;
    comes_to_rest(cluster, &http).await;
    smallest
}

/// Invariant 5.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_cut_off_stops_its_pods_before_they_start_elsewhere_and_can_rejoin() {
    let _lock = alone().await;
    let Some(cluster) = HostCluster::start(ClusterTiming::Medium).await else { return };
    let http = cluster.http(0);
    let image = kubeleet_tests::docker::IMAGE;
    for (name, on_disconnect) in [("db", "stop"), ("web", "keep")] {
        let service = json!({"name": name, "image": image, "replicas": 4, "on_disconnect": on_disconnect});
        http.post("/service", &service).await;
        http.runs(MOVE_TIMEOUT, name, 4).await;
    }
    comes_to_rest(&cluster, &http).await;
    let mut gaps = Vec::new();
    for _ in 0..tries(1) {
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
    // The test runner hides what tests print that pass.
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    assert!(gaps[0] >= 0, "a pod ran twice: {gaps:?}");
}
