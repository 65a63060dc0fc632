//! A private redis-server, as an outsider sees it.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Ends with the test, also when the test panics.
pub(super) struct Redis {
    server: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Redis {
    /// None, said loudly, where there is no redis-server and none is required.
    pub(super) fn start(test: &str) -> Option<Self> {
        for _ in 0..5 {
            let directory = tempfile::tempdir().unwrap();
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let server = Command::new("redis-server")
                .args([
                    "--bind",
                    "127.0.0.1",
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                    "--port",
                    &port.to_string(),
                ])
                .arg("--dir")
                .arg(directory.path())
                .stdout(Stdio::null())
                .spawn();
            let server = match server {
                Ok(server) => server,
                Err(error) => {
                    let required = std::env::var("REQUIRE").unwrap_or_default().contains("redis");
                    assert!(!required, "redis-server is required: {error}");
                    #[allow(clippy::print_stderr, reason = "a skipped test says so")]
                    {
                        eprintln!("SKIPPED (no redis): {test}");
                    }
                    return None;
                }
            };
            let mut redis = Self { server, port, _directory: directory };
            if redis.is_up() {
                return Some(redis);
            }
        }
        panic!("no redis-server came up in five tries");
    }

    fn is_up(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if self.server.try_wait().unwrap().is_some() {
                // Somebody was faster and has the port.
                return false;
            }
            if self.cli(["PING"]) == "PONG" {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// One command, as a person types it; its answer, trimmed.
    pub(super) fn cli<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> String {
        let output =
            Command::new("redis-cli").args(["-p", &self.port.to_string()]).args(args).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// It stops answering, and keeps its connections.
    pub(super) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(super) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.server.id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _gone_already = self.server.kill();
        let _gone_already = self.server.wait();
    }
}
