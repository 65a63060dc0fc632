//! Starting and maltreating redis-server and redis-sentinel.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::{Client, Cmd, FromRedisValue};
use rustix::process::{Pid, Signal, kill_process};

/// Whether redis-server is there. Without it the test says loudly that it was skipped, or fails where that is required.
pub(super) fn available() -> bool {
    if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_ok() {
        return true;
    }
    let required = std::env::var("REQUIRE").is_ok_and(|names| names.contains("redis"));
    assert!(!required, "redis-server is required and not installed");
    eprintln!("SKIPPED (no redis): redis-server is not installed");
    false
}

/// A server process with a directory of its own. Dropping it kills the one and removes the other.
pub(super) struct Server {
    child: Child,
    pub(super) port: u16,
    pub(super) dir: PathBuf,
    command: Vec<String>,
}

impl Server {
    /// A redis-server with these further arguments.
    pub(super) fn start(arguments: &[&str]) -> Self {
        let fixed = ["redis-server", "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"];
        let command = fixed.iter().chain(arguments).map(|&text| text.to_owned()).collect();
        Self::start_command(command, new_dir())
    }

    /// A redis-sentinel watching `mymaster` at `master`, with the quorum two.
    pub(super) fn sentinel(master: u16) -> Self {
        let dir = new_dir();
        let config = format!(
            "sentinel monitor mymaster 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds mymaster 500\n\
             sentinel failover-timeout mymaster 3000\n"
        );
        let file = dir.join("sentinel.conf");
        std::fs::write(&file, config).unwrap();
        Self::start_command(vec!["redis-sentinel".into(), file.display().to_string()], dir)
    }

    fn start_command(command: Vec<String>, dir: PathBuf) -> Self {
        let port = free_port();
        let mut server = Self { child: spawn(&command, port, &dir), port, dir, command };
        server.wait_until_it_answers();
        server
    }

    /// Kills it without a warning.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on the same port after [`Server::kill`].
    pub(super) fn restart(&mut self) {
        self.child = spawn(&self.command, self.port, &self.dir);
        self.wait_until_it_answers();
    }

    /// Stops the process: connections stay open, nothing answers.
    pub(super) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub(super) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Runs a command over a connection that has nothing to do with the link.
    pub(super) fn ask<T: FromRedisValue>(&self, command: &Cmd) -> T {
        self.try_ask(command).unwrap()
    }

    /// Changes a setting; false when this build does not know it.
    pub(super) fn configure(&self, setting: &str, value: &str) -> bool {
        self.try_ask::<()>(redis::cmd("CONFIG").arg("SET").arg(setting).arg(value)).is_ok()
    }

    fn try_ask<T: FromRedisValue>(&self, command: &Cmd) -> redis::RedisResult<T> {
        let client = Client::open(self.url())?;
        let mut connection = client.get_connection_with_timeout(Duration::from_secs(2))?;
        connection.set_read_timeout(Some(Duration::from_secs(2)))?;
        command.query(&mut connection)
    }

    fn wait_until_it_answers(&mut self) {
        let deadline = Instant::now() + super::LIMIT;
        loop {
            match self.try_ask::<redis::Value>(&redis::cmd("PING")) {
                // Any word of the server will do: one with a password says NOAUTH.
                Err(error) if error.is_io_error() => {}
                _ => return,
            }
            assert!(self.child.try_wait().unwrap().is_none(), "{:?} ended at once", self.command);
            assert!(Instant::now() < deadline, "{:?} does not answer", self.command);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors mean that it is gone already, which is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

fn spawn(command: &[String], port: u16, dir: &Path) -> Child {
    let mut process = Command::new(&command[0]);
    process.args(&command[1..]).arg("--port").arg(port.to_string());
    process.args(["--bind", "127.0.0.1", "--dir"]).arg(dir);
    process.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// A port nobody listens on right now.
pub(super) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn new_dir() -> PathBuf {
    let dir = std::env::temp_dir().join(format!("kubeleet-link-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}
