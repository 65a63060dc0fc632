//! Three machines, each with a Redis, a Sentinel, an API, a scheduler and a worker.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kubeleet_tests::cluster::DaemonProcess;
use kubeleet_tests::invariants::{Running, against_containers, unrest};
use kubeleet_tests::ports::free_port;
use kubeleet_tests::processes::Processes;
use kubeleet_tests::proxy::Rewriter;
use kubeleet_tests::{Http, Keyspace};
use tempfile::TempDir;
use testkit::FaultyEngine;
use testkit::eventually::eventually_within;

use crate::engine::Engine;
use crate::net::{Machine, Net};
use crate::trio::SentinelStack;

/// Faster than by default, but slower than a failover.
pub const HEARTBEAT: Duration = Duration::from_secs(1);
pub const FENCE_AFTER: Duration = Duration::from_secs(6);
pub const DEAD_AFTER: Duration = Duration::from_secs(9);

#[derive(Default)]
pub struct StackOptions {
    pub rewriter: Rewriter,
    pub simulated: bool,
    pub without_engine: bool,
    pub proxy_settings: Option<Vec<(&'static str, &'static str)>>,
    pub worker_settings: Vec<(&'static str, &'static str)>,
}

pub struct Stack {
    pub net: Net,
    pub trio: SentinelStack,
    pub engine: Option<Engine>,
    pub faulty_engine: Option<FaultyEngine>,
    pub apis: Vec<DaemonProcess>,
    pub schedulers: Vec<DaemonProcess>,
    pub workers: Vec<DaemonProcess>,
    /// With their ingress addresses, by machine.
    pub proxies: Vec<(DaemonProcess, String)>,
    pub processes: Processes,
    prefix: String,
    simulated: bool,
    folder: TempDir,
}

impl Stack {
    pub async fn start(mut options: StackOptions) -> Self {
        let folder = tempfile::Builder::new().prefix("kubeleet-chaos-").tempdir().unwrap();
        let mut net = Net::new(std::mem::take(&mut options.rewriter));
        let trio = SentinelStack::start(&mut net, folder.path()).await;
        let engine = match options.simulated || options.without_engine {
            true => None,
            false => Engine::start(folder.path()).await,
        };
        let faulty_engine = engine.as_ref().map(|engine| FaultyEngine::start(&engine.socket()));
        let prefix = format!("kt-{}-{}", std::process::id(), &uuid::Uuid::new_v4().simple().to_string()[..8]);
        let processes = Processes::below(&folder.path().join("data"));
        let (apis, schedulers, workers) = (Vec::new(), Vec::new(), Vec::new());
        let simulated = options.simulated;
        let mut stack = Self {
            net,
            trio,
            engine,
            faulty_engine,
            apis,
            schedulers,
            workers,
            proxies: Vec::new(),
            processes,
            prefix,
            simulated,
            folder,
        };
        for machine in 0..3 {
            stack.start_machine(machine, &options);
        }
        let http = stack.ready_api().await;
        http.nodes_ready(3).await;
        stack
    }

    fn start_machine(&mut self, machine: Machine, options: &StackOptions) {
        let listen = format!("127.0.0.1:{}", free_port());
        self.apis.push(self.daemon("api", machine, &[("KUBELEET_LISTEN", &listen)]));
        self.schedulers.push(self.daemon("scheduler", machine, &[]));
        let socket = self.state_of_host(machine).join("proxy.sock").display().to_string();
        let mut settings = options.worker_settings.clone();
        if let Some(more) = &options.proxy_settings {
            self.start_proxy(machine, more);
            settings.push(("KUBELEET_PROXY_SOCKET", &socket));
        }
        let worker = self.worker(machine, &settings);
        self.workers.push(worker);
    }

