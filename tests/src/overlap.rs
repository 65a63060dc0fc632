//! Measures the gap between a pod's end on its old node and its start elsewhere. `on_disconnect: stop`
//! promises that it is never negative.
//!
//! A fault hits a node of process pods and a node of containers at once. Their workers cannot be restarted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::clock::{BootClock, Clock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use testkit::eventually::eventually_within;

use crate::cuttable_proxy::CuttableProxy;
use crate::docker::{Docker, IMAGE};
use crate::invariants::Running;
use crate::pod_life::{self, Watched};
use crate::{Cluster, ClusterTiming, DaemonProcess, LIMIT};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Stopped,
    Killed,
    Cut,
}

impl Fault {
    pub const ALL: [Fault; 3] = [Fault::Stopped, Fault::Killed, Fault::Cut];

    pub fn description(self) -> &'static str {
        match self {
            Fault::Stopped => "worker stopped (SIGSTOP)",
            Fault::Killed => "worker killed (SIGKILL), not to be started again",
            Fault::Cut => "Redis cut off from the node",
        }
    }
}

struct Victim {
    runtime: &'static str,
    node: String,
    worker: DaemonProcess,
    proxy: CuttableProxy,
    binary: PathBuf,
}

impl Victim {
    async fn start(cluster: &Cluster, runtime: &'static str) -> Self {
        let short = format!("victim-{runtime}");
        let binary = private_binary(&cluster.folder().join(&short));
        let proxy = CuttableProxy::to(cluster.redis.port()).await;
        let settings = [("KUBELEET_REDIS_URL", proxy.url()), ("KUBELEET_MAX_PODS", "6".to_owned())];
        let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
        let worker = cluster.worker_with(&short, runtime, &settings).instead(&binary, "worker");
        Self { runtime, node: cluster.node(&short), worker, proxy, binary }
    }

    fn inject(&self, fault: Fault) {
        let worker = || self.worker.supervised_worker().expect("the supervisor has a worker");
        match fault {
            Fault::Stopped => {
                break_binary(&self.binary);
                kill_process(worker(), Signal::STOP).unwrap();
            }
            Fault::Killed => {
                break_binary(&self.binary);
                kill_process(worker(), Signal::KILL).unwrap();
            }
            Fault::Cut => self.proxy.cut(),
        }
    }
}

pub fn private_binary(folder: &Path) -> PathBuf {
    std::fs::create_dir_all(folder).unwrap();
    let own = folder.join("kubeleet");
    let shared = crate::cluster::binary();
    if std::fs::hard_link(shared, &own).is_err() {
        std::fs::copy(shared, &own).unwrap();
    }
    own
}

pub fn break_binary(binary: &Path) {
    replace_binary(binary, "exit 1");
}

pub fn replace_binary(binary: &Path, lines: &str) {
    use std::os::unix::fs::PermissionsExt;
    let script = binary.with_extension("broken");
    std::fs::write(&script, format!("#!/bin/sh\n{lines}\n")).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&script, binary).unwrap();
}

struct OverlapFixture {
    cluster: Cluster,
    docker: Option<Docker>,
    victims: Vec<Victim>,
    stop: Vec<(Running, Pid)>,
    keep: Vec<(Running, Pid)>,
    _others: [DaemonProcess; 3],
}

impl OverlapFixture {
    async fn new() -> Self {
        let cluster = Cluster::new(ClusterTiming::Medium).await;
        let docker = Docker::find(&cluster.prefix).await;
        let (api, scheduler) = (cluster.api().await, cluster.scheduler());
        let http = api.http();
        let mut victims = vec![Victim::start(&cluster, "process").await];
        if docker.is_some() {
            victims.push(Victim::start(&cluster, "docker").await);
        }
        http.nodes_ready(victims.len()).await;
        // The grace period is the default: `sleep` as process 1 of a container ignores SIGTERM.
        for (name, on_disconnect) in [("db", "stop"), ("web", "keep")] {
            let service = json!({
                "name": name, "image": IMAGE, "command": ["/bin/sleep", "86400"], "on_disconnect": on_disconnect,
                "replicas": 2 * victims.len(),
            });
            http.post("/service", &service).await;
            http.runs(LIMIT, name, 2 * victims.len() as u64).await;
        }
        let other = cluster.worker("other", "process");
        http.nodes_ready(victims.len() + 1).await;
        let must_stop = ids(http.pods("service=db").await);
        let running = all(&cluster, docker.as_ref()).await;
        let (stop, keep) = running.into_iter().partition(|(pod, _)| must_stop.contains(&pod.pod));
        Self { cluster, docker, victims, stop, keep, _others: [api, scheduler, other] }
    }

    fn runtime_of(&self, pod: &Running) -> &'static str {
        let victim = self.victims.iter().find(|victim| victim.node == pod.node);
        victim.expect("it ran on a node that was hit").runtime
    }

    /// In milliseconds since boot.
    async fn started_elsewhere(&self, old: &Running) -> u64 {
        let limit = self.cluster.timing().dead_after() + LIMIT;
        eventually_within(limit, &format!("pod {} starts elsewhere", old.pod), || async {
            let all = all(&self.cluster, self.docker.as_ref()).await;
            let new = all.iter().find(|(pod, _)| pod.pod == old.pod && pod.node != old.node);
            new.and_then(|(_, pid)| pod_life::started(*pid)).ok_or_else(|| format!("{all:?}"))
        })
        .await
    }
}

