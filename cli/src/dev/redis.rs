//! A private Redis for `dev`: its own port, its own directory, no persistence. With `--ha` two replicas and three
//! sentinels beside it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use common::store::{LinkOptions, RedisUrl, Store};
use tokio::process::{Child, Command};

/// Redis is up within milliseconds; a machine that swaps may need longer.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// Servers that end with this value.
pub(crate) struct PrivateRedis {
    port: u16,
    sentinels: Vec<u16>,
    _servers: Vec<Child>,
}

impl PrivateRedis {
    /// Starts the servers and waits until the master answers.
    pub(crate) async fn start(directory: &Path, ha: bool) -> anyhow::Result<Self> {
        let port = free_port()?;
        let mut redis = Self { port, sentinels: Vec::new(), _servers: Vec::new() };
        redis.server(&directory.join("master"), port, None)?;
        if ha {
            for n in 1..=2 {
                redis.server(&directory.join(format!("replica{n}")), free_port()?, Some(port))?;
            }
            redis.wait_until_ready().await?;
            for n in 1..=3 {
                redis.sentinel(&directory.join(format!("sentinel{n}")))?;
            }
        }
        redis.wait_until_ready().await?;
        Ok(redis)
    }

    /// Where the cluster finds it.
    pub(crate) fn url(&self) -> String {
        if self.sentinels.is_empty() {
            return format!("redis://127.0.0.1:{}", self.port);
        }
        let hosts: Vec<String> = self.sentinels.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+sentinel://{}/mymaster", hosts.join(","))
    }

    /// What a person types to look inside.
    pub(crate) fn cli_line(&self) -> String {
        format!("redis-cli -p {}", self.port)
    }

    fn server(&mut self, directory: &Path, port: u16, master: Option<u16>) -> anyhow::Result<()> {
        let port = port.to_string();
        let mut arguments = vec!["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        let master = master.map(|port| port.to_string());
        if let Some(master) = &master {
            arguments.extend(["--replicaof", "127.0.0.1", master]);
        }
        self._servers.push(spawn(directory, &arguments)?);
        Ok(())
    }

    fn sentinel(&mut self, directory: &Path) -> anyhow::Result<()> {
        let port = free_port()?;
        std::fs::create_dir_all(directory)?;
        // Sentinel writes what it learns into its own configuration file.
        let file = directory.join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor mymaster 127.0.0.1 {} 2\n\
             sentinel down-after-milliseconds mymaster 3000\nsentinel failover-timeout mymaster 10000\n",
            self.port
        );
        std::fs::write(&file, text)?;
        let file = file.display().to_string();
        self._servers.push(spawn(directory, &[&file, "--sentinel"])?);
        self.sentinels.push(port);
        Ok(())
    }

    async fn wait_until_ready(&self) -> anyhow::Result<()> {
        wait_until_listening(*self.sentinels.last().unwrap_or(&self.port)).await?;
        let url: RedisUrl = self.url().parse()?;
        let store = Store::new(url, LinkOptions::default());
        let begun = Instant::now();
        loop {
            match store.ping().await {
                Ok(()) => return Ok(()),
                Err(error) if begun.elapsed() > READY_WITHIN => {
                    bail!("the private Redis is not ready after {READY_WITHIN:?}: {error}")
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

/// Knocks before the store does: it would say aloud that Redis is away.
async fn wait_until_listening(port: u16) -> anyhow::Result<()> {
    let begun = Instant::now();
    while let Err(error) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await {
        if begun.elapsed() > READY_WITHIN {
            bail!("the private Redis does not listen after {READY_WITHIN:?}: {error}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

fn spawn(directory: &Path, arguments: &[&str]) -> anyhow::Result<Child> {
    std::fs::create_dir_all(directory)?;
    let log: PathBuf = directory.join("log");
    let log = std::fs::File::create(log)?;
    // A process group of its own: Ctrl-C in the terminal must reach the daemons first, Redis last.
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
                "redis-server is not installed: `apt-get install redis-server`, or use `make run`, which does it"
            )
        }
        Err(error) => Err(error).context("starting redis-server"),
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0)).context("finding a free port")?.local_addr()?.port())
}
