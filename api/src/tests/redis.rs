//! A redis-server of a test's own.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A private redis-server. Dropping it kills it and removes its directory.
pub(super) struct Redis {
    child: Child,
    port: u16,
    dir: tempfile::TempDir,
}

impl Redis {
    /// None without a redis-server; then the test says so and passes, unless Redis is required.
    pub(super) fn start() -> Option<Self> {
        if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            let required = std::env::var("REQUIRE").is_ok_and(|names| names.contains("redis"));
            assert!(!required, "redis-server is required and not installed");
            eprintln!("SKIPPED (no redis): redis-server is not installed");
            return None;
        }
        // Somebody may take the port between finding and using it: then another one.
        (0..10).map(|_| Self::on_a_free_port()).find(|redis| redis.is_some()).flatten()
    }

    fn on_a_free_port() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut redis = Self { child: spawn(port, &dir), port, dir };
        redis.answers().then_some(redis)
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Makes this a replica of another one, and waits until it is attached.
    pub(super) fn follow(&self, master: &Redis) {
        self.run(&["REPLICAOF", "127.0.0.1", &master.port.to_string()]);
        let deadline = Instant::now() + super::LIMIT;
        while master.run(&["WAIT", "1", "100"]) != ":1" {
            assert!(Instant::now() < deadline, "the replica is never attached");
        }
    }

    /// Stops the process: connections stay open, nothing answers.
    pub(super) fn freeze(&self) {
        let done = Command::new("kill").args(["-STOP", &self.child.id().to_string()]).status();
        assert!(done.unwrap().success());
    }

    /// Kills it without a warning. What it held is gone.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on the same port.
    pub(super) fn restart(&mut self) {
        self.child = spawn(self.port, &self.dir);
        assert!(self.answers(), "redis-server does not start again");
    }

    /// Runs a command as redis-cli would, and gives the raw reply.
    pub(super) fn ask(&self, words: &[&[u8]]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut command = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            command.extend(format!("${}\r\n", word.len()).into_bytes());
            command.extend_from_slice(word);
            command.extend_from_slice(b"\r\n");
        }
        stream.write_all(&command).unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut BufReader::new(stream), &mut line).unwrap();
        assert!(!line.starts_with('-'), "{line}");
        line.trim_end().to_owned()
    }

    /// The same with texts.
    pub(super) fn run(&self, words: &[&str]) -> String {
        self.ask(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>())
    }

    fn answers(&mut self) -> bool {
        let deadline = Instant::now() + super::LIMIT;
        while Instant::now() < deadline {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Errors mean that it is gone already, which is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn spawn(port: u16, dir: &tempfile::TempDir) -> Child {
    let mut server = Command::new("redis-server");
    server.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()]);
    server.arg("--dir").arg(dir.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}
