//! The private Redis of a `dev` cluster: a free port, a temporary directory, no persistence. With `--ha` it
//! has two replicas and three sentinels.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use common::config::Secret;
use common::store::{LinkOptions, RedisUrl, Store};
use tokio::process::{Child, Command};

use crate::dev_token::write_private;

/// Redis is ready within milliseconds; a machine that swaps may need longer.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// Redis processes, killed when this value is dropped.
pub(super) struct PrivateRedis {
    port: u16,
    sentinels: Vec<u16>,
    /// Of the servers and of the Sentinels.
    password: Option<Secret>,
    _processes: Vec<Child>,
}

impl PrivateRedis {
    /// Starts the servers and waits until the master answers. Clients need the `password`, if there is one.
    pub(super) async fn start(directory: &Path, ha: bool, password: Option<Secret>) -> anyhow::Result<Self> {
        let port = free_port()?;
        let mut redis = Self { port, sentinels: Vec::new(), password, _processes: Vec::new() };
        redis.start_server(&directory.join("master"), port, None)?;
        if ha {
            for n in 1..=2 {
                redis.start_server(&directory.join(format!("replica{n}")), free_port()?, Some(port))?;
            }
            redis.wait_until_ready().await?;
            for n in 1..=3 {
                redis.start_sentinel(&directory.join(format!("sentinel{n}")))?;
            }
        }
        redis.wait_until_ready().await?;
        Ok(redis)
    }

    /// Returns the URL for `KUBELEET_REDIS_URL`.
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

    /// Returns the port of the first master.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    fn start_server(&mut self, directory: &Path, port: u16, master: Option<u16>) -> anyhow::Result<()> {
        std::fs::create_dir_all(directory)?;
        // Any user of the machine can read the arguments of a process.
        let file = directory.join("redis.conf");
        let password = self.password.as_ref().map(Secret::expose);
        let text = password.map_or_else(String::new, |it| format!("requirepass {it}\nmasterauth {it}\n"));
        write_private(&file, &text)?;
        let (file, port) = (file.display().to_string(), port.to_string());
        let mut arguments =
            vec![file.as_str(), "--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        let master = master.map(|port| port.to_string());
        if let Some(master) = &master {
            arguments.extend(["--replicaof", "127.0.0.1", master]);
        }
        self._processes.push(spawn(directory, &arguments)?);
        Ok(())
    }

    fn start_sentinel(&mut self, directory: &Path) -> anyhow::Result<()> {
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
        write_private(&file, &text)?;
        let file = file.display().to_string();
        self._processes.push(spawn(directory, &[&file, "--sentinel"])?);
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

/// Returns the lines by which a Sentinel demands the password, and logs in to the other ones and to Redis.
fn sentinel_logins(password: &str) -> String {
    format!(
        "requirepass {password}\nsentinel sentinel-pass {password}\nsentinel auth-pass mymaster {password}\n"
    )
}

/// Waits until the port accepts connections. The store would log an error for each failed attempt.
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

fn spawn(directory: &Path, arguments: &[&str]) -> anyhow::Result<Child> {
    std::fs::create_dir_all(directory)?;
    let log: PathBuf = directory.join("log");
    let log = std::fs::File::create(log)?;
    // Its own process group: Ctrl-C in the terminal must not stop Redis before the daemons.
    let spawned = Command::new("redis-server")
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
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

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0)).context("cannot find a free port")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// Sends one command without a login, and returns the first line of the reply.
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
        let redis = PrivateRedis::start(&home.path().join("redis"), true, password).await.unwrap();
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
        let redis = PrivateRedis::start(&home.path().join("redis"), false, None).await.unwrap();
        assert_eq!(reply_without_login(redis.port, "PING").await, "+PONG\r\n");
    }
}
