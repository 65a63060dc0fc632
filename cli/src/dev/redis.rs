//! The private Redis of a `dev` cluster.

use std::fs::{File, TryLockError};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use daemon::redis_url::RedisUrl;
use daemon::state_file::StateFile;
use model::value::secret::Secret;
use rustix::process::{Pid, Signal, kill_process};
use store::{LinkOptions, Store};
use tokio::process::{Child, Command};

/// Redis is ready within milliseconds; a swapping machine may need longer.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

const PID_FILE: &str = "pid";

/// Redis writes its data within moments; a slow disk may need longer.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) struct PrivateRedis {
    port: u16,
    sentinels: Vec<u16>,
    password: Option<Secret>,
    is_kept: bool,
    processes: Vec<Child>,
}

impl PrivateRedis {
    /// A kept server continues with its data in `directory`.
    pub(super) async fn start(
        directory: &Path,
        ha: bool,
        is_kept: bool,
        password: Option<Secret>,
    ) -> anyhow::Result<Self> {
        let port = free_port()?;
        let mut redis = Self { port, sentinels: Vec::new(), password, is_kept, processes: Vec::new() };
        redis.start_server(&directory.join("master"), port, None).await?;
        if ha {
            for n in 1..=2 {
                redis.start_server(&directory.join(format!("replica{n}")), free_port()?, Some(port)).await?;
            }
            redis.wait_until_ready().await?;
            for n in 1..=3 {
                redis.start_sentinel(&directory.join(format!("sentinel{n}"))).await?;
            }
        }
        redis.wait_until_ready().await?;
        Ok(redis)
    }

    pub(super) fn url(&self) -> String {
        let password = self.password.as_ref().map(Secret::expose);
        let login = password.map_or_else(String::new, |password| format!(":{password}@"));
        if self.sentinels.is_empty() {
            return format!("redis://{login}127.0.0.1:{}", self.port);
        }
        let hosts: Vec<String> = self.sentinels.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let option = password.map_or_else(String::new, |password| format!("?sentinel_password={password}"));
        format!("redis+sentinel://{login}{}/mymaster{option}", hosts.join(","))
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Kept processes write all data first.
    pub(super) async fn stop(mut self) {
        if !self.is_kept {
            return;
        }
        for process in &mut self.processes {
            let pid = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
            let _is_gone = pid.map(|pid| kill_process(pid, Signal::TERM));
            if tokio::time::timeout(STOP_TIMEOUT, process.wait()).await.is_err() {
                tracing::warn!("Redis did not end within {STOP_TIMEOUT:?}: its last second may be lost");
            }
        }
    }

    async fn start_server(&mut self, directory: &Path, port: u16, master: Option<u16>) -> anyhow::Result<()> {
        std::fs::create_dir_all(directory)?;
        // In a file, because any user of the machine can read a process's arguments.
        let file = directory.join("redis.conf");
        let password = self.password.as_ref().map(Secret::expose);
        let text = password.map_or_else(String::new, |it| format!("requirepass {it}\nmasterauth {it}\n"));
        StateFile::new(&file).private().write(text.as_bytes())?;
        let (file, port) = (file.display().to_string(), port.to_string());
        let append_only = if self.is_kept { "yes" } else { "no" };
        let mut arguments = vec![file.as_str(), "--port", &port, "--bind", "127.0.0.1"];
        arguments.extend(["--save", "", "--appendonly", append_only, "--pidfile", PID_FILE]);
        let master = master.map(|port| port.to_string());
        if let Some(master) = &master {
            arguments.extend(["--replicaof", "127.0.0.1", master]);
        }
        self.processes.push(spawn(directory, &arguments, &lock(directory).await?)?);
        Ok(())
    }

    async fn start_sentinel(&mut self, directory: &Path) -> anyhow::Result<()> {
        let port = free_port()?;
        std::fs::create_dir_all(directory)?;
        // Sentinel rewrites its configuration file, so the file must be writable.
        let file = directory.join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor mymaster 127.0.0.1 {} 2\n\
             sentinel down-after-milliseconds mymaster 3000\nsentinel failover-timeout mymaster 10000\n{}",
            self.port,
            self.password.as_ref().map_or_else(String::new, |password| sentinel_logins(password.expose()))
        );
        StateFile::new(&file).private().write(text.as_bytes())?;
        let file = file.display().to_string();
        self.processes.push(spawn(directory, &[&file, "--sentinel"], &lock(directory).await?)?);
        self.sentinels.push(port);
        Ok(())
    }