/// Smallest gap of any pod in milliseconds, by the old node's runtime.
pub async fn measure_gaps(fault: Fault) -> BTreeMap<&'static str, i64> {
    let fixture = OverlapFixture::new().await;
    let watched: Vec<_> = fixture.stop.iter().map(|(pod, pid)| (pod, Watched::process(*pid))).collect();
    for victim in &fixture.victims {
        victim.inject(fault);
    }
    let mut gaps = BTreeMap::new();
    for (pod, watched) in watched {
        let started = fixture.started_elsewhere(pod).await;
        // A copy that still runs is the worst result.
        let gap = watched.ended().map_or(i64::MIN, |ended| pod_life::gap(ended, started));
        gaps.entry(fixture.runtime_of(pod))
            .and_modify(|least: &mut i64| *least = gap.min(*least))
            .or_insert(gap);
    }
    for (pod, pid) in &fixture.keep {
        assert!(pod_life::started(*pid).is_some(), "{pod:?} must be kept, and was stopped");
    }
    gaps
}

/// Returns how many milliseconds the longest `stop` pod still runs after its machine was resumed, by runtime.
pub async fn measure_resumed_pods() -> BTreeMap<&'static str, i64> {
    let fixture = OverlapFixture::new().await;
    let watched: Vec<_> = fixture.stop.iter().map(|(pod, pid)| (pod, *pid, Watched::process(*pid))).collect();
    fixture.victims.iter().for_each(|victim| victim.worker.freeze());
    watched.iter().for_each(|(_, pid, _)| kill_process(*pid, Signal::STOP).unwrap());
    for (pod, ..) in &watched {
        fixture.started_elsewhere(pod).await;
    }
    let resumed = BootClock.now().millis;
    watched.iter().for_each(|(_, pid, _)| kill_process(*pid, Signal::CONT).unwrap());
    fixture.victims.iter().for_each(|victim| victim.worker.thaw());
    let mut longest = BTreeMap::new();
    for (pod, pid, watched) in watched {
        pod_life::wait_until_gone(pid, LIMIT).await;
        let ended =
            eventually_within(LIMIT, "its end is recorded", || async { watched.ended().ok_or("not yet") })
                .await;
        let duration = pod_life::gap(resumed, ended);
        longest
            .entry(fixture.runtime_of(pod))
            .and_modify(|longest: &mut i64| *longest = duration.max(*longest))
            .or_insert(duration);
    }
    longest
}

const MANY_STARTED_WITHIN: Duration = Duration::from_secs(300);

/// Milliseconds from the last end on a cut-off node to the first start elsewhere. Its pods ignore SIGTERM.
/// `None` without an engine for `docker`.
pub async fn measure_many(runtime: &'static str, pods: usize) -> Option<i64> {
    let cluster = Cluster::new(ClusterTiming::Default).await;
    let docker = match runtime {
        "docker" => Some(Docker::find(&cluster.prefix).await?),
        _ => None,
    };
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let proxy = CuttableProxy::to(cluster.redis.port()).await;
    let (count, url) = (pods.to_string(), proxy.url());
    let room =
        [("KUBELEET_MAX_PODS", count.as_str()), ("KUBELEET_MEMORY", "1TiB"), ("KUBELEET_PIDS", "1000000")];
    let settings: Vec<_> = room.into_iter().chain([("KUBELEET_REDIS_URL", url.as_str())]).collect();
    let _victim = cluster.worker_with("victim", runtime, &settings);
    let http = api.http();
    http.nodes_ready(1).await;
    let command = ["/bin/sh", "-c", "trap '' TERM; while :; do /bin/sleep 3600; done"];
    let service = json!({
        "name": "many", "image": IMAGE, "command": command, "on_disconnect": "stop", "replicas": pods,
        "memory": "8MiB",
    });
    http.post("/service", &service).await;
    http.runs(MANY_STARTED_WITHIN, "many", pods as u64).await;
    let running = all(&cluster, docker.as_ref()).await;
    assert_eq!(running.len(), pods);
    let watched: Vec<Watched> = running.iter().map(|(_, pid)| Watched::process(*pid)).collect();
    let _other = cluster.worker_with("other", "process", &room);
    http.nodes_ready(2).await;
    proxy.cut();
    let other = cluster.node("other");
    let limit = cluster.timing().dead_after() + LIMIT;
    let first = eventually_within(limit, "a pod starts elsewhere", || async {
        let elsewhere = cluster.processes.with_leaders().into_iter().filter(|(pod, _)| pod.node == other);
        elsewhere.filter_map(|(_, pid)| pod_life::started(pid)).min().ok_or("not yet")
    })
    .await;
    let ends: Option<Vec<u64>> = watched.iter().map(Watched::ended).collect();
    let last = ends.and_then(|ends| ends.into_iter().max());
    Some(last.map_or(i64::MIN, |last| pod_life::gap(last, first)))
}

fn ids(pods: Vec<serde_json::Value>) -> Vec<String> {
    pods.iter().map(|pod| pod["uuid"].as_str().unwrap().to_owned()).collect()
}

async fn all(cluster: &Cluster, docker: Option<&Docker>) -> Vec<(Running, Pid)> {
    let mut all = cluster.processes.with_leaders();
    if let Some(docker) = docker {
        all.extend(docker.with_leaders().await);
    }
    all
}
