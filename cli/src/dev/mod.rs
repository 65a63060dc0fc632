//! `kubeleet dev`: a whole cluster in one process, for the first minute and for working on kubeleet itself.
//!
//! Everything it makes is private (Redis, temporary directory, `hello` image) and gone when it ends.

mod banner;
mod engine;
mod hello;
mod redis;

use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
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

use crate::args::DevOptions;
use crate::daemons::cancel_on_signal;
use engine::Engine;
use redis::PrivateRedis;

/// How long daemons may take to end before the process goes on without them.
const END_WITHIN: Duration = Duration::from_secs(15);

/// Runs until Ctrl-C, then leaves no container, no process and no file.
pub(crate) async fn run(options: DevOptions) -> anyhow::Result<()> {
    let flags = &options.settings;
    let mut config = flags.load()?;
    let shutdown = CancellationToken::new();
    cancel_on_signal(shutdown.clone())?;
    let _only_one = claim_names()?;
    let home = tempfile::Builder::new().prefix("kubeleet-dev-").tempdir().context("making a directory")?;
    let redis = PrivateRedis::start(&home.path().join("redis"), options.ha).await?;
    prepare(&mut config, flags, home.path(), &redis)?;
    let engine = Engine::choose(&config, flags.says_runtime(), home.path()).await?;
    config.runtime = engine.kind;
    let nodes = worker_names(options.workers)?;

    let mut daemons = Daemons::start(&config, &engine, &nodes, &shutdown).await?;
    let store = daemons.store.clone();
    let story = tell_the_story(&options, &engine, &redis, daemons.api, &store);
    let told = tokio::select! {
        told = story => told,
        ended = daemons.wait_or(&shutdown) => ended,
    };
    let ended = match told {
        Ok(()) => daemons.wait_or(&shutdown).await,
        Err(error) => Err(error),
    };
    shutdown.cancel();
    daemons.end().await;
    engine.clean_up(&nodes).await;
    // Nobody may be left to say that Redis is away when it goes.
    drop((daemons, store));
    drop(redis);
    home.close().context("removing the temporary directory")?;
    ended
}

/// Two clusters whose workers have the same names would remove each other's containers. An abstract socket is a lock
/// that no crash leaves behind.
fn claim_names() -> anyhow::Result<UnixListener> {
    let address = UnixAddr::from_abstract_name("kubeleet-dev-worker")?;
    match UnixListener::bind_addr(&address) {
        Ok(lock) => Ok(lock),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            bail!("another `kubeleet dev` runs on this machine; end it with Ctrl-C in its terminal first")
        }
        Err(error) => Err(error).context("making sure that no other `kubeleet dev` runs"),
    }
}

fn prepare(
    config: &mut Config,
    flags: &crate::settings::SettingFlags,
    home: &Path,
    redis: &PrivateRedis,
) -> anyhow::Result<()> {
    config.redis = redis.url().parse().context("the private Redis' URL")?;
    config.state_dir = home.join("state");
    config.data_dir = home.join("pods");
    config.policy.processes = true;
    if !flags.says_listen() && std::net::TcpListener::bind(config.listen).is_err() {
        tracing::warn!("{} is taken: the API listens on another port", config.listen);
        config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    }
    Ok(())
}

fn worker_names(workers: u32) -> anyhow::Result<Vec<NodeName>> {
    (1..=workers).map(|n| Ok(NodeName::new(format!("worker{n}"))?)).collect()
}

async fn tell_the_story(
    options: &DevOptions,
    engine: &Engine,
    redis: &PrivateRedis,
    api: SocketAddr,
    store: &Store,
) -> anyhow::Result<()> {
    banner::cluster(options, engine, redis, api)?;
    if !options.no_hello {
        hello::deploy(engine, store, options.workers as usize).await?;
    }
    banner::what_next(engine, redis, api)
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
            share_of_machine(&mut config, nodes.len() as u64);
            let (store, runtime, token) = (store.clone(), engine.runtime.clone(), shutdown.clone());
            tasks
                .spawn(async move { Ok(::worker::run_with(Arc::new(config), store, runtime, token).await?) });
        }
        Ok(Self { api, store, tasks })
    }

    /// Waits for Ctrl-C, or for a daemon that ends although nobody asked.
    async fn wait_or(&mut self, shutdown: &CancellationToken) -> anyhow::Result<()> {
        tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            // At Ctrl-C the daemons end as well, perhaps before we look: then somebody has asked them to.
            failed = self.first_failure() => if shutdown.is_cancelled() { Ok(()) } else { Err(failed) },
        }
    }

    async fn first_failure(&mut self) -> anyhow::Error {
        match self.tasks.join_next().await {
            Some(Ok(Err(error))) => error,
            Some(Err(panic)) => anyhow::anyhow!("a daemon broke: {panic}"),
            Some(Ok(Ok(()))) | None => anyhow::anyhow!("a daemon ended although nobody asked it to"),
        }
    }

    async fn end(&mut self) {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(END_WITHIN, all).await.is_err() {
            tracing::warn!("a daemon did not end within {END_WITHIN:?}");
        }
    }
}

/// Workers on one machine share it: each offers its part.
fn share_of_machine(config: &mut Config, workers: u64) {
    let machine: Resources = ::worker::machine::resources();
    config.cpus = config.cpus.or(Some(Cpus::from_millis(machine.cpu_millis / workers)));
    config.memory = config.memory.or(Some(Memory::from_bytes(machine.memory_bytes / workers)));
}
