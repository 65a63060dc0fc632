//! A cluster of real processes over a private Redis.
//!
//! Node names begin with a prefix of their own, so tests share one engine without seeing each other.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use testkit::ChildGuard;
use testkit::eventually::eventually_within;
use testkit::ports::free_port;

use crate::http::Http;
use crate::invariants::{Running, against_containers, unrest};
use crate::processes::Processes;
use crate::{Keyspace, LIMIT, Redis};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterTiming {
    Default,
    Short,
    /// Leaves an engine time to stop containers between fence and death.
    Medium,
}

impl ClusterTiming {
    pub fn dead_after(self) -> Duration {
        Duration::from_secs(match self {
            ClusterTiming::Default => 20,
            ClusterTiming::Short => 3,
            ClusterTiming::Medium => 5,
        })
    }

    pub fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            ClusterTiming::Default => &[],
            ClusterTiming::Short => &[("HEARTBEAT", "500ms"), ("FENCE_AFTER", "2s"), ("DEAD_AFTER", "3s")],
            ClusterTiming::Medium => &[("HEARTBEAT", "1s"), ("FENCE_AFTER", "3s"), ("DEAD_AFTER", "5s")],
        }
    }
}

pub struct Cluster {
    pub redis: Redis,
    pub prefix: String,
    pub processes: Processes,
    timing: ClusterTiming,
    folder: TempDir,
}

impl Cluster {
    pub async fn new(timing: ClusterTiming) -> Self {
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let prefix = format!("kt-{}-{}", std::process::id(), &unique[..8]);
        let folder = tempfile::tempdir().unwrap();
        let processes = Processes::below(&folder.path().join("data"));
        Self { redis: Redis::start().await, prefix, processes, timing, folder }
    }

    pub fn node(&self, short: &str) -> String {
        format!("{}-{short}", self.prefix)
    }

    pub async fn incarnation(&self, short: &str) -> String {
        self.redis.cli(&["HGET", &format!("node:{}", self.node(short)), "incarnation"]).await
    }

    pub async fn api(&self) -> DaemonProcess {
        self.api_with(&[]).await
    }

    pub async fn api_with(&self, settings: &[(&str, &str)]) -> DaemonProcess {
        let listen = format!("127.0.0.1:{}", free_port());
        let mut all = vec![("KUBELEET_LISTEN", listen.as_str())];
        all.extend(settings);
        let daemon = self.start("api", &format!("api-{listen}"), &all);
        let http = daemon.http();
        eventually_within(LIMIT, "the API is ready", || async {
            match http.try_send(reqwest::Method::GET, "/readyz", None).await {
                Ok(answer) if answer.status().is_success() => Ok(()),
                Ok(answer) => Err(format!("{}\n{}", answer.status(), daemon.log())),
                Err(error) => Err(format!("{error}\n{}", daemon.log())),
            }
        })
        .await;
        daemon
    }

    pub fn scheduler(&self) -> DaemonProcess {
        self.scheduler_named("scheduler")
    }

    pub fn scheduler_named(&self, name: &str) -> DaemonProcess {
        self.start("scheduler", name, &[])
    }

    pub fn scheduler_with(&self, settings: &[(&str, &str)]) -> DaemonProcess {
        self.start("scheduler", "scheduler", settings)
    }

    pub fn healthcheck(&self, of: &str) -> DaemonProcess {
        self.start(&format!("healthcheck {of}"), "healthcheck", &[])
    }

    pub fn worker(&self, short: &str, runtime: &str) -> DaemonProcess {
        self.worker_with(short, runtime, &[])
    }

    pub fn worker_with(&self, short: &str, runtime: &str, settings: &[(&str, &str)]) -> DaemonProcess {
        let node = self.node(short);
        let mut all = vec![("KUBELEET_NODE", node.as_str()), ("KUBELEET_RUNTIME", runtime)];
        all.extend(settings);
        self.start("worker", &node, &all)
    }

    pub fn worker_within(&self, entry: &[&str], short: &str, runtime: &str) -> DaemonProcess {
        let entry: Vec<String> = entry.iter().map(|word| (*word).to_owned()).collect();
        let node = self.node(short);
        let settings = [("KUBELEET_NODE", node.as_str()), ("KUBELEET_RUNTIME", runtime)];
        let (environment, log) = (self.environment(&settings), self.log_of(&node));
        DaemonProcess::start_within(&entry, "worker", environment, log)
    }

