//! `kubeleet dev`: a whole cluster in one process. All that it creates is private, and removed at its end.
//! With `--data` the next `dev` continues with the state in Redis, the workers' saved state, and the
//! containers on an engine.

mod banner;
mod credentials;
mod engine;
mod event_lines;
mod home;
mod log_file;
pub(crate) mod options;
mod redis;
mod sample_service;

use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::proxy::Start;
use anyhow::{Context, bail};
use daemon::config::{Config, RuntimeKind, Serves, TunnelListen, proxy_socket_in};
use engine::Engine;
use model::ids::NodeName;
use model::node::Resources;
use model::spec::{Cpus, Memory};
use output::stderr;
use store::{LinkOptions, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::settings::SettingFlags;
use crate::signal;
use banner::ClientSettings;
use credentials::DevCredentials;
use home::{Home, SavedCluster};
use log_file::LogFile;
use options::DevOptions;
use redis::PrivateRedis;

/// For the daemons after Ctrl-C. Then cleanup begins without them.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

const DEFAULT_WORKERS: usize = 2;

pub(crate) async fn run(options: DevOptions) -> anyhow::Result<()> {
    let flags = &options.settings;
    let mut config = flags.read(Serves::Api)?;
    let home = Home::open(options.data.as_deref())?;
    let log = LogFile::start(home.path(), &config, options.verbose)?;
    let shutdown = signal::shutdown()?;
    let engine = choose_engine(&mut config, flags, &home).await?;
    // Processes are in their cluster's directory and need no lock.
    let _lock = (engine.kind == RuntimeKind::Docker).then(lock_worker_names).transpose()?;
    let credentials = DevCredentials::create(&mut config, home.path())?;
    credentials::set_secret_key(&mut config, home.path())?;
    let redis = home.path().join("redis");
    let redis =
        PrivateRedis::start(&redis, options.ha, home.kept().is_some(), credentials.password()).await?;
    configure(&mut config, flags, home.path(), &redis)?;
    let nodes = worker_names(&options, &engine, &home, &config).await?;

    let mut daemons = Daemons::start(&config, &engine, &nodes, &shutdown).await?;
    let store = daemons.store.clone();
    let _token = credentials.save_token(daemons.api.port())?;
    let ingress = config.ingress_listen.filter(|_| config.proxy_socket.is_some());
    let clients = ClientSettings {
        api: daemons.api,
        redis: redis.port(),
        ingress,
        log: log.path(),
        credentials: &credentials,
    };
    let welcome = welcome(&options, &engine, &home, &nodes, &clients, &store, config.timing.fence_after);
    let welcomed = tokio::select! {
        result = welcome => result,
        result = daemons.run_until(&shutdown) => result,
    };
    let result = match welcomed {
        Ok(()) => {
            if log.path().is_some() {
                tokio::spawn(event_lines::print(store.clone(), shutdown.clone()));
            }
            daemons.run_until(&shutdown).await
        }
        Err(error) => Err(error),
    };
    shutdown.cancel();
    match &result {
        Ok(()) if log.path().is_some() => stderr::note("stopping; Ctrl-C again stops at once"),
        Ok(()) => {}
        Err(_) => log.show_end(),
    }
    daemons.wait_for_end().await;
    if !leaves_containers(&home, &engine) {
        let cluster = store.cluster_id().await.ok().flatten();
        engine.clean_up(&nodes, cluster.as_ref()).await;
    }
    // Clients of Redis end first: they would log errors when Redis stops.
    drop((daemons, store));
    redis.stop().await;
    home.close()?;
    result
}

/// Plain processes would stay in the background of a terminal, where no `docker ps` shows them.
fn leaves_containers(home: &Home, engine: &Engine) -> bool {
    home.kept().is_some() && engine.kind == RuntimeKind::Docker
}

async fn choose_engine(config: &mut Config, flags: &SettingFlags, home: &Home) -> anyhow::Result<Engine> {
    let wanted = flags.has_runtime().then_some(config.runtime);
    let runtime = match home.kept() {
        Some(kept) => kept.runtime(wanted)?,
        None => wanted,
    };
    config.runtime = runtime.unwrap_or(config.runtime);
    let engine = Engine::choose(config, runtime.is_some(), home.path()).await?;
    config.runtime = engine.kind;
    if let Some(kept) = home.kept() {
        // First of all files: it marks the directory as one of `dev`.
        kept.save(&SavedCluster::new(engine.kind, home.known_workers().to_vec()))?;
    }
    Ok(engine)
}

/// The pods of surplus workers move when their nodes are declared dead.
async fn worker_names(
    options: &DevOptions,
    engine: &Engine,
    home: &Home,
    config: &Config,
) -> anyhow::Result<Vec<NodeName>> {
    let known = home.known_workers();
    let count = options.workers.map_or(known.len(), |count| count as usize);
    let count = if count == 0 { DEFAULT_WORKERS } else { count };
    let (kept, surplus) = known.split_at(count.min(known.len()));
    if !surplus.is_empty() {
        let store = Store::new(config.redis.clone(), LinkOptions::default());
        engine.remove_containers(surplus, store.cluster_id().await?.as_ref()).await;
    }
    let nodes = engine.worker_names(kept, count).await?;
    if let Some(home) = home.kept() {
        home.save(&SavedCluster::new(engine.kind, nodes.clone()))?;
    }
    Ok(nodes)
}

/// Two clusters with the same worker names would remove each other's containers. An abstract socket
/// disappears with the process, even after a crash.
fn lock_worker_names() -> anyhow::Result<UnixListener> {
    let address = UnixAddr::from_abstract_name("kubeleet-dev-worker")?;
    match UnixListener::bind_addr(&address) {
        Ok(lock) => Ok(lock),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            bail!(
                "another `kubeleet dev` runs containers on this machine; stop it with Ctrl-C in its \
                 terminal first"
            )
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
    config.proxy_socket = match config.runtime {
        // Simulated pods have no address.
        RuntimeKind::Sim => None,
        RuntimeKind::Docker | RuntimeKind::Process => proxy_socket_in(&config.state_dir),
    };
    // Only containers can join a network of pods: other runtimes change nothing on this machine.
    config.names &= config.runtime == RuntimeKind::Docker;
    // The whole cluster is on this host.
    config.tunnel_listen = TunnelListen::Off;
    config.data_dir = home.join("pods");
    config.policy.processes = true;
    if !flags.has_listen() && std::net::TcpListener::bind(config.listen).is_err() {
        stderr::warning(&format!("{} is in use: the API listens on a free port instead", config.listen));
        config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    }
    if let Some(address) = config.ingress_listen
        && std::net::TcpListener::bind(address).is_err()
    {
        stderr::warning(&format!("{address} is in use: the ingress listens on a free port instead"));
        config.ingress_listen = Some(SocketAddr::from(([127, 0, 0, 1], redis::free_port()?)));
    }
    Ok(())
}

async fn welcome(
    options: &DevOptions,
    engine: &Engine,
    home: &Home,
    nodes: &[NodeName],
    clients: &ClientSettings<'_>,
    store: &Store,
    fence_after: Duration,
) -> anyhow::Result<()> {
    let is_continued = !home.known_workers().is_empty();
    banner::cluster(options, engine, nodes.len(), clients)?;
    banner::log(clients)?;
    if let Some(kept) = home.kept() {
        banner::data(kept.path(), is_continued, fence_after)?;
    }
    // The commands to try next use it, even without the service.
    engine.create_hello_image().await?;
    // A user who has changed or deleted it does not want it back.
    if !options.no_hello && !is_continued {
        sample_service::deploy(engine, store, nodes.len()).await?;
    }
    let has_route = !options.no_hello;
    banner::next_steps(engine, home.kept().map(home::KeptHome::path), clients, has_route)
}

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
        tasks.spawn(async move {
            server.run(token).await;
            Ok(())
        });
        let (for_scheduler, token) = (store.clone(), shutdown.clone());
        tasks.spawn(async move { Ok(::scheduler::run_with(shared, for_scheduler, token).await?) });
        if config.proxy_socket.is_some() {
            let (config, token) = (Arc::new(config.clone()), shutdown.clone());
            tasks.spawn(async move { Ok(::proxy::run(config, Start::Alone, token.into(), || {}).await?) });
        }
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

    async fn run_until(&mut self, shutdown: &CancellationToken) -> anyhow::Result<()> {
        tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            // Ctrl-C also ends the daemons, so this branch may win although they ended on request.
            error = self.first_failure() => if shutdown.is_cancelled() { Ok(()) } else { Err(error) },
        }
    }

    async fn first_failure(&mut self) -> anyhow::Error {
        match self.tasks.join_next().await {
            Some(Ok(Err(error))) => error,
            Some(Err(panic)) => anyhow::anyhow!(
                "a daemon of `kubeleet dev` panicked, see the lines before: {panic}; start it again"
            ),
            Some(Ok(Ok(()))) | None => anyhow::anyhow!(
                "a daemon of `kubeleet dev` ended unexpectedly, see the lines before; start it again"
            ),
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

const DOCKER_VOLUMES: &str = "/var/lib/docker/volumes";

/// All workers run on this machine.
fn limit_to_share(config: &mut Config, workers: u64) {
    let all: Resources = config.capacity(::worker::machine::resources(Path::new(DOCKER_VOLUMES)));
    config.cpus = config.cpus.or(Some(Cpus::from_millis(all.cpu_millis / workers)));
    config.memory = config.memory.or(Some(Memory::from_bytes(all.memory_bytes / workers)));
    config.pids = config.pids.or(Some(all.pids / workers));
    config.disk = config.disk.or(Some(Memory::from_bytes(all.disk_bytes / workers)));
}
