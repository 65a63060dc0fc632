//! `kubeleet dev`: a whole cluster in one process, for first steps and for work on kubeleet itself.
//!
//! Everything it creates is private (Redis, temporary directory, `hello` image) and removed when it ends.

mod banner;
mod credentials;
mod engine;
pub(crate) mod options;
mod redis;
mod sample_service;

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use common::config::Config;
use common::ids::NodeName;
use common::node::Resources;
use common::spec::{Cpus, Memory};
use common::store::{LinkOptions, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::daemons::cancel_on_signal;
use crate::settings::SettingFlags;
use banner::Clients;
use credentials::Credentials;
use engine::Engine;
use options::DevOptions;
use redis::PrivateRedis;

/// Time for the daemons to end after Ctrl-C. Then the cleanup begins without them.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

/// Runs a cluster until Ctrl-C, then removes all its containers, processes and files.
pub(crate) async fn run(options: DevOptions) -> anyhow::Result<()> {
    let flags = &options.settings;
    let mut config = flags.load()?;
    let shutdown = CancellationToken::new();
    cancel_on_signal(shutdown.clone())?;
    let _lock = lock_worker_names()?;
    let home = tempfile::Builder::new()
        .prefix("kubeleet-dev-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
        .context("cannot create a temporary directory")?;
    let engine = Engine::choose(&config, flags.has_runtime(), home.path()).await?;
    config.runtime = engine.kind;
    let credentials = Credentials::create(&mut config, home.path())?;
    let redis = PrivateRedis::start(&home.path().join("redis"), options.ha, credentials.password()).await?;
    configure(&mut config, flags, home.path(), &redis)?;
    let nodes = engine.free_worker_names(options.workers).await?;

    let mut daemons = Daemons::start(&config, &engine, &nodes, &shutdown).await?;
    let store = daemons.store.clone();
    let _token = credentials.save_token(daemons.api.port())?;
    let clients = Clients { api: daemons.api, redis: redis.port(), credentials: &credentials };
    let welcome = welcome(&options, &engine, &clients, &store);
    let welcomed = tokio::select! {
        result = welcome => result,
        result = daemons.run_until(&shutdown) => result,
    };
    let result = match welcomed {
        Ok(()) => daemons.run_until(&shutdown).await,
        Err(error) => Err(error),
    };
    shutdown.cancel();
    daemons.wait_for_end().await;
    let cluster = store.cluster_id().await.ok().flatten();
    engine.clean_up(&nodes, cluster.as_ref()).await;
    // First everything that is connected to Redis: it would log errors when Redis stops.
    drop((daemons, store));
    drop(redis);
    home.close().context("cannot remove the temporary directory")?;
    result
}

/// Makes sure that only one `dev` runs: two clusters with the same worker names would remove each other's
/// containers. An abstract socket is a lock that disappears with the process, even after a crash.
fn lock_worker_names() -> anyhow::Result<UnixListener> {
    let address = UnixAddr::from_abstract_name("kubeleet-dev-worker")?;
    match UnixListener::bind_addr(&address) {
        Ok(lock) => Ok(lock),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            bail!("another `kubeleet dev` runs on this machine; stop it with Ctrl-C in its terminal first")
        }
        Err(error) => Err(error).context("cannot check whether another `kubeleet dev` runs"),
    }
}

fn configure(
    config: &mut Config,
    flags: &SettingFlags,
    home: &Path,
    redis: &PrivateRedis,
) -> anyhow::Result<()> {
    config.redis = redis.url().parse().context("invalid URL of the private Redis")?;
    config.state_dir = home.join("state");
    config.data_dir = home.join("pods");
    config.policy.processes = true;
    if !flags.has_listen() && std::net::TcpListener::bind(config.listen).is_err() {
        tracing::warn!("{} is in use: the API listens on a free port instead", config.listen);
        config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    }
    Ok(())
}

/// Prints the banner, deploys the `hello` service, and prints what to try next.
async fn welcome(
    options: &DevOptions,
    engine: &Engine,
    clients: &Clients<'_>,
    store: &Store,
) -> anyhow::Result<()> {
    banner::cluster(options, engine, clients)?;
    if !options.no_hello {
        sample_service::deploy(engine, store, options.workers as usize).await?;
    }
    banner::next_steps(engine, clients)
}

/// The daemons, as tasks of this process.
struct Daemons {
    api: SocketAddr,
    store: Store,
    tasks: JoinSet<anyhow::Result<()>>,
}

impl Daemons {
    async fn start(
        config: &Config,
        engine: &Engine,
        nodes: &[NodeName],
        shutdown: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let store = Store::new(config.redis.clone(), LinkOptions::default());
        let shared = Arc::new(config.clone());
        let server = ::api::Server::bind(Arc::clone(&shared), store.clone()).await?;
        let api = server.address();
        let mut tasks = JoinSet::new();
        let token = shutdown.clone();
        tasks.spawn(async move { Ok(server.run(token).await?) });
        let (for_scheduler, token) = (store.clone(), shutdown.clone());
        tasks.spawn(async move { Ok(::scheduler::run_with(shared, for_scheduler, token).await?) });
        for node in nodes {
            let mut config = config.clone();
            config.node = node.clone();
            limit_to_share(&mut config, nodes.len() as u64);
            let (store, runtime, token) = (store.clone(), engine.runtime.clone(), shutdown.clone());
            tasks
                .spawn(async move { Ok(::worker::run_with(Arc::new(config), store, runtime, token).await?) });
        }
        Ok(Self { api, store, tasks })
    }

    /// Waits for Ctrl-C. Returns an error if a daemon ends before.
    async fn run_until(&mut self, shutdown: &CancellationToken) -> anyhow::Result<()> {
        tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            // At Ctrl-C the daemons end as well, and this branch may win although they ended on request.
            error = self.first_failure() => if shutdown.is_cancelled() { Ok(()) } else { Err(error) },
        }
    }

    async fn first_failure(&mut self) -> anyhow::Error {
        match self.tasks.join_next().await {
            Some(Ok(Err(error))) => error,
            Some(Err(panic)) => anyhow::anyhow!("a daemon panicked: {panic}"),
            Some(Ok(Ok(()))) | None => anyhow::anyhow!("a daemon ended unexpectedly"),
        }
    }

    async fn wait_for_end(&mut self) {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await.is_err() {
            tracing::warn!(
                "a daemon did not end within {SHUTDOWN_TIMEOUT:?}; removing its containers anyway"
            );
        }
    }
}

/// Limits a worker to an equal share of the machine, because all run on the same one.
fn limit_to_share(config: &mut Config, workers: u64) {
    let machine: Resources = ::worker::machine::resources();
    config.cpus = config.cpus.or(Some(Cpus::from_millis(machine.cpu_millis / workers)));
    config.memory = config.memory.or(Some(Memory::from_bytes(machine.memory_bytes / workers)));
}
