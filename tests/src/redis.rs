//! A private `redis-server` on a free loopback port.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError};
use common::store::{LinkOptions, Store};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::leash::Leashed;
use crate::ports::free_port;

/// The server. Dropped, it is killed and its folder removed.
pub struct Redis {
    server: Mutex<Leashed>,
    port: u16,
    folder: TempDir,
    arguments: Vec<String>,
}

impl Redis {
    /// Starts one that keeps nothing on disk, and waits until it answers.
    ///
    /// # Panics
    /// When there is no `redis-server` on this machine, or it does not come up.
    pub async fn start() -> Self {
        Self::start_with(&["--save", "", "--appendonly", "no"]).await
    }

    /// Starts one with these arguments and no others than port and folder.
    pub async fn start_with(arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        for _ in 0..10 {
            let folder = tempfile::tempdir().unwrap();
            // Somebody may take the port before our server does; then it ends at once, and another port is tried.
            let port = free_port();
            let server = Mutex::new(launch(port, folder.path(), &arguments));
            let redis = Self { server, port, folder, arguments: arguments.clone() };
            if redis.comes_up().await {
                return redis;
            }
        }
        panic!("redis-server finds no free port");
    }

    /// `redis://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// The port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it runs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A store on this server.
    pub fn store(&self) -> Store {
        store(&self.url())
    }

    /// What redis-cli would do with these words.
    ///
    /// # Panics
    /// When Redis refuses, or answers with something else than a `T`.
    pub async fn cli<T: FromRedisValue>(&self, words: &[impl AsRef<[u8]>]) -> T {
        let shown =
            || words.iter().map(|w| String::from_utf8_lossy(w.as_ref())).collect::<Vec<_>>().join(" ");
        self.try_cli(words).await.unwrap_or_else(|error| panic!("{}: {error}", shown()))
    }

    /// The same, for commands that may fail.
    pub async fn try_cli<T: FromRedisValue>(&self, words: &[impl AsRef<[u8]>]) -> Result<T, RedisError> {
        let mut command = Cmd::new();
        for word in words {
            command.arg(word.as_ref());
        }
        command.query_async(&mut self.connection().await?).await
    }

    /// A new connection, with generous limits.
    pub async fn connection(&self) -> Result<MultiplexedConnection, RedisError> {
        let limit = Some(Duration::from_secs(30));
        let config = AsyncConnectionConfig::new().set_connection_timeout(limit).set_response_timeout(limit);
        Client::open(self.url())?.get_multiplexed_async_connection_with_config(&config).await
    }

    /// SIGSTOP: connections stay open and nothing answers.
    pub fn freeze(&self) {
        self.server.lock().unwrap().signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.server.lock().unwrap().signal(Signal::CONT);
    }

    /// SIGKILL.
    pub fn kill(&self) {
        self.server.lock().unwrap().kill();
    }

    /// Starts the killed server again on the same port and in the same folder.
    pub async fn restart(&self) {
        self.kill();
        *self.server.lock().unwrap() = launch(self.port, self.folder.path(), &self.arguments);
        assert!(self.comes_up().await, "redis-server does not come up again on port {}", self.port);
    }

    /// False when the server ended by itself.
    async fn comes_up(&self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            let id = {
                let server = self.server.lock().unwrap();
                if server.ended().is_some() {
                    return false;
                }
                server.id()
            };
            // The answer must be ours: on a taken port somebody else's server answers while ours is giving up.
            let info: Result<String, _> = self.try_cli(&["INFO", "server"]).await;
            if info.is_ok_and(|info| info.contains(&format!("process_id:{id}\r"))) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("redis-server on port {} does not answer", self.port);
    }
}

/// A store behind a URL.
pub fn store(url: &str) -> Store {
    // Patience for a machine that is busy with other tests.
    let patient = LinkOptions { connect_timeout: Duration::from_secs(10), ..LinkOptions::default() };
    Store::new(url.parse().unwrap(), patient)
}

/// `redis://127.0.0.1:<port>`.
pub(crate) fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

fn launch(port: u16, folder: &Path, arguments: &[String]) -> Leashed {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]).arg("--dir").arg(folder);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    Leashed::spawn(&mut command).expect("redis-server can be started; is it installed?")
}
