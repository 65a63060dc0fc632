//! A cluster for one test: private Redis, api, scheduler, one simulated worker. All gone with the value.

#![allow(clippy::print_stderr, reason = "a test speaks when it is skipped or fails")]

use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{BINARY, kubeleet, parts};

/// Longer than anything takes on a machine that does other things, too.
const PATIENCE: Duration = Duration::from_secs(30);

/// The processes of a cluster.
pub(crate) struct Cluster {
    /// Where its API is.
    pub(crate) api: String,
    redis_port: u16,
    processes: Vec<Child>,
    directory: tempfile::TempDir,
}

impl Cluster {
    /// Starts it, and waits until it has a node; none where there is no redis-server.
    pub(crate) fn start() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let (redis_port, api_port) = (free_port(), free_port());
        let redis = Command::new("redis-server")
            .args([
                "--port",
                &redis_port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .spawn();
        let redis = match redis {
            Ok(redis) => redis,
            Err(error) => {
                let required = std::env::var("REQUIRE").is_ok_and(|engines| engines.contains("redis"));
                assert!(!required, "redis-server is required: {error}");
                eprintln!("SKIPPED (no redis): redis-server can not be started: {error}");
                return None;
            }
        };
        let api = format!("http://127.0.0.1:{api_port}");
        let mut cluster = Self { api, redis_port, processes: vec![redis], directory };
        eventually("Redis", || TcpStream::connect(("127.0.0.1", redis_port)).ok());
        for daemon in ["api", "scheduler", "worker"] {
            cluster.daemon(daemon, api_port);
        }
        eventually("a node that is ready", || {
            let (exit, out, _) = parts(&kubeleet(&cluster.api, "node ls"));
            (exit == 0 && out.contains("ready")).then_some(())
        });
        Some(cluster)
    }

    fn daemon(&mut self, name: &str, api_port: u16) {
        let home: &Path = self.directory.path();
        let log = std::fs::File::create(home.join(format!("{name}.log"))).unwrap();
        let child = Command::new(BINARY)
            .arg(name)
            .env_clear()
            .env("KUBELEET_REDIS_URL", format!("redis://127.0.0.1:{}", self.redis_port))
            .env("KUBELEET_LISTEN", format!("127.0.0.1:{api_port}"))
            .env("KUBELEET_NODE", "worker1")
            .env("KUBELEET_RUNTIME", "sim")
            .env("KUBELEET_STATE_DIR", home.join("state"))
            .env("KUBELEET_DATA_DIR", home.join("data"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.processes.push(child);
    }

    /// Says something to Redis, as redis-cli would, and gives the beginning of its answer.
    pub(crate) fn redis(&self, command: &str) -> String {
        let mut connection = TcpStream::connect(("127.0.0.1", self.redis_port)).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        connection.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut answer = [0; 1024];
        let length = connection.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..length]).into_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for daemon in ["api", "scheduler", "worker"] {
                let log = std::fs::read_to_string(self.directory.path().join(format!("{daemon}.log")));
                eprintln!("--- {daemon}\n{}", log.unwrap_or_default());
            }
        }
        // Redis last, so that nobody complains of it.
        for process in self.processes.iter_mut().rev() {
            drop(process.kill());
            drop(process.wait());
        }
    }
}

/// Asks until there is an answer; panics when there is none in time.
pub(crate) fn eventually<T: Debug>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
