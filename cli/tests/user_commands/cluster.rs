//! A cluster for one test, with simulated pods. Dropping it stops all processes.

#![allow(clippy::print_stderr, reason = "a failing test shows the logs")]

use std::path::Path;
use std::process::{Command, Stdio};

use testkit::eventually::blocking_eventually;
use testkit::ports::free_port;
use testkit::{ChildGuard, Redis};

use super::{BINARY, kubeleet, parts};

pub(crate) struct Cluster {
    pub(crate) api: String,
    // Before Redis, so that they end first and report no lost connection.
    daemons: Vec<(String, ChildGuard)>,
    pub(crate) redis: Redis,
    directory: tempfile::TempDir,
}

impl Cluster {
    /// Waits until the node is ready. `None` if `redis-server` is not installed.
    pub(crate) fn start() -> Option<Self> {
        let redis = testkit::require::has_redis().then(Redis::blocking_start)?;
        let api_port = free_port();
        let api = format!("http://127.0.0.1:{api_port}");
        let mut cluster = Self { api, daemons: Vec::new(), redis, directory: tempfile::tempdir().unwrap() };
        let key = model::value::secret_key::SecretKey::generate().unwrap();
        std::fs::write(cluster.directory.path().join("secret-key"), key).unwrap();
        for daemon in ["api", "scheduler"] {
            cluster.start_daemon(daemon, "worker1", api_port);
        }
        cluster.add_worker("worker1");
        Some(cluster)
    }

    pub(crate) fn add_worker(&mut self, node: &str) {
        self.start_daemon("worker", node, 0);
        blocking_eventually("the node is ready", || {
            let (exit, out, err) = parts(&kubeleet(&self.api, &format!("node describe {node}")));
            if exit == 0 && out.contains("ready") { Ok(()) } else { Err(format!("{exit} {out} {err}")) }
        });
    }

    pub(crate) fn end_worker(&mut self, node: &str) {
        self.daemons.retain(|(name, _)| name != &format!("worker-{node}"));
    }

    fn start_daemon(&mut self, name: &str, node: &str, api_port: u16) {
        let home: &Path = self.directory.path();
        let log = std::fs::File::create(home.join(format!("{name}-{node}.log"))).unwrap();
        let mut command = Command::new(BINARY);
        command
            .arg(name)
            .env_clear()
            .env("KUBELEET_REDIS_URL", self.redis.url())
            .env("KUBELEET_LISTEN", format!("127.0.0.1:{api_port}"))
            .env("KUBELEET_NODE", node)
            .env("KUBELEET_RUNTIME", "sim")
            .env("KUBELEET_SECRET_KEY_FILE", home.join("secret-key"))
            .env("KUBELEET_STATE_DIR", home.join("state"))
            .env("KUBELEET_DATA_DIR", home.join("data"))
            .stdout(Stdio::null())
            .stderr(log);
        self.daemons.push((format!("{name}-{node}"), ChildGuard::spawn(&mut command).unwrap()));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for daemon in ["api", "scheduler", "worker"] {
                let log = self.directory.path().join(format!("{daemon}-worker1.log"));
                let log = std::fs::read_to_string(log);
                eprintln!("--- {daemon}\n{}", log.unwrap_or_default());
            }
        }
    }
}
