//! The measured cluster: a Redis and daemons with default settings.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use kubeleet_tests::child_guard::ChildGuard;
use kubeleet_tests::cluster::binary;
use kubeleet_tests::ports::free_port;
use kubeleet_tests::processes::cpu_seconds;
use kubeleet_tests::{Http, Redis};
use redis::aio::MultiplexedConnection;
use reqwest::Method;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use testkit::eventually::{check, eventually_within};

use crate::observe;

/// How Redis persists its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Persistence {
    /// In memory only
    None,
    /// Append-only file, synced once a second, as in the HA stack
    Everysec,
    /// Append-only file, synced before each reply
    Always,
}

impl Persistence {
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Everysec => "everysec",
            Self::Always => "always",
        }
    }

    pub async fn redis(self) -> Redis {
        self.redis_with(&[]).await
    }

    pub async fn redis_with(self, more: &[&str]) -> Redis {
        Redis::start_with(&[self.arguments().as_slice(), more].concat()).await
    }

    pub fn arguments(self) -> Vec<&'static str> {
        let append = if self == Self::None { "no" } else { "yes" };
        let fsync = if self == Self::Always { "always" } else { "everysec" };
        let durability = ["--save", "", "--appendonly", append, "--appendfsync", fsync];
        let limits = ["--maxclients", "12000", "--tcp-backlog", "4096"];
        [durability.as_slice(), &limits].concat()
    }
}