    async fn wait_until_ready(&self) -> anyhow::Result<()> {
        wait_until_listening(*self.sentinels.last().unwrap_or(&self.port)).await?;
        let url: RedisUrl = self.url().parse()?;
        let store = Store::new(url, LinkOptions::default());
        let started = Instant::now();
        loop {
            match store.ping().await {
                Ok(()) => return Ok(()),
                Err(error) if started.elapsed() > READY_TIMEOUT => {
                    bail!("the private Redis did not answer within {READY_TIMEOUT:?}: {error}")
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

fn sentinel_logins(password: &str) -> String {
    format!(
        "requirepass {password}\nsentinel sentinel-pass {password}\nsentinel auth-pass mymaster {password}\n"
    )
}

/// The store would log an error for each failed attempt.
async fn wait_until_listening(port: u16) -> anyhow::Result<()> {
    let started = Instant::now();
    while let Err(error) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await {
        if started.elapsed() > READY_TIMEOUT {
            bail!("the private Redis did not listen on port {port} within {READY_TIMEOUT:?}: {error}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// The server inherits the lock: two servers would write the same files. Ends a server that outlived a killed
/// `dev`.
async fn lock(directory: &Path) -> anyhow::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(directory.join("lock"))?;
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if started.elapsed() < STOP_TIMEOUT => end_leftover(directory),
            Err(TryLockError::WouldBlock) => bail!(
                "the redis-server of a `kubeleet dev` that was killed still uses {}: end it, then try again",
                directory.display()
            ),
            Err(TryLockError::Error(error)) => Err(error).context("cannot lock the directory of Redis")?,
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The pid may belong to another process by now, so the working directory is compared.
fn end_leftover(directory: &Path) {
    let pid = std::fs::read_to_string(directory.join(PID_FILE)).ok();
    let Some(pid) = pid.and_then(|pid| pid.trim().parse().ok()).and_then(Pid::from_raw) else { return };
    let works_in = std::fs::read_link(format!("/proc/{}/cwd", pid.as_raw_nonzero()));
    if works_in.ok().is_some_and(|works_in| Some(works_in) == directory.canonicalize().ok()) {
        let _is_gone = kill_process(pid, Signal::TERM);
    }
}

fn spawn(directory: &Path, arguments: &[&str], lock: &File) -> anyhow::Result<Child> {
    let log: PathBuf = directory.join("log");
    let log = std::fs::File::create(log)?;
    // Its own process group: Ctrl-C in the terminal must not stop Redis before the daemons.
    let spawned = Command::new("redis-server")
        .args(arguments)
        .current_dir(directory)
        .stdin(lock.try_clone()?)
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    match spawned {
        Ok(child) => Ok(child),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!(
                "redis-server is not installed: run `apt-get install redis-server`, or `make run`, which \
                 installs it"
            )
        }
        Err(error) => Err(error).context("cannot start redis-server"),
    }
}

pub(super) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0)).context("cannot find a free port")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    async fn reply_without_login(port: u16, command: &str) -> String {
        use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(format!("{command}\r\n").as_bytes()).await.unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await.unwrap();
        line
    }

    #[tokio::test]
    async fn with_a_password_neither_redis_nor_a_sentinel_obeys_a_stranger() {
        let home = tempfile::tempdir().unwrap();
        let password = Some(Secret::new("0123456789abcdef"));
        let redis = PrivateRedis::start(&home.path().join("redis"), true, false, password).await.unwrap();
        for port in redis.sentinels.iter().chain([&redis.port]) {
            let reply = reply_without_login(*port, "CLIENT LIST").await;
            assert!(reply.starts_with("-NOAUTH"), "{port}: {reply}");
        }
        let store = Store::new(redis.url().parse().unwrap(), LinkOptions::default());
        store.ping().await.unwrap();
    }

    #[tokio::test]
    async fn without_a_password_redis_cli_needs_none() {
        let home = tempfile::tempdir().unwrap();
        let redis = PrivateRedis::start(&home.path().join("redis"), false, false, None).await.unwrap();
        assert_eq!(reply_without_login(redis.port, "PING").await, "+PONG\r\n");
    }
}
