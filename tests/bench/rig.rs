//! A cluster to measure: Redis with the persistence in question, and daemons with default settings, each a process.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use kubeleet_tests::cluster::binary;
use kubeleet_tests::leash::Leashed;
use kubeleet_tests::ports::free_port;
use kubeleet_tests::{Http, Redis, eventually};
use redis::aio::MultiplexedConnection;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::observe;

/// How Redis keeps what it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Persistence {
    /// In memory only.
    None,
    /// Append-only file, written to the disk once a second: what the HA stack sets.
    Everysec,
    /// Append-only file, on the disk before the reply.
    Always,
}

impl Persistence {
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Everysec => "everysec",
            Self::Always => "always",
        }
    }

    /// A server of that kind, with room for many workers.
    pub async fn redis(self) -> Redis {
        self.redis_with(&[]).await
    }

    /// The same with further arguments.
    pub async fn redis_with(self, more: &[&str]) -> Redis {
        let append = if self == Self::None { "no" } else { "yes" };
        let fsync = if self == Self::Always { "always" } else { "everysec" };
        let usual = ["--save", "", "--appendonly", append, "--appendfsync", fsync];
        let roomy = ["--maxclients", "12000", "--tcp-backlog", "4096"];
        Redis::start_with(&[usual.as_slice(), &roomy, more].concat()).await
    }
}

/// Redis and daemons. Dropped, all are killed.
pub struct Rig {
    pub redis: Redis,
    redis_process: u32,
    settings: Vec<(&'static str, String)>,
    folder: TempDir,
    daemons: Vec<Process>,
    /// All nodes that [`Rig::workers`] started, by name.
    pub nodes: Vec<String>,
}

/// One daemon.
pub struct Process {
    pub what: &'static str,
    leash: Leashed,
}

impl Process {
    pub fn id(&self) -> u32 {
        self.leash.id()
    }

    /// SIGSTOP: as if its machine were gone.
    pub fn freeze(&self) {
        self.leash.signal(Signal::STOP);
    }
}

impl Rig {
    /// Redis alone; `settings` are for all daemons.
    pub async fn new(persistence: Persistence, settings: &[(&'static str, &str)]) -> Self {
        Self::over(persistence.redis().await, settings).await
    }

    /// The same over this server.
    pub async fn over(redis: Redis, settings: &[(&'static str, &str)]) -> Self {
        let settings = settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let folder = tempfile::tempdir().unwrap();
        let info: String = redis.cli(&["INFO", "server"]).await;
        let redis_process = observe::info(&info, "process_id").parse().unwrap();
        Self { redis, redis_process, settings, folder, daemons: Vec::new(), nodes: Vec::new() }
    }

    /// The usual: simulated workers, schedulers and an API, ready and at rest.
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
        rig.comes_to_rest(schedulers).await;
        (rig, http)
    }

    /// One process with so many simulated workers `<name>-1` …; waits until all are registered.
    pub async fn workers(&mut self, name: &str, count: u32) -> usize {
        let many = count.to_string();
        let mut settings = vec![("KUBELEET_NODE", name), ("KUBELEET_RUNTIME", "sim")];
        // Room is not what is measured.
        settings.extend([("KUBELEET_MAX_PODS", "100000"), ("KUBELEET_SIM_WORKERS", &many)]);
        let index = self.start("worker", name, &settings);
        let names = (1..=count).map(|n| if count == 1 { name.to_owned() } else { format!("{name}-{n}") });
        self.nodes.extend(names);
        let wanted = self.nodes.len();
        eventually(Duration::from_secs(60), "all workers are registered", || async {
            let beats: usize = self.redis.cli(&["ZCARD", "beats"]).await;
            kubeleet_tests::wait::that(beats >= wanted, || format!("{beats} are"))
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
        eventually(Duration::from_secs(20), "the API is ready", || async {
            match http.try_send(reqwest::Method::GET, "/readyz", None).await {
                Ok(answer) if answer.status().is_success() => Ok(()),
                Ok(answer) => Err(answer.status().to_string()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
        http
    }

    /// Starts one daemon; gives its index.
    pub fn start(&mut self, what: &'static str, name: &str, settings: &[(&str, &str)]) -> usize {
        self.start_by(Command::new(binary()), what, name, settings)
    }

    /// The same by a command that runs the program elsewhere, like that of a host.
    pub fn start_by(
        &mut self,
        mut command: Command,
        what: &'static str,
        name: &str,
        settings: &[(&str, &str)],
    ) -> usize {
        let file = fs::File::create(self.folder.path().join(format!("{name}.log"))).unwrap();
        command.arg(what).env_clear().envs(self.environment(settings)).stdout(Stdio::null()).stderr(file);
        let leash = Leashed::spawn(&mut command).unwrap();
        self.daemons.push(Process { what, leash });
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

    /// Waits until schedulers are seen, the first looks of everybody are over, and a little longer.
    async fn comes_to_rest(&self, schedulers: u32) {
        eventually(Duration::from_secs(20), "the schedulers are there", || async {
            let seen: u32 = self.redis.cli(&["ZCARD", "schedulers"]).await;
            kubeleet_tests::wait::that(seen >= schedulers, || format!("{seen} are"))
        })
        .await;
        self.until_idle(Duration::from_secs(60)).await;
    }

    /// Waits until all processes together take less than a fifth of a core for a second.
    pub async fn until_idle(&self, within: Duration) {
        let deadline = Instant::now() + within;
        loop {
            let before = self.cpu();
            tokio::time::sleep(Duration::from_secs(1)).await;
            let took = self.cpu().total() - before.total();
            if took < 0.2 || Instant::now() > deadline {
                return;
            }
        }
    }

    pub async fn connection(&self) -> MultiplexedConnection {
        self.redis.connection().await.unwrap()
    }

    /// Seconds of processor time used so far, by daemon.
    pub fn cpu(&self) -> Cpu {
        let mut by = BTreeMap::new();
        for daemon in &self.daemons {
            for process in with_guarded(daemon.id()) {
                *by.entry(daemon.what).or_default() += cpu_seconds(process);
            }
        }
        by.insert("redis", cpu_seconds(self.redis_process));
        by.insert("bench", cpu_seconds(std::process::id()));
        Cpu(by)
    }
}

/// A daemon's process and those behind it: the worker's where it is a guard, both where it enters a host.
pub fn with_guarded(process: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    [process].into_iter().chain(children.flat_map(with_guarded)).collect()
}

/// Seconds of processor time by kind of process.
#[derive(Debug, Clone, Default)]
pub struct Cpu(pub BTreeMap<&'static str, f64>);

impl Cpu {
    pub fn since(&self, before: &Self) -> Self {
        let less = |(what, now): (&&'static str, &f64)| (*what, now - before.0.get(what).unwrap_or(&0.0));
        Self(self.0.iter().map(less).collect())
    }

    /// Without what measures.
    pub fn total(&self) -> f64 {
        self.0.iter().filter(|(what, _)| **what != "bench").map(|(_, seconds)| seconds).sum()
    }
}

/// User and system time of a process, all its threads together.
pub fn cpu_seconds(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // After the name, which may hold anything, in brackets.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    // USER_HZ, which programs see, is 100 on every Linux.
    (ticks(11) + ticks(12)) / 100.0
}

/// Memory of a process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    /// Resident, bytes. The pages of the binary are counted, though all daemons of a node share them.
    pub resident: f64,
    /// The same with each shared page divided by how many processes share it, bytes.
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
