//! A private redis-server, and the cluster that uses it.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::store::{LinkOptions, Store};
use redis::{Client, Cmd, FromRedisValue};
use tokio_util::task::AbortOnDropHandle;

/// Long enough for the slowest machine; a test that works takes a fraction of it.
const LIMIT: Duration = Duration::from_secs(90);

/// Whether redis-server is there. Without it the test says loudly that it was skipped, or fails where that is required.
pub(super) fn is_available(test: &str) -> bool {
    if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_ok() {
        return true;
    }
    let required = std::env::var("REQUIRE").is_ok_and(|names| names.contains("redis"));
    assert!(!required, "redis-server is required and not installed");
    eprintln!("SKIPPED (no redis): {test}");
    false
}

/// The server. Dropping it kills it and removes its directory.
pub(super) struct Server {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Server {
    /// Starts one that keeps nothing.
    pub(super) fn start() -> Self {
        for _ in 0..10 {
            let dir = tempfile::tempdir().unwrap();
            // Somebody may take the port before our server does; then it ends at once, and another is tried.
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut command = Command::new("redis-server");
            command.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
            command.args(["--port", &port.to_string(), "--dir"]).arg(dir.path());
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            let mut server = Self { child: child.unwrap(), port, _dir: dir };
            if server.comes_up() {
                return server;
            }
        }
        panic!("redis-server finds no free port");
    }

    pub(super) fn store(&self) -> Store {
        let options =
            LinkOptions { response_timeout: Duration::from_secs(5), connect_timeout: Duration::from_secs(2) };
        Store::new(format!("redis://127.0.0.1:{}", self.port).parse().unwrap(), options)
    }

    /// What redis-cli would do with these words.
    pub(super) fn cli<T: FromRedisValue>(&self, words: &[impl AsRef<[u8]>]) -> T {
        let mut command = Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word.as_ref());
        });
        self.ask(&command).unwrap()
    }

    /// Writes another value to this key ten times a second, until what it gives is dropped.
    pub(super) fn write_often(&self, key: &'static str) -> AbortOnDropHandle<()> {
        let client = Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            for count in 0.. {
                let value = format!("any words {count}");
                redis::cmd("SET").arg(key).arg(value).exec_async(&mut connection).await.unwrap();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }))
    }

    fn ask<T: FromRedisValue>(&self, command: &Cmd) -> redis::RedisResult<T> {
        let client = Client::open(format!("redis://127.0.0.1:{}", self.port))?;
        let mut connection = client.get_connection_with_timeout(Duration::from_secs(2))?;
        command.query(&mut connection)
    }

    fn comes_up(&mut self) -> bool {
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline && self.child.try_wait().unwrap().is_none() {
            if self.ask::<String>(&redis::cmd("PING")).is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors mean that it is gone already, which is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Repeats `check` until it gives `Ok`; fails with the last thing seen.
pub(super) async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        match check().await {
            Ok(value) => return value,
            Err(seen) => {
                assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}; last seen: {seen}")
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
