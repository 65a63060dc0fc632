//! The gap between the last sign of a pod on its old node and its start on another: what `on_disconnect: stop` promises
//! is that it is never negative.
//!
//! One try is a cluster with a node of process pods and, where there is an engine, one of containers. Something happens to
//! both of them at a time, and their `stop` pods have to stop there before they start on a third. It does not come back:
//! whatever starts the worker finds a binary that ends at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::clock::{BootClock, Clock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::docker::{Docker, IMAGE};
use crate::invariants::Running;
use crate::life::{self, Watched};
use crate::wait::LIMIT;
use crate::wire::Wire;
use crate::{Cluster, Daemon, Timing, eventually};

/// What happens to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// SIGSTOP to the worker process.
    Stopped,
    /// SIGKILL to the worker process.
    Killed,
    /// Nothing comes through between the node and Redis any more.
    Cut,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 3] = [Fault::Stopped, Fault::Killed, Fault::Cut];

    /// For the table.
    pub fn words(self) -> &'static str {
        match self {
            Fault::Stopped => "worker stopped (SIGSTOP)",
            Fault::Killed => "worker killed (SIGKILL), not to be started again",
            Fault::Cut => "Redis cut off from the node",
        }
    }
}

/// A node that something happens to.
struct Victim {
    runtime: &'static str,
    node: String,
    worker: Daemon,
    wire: Wire,
    binary: PathBuf,
}

impl Victim {
    async fn start(cluster: &Cluster, runtime: &'static str) -> Self {
        let short = format!("victim-{runtime}");
        let binary = own_binary(&cluster.folder().join(&short));
        let wire = Wire::to(cluster.redis.port()).await;
        let settings = [("KUBELEET_REDIS_URL", wire.url()), ("KUBELEET_MAX_PODS", "6".to_owned())];
        let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
        let worker = cluster.worker_with(&short, runtime, &settings).instead(&binary, "worker");
        Self { runtime, node: cluster.node(&short), worker, wire, binary }
    }

    async fn suffers(&self, fault: Fault) {
        let worker = || self.worker.guarded().expect("the guard has a worker");
        match fault {
            Fault::Stopped => {
                break_binary(&self.binary);
                kill_process(worker(), Signal::STOP).unwrap();
            }
            Fault::Killed => {
                break_binary(&self.binary);
                kill_process(worker(), Signal::KILL).unwrap();
            }
            Fault::Cut => self.wire.cut(),
        }
    }
}

/// A copy of the binary that can be broken without hurting anybody else.
pub fn own_binary(folder: &Path) -> PathBuf {
    std::fs::create_dir_all(folder).unwrap();
    let own = folder.join("kubeleet");
    let theirs = crate::cluster::binary();
    if std::fs::hard_link(theirs, &own).is_err() {
        std::fs::copy(theirs, &own).unwrap();
    }
    own
}

/// From now on it ends at once when it is started. What runs of it runs on.
pub fn break_binary(binary: &Path) {
    replace_binary(binary, "exit 1");
}

/// From now on these lines of shell are started in its place. What runs of it runs on.
pub fn replace_binary(binary: &Path, lines: &str) {
    use std::os::unix::fs::PermissionsExt;
    let broken = binary.with_extension("broken");
    std::fs::write(&broken, format!("#!/bin/sh\n{lines}\n")).unwrap();
    std::fs::set_permissions(&broken, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&broken, binary).unwrap();
}

/// Two nodes with `stop` and `keep` pods, and a third that takes over.
struct Rig {
    cluster: Cluster,
    docker: Option<Docker>,
    victims: Vec<Victim>,
    stop: Vec<(Running, Pid)>,
    keep: Vec<(Running, Pid)>,
    _others: [Daemon; 3],
}

