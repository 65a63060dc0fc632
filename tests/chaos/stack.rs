//! The highly available stack without containers for its daemons: three machines, each with a Redis, a Sentinel, an API, a
//! scheduler and a worker. All are real processes of real binaries.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kubeleet_tests::cluster::Daemon;
use kubeleet_tests::invariants::{Running, against_containers, unrest};
use kubeleet_tests::ports::free_port;
use kubeleet_tests::processes::Processes;
use kubeleet_tests::proxy::Rewriter;
use kubeleet_tests::{Http, Keyspace, eventually};
use tempfile::TempDir;

use crate::engine::Engine;
use crate::net::{Machine, Net};
use crate::trio::Trio;

/// How failures are noticed here: faster than by default, slower than a failover.
pub const HEARTBEAT: Duration = Duration::from_secs(1);
/// After so long without Redis a worker stops what must not run twice.
pub const FENCE_AFTER: Duration = Duration::from_secs(6);
/// After so long a silence a node is declared dead.
pub const DEAD_AFTER: Duration = Duration::from_secs(9);

/// What a stack shall be like.
#[derive(Default)]
pub struct Plan {
    /// What the network changes on the way to Redis.
    pub rewriter: Rewriter,
    /// Imagined pods: for more of them than this machine has room for.
    pub simulated: bool,
    /// Without an engine of its own: all nodes run plain processes.
    pub without_engine: bool,
    /// Further settings of all workers.
    pub of_workers: Vec<(&'static str, &'static str)>,
}

/// The stack. Dropped, all of it is gone.
pub struct Stack {
    /// Between the machines.
    pub net: Net,
    /// Redis and Sentinels.
    pub trio: Trio,
    /// Machine 1's engine, where this machine can have one.
    pub engine: Option<Engine>,
    /// By machine.
    pub apis: Vec<Daemon>,
    /// By machine.
    pub schedulers: Vec<Daemon>,
    /// By machine.
    pub workers: Vec<Daemon>,
    /// Pods that are plain processes.
    pub processes: Processes,
    prefix: String,
    simulated: bool,
    folder: TempDir,
}

impl Stack {
    /// Starts everything and waits until all of it is ready.
    pub async fn start(plan: Plan) -> Self {
        let folder = tempfile::Builder::new().prefix("kubeleet-chaos-").tempdir().unwrap();
        let mut net = Net::new(plan.rewriter);
        let trio = Trio::start(&mut net, folder.path()).await;
        let engine = match plan.simulated || plan.without_engine {
            true => None,
            false => Engine::start(folder.path()).await,
        };
        let prefix = format!("kt-{}-{}", std::process::id(), &uuid::Uuid::new_v4().simple().to_string()[..8]);
        let processes = Processes::below(&folder.path().join("data"));
        let (apis, schedulers, workers) = (Vec::new(), Vec::new(), Vec::new());
        let simulated = plan.simulated;
        let mut stack =
            Self { net, trio, engine, apis, schedulers, workers, processes, prefix, simulated, folder };
        for machine in 0..3 {
            stack.start_machine(machine, &plan.of_workers);
        }
        let http = stack.ready_api().await;
        http.nodes_ready(3).await;
        stack
    }

    fn start_machine(&mut self, machine: Machine, of_workers: &[(&str, &str)]) {
        let listen = format!("127.0.0.1:{}", free_port());
        self.apis.push(self.daemon("api", machine, &[("KUBELEET_LISTEN", &listen)]));
        self.schedulers.push(self.daemon("scheduler", machine, &[]));
        let worker = self.worker(machine, of_workers);
        self.workers.push(worker);
    }

    fn worker(&self, machine: Machine, more: &[(&str, &str)]) -> Daemon {
        let node = self.node(machine);
        let host = self.engine.as_ref().map(Engine::host).unwrap_or_default();
        let mut settings = vec![("KUBELEET_NODE", node.as_str())];
        match (machine, &self.engine) {
            _ if self.simulated => {
                settings.extend([("KUBELEET_RUNTIME", "sim"), ("KUBELEET_MAX_PODS", "100000")]);
            }
            (0, Some(_)) => settings.extend([
                ("KUBELEET_RUNTIME", "docker"),
                ("DOCKER_HOST", &host),
                // Two cores start a few containers a second.
                ("KUBELEET_MAX_PODS", "12"),
            ]),
            _ => settings.push(("KUBELEET_RUNTIME", "process")),
        }
        settings.extend(more);
        self.daemon("worker", machine, &settings)
    }

