//! kubeleet on several hosts as docs/how-to/high-availability.md has it.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Pid;
use testkit::ChildGuard;
use testkit::eventually::eventually_within;
use testkit::sentinel::check_complete;

use super::{Host, TestHosts};
use crate::invariants::Running;
use crate::{ClusterTiming, DaemonProcess, Docker, Http};

const START_TIMEOUT: Duration = Duration::from_secs(60);

pub struct HostCluster {
    /// In the order of the hosts.
    engines: Vec<Docker>,
    daemons: Vec<DaemonProcess>,
    _redis: Vec<ChildGuard>,
    pub hosts: TestHosts,
    timing: ClusterTiming,
}

impl Drop for HostCluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for (host, name) in
            self.hosts.all().iter().flat_map(|host| [(host, "redis.log"), (host, "sentinel.log")])
        {
            let text = fs::read_to_string(host.folder().join(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            #[allow(clippy::print_stderr, reason = "part of the failing test's output")]
            {
                eprintln!(
                    "---- the end of {name} of {}:\n{}",
                    host.name(),
                    lines[lines.len().saturating_sub(40)..].join("\n")
                );
            }
        }
    }
}

impl HostCluster {
    /// None as in [`TestHosts::start`].
    pub async fn start(timing: ClusterTiming) -> Option<Self> {
        let hosts = TestHosts::start(3).await?;
        let mut redis = Vec::new();
        for host in hosts.all() {
            redis.push(start_redis(host, hosts.host(0)));
        }
        for host in hosts.all() {
            redis.push(start_sentinel(host, hosts.host(0)));
        }
        let mut engines = Vec::new();
        for host in hosts.all() {
            engines.push(Docker::at(&host.docker_host(), host.name()).await);
        }
        let mut cluster = Self { engines, daemons: Vec::new(), _redis: redis, hosts, timing };
        for index in 0..3 {
            for command in ["api", "scheduler", "worker"] {
                let daemon = cluster.start_daemon(index, command);
                cluster.daemons.push(daemon);
            }
        }
        eventually_within(START_TIMEOUT, "the API is ready", || async {
            let http = cluster.http(0);
            let answer = http.try_send(reqwest::Method::GET, "/readyz", None).await;
            answer.map_err(|error| error.to_string())?.error_for_status().map_err(|error| error.to_string())
        })
        .await;
        cluster.http(0).nodes_ready(3).await;
        eventually_within(START_TIMEOUT, "the Sentinels can fail over", || async {
            let hosts = cluster.hosts.all().iter();
            check_complete(hosts.map(|host| format!("redis://{}:26379", host.address())), 2).await
        })
        .await;
        Some(cluster)
    }

    fn start_daemon(&self, index: usize, command: &str) -> DaemonProcess {
        let addresses: Vec<_> =
            self.hosts.all().iter().map(|host| format!("{}:26379", host.address())).collect();
        let redis = format!("redis+sentinel://{}/mymaster", addresses.join(","));
        self.hosts.host(index).start_daemon(command, &redis, self.timing, &[])
    }

    pub fn http(&self, index: usize) -> Http {
        Http::new(&format!("http://{}:7070", self.hosts.host(index).address())).with_token("test")
    }

    pub async fn running(&self, index: usize) -> Vec<(Running, Pid)> {
        self.engines[index].with_leaders().await
    }
}

impl Host {
    /// An API takes the token `test`.
    pub fn start_daemon(
        &self,
        command: &str,
        redis: &str,
        timing: ClusterTiming,
        settings: &[(&str, &str)],
    ) -> DaemonProcess {
        let path = |name: &str| self.folder().join(name).display().to_string();
        let mut environment: BTreeMap<String, String> = [
            ("KUBELEET_REDIS_URL", redis.to_owned()),
            ("KUBELEET_LISTEN", format!("{}:7070", self.address())),
            ("KUBELEET_TOKEN", "test".to_owned()),
            ("KUBELEET_NODE", self.name().to_owned()),
            ("KUBELEET_STATE_DIR", path("state")),
            ("KUBELEET_DATA_DIR", path("pods")),
            ("DOCKER_HOST", self.docker_host()),
            ("NO_COLOR", "1".to_owned()),
            ("PATH", std::env::var("PATH").unwrap_or_default()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let timing = timing.settings().iter();
        environment.extend(timing.map(|(name, value)| (format!("KUBELEET_{name}"), (*value).to_owned())));
        environment.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let log = self.folder().join(format!("{command}.log"));
        DaemonProcess::start_within(&self.entry(), command, environment, log)
    }
}

fn start_redis(host: &Host, master: &Host) -> ChildGuard {
    let mut command = host.command("redis-server");
    command.args(["--port", "6379", "--bind", host.address(), "127.0.0.1", "--protected-mode", "no"]);
    command.args(["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]);
    command.args(["--min-replicas-to-write", "1", "--min-replicas-max-lag", "3", "--repl-timeout", "10"]);
    command.arg("--dir").arg(host.folder());
    if host.address() != master.address() {
        command.args(["--replicaof", master.address(), "6379"]);
    }
    let log = fs::File::create(host.folder().join("redis.log")).unwrap();
    ChildGuard::spawn(command.stdout(log).stderr(Stdio::null())).expect("redis-server can be started")
}

fn start_sentinel(host: &Host, master: &Host) -> ChildGuard {
    let configuration = format!(
        "port 26379\nbind {} 127.0.0.1\nprotected-mode no\nsentinel monitor mymaster {} 6379 2\n\
         sentinel down-after-milliseconds mymaster 2000\nsentinel failover-timeout mymaster 3000\n",
        host.address(),
        master.address()
    );
    let path = host.folder().join("sentinel.conf");
    fs::write(&path, configuration).unwrap();
    let mut command = host.command("redis-server");
    let log = fs::File::create(host.folder().join("sentinel.log")).unwrap();
    command.arg(&path).arg("--sentinel").stdout(log).stderr(Stdio::null());
    ChildGuard::spawn(&mut command).expect("redis-server can be started as a sentinel")
}