impl Rig {
    async fn new() -> Self {
        let cluster = Cluster::new(Timing::Medium).await;
        let docker = Docker::find(&cluster.prefix).await;
        let (api, scheduler) = (cluster.api().await, cluster.scheduler());
        let http = api.http();
        let mut victims = vec![Victim::start(&cluster, "process").await];
        if docker.is_some() {
            victims.push(Victim::start(&cluster, "docker").await);
        }
        http.nodes_ready(victims.len()).await;
        // The time they have to end is the default. As process 1 of a container `sleep` does not listen to SIGTERM.
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
        victim.expect("it ran on a node that something happened to").runtime
    }

    /// Waits until the pod runs on another node; when it began there.
    async fn began_elsewhere(&self, old: &Running) -> u64 {
        let limit = self.cluster.timing().dead_after() + LIMIT;
        eventually(limit, &format!("pod {} starts elsewhere", old.pod), || async {
            let all = all(&self.cluster, self.docker.as_ref()).await;
            let new = all.iter().find(|(pod, _)| pod.pod == old.pod && pod.node != old.node);
            new.and_then(|(_, pid)| life::began(*pid)).ok_or_else(|| format!("{all:?}"))
        })
        .await
    }
}

/// One try: the smallest gap of any pod, in milliseconds, by the runtime of the old node.
///
/// # Panics
/// When a pod does not move, or one that is to be kept is stopped.
pub async fn once(fault: Fault) -> BTreeMap<&'static str, i64> {
    let rig = Rig::new().await;
    let watched: Vec<_> = rig.stop.iter().map(|(pod, pid)| (pod, Watched::process(*pid))).collect();
    for victim in &rig.victims {
        victim.suffers(fault).await;
    }
    let mut gaps = BTreeMap::new();
    for (pod, watched) in watched {
        let began = rig.began_elsewhere(pod).await;
        // It still runs: as large a fault as can be.
        let gap = watched.ended().map_or(i64::MIN, |ended| life::gap(ended, began));
        gaps.entry(rig.runtime_of(pod)).and_modify(|least: &mut i64| *least = gap.min(*least)).or_insert(gap);
    }
    for (pod, pid) in &rig.keep {
        assert!(life::began(*pid).is_some(), "{pod:?} is to be kept, and was stopped");
    }
    gaps
}

/// One try of what nothing can prevent: a whole machine stands still, its pods included, until they have been started
/// elsewhere, and then goes on. For how long the longest of its `stop` pods runs then, in milliseconds, by the runtime.
///
/// # Panics
/// When one of them does not end.
pub async fn after_a_standstill() -> BTreeMap<&'static str, i64> {
    let rig = Rig::new().await;
    let watched: Vec<_> = rig.stop.iter().map(|(pod, pid)| (pod, *pid, Watched::process(*pid))).collect();
    rig.victims.iter().for_each(|victim| victim.worker.freeze());
    watched.iter().for_each(|(_, pid, _)| kill_process(*pid, Signal::STOP).unwrap());
    for (pod, ..) in &watched {
        rig.began_elsewhere(pod).await;
    }
    let back = BootClock.now().millis;
    watched.iter().for_each(|(_, pid, _)| kill_process(*pid, Signal::CONT).unwrap());
    rig.victims.iter().for_each(|victim| victim.worker.thaw());
    let mut longest = BTreeMap::new();
    for (pod, pid, watched) in watched {
        life::is_gone(pid, LIMIT).await;
        let ended =
            eventually(LIMIT, "its end is noted", || async { watched.ended().ok_or("not yet") }).await;
        let lasted = life::gap(back, ended);
        longest
            .entry(rig.runtime_of(pod))
            .and_modify(|most: &mut i64| *most = lasted.max(*most))
            .or_insert(lasted);
    }
    longest
}

fn ids(pods: Vec<serde_json::Value>) -> Vec<String> {
    pods.iter().map(|pod| pod["uuid"].as_str().unwrap().to_owned()).collect()
}

/// What runs, on whatever engine.
async fn all(cluster: &Cluster, docker: Option<&Docker>) -> Vec<(Running, Pid)> {
    let mut all = cluster.processes.with_leaders();
    if let Some(docker) = docker {
        all.extend(docker.with_leaders().await);
    }
    all
}
