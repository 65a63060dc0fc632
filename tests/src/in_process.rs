//! A cluster whose daemons are tasks of the test process: a step takes a fraction of a second.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use daemon::clock::BootClock;
use daemon::config::Config;
use model::ids::{ClusterId, HolderId, NodeName};
use parking_lot::Mutex;
use store::{LinkOptions, Store};
use testkit::fixtures;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use worker::{IdentityStore, OtherLease, WorkerEnv, WorkerTimings};

use crate::recorded_engine::RecordedEngine;
use crate::{Http, Keyspace, LIMIT, Redis, kept_log};

pub struct InProcessCluster {
    pub redis: Redis,
    pub store: Store,
    pub engine: RecordedEngine,
    pub http: Http,
    pub nodes: Vec<NodeName>,
    daemons: JoinSet<Result<(), String>>,
    _folder: tempfile::TempDir,
}

impl InProcessCluster {
    pub async fn start(workers: u32) -> Self {
        kept_log::start();
        let redis = Redis::start().await;
        let folder = tempfile::tempdir().unwrap();
        let config = config(&redis.url(), folder.path().to_str().unwrap());
        let new_store = || Store::new(config.redis.clone(), LinkOptions::default());
        let (engine, token) = (RecordedEngine::new(), CancellationToken::new());
        let mut daemons = JoinSet::new();
        let server = api::Server::bind(Arc::new(config.clone()), new_store()).await.unwrap();
        let http = Http::new(&format!("http://{}", server.address()));
        let shutdown = token.clone();
        daemons.spawn(async move {
            server.run(shutdown).await;
            Ok(())
        });
        for _ in 0..2 {
            let (config, store, shutdown) = (Arc::new(config.clone()), new_store(), token.clone());
            let run = scheduler::run_with(config, store, shutdown);
            daemons.spawn(async move { run.await.map_err(|error| error.to_string()) });
        }
        let nodes: Vec<NodeName> =
            (1..=workers).map(|number| NodeName::new(format!("w{number}")).unwrap()).collect();
        let shared_by_workers = new_store();
        for node in &nodes {
            let config = Arc::new(Config { node: node.clone(), ..config.clone() });
            let env = WorkerEnv {
                runtime: Arc::new(engine.of_node(node)),
                clock: Arc::new(BootClock),
                lease_store: None,
                identity_store: Some(Arc::new(RememberedIdentity::default())),
                pod_store: worker::PodStore::Nowhere,
                uses_machine: false,
                proxy: None,
                pressure: || None,
            };
            let (store, shutdown) = (shared_by_workers.clone(), token.clone());
            daemons.spawn(async move {
                // As a supervisor does. The engine and its containers stay.
                while let Err(error) = worker::run_in_env(
                    config.clone(),
                    store.clone(),
                    env.clone(),
                    timings(),
                    shutdown.clone(),
                )
                .await
                {
                    tracing::error!(node = %config.node, %error, "a worker ended, and is started again");
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
                Ok(())
            });
        }
        http.nodes_ready(nodes.len()).await;
        Self { store: new_store(), redis, engine, http, nodes, daemons, _folder: folder }
    }

    pub fn ended(&mut self) -> Option<String> {
        let ended = self.daemons.try_join_next()?;
        Some(match ended {
            Ok(Ok(())) => "a daemon ended".to_owned(),
            Ok(Err(error)) => error,
            Err(panic) => panic.to_string(),
        })
    }

    pub async fn redis_keyspace(&self) -> Keyspace {
        Keyspace::read(&self.redis).await
    }

    /// The comparison of all keys begins within two seconds.
    pub async fn request_full_pass(&self) {
        let _receivers: u64 = self.redis.cli(&["PUBLISH", "wake:reconcile", ""]).await;
    }

    pub async fn runs(&self, service: &str, pods: u64) {
        self.http.runs(LIMIT, service, pods).await;
    }

    /// The error names the silent nodes.
    pub async fn heartbeats_go_on(&self, nodes: &[NodeName]) -> Result<(), String> {
        for _ in 0..2 {
            let before = self.beats(nodes).await;
            let deadline = Instant::now() + LIMIT;
            loop {
                let now = self.beats(nodes).await;
                let silent: Vec<_> =
                    before.iter().filter(|(node, beat)| now.get(*node) == Some(beat)).collect();
                if silent.is_empty() {
                    break;
                }
                if Instant::now() > deadline {
                    return Err(format!("these nodes send no heartbeats: {silent:?}"));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    async fn beats(&self, nodes: &[NodeName]) -> BTreeMap<String, String> {
        let mut beats = BTreeMap::new();
        for node in nodes {
            let key = format!("node:{node}");
            let beat: Option<String> = self.redis.try_cli(&["HGET", &key, "beat"]).await.unwrap_or_default();
            beats.insert(node.to_string(), beat.unwrap_or_default());
        }
        beats
    }
}

#[derive(Default)]
struct RememberedIdentity {
    cluster: Mutex<Option<ClusterId>>,
    holder: OnceLock<HolderId>,
}

impl IdentityStore for RememberedIdentity {
    fn load(&self) -> Option<ClusterId> {
        self.cluster.lock().clone()
    }

    fn save(&self, cluster: &ClusterId) {
        *self.cluster.lock() = Some(cluster.clone());
    }

    fn load_or_create_holder(&self) -> HolderId {
        self.holder.get_or_init(HolderId::random).clone()
    }

    fn engine(&self) -> Option<String> {
        None
    }

    fn save_engine(&self, _id: &str) {}

    fn note_hold(&self, _why: Option<&str>) {}

    fn other_leases(&self) -> Vec<OtherLease> {
        Vec::new()
    }
}

fn config(url: &str, folder: &str) -> Config {
    fixtures::config(&[
        ("KUBELEET_REDIS_URL", url),
        ("KUBELEET_LISTEN", "127.0.0.1:0"),
        ("KUBELEET_NODE", "host"),
        ("KUBELEET_RUNTIME", "sim"),
        ("KUBELEET_HEARTBEAT", "300ms"),
        ("KUBELEET_FENCE_AFTER", "2s"),
        ("KUBELEET_DEAD_AFTER", "3s"),
        ("KUBELEET_MAX_PODS", "500"),
        ("KUBELEET_STATE_DIR", folder),
        ("KUBELEET_DATA_DIR", folder),
    ])
}

fn timings() -> WorkerTimings {
    WorkerTimings {
        queue_block: Duration::from_millis(500),
        sweep_interval: Duration::from_secs(1),
        relist_interval: Duration::from_secs(1),
        min_relist_gap: Duration::from_millis(50),
        start_retry: Duration::from_millis(400),
        max_backoff: Duration::from_secs(2),
        shutdown_timeout: Duration::from_secs(2),
        record_lag: Duration::from_secs(1),
        ..WorkerTimings::default()
    }
}
