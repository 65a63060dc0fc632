//! A private `redis-server` or `redis-sentinel` on a free loopback port.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError};
use parking_lot::Mutex;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::child_guard::ChildGuard;
use crate::eventually::{block_on, eventually};
use crate::ports::free_port;

/// The simulator's servers run in the background and get no processor for minutes while other steps of CI are
/// busy.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// Unless a caller chooses another limit.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// A replica gets its first copy at once, instead of after five seconds in which others could join.
const SYNC_AT_ONCE: [&str; 2] = ["--repl-diskless-sync-delay", "0"];
/// In the folder of a server made [`Redis::with_conf`].
const CONF: &str = "conf";
const LOG: &str = "log";

/// The program of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedisProgram {
    /// `redis-server`.
    Server,
    /// `redis-sentinel`.
    Sentinel,
}

/// A server process. Dropping it kills it and removes a temporary folder.
pub struct Redis {
    process: Mutex<Option<ChildGuard>>,
    port: u16,
    login: String,
    folder: PathBuf,
    launch: Launch,
    _temporary_folder: Option<TempDir>,
}

#[derive(Debug, Clone)]
enum Launch {
    /// `redis-server` with these arguments, and those for port and folder.
    Arguments(Vec<String>),
    /// A program with the configuration file in the folder.
    Conf(RedisProgram),
}

impl Redis {
    /// Starts a server that stores nothing on disk, and waits until it answers.
    ///
    /// # Panics
    /// If `redis-server` is not installed, or does not come up.
    pub async fn start() -> Self {
        Self::start_with(&["--save", "", "--appendonly", "no"]).await
    }

    /// Starts a server with further arguments, and waits until it answers.
    ///
    /// # Panics
    /// If `redis-server` is not installed, or does not come up.
    pub async fn start_with(arguments: &[&str]) -> Self {
        let arguments: Vec<String> =
            SYNC_AT_ONCE.iter().chain(arguments).map(|&text| text.to_owned()).collect();
        for _ in 0..10 {
            let folder = tempfile::tempdir().unwrap();
            // Another process may take the port before our server does; then it ends at once, and another
            // port is tried.
            let redis = Self {
                process: Mutex::new(None),
                port: free_port(),
                login: String::new(),
                folder: folder.path().to_owned(),
                launch: Launch::Arguments(arguments.clone()),
                _temporary_folder: Some(folder),
            };
            redis.launch();
            if redis.comes_up().await {
                return redis;
            }
        }
        panic!("redis-server does not start with {arguments:?}");
    }

    /// [`Redis::start`] for code that is not async.
    pub fn blocking_start() -> Self {
        block_on(Self::start())
    }

    /// Returns a server for [`Redis::launch`], which starts `program` with the caller's file at
    /// [`Redis::conf_path`], and appends its log to `log` beside it.
    ///
    /// `login` is the harness's login: `user:password@`, or nothing.
    pub fn with_conf(program: RedisProgram, folder: &Path, login: &str) -> Self {
        fs::create_dir_all(folder).unwrap();
        Self {
            process: Mutex::new(None),
            port: free_port(),
            login: login.to_owned(),
            folder: folder.to_owned(),
            launch: Launch::Conf(program),
            _temporary_folder: None,
        }
    }