pub struct Rig {
    pub redis: Redis,
    redis_process: u32,
    settings: Vec<(&'static str, String)>,
    folder: TempDir,
    daemons: Vec<Process>,
    pub nodes: Vec<String>,
}

pub struct Process {
    /// `api`, `scheduler` or `worker`.
    pub kind: &'static str,
    child: ChildGuard,
}

impl Process {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn freeze(&self) {
        self.child.signal(Signal::STOP);
    }
}

impl Rig {
    /// `settings` are for all later daemons.
    pub async fn new(persistence: Persistence, settings: &[(&'static str, &str)]) -> Self {
        Self::with_redis(persistence.redis().await, settings).await
    }

    pub async fn with_redis(redis: Redis, settings: &[(&'static str, &str)]) -> Self {
        let settings = settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let folder = tempfile::tempdir().unwrap();
        let info: String = redis.cli(&["INFO", "server"]).await;
        let redis_process = observe::info(&info, "process_id").parse().unwrap();
        Self { redis, redis_process, settings, folder, daemons: Vec::new(), nodes: Vec::new() }
    }

    /// Returns when all are idle.
    pub async fn cluster(
        persistence: Persistence,
        nodes: u32,
        schedulers: u32,
        settings: &[(&'static str, &str)],
    ) -> (Self, Http) {
        let mut rig = Self::new(persistence, settings).await;
        rig.workers("w", nodes).await;
        for _ in 0..schedulers {
            rig.scheduler();
        }
        let http = rig.api().await;
        rig.wait_until_ready(schedulers).await;
        (rig, http)
    }

    /// Simulated workers `<name>-1` … in one process, whose index is returned.
    pub async fn workers(&mut self, name: &str, count: u32) -> usize {
        let workers = count.to_string();
        let mut settings = vec![("KUBELEET_NODE", name), ("KUBELEET_RUNTIME", "sim")];
        settings.extend([("KUBELEET_MAX_PODS", "100000"), ("KUBELEET_SIM_WORKERS", &workers)]);
        let index = self.start("worker", name, &settings);
        let names = (1..=count).map(|n| if count == 1 { name.to_owned() } else { format!("{name}-{n}") });
        self.nodes.extend(names);
        let wanted = self.nodes.len();
        eventually_within(Duration::from_secs(60), "all workers are registered", || async {
            let registered: usize = self.redis.cli(&["ZCARD", "beats"]).await;
            check(registered >= wanted, || format!("{registered} of {wanted} are"))
        })
        .await;
        index
    }

    pub fn scheduler(&mut self) -> usize {
        let name = format!("scheduler-{}", self.daemons.len());
        self.start("scheduler", &name, &[])
    }

    pub async fn api(&mut self) -> Http {
        let listen = format!("127.0.0.1:{}", free_port());
        self.start("api", "api", &[("KUBELEET_LISTEN", &listen)]);
        let http = Http::new(&format!("http://{listen}"));
        eventually_within(Duration::from_secs(20), "the API is ready", || async {
            match http.try_send(Method::GET, "/readyz", None).await {
                Ok(answer) if answer.status().is_success() => Ok(()),
                Ok(answer) => Err(answer.status().to_string()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
        http
    }

    pub fn start(&mut self, kind: &'static str, name: &str, settings: &[(&str, &str)]) -> usize {
        self.start_command(Command::new(binary()), kind, name, settings)
    }

    pub fn start_command(
        &mut self,
        mut command: Command,
        kind: &'static str,
        name: &str,
        settings: &[(&str, &str)],
    ) -> usize {
        let file = fs::File::create(self.folder.path().join(format!("{name}.log"))).unwrap();
        command.arg(kind).env_clear().envs(self.environment(settings)).stdout(Stdio::null()).stderr(file);
        let child = ChildGuard::spawn(&mut command).unwrap();
        self.daemons.push(Process { kind, child });
        self.daemons.len() - 1
    }

    fn environment(&self, settings: &[(&str, &str)]) -> BTreeMap<String, String> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let mut environment: BTreeMap<String, String> = BTreeMap::from([
            ("KUBELEET_REDIS_URL".to_owned(), self.redis.url()),
            ("KUBELEET_STATE_DIR".to_owned(), path("state")),
            ("KUBELEET_DATA_DIR".to_owned(), path("data")),
        ]);
        for kept in ["PATH", "DOCKER_HOST", "KUBELEET_LOG"] {
            if let Ok(value) = std::env::var(kept) {
                environment.insert(kept.to_owned(), value);
            }
        }
        let all =
            self.settings.iter().map(|(name, value)| (*name, value.as_str())).chain(settings.iter().copied());
        environment.extend(all.map(|(name, value)| (name.to_owned(), value.to_owned())));
        environment
    }

    pub fn daemon(&mut self, index: usize) -> &mut Process {
        &mut self.daemons[index]
    }

    pub fn daemons(&self) -> &[Process] {
        &self.daemons
    }

    async fn wait_until_ready(&self, schedulers: u32) {
        eventually_within(Duration::from_secs(20), "the schedulers are registered", || async {
            let registered: u32 = self.redis.cli(&["ZCARD", "schedulers"]).await;
            check(registered >= schedulers, || format!("{registered} of {schedulers} are"))
        })
        .await;
        self.wait_until_idle(Duration::from_secs(60)).await;
    }

    pub async fn run_service(&self, http: &Http, service: &Value) {
        let (status, answer) = http.send(Method::POST, "/service", Some(service)).await;
        assert_eq!(status.as_u16(), 201, "{answer}");
        let mut connection = self.connection().await;
        let running = async || observe::running(&mut connection, &self.nodes).await;
        let pods = service["replicas"].as_u64().unwrap();
        observe::until("running", pods, Instant::now(), running).await;
    }

    /// Until all processes together use less than a fifth of a core for a second.
    pub async fn wait_until_idle(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        loop {
            let before = self.cpu();
            tokio::time::sleep(Duration::from_secs(1)).await;
            let used = self.cpu().total() - before.total();
            if used < 0.2 || Instant::now() > deadline {
                return;
            }
        }
    }

    pub async fn connection(&self) -> MultiplexedConnection {
        self.redis.connection().await.unwrap()
    }

    pub fn cpu(&self) -> Cpu {
        let mut by_kind = BTreeMap::new();
        for daemon in &self.daemons {
            for process in with_descendants(daemon.id()) {
                *by_kind.entry(daemon.kind).or_default() += cpu_seconds(process);
            }
        }
        by_kind.insert("redis", cpu_seconds(self.redis_process));
        by_kind.insert("bench", cpu_seconds(std::process::id()));
        Cpu(by_kind)
    }
}

/// A worker runs behind its supervisor, on a host both behind the entering command.
pub fn with_descendants(process: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    [process].into_iter().chain(children.flat_map(with_descendants)).collect()
}

#[derive(Debug, Clone, Default)]
pub struct Cpu(pub BTreeMap<&'static str, f64>);

impl Cpu {
    pub fn since(&self, before: &Self) -> Self {
        let since = |(kind, now): (&&'static str, &f64)| (*kind, now - before.0.get(kind).unwrap_or(&0.0));
        Self(self.0.iter().map(since).collect())
    }

    pub fn total(&self) -> f64 {
        self.0.iter().filter(|(kind, _)| **kind != "bench").map(|(_, seconds)| seconds).sum()
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    /// Includes the pages of the binary that all daemons of a node share.
    pub resident: f64,
    /// Each shared page is divided by the number of its processes.
    pub proportional: f64,
}

impl Memory {
    pub fn of(process: u32) -> Self {
        let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
        let bytes = |field: &str| {
            let line = text.lines().find(|line| line.starts_with(field)).unwrap_or_default();
            line.split_whitespace().nth(1).and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0) * 1024.0
        };
        Self { resident: bytes("Rss:"), proportional: bytes("Pss:") }
    }
}