    fn daemon(&self, what: &str, machine: Machine, settings: &[(&str, &str)]) -> Daemon {
        let name = format!("{what}{}", machine + 1);
        let seconds = |duration: Duration| format!("{}s", duration.as_secs());
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let mut environment = BTreeMap::from([
            ("KUBELEET_REDIS_URL".to_owned(), self.trio.url(machine)),
            ("KUBELEET_STATE_DIR".to_owned(), path("state")),
            ("KUBELEET_DATA_DIR".to_owned(), path("data")),
            ("KUBELEET_ALLOW_PROCESSES".to_owned(), "true".to_owned()),
            ("KUBELEET_HEARTBEAT".to_owned(), seconds(HEARTBEAT)),
            ("KUBELEET_FENCE_AFTER".to_owned(), seconds(FENCE_AFTER)),
            ("KUBELEET_DEAD_AFTER".to_owned(), seconds(DEAD_AFTER)),
            ("KUBELEET_RESTART_BACKOFF".to_owned(), "500ms".to_owned()),
            ("NO_COLOR".to_owned(), "1".to_owned()),
        ]);
        for kept in ["PATH", "KUBELEET_LOG", "RUST_BACKTRACE"] {
            if let Ok(value) = std::env::var(kept) {
                environment.insert(kept.to_owned(), value);
            }
        }
        environment.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        Daemon::start(what, environment, self.folder.path().join(format!("{name}.log")))
    }

    /// The name of a machine's node.
    pub fn node(&self, machine: Machine) -> String {
        format!("{}-n{}", self.prefix, machine + 1)
    }

    /// A node that is not ours.
    pub fn guest(&self) -> String {
        format!("{}-guest", self.prefix)
    }

    /// The nodes of all machines.
    pub fn nodes(&self) -> Vec<String> {
        (0..3).map(|machine| self.node(machine)).collect()
    }

    /// Where leases are.
    pub fn leases(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Where pods are that are plain processes.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Clients of the APIs, by machine.
    pub fn https(&self) -> Vec<Http> {
        self.apis.iter().map(Daemon::http).collect()
    }

    /// The first API, once it is ready.
    async fn ready_api(&self) -> Http {
        let http = self.apis[0].http();
        eventually(Duration::from_secs(30), "the API is ready", || async {
            match http.try_send(reqwest::Method::GET, "/readyz", None).await {
                Ok(answer) if answer.status().is_success() => Ok(()),
                Ok(answer) => Err(format!("{}\n{}", answer.status(), self.apis[0].log())),
                Err(error) => Err(format!("{error}\n{}", self.apis[0].log())),
            }
        })
        .await;
        http
    }

    /// All that runs; none while the engine does not answer.
    pub async fn running(&self) -> Option<Vec<Running>> {
        let mut running = self.processes.running();
        if let Some(engine) = &self.engine {
            running.extend(engine.running().await?);
        }
        Some(running)
    }

    /// What keeps it from rest right now, and what stands in Redis.
    async fn look(&self) -> Result<Keyspace, Vec<String>> {
        let keyspace =
            self.trio.keyspace().await.ok_or_else(|| vec!["the master does not answer".to_owned()])?;
        let mut wrong = unrest(&keyspace);
        if wrong.is_empty() && !self.simulated {
            let running =
                self.running().await.ok_or_else(|| vec!["the engine does not answer".to_owned()])?;
            wrong = against_containers(&keyspace, &self.nodes(), &running);
        }
        if wrong.is_empty() { Ok(keyspace) } else { Err(wrong) }
    }

    /// Waits until every service has just its pods, every queue is empty, and just that runs. Gives what stands in Redis
    /// then, and what was missing last; or only that, when time is up.
    pub async fn comes_to_rest(&self, within: Duration) -> (Option<Keyspace>, Vec<String>) {
        let begun = Instant::now();
        let mut missing = Vec::new();
        loop {
            match self.look().await {
                // Nothing may have moved while the containers were counted.
                Ok(_) => match self.look().await {
                    Ok(keyspace) => return (Some(keyspace), missing),
                    Err(wrong) => missing = wrong,
                },
                Err(wrong) => missing = wrong,
            }
            if begun.elapsed() > within {
                return (None, missing);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Keeps the logs of everything for whoever looks into a failure; gives where.
    pub fn keep_logs(&self, name: &str) -> PathBuf {
        let target = crate::report::folder().join(name);
        let _old = fs::remove_dir_all(&target);
        fs::create_dir_all(&target).unwrap();
        let mut folders = vec![self.folder.path().to_owned()];
        folders.extend(
            (1..=3).flat_map(|n| {
                ["redis", "sentinel"].map(|what| self.folder.path().join(format!("{what}{n}")))
            }),
        );
        for file in folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten()) {
            let path = file.path();
            let shown =
                path.strip_prefix(self.folder.path()).unwrap().display().to_string().replace('/', "-");
            if path.is_file() && shown.ends_with("log") {
                let _partly = fs::copy(&path, target.join(shown));
            }
        }
        target
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("logs are in {}", self.keep_logs("panicked").display());
        }
    }
}