    /// Each pod weighs more than the noise in the measured pressure, so two workers of a machine fill evenly.
    pub fn small_worker(&self, short: &str, runtime: &str, pods: u32) -> DaemonProcess {
        self.worker_with(short, runtime, &[("KUBELEET_MAX_PODS", &pods.to_string())])
    }

    pub fn proxy(&self, host: &Path, settings: &[(&str, &str)]) -> DaemonProcess {
        let state = host.display().to_string();
        // Only one proxy of a machine can have the ports of its rules; tests of names set this themselves.
        let mut all = vec![
            ("KUBELEET_STATE_DIR", state.as_str()),
            ("KUBELEET_METRICS_LISTEN", "off"),
            ("KUBELEET_NAMES", "off"),
        ];
        all.extend(settings);
        let name = host.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        self.start("proxy", &format!("proxy-{name}"), &all)
    }

    fn start(&self, what: &str, name: &str, settings: &[(&str, &str)]) -> DaemonProcess {
        DaemonProcess::start(what, self.environment(settings), self.log_of(name))
    }

    fn log_of(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{}.log", name.replace(':', "-")))
    }

    fn environment(&self, settings: &[(&str, &str)]) -> BTreeMap<String, String> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let mut environment: BTreeMap<String, String> = BTreeMap::from([
            ("KUBELEET_REDIS_URL".to_owned(), self.redis.url()),
            ("KUBELEET_STATE_DIR".to_owned(), path("state")),
            ("KUBELEET_DATA_DIR".to_owned(), path("data")),
            ("KUBELEET_ALLOW_PROCESSES".to_owned(), "true".to_owned()),
            ("NO_COLOR".to_owned(), "1".to_owned()),
        ]);
        for (name, value) in self.timing.settings() {
            environment.insert(format!("KUBELEET_{name}"), (*value).to_owned());
        }
        for kept in ["PATH", "DOCKER_HOST", "KUBELEET_LOG", "RUST_BACKTRACE"] {
            if let Ok(value) = std::env::var(kept) {
                environment.insert(kept.to_owned(), value);
            }
        }
        environment.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        environment
    }

    pub fn timing(&self) -> ClusterTiming {
        self.timing
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub async fn keyspace(&self) -> Keyspace {
        Keyspace::read(&self.redis).await
    }

    /// Waits until every service has exactly its pods, queues are empty, and these nodes run exactly the
    /// right containers.
    pub async fn comes_to_rest<F: Future<Output = Vec<Running>>>(
        &self,
        within: Duration,
        nodes: &[&str],
        containers: impl Fn() -> F,
    ) {
        let nodes: Vec<String> = nodes.iter().map(|short| self.node(short)).collect();
        eventually_within(within, "the cluster converges", || async {
            let keyspace = self.keyspace().await;
            let mut wrong = unrest(&keyspace);
            if wrong.is_empty() {
                wrong = against_containers(&keyspace, &nodes, &containers().await);
            }
            if wrong.is_empty() && !unrest(&self.keyspace().await).is_empty() {
                wrong.push("the state changed meanwhile".to_owned());
            }
            let more = wrong.len().saturating_sub(20);
            wrong.truncate(20);
            if wrong.is_empty() { Ok(()) } else { Err(format!("{}\n({more} more)", wrong.join("\n"))) }
        })
        .await;
    }
}

/// Prints the end of its log if the test failed.
pub struct DaemonProcess {
    entry: Vec<String>,
    program: PathBuf,
    what: String,
    environment: BTreeMap<String, String>,
    log: PathBuf,
    process: Option<ChildGuard>,
}

impl DaemonProcess {
    pub fn start(what: &str, environment: BTreeMap<String, String>, log: PathBuf) -> Self {
        Self::start_within(&[], what, environment, log)
    }

    pub fn start_within(
        entry: &[String],
        what: &str,
        environment: BTreeMap<String, String>,
        log: PathBuf,
    ) -> Self {
        let (entry, program, what) = (entry.to_vec(), binary().to_owned(), what.to_owned());
        let mut daemon = Self { entry, program, what, environment, log, process: None };
        daemon.start_again();
        daemon
    }

    #[must_use]
    pub fn instead(mut self, program: &Path, what: &str) -> Self {
        self.program = program.to_owned();
        self.what = what.to_owned();
        self.start_again();
        self
    }

    pub fn command_line(&self) -> &str {
        &self.what
    }

    /// As a package upgrade does: SIGTERM, then the other binary.
    #[must_use]
    pub fn replaced_by(mut self, program: &Path) -> Self {
        self.terminate();
        let what = self.what.clone();
        self.instead(program, &what)
    }