    fn start_proxy(&mut self, machine: Machine, more: &[(&str, &str)]) {
        let (ingress, tunnel) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
        let state = self.state_of_host(machine).display().to_string();
        let mut settings = vec![
            ("KUBELEET_STATE_DIR", state.as_str()),
            ("KUBELEET_INGRESS_LISTEN", &ingress),
            ("KUBELEET_TUNNEL_LISTEN", &tunnel),
            ("KUBELEET_METRICS_LISTEN", "off"),
            ("KUBELEET_NAMES", "off"),
        ];
        settings.extend(more);
        let proxy = self.daemon("proxy", machine, &settings);
        self.proxies.push((proxy, ingress));
    }

    fn state_of_host(&self, machine: Machine) -> PathBuf {
        self.folder.path().join(format!("host{}", machine + 1))
    }

    fn worker(&self, machine: Machine, more: &[(&str, &str)]) -> DaemonProcess {
        let node = self.node(machine);
        let host = self.faulty_engine.as_ref().map(FaultyEngine::host).unwrap_or_default();
        let mut settings = vec![("KUBELEET_NODE", node.as_str())];
        match (machine, &self.engine) {
            _ if self.simulated => {
                settings.extend([("KUBELEET_RUNTIME", "sim"), ("KUBELEET_MAX_PODS", "100000")]);
            }
            (0, Some(_)) => settings.extend([
                ("KUBELEET_RUNTIME", "docker"),
                ("DOCKER_HOST", &host),
                // Two cores start only a few containers a second.
                ("KUBELEET_MAX_PODS", "12"),
            ]),
            _ => settings.push(("KUBELEET_RUNTIME", "process")),
        }
        settings.extend(more);
        self.daemon("worker", machine, &settings)
    }

    fn daemon(&self, what: &str, machine: Machine, settings: &[(&str, &str)]) -> DaemonProcess {
        let name = format!("{what}{}", machine + 1);
        let user = if what == "proxy" { "proxy" } else { "kubeleet" };
        let seconds = |duration: Duration| format!("{}s", duration.as_secs());
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let mut environment = BTreeMap::from([
            ("KUBELEET_REDIS_URL".to_owned(), self.trio.url(user, machine)),
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
        DaemonProcess::start(what, environment, self.folder.path().join(format!("{name}.log")))
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn node(&self, machine: Machine) -> String {
        format!("{}-n{}", self.prefix, machine + 1)
    }

    pub fn external_node(&self) -> String {
        format!("{}-external", self.prefix)
    }

    pub fn nodes(&self) -> Vec<String> {
        (0..3).map(|machine| self.node(machine)).collect()
    }

    pub fn leases(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub fn https(&self) -> Vec<Http> {
        self.apis.iter().map(DaemonProcess::http).collect()
    }

    async fn ready_api(&self) -> Http {
        let http = self.apis[0].http();
        eventually_within(Duration::from_secs(30), "the API is ready", || async {
            match http.try_send(reqwest::Method::GET, "/readyz", None).await {
                Ok(answer) if answer.status().is_success() => Ok(()),
                Ok(answer) => Err(format!("{}\n{}", answer.status(), self.apis[0].log())),
                Err(error) => Err(format!("{error}\n{}", self.apis[0].log())),
            }
        })
        .await;
        http
    }

    pub async fn running(&self) -> Option<Vec<Running>> {
        let mut running = self.processes.running();
        if let Some(engine) = &self.engine {
            running.extend(engine.running().await?);
        }
        Some(running)
    }

    async fn check_converged(&self) -> Result<Keyspace, Vec<String>> {
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

    /// The obstacles are those of the last failed check.
    pub async fn wait_until_converged(&self, limit: Duration) -> (Option<Keyspace>, Vec<String>) {
        let begin = Instant::now();
        let mut missing = Vec::new();
        loop {
            match self.check_converged().await {
                // A pod may have moved while the containers were listed.
                Ok(_) => match self.check_converged().await {
                    Ok(keyspace) => return (Some(keyspace), missing),
                    Err(wrong) => missing = wrong,
                },
                Err(wrong) => missing = wrong,
            }
            if begin.elapsed() > limit {
                return (None, missing);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

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
            let name = path.strip_prefix(self.folder.path()).unwrap().display().to_string().replace('/', "-");
            if path.is_file() && name.ends_with("log") {
                let _partly = fs::copy(&path, target.join(name));
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