    /// Starts the process without waiting for an answer.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn launch(&self) {
        let mut command = match &self.launch {
            Launch::Arguments(arguments) => {
                let mut command = Command::new("redis-server");
                command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--dir"]);
                command.arg(&self.folder).args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
                command
            }
            Launch::Conf(program) => {
                let program = match program {
                    RedisProgram::Server => "redis-server",
                    RedisProgram::Sentinel => "redis-sentinel",
                };
                let log = fs::File::options().create(true).append(true).open(self.folder.join(LOG)).unwrap();
                // With SIGXFSZ ignored, a write beyond a limit of the file size fails as on a full disk.
                let mut command = Command::new("sh");
                command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$1\"", program]).arg(self.conf_path());
                command.current_dir(&self.folder).stdout(log.try_clone().unwrap()).stderr(log);
                command
            }
        };
        let child = ChildGuard::spawn(&mut command).expect("redis-server can be started; is it installed?");
        *self.process.lock() = Some(child);
    }

    /// Returns `redis://127.0.0.1:<port>`, with the login if there is one.
    pub fn url(&self) -> String {
        format!("redis://{}127.0.0.1:{}", self.login, self.port)
    }

    /// Returns the port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the configuration file of a server made [`Redis::with_conf`].
    pub fn conf_path(&self) -> PathBuf {
        self.folder.join(CONF)
    }

    /// Returns the process id; none if it was killed or never started.
    pub fn process_id(&self) -> Option<u32> {
        self.process.lock().as_ref().map(ChildGuard::id)
    }

    /// Returns true if the process exists, frozen or not.
    pub fn is_running(&self) -> bool {
        self.process.lock().as_ref().is_some_and(|process| process.ended().is_none())
    }

    /// Returns a store on this server.
    #[cfg(feature = "types")]
    pub fn store(&self) -> store::Store {
        store(&self.url())
    }

    /// Runs a command as redis-cli would.
    ///
    /// # Panics
    /// If Redis refuses it, or replies with something else than a `T`.
    pub async fn cli<T: FromRedisValue>(&self, words: &[impl AsRef<[u8]>]) -> T {
        self.try_cli(words).await.unwrap_or_else(|error| {
            let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word.as_ref())).collect();
            panic!("{}: {error}", words.join(" "))
        })
    }

    /// Runs a command as redis-cli would.
    ///
    /// # Errors
    /// Redis is not reached, refuses the command, or replies with something else than a `T`.
    pub async fn try_cli<T: FromRedisValue>(&self, words: &[impl AsRef<[u8]>]) -> Result<T, RedisError> {
        query(&self.url(), RESPONSE_TIMEOUT, words).await
    }

    /// [`Redis::cli`] for code that is not async.
    pub fn blocking_cli<T: FromRedisValue + Send>(&self, words: &[impl AsRef<[u8]> + Sync]) -> T {
        block_on(self.cli(words))
    }

    /// Opens a connection with generous limits.
    ///
    /// # Errors
    /// Redis is not reached, or refuses the login.
    pub async fn connection(&self) -> Result<MultiplexedConnection, RedisError> {
        connect(&self.url(), RESPONSE_TIMEOUT).await
    }

    /// Makes this a replica of `master`; does not wait until it is in sync.
    pub async fn replicate_from(&self, master: &Redis) {
        self.cli(&["REPLICAOF", "127.0.0.1", &master.port.to_string()]).await
    }

    /// Makes this a master.
    pub async fn promote(&self) {
        self.cli(&["REPLICAOF", "NO", "ONE"]).await
    }

    /// Waits until this replica is in sync with `master`, and the master knows it.
    pub async fn wait_in_sync_with(&self, master: &Redis) {
        eventually("the replica is in sync", || async {
            let replica: String = self.cli(&["INFO", "replication"]).await;
            let known: String = master.cli(&["INFO", "replication"]).await;
            let line = format!("port={},state=online", self.port);
            let in_sync = replica.contains("master_link_status:up") && known.contains(&line);
            if in_sync { Ok(()) } else { Err(format!("{replica}\n{known}")) }
        })
        .await;
    }

    /// Sends SIGSTOP: connections stay open, nothing answers.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Sends SIGCONT.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = &*self.process.lock() {
            process.signal(signal);
        }
    }

    /// Sends SIGKILL. Its memory is lost.
    pub fn kill(&self) {
        drop(self.process.lock().take());
    }

    /// Kills it and restarts it on the same port and folder; waits until it answers.
    ///
    /// # Panics
    /// If it does not come up.
    pub async fn restart(&self) {
        self.kill();
        self.launch();
        assert!(self.comes_up().await, "redis-server does not come up again on port {}", self.port);
    }

    /// Returns false if it ended by itself.
    async fn comes_up(&self) -> bool {
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            if !self.is_running() {
                return false;
            }
            let id = self.process_id().unwrap_or_default();
            // On a port that was taken, another server answers while ours is giving up: the process id tells
            // them apart.
            let info: Result<String, RedisError> = self.try_cli(&["INFO", "server"]).await;
            match info {
                Ok(info) if info.contains(&format!("process_id:{id}\r")) => return true,
                // It answers, but asks for a password.
                Err(error) if error.code().is_some() => return true,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
        panic!("redis-server on port {} does not answer", self.port);
    }
}

/// Connects to a server; `limit` is that of connecting and of each response.
///
/// # Errors
/// Redis is not reached, or refuses the login.
pub async fn connect(url: &str, limit: Duration) -> Result<MultiplexedConnection, RedisError> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(limit)).set_response_timeout(Some(limit));
    Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

/// Runs one command on a connection of its own.
///
/// # Errors
/// Redis is not reached, refuses the command, or replies with something else than a `T`.
pub async fn query<T: FromRedisValue>(
    url: &str,
    limit: Duration,
    words: &[impl AsRef<[u8]>],
) -> Result<T, RedisError> {
    let mut command = Cmd::new();
    for word in words {
        command.arg(word.as_ref());
    }
    command.query_async(&mut connect(url, limit).await?).await
}

/// Returns a store behind a URL.
#[cfg(feature = "types")]
pub fn store(url: &str) -> store::Store {
    use store::{LinkOptions, Store};
    // Connecting takes long on a machine that is busy with other tests.
    let options = LinkOptions { connect_timeout: Duration::from_secs(10), ..LinkOptions::default() };
    Store::new(url.parse().unwrap(), options)
}