    pub fn start_again(&mut self) {
        self.start_again_with(&[]);
    }

    /// The settings are for this restart only.
    pub fn start_again_with(&mut self, settings: &[(&str, &str)]) {
        self.kill();
        let log = fs::File::options().create(true).append(true).open(&self.log).unwrap();
        let mut words = self.entry.iter().map(OsStr::new).chain([self.program.as_os_str()]);
        let mut command = Command::new(words.next().expect("at least the program"));
        command.args(words).args(self.what.split(' ')).env_clear().envs(&self.environment);
        command.envs(settings.iter().copied()).stdout(Stdio::null()).stderr(log);
        if settings.iter().any(|(name, _)| *name == "KUBELEET_FAILPOINT") {
            // The test needs to see the process end at this step; the supervisor would restart it.
            command.env("KUBELEET_GUARD", "off");
        }
        self.process = Some(ChildGuard::spawn(&mut command).expect("the binary can be started"));
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// `None` if it still runs after 15 s.
    pub fn terminate(&mut self) -> Option<ExitStatus> {
        self.process.take().and_then(|mut process| process.terminate(Duration::from_secs(15)))
    }

    pub fn ended(&self) -> Option<ExitStatus> {
        self.process.as_ref().and_then(ChildGuard::ended)
    }

    pub fn ended_with(&self) -> Option<i32> {
        self.process.as_ref().and_then(ChildGuard::ended).and_then(|status| status.code())
    }

    /// Like a suspended machine.
    pub fn freeze(&self) {
        self.signal_group(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.signal_group(Signal::CONT);
    }

    pub fn signal_group(&self, signal: Signal) {
        if let Some(process) = &self.process {
            process.signal_group(signal);
        }
    }

    /// A worker's first process is its supervisor.
    pub fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            process.signal(signal);
        }
    }

    /// A worker's first process is its supervisor.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(ChildGuard::id)
    }

    pub fn supervised_worker(&self) -> Option<Pid> {
        let supervisor = self.id()?;
        let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).ok()?;
        children.split_whitespace().next().and_then(|child| Pid::from_raw(child.parse().ok()?))
    }

    pub fn http(&self) -> Http {
        let listen = self.environment.get("KUBELEET_LISTEN").expect("an API listens");
        Http::new(&format!("http://{listen}"))
    }

    pub fn log(&self) -> String {
        let text = String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    pub fn whole_log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            #[allow(clippy::print_stderr, reason = "part of the failing test's output")]
            {
                eprintln!("---- the end of {}:\n{}", self.log.display(), self.log());
            }
        }
    }
}

/// The error has the exit code and messages.
pub async fn command(http: &Http, args: &[&str]) -> Result<String, String> {
    let mut command = std::process::Command::new(binary());
    command.args(args).env_clear().env("KUBELEET_API", format!("http://{}", http.address()));
    let run = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match run.status.success() {
        true => Ok(text(&run.stdout)),
        false => Err(format!("{}\n{}", run.status, text(&run.stderr))),
    }
}

/// `KUBELEET_BINARY`, or a binary built with this test's profile.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(given) = std::env::var_os("KUBELEET_BINARY") {
            return given.into();
        }
        match std::env::var("NEXTEST_RUN_ID") {
            Ok(run) => build_once(&run),
            Err(_) => build(),
        }
    })
}

/// The other processes of a nextest run find its path in a file.
fn build_once(run: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("kubeleet-test-binary-{run}"));
    let mut file =
        fs::File::options().create(true).truncate(false).read(true).write(true).open(path).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let mut built = String::new();
    file.read_to_string(&mut built).unwrap();
    if !built.is_empty() {
        return built.into();
    }
    let binary = build();
    file.write_all(binary.as_os_str().as_bytes()).unwrap();
    binary
}

fn build() -> PathBuf {
    // target/<profile>/deps/<this test>
    let exe = std::env::current_exe().unwrap();
    let profile = exe.ancestors().nth(2).unwrap();
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    build.args(["build", "--quiet", "--workspace", "--bin", "kubeleet"]).arg("--manifest-path");
    build.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"));
    // As changes of these variables, build scripts would run again and rebuild much.
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            build.env_remove(name);
        }
    }
    if profile.ends_with("release") {
        build.arg("--release");
    }
    let status = build.status().expect("cargo can be started");
    let binary = profile.join("kubeleet");
    assert!(status.success(), "the binary does not build");
    assert!(fs::metadata(&binary).is_ok_and(|meta| meta.size() > 0), "{} is missing", binary.display());
    binary
}
