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

/// The simulator's servers may get no processor for minutes while other steps of CI are busy.
const START_TIMEOUT: Duration = Duration::from_secs(300);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Instead of after five seconds in which other replicas could join.
const SYNC_AT_ONCE: [&str; 2] = ["--repl-diskless-sync-delay", "0"];
const CONF: &str = "conf";
const LOG: &str = "log";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedisProgram {
    Server,
    Sentinel,
}

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
    Arguments(Vec<String>),
    Conf(RedisProgram),
}

impl Redis {
    /// Stores nothing on disk.
    pub async fn start() -> Self {
        Self::start_with(&["--save", "", "--appendonly", "no"]).await
    }

    pub async fn start_with(arguments: &[&str]) -> Self {
        let arguments: Vec<String> =
            SYNC_AT_ONCE.iter().chain(arguments).map(|&text| text.to_owned()).collect();
        for _ in 0..10 {
            let folder = tempfile::tempdir().unwrap();
            // If another process takes the port first, our server ends at once.
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

    pub fn blocking_start() -> Self {
        block_on(Self::start())
    }

    /// The caller writes the file at [`Redis::conf_path`] before [`Redis::launch`]. `login` is
    /// `user:password@`, or nothing.
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

    /// Does not wait for an answer.
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

    pub fn url(&self) -> String {
        format!("redis://{}127.0.0.1:{}", self.login, self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn conf_path(&self) -> PathBuf {
        self.folder.join(CONF)
    }

    pub fn process_id(&self) -> Option<u32> {
        self.process.lock().as_ref().map(ChildGuard::id)
    }

    pub fn is_running(&self) -> bool {
        self.process.lock().as_ref().is_some_and(|process| process.ended().is_none())
    }

    #[cfg(feature = "types")]
    pub fn store(&self) -> store::Store {
        store(&self.url())
    }

    /// As redis-cli would. Panics if Redis refuses it.
    pub async fn cli<T: FromRedisValue>(&self, words: &[impl AsRef<[u8]>]) -> T {
        self.try_cli(words).await.unwrap_or_else(|error| {
            let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word.as_ref())).collect();
            panic!("{}: {error}", words.join(" "))
        })
    }

    pub async fn try_cli<T: FromRedisValue>(&self, words: &[impl AsRef<[u8]>]) -> Result<T, RedisError> {
        query(&self.url(), RESPONSE_TIMEOUT, words).await
    }

    pub fn blocking_cli<T: FromRedisValue + Send>(&self, words: &[impl AsRef<[u8]> + Sync]) -> T {
        block_on(self.cli(words))
    }

    pub async fn connection(&self) -> Result<MultiplexedConnection, RedisError> {
        connect(&self.url(), RESPONSE_TIMEOUT).await
    }

    pub async fn replicate_from(&self, master: &Redis) {
        self.cli(&["REPLICAOF", "127.0.0.1", &master.port.to_string()]).await
    }

    pub async fn promote(&self) {
        self.cli(&["REPLICAOF", "NO", "ONE"]).await
    }

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

    /// Connections stay open, nothing answers.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = &*self.process.lock() {
            process.signal(signal);
        }
    }

    /// Its memory is lost.
    pub fn kill(&self) {
        drop(self.process.lock().take());
    }

    /// On the same port and folder.
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
            // Another server may answer on a taken port while ours gives up: the process id tells them apart.
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

pub async fn connect(url: &str, limit: Duration) -> Result<MultiplexedConnection, RedisError> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(limit)).set_response_timeout(Some(limit));
    Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

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

#[cfg(feature = "types")]
pub fn store(url: &str) -> store::Store {
    use store::{LinkOptions, Store};
    // Connecting takes long on a busy machine.
    let options = LinkOptions { connect_timeout: Duration::from_secs(10), ..LinkOptions::default() };
    Store::new(url.parse().unwrap(), options)
}
