//! Two clusters and a `kubeleet dev` with the same node names on one engine: only the cluster's id
//! distinguishes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kubeleet_tests::cluster::binary;
use kubeleet_tests::docker::{Docker, IMAGE, ListedContainer};
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::{Cluster, ClusterTiming, DaemonProcess, Http};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::ChildGuard;
use testkit::eventually::{check, eventually_within};
use testkit::ports::free_port;

use super::{gone, report, seconds};
use crate::SOON;

const STILL: u64 = 3;
const LONG: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn clusters_on_one_engine_never_touch_each_others_containers() {
    let _lock = beside_others().await;
    let (steady, noisy) =
        (Cluster::new(ClusterTiming::Medium).await, Cluster::new(ClusterTiming::Short).await);
    let Some(docker) = Docker::find(&steady.prefix).await else { return };
    let names = ["w1", "w2"].map(|short| steady.node(short));
    let mut dev = Dev::start(&names).await;
    let worker = |cluster: &Cluster, name: &str| {
        cluster.worker_with("w", "docker", &[("KUBELEET_NODE", name), ("KUBELEET_MAX_PODS", "20")])
    };
    let _schedulers = (steady.scheduler(), noisy.scheduler());
    let mut steady_workers = names.each_ref().map(|name| worker(&steady, name));
    let mut noisy_workers = names.each_ref().map(|name| worker(&noisy, name));
    let (steady_api, noisy_api) = (steady.api().await, noisy.api().await);
    let (steady_http, noisy_http) = (steady_api.http(), noisy_api.http());
    for http in [&steady_http, &noisy_http, &dev.http] {
        http.nodes_ready(2).await;
    }
    for http in [&steady_http, &dev.http] {
        http.post("/service", &service("still", STILL, 0)).await;
        http.runs(LONG, "still", STILL).await;
    }
    let before = containers(&docker).await;
    assert_eq!(before.len() as u64, 2 * STILL);
    let started_at = starts(&docker, &before).await;

    let (begun, end) = (Instant::now(), Instant::now() + seconds(4));
    let mut rounds = 0;
    while Instant::now() < end || rounds < 3 {
        let (of_steady, of_noisy, of_dev) = (Http::clone(&steady_http), noisy_http.clone(), dev.http.clone());
        tokio::join!(
            change(&of_steady, rounds, true),
            change(&of_noisy, rounds, false),
            change(&of_dev, rounds, true)
        );
        steady_workers.iter_mut().for_each(DaemonProcess::start_again);
        disturb(rounds, &mut noisy_workers, &noisy).await;
        dev.start_again().await;
        for http in [&steady_http, &noisy_http, &dev.http] {
            http.nodes_ready(2).await;
        }
        let found = containers(&docker).await;
        for (id, container) in &before {
            assert_eq!(found.get(id), Some(container), "round {rounds}: it was touched");
        }
        rounds += 1;
    }
    for http in [&steady_http, &dev.http] {
        http.runs(SOON, "still", STILL).await;
    }
    // A restart would leave ids and states the same.
    assert_eq!(starts(&docker, &before).await, started_at, "one of them was restarted");
    let clusters: BTreeSet<&String> =
        before.values().map(|found| &found.labels["kubeleet.cluster"]).collect();
    assert_eq!(clusters.len(), 2, "the labels tell them apart");
    report(&format!(
        "two clusters and a `dev` on one engine: {rounds} rounds in {:.0?}, in each three services \
         changed, workers and the `dev` killed; 0 of {} containers touched across",
        begun.elapsed(),
        before.len()
    ));
}

fn service(name: &str, replicas: u64, round: usize) -> Value {
    json!({"name": name, "image": IMAGE, "replicas": replicas, "stop_grace_period": 0,
        "environment": {"ROUND": round.to_string()}})
}

async fn containers(docker: &Docker) -> BTreeMap<String, ListedContainer> {
    let of_still = |container: &ListedContainer| container.name.starts_with("still-");
    docker.containers().await.into_iter().filter(of_still).map(|found| (found.id.clone(), found)).collect()
}

async fn starts(docker: &Docker, containers: &BTreeMap<String, ListedContainer>) -> Vec<String> {
    let mut starts = Vec::new();
    for id in containers.keys() {
        starts.push(docker.started_at(id).await);
    }
    starts
}

async fn change(http: &Http, round: usize, is_kept: bool) {
    let path = "/service/moving";
    if is_kept && round % 3 == 2 {
        let (status, body) = http.send(Method::DELETE, path, None).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{body}");
        gone(http, "moving").await;
        return;
    }
    let replicas = 1 + round as u64 % 2;
    let (status, body) = http.send(Method::PUT, path, Some(&service("moving", replicas, round))).await;
    assert!(status.is_success(), "{status}: {body}");
    eventually_within(LONG, "the change is carried out", || async {
        let (_, body) = http.send(Method::GET, path, None).await;
        let status = &body["status"];
        let is_done = status["running"] == replicas && status["updated"] == replicas;
        check(is_done, || body.to_string())
    })
    .await;
    if !is_kept {
        let _ = http.send(Method::DELETE, path, None).await;
        gone(http, "moving").await;
    }
}

async fn disturb(round: usize, workers: &mut [DaemonProcess; 2], cluster: &Cluster) {
    match round % 3 {
        0 => workers.iter_mut().for_each(DaemonProcess::start_again),
        1 => {
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

struct Dev {
    process: ChildGuard,
    http: Http,
    listen: String,
    home: TempDir,
}

impl Dev {
    async fn start(names: &[String; 2]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("data");
        fs::create_dir(&data).unwrap();
        let saved = json!({"format": 1, "runtime": "docker", "workers": names});
        fs::write(data.join("dev.json"), saved.to_string()).unwrap();
        let listen = format!("127.0.0.1:{}", free_port());
        let http = Http::new(&format!("http://{listen}"));
        let mut dev = Self { process: spawn(home.path(), &listen), http, listen, home };
        dev.runs().await;
        dev
    }

    /// Its Redis stays.
    async fn start_again(&mut self) {
        self.process.kill();
        self.process = spawn(self.home.path(), &self.listen);
        self.runs().await;
    }

    async fn runs(&mut self) {
        let deadline = Instant::now() + LONG;
        loop {
            let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
            if read(self.home.path().join("out")).contains("Ctrl-C stops") {
                return;
            }
            let why = read(self.home.path().join("err"));
            assert!(Instant::now() < deadline, "`dev` does not run: {why}");
            if self.process.ended().is_some() {
                assert!(why.contains("another `kubeleet dev` runs containers on this machine"), "{why}");
                self.process = spawn(self.home.path(), &self.listen);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // Its Redis ends only with it.
        let _status = self.process.terminate(Duration::from_secs(30));
    }
}

fn spawn(home: &Path, listen: &str) -> ChildGuard {
    let mut command = Command::new(binary());
    command.args(["dev", "--no-hello", "--runtime", "docker", "--data"]).arg(home.join("data"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    if let Some(host) = std::env::var_os("DOCKER_HOST") {
        command.env("DOCKER_HOST", host);
    }
    let timing = ClusterTiming::Medium.settings().iter();
    command.envs(timing.map(|(name, value)| (format!("KUBELEET_{name}"), value)));
    command.env("KUBELEET_LISTEN", listen).env("KUBELEET_INGRESS_LISTEN", "off").env("KUBELEET_NAMES", "off");
    let create = |name| File::create(home.join(name)).unwrap();
    ChildGuard::spawn(command.stdout(create("out")).stderr(create("err"))).unwrap()
}
