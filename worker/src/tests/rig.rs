//! The test rig: one Redis, one simulated engine that outlives workers, and workers that come and go.

use std::sync::Arc;
use std::time::Duration;

use daemon::config::Config;
use engine::sim::{SimOptions, SimRuntime};
use engine::{Container, Runtime};
use model::ids::{HolderId, NodeName, PodId, SchedulerId};
use model::node::Resources;
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use model::service::volume::VolumeClaim;
use model::spec::ServiceInput;
use store::{AssignOutcome, Assignment, DrainOutcome, LinkOptions, NamedAssignment, Store};
pub(super) use testkit::eventually;
use testkit::{Redis, fixtures};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::WorkerEnv;
use crate::WorkerError;
use crate::WorkerTimings;
use crate::support::change_log::RedisLog;
use crate::worker::Worker;

pub(super) struct Rig {
    pub(super) redis: Redis,
    pub(super) store: Store,
    pub(super) engine: SimRuntime,
    pub(super) config: Config,
    pub(super) timings: WorkerTimings,
    pub(super) directory: tempfile::TempDir,
}

/// Dropping it is a crash.
pub(super) struct RunningWorker {
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), WorkerError>>,
}

impl RunningWorker {
    pub(super) async fn end(mut self) -> Result<(), WorkerError> {
        self.shutdown.cancel();
        (&mut self.task).await.unwrap()
    }

    pub(super) async fn until_registered(self, rig: &Rig) -> Self {
        eventually("the worker has registered", || async { crate::health(&rig.config).is_ok() }).await;
        self
    }

    pub(super) async fn ends(mut self) -> Result<(), WorkerError> {
        self.wait().await
    }

    pub(super) async fn wait(&mut self) -> Result<(), WorkerError> {
        tokio::time::timeout(Duration::from_secs(20), &mut self.task).await.unwrap().unwrap()
    }
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Rig {
    /// `None` if there is no redis-server.
    pub(super) fn new(test: &str) -> Option<Self> {
        Self::with_engine(test, SimOptions::default())
    }

    pub(super) fn with_engine(_test: &str, options: SimOptions) -> Option<Self> {
        let redis = testkit::require::has_redis().then(Redis::blocking_start)?;
        let directory = tempfile::tempdir().unwrap();
        let config = config(&redis.url(), directory.path().to_str().unwrap());
        let timings = WorkerTimings {
            queue_block: Duration::from_millis(300),
            sweep_interval: Duration::from_millis(500),
            relist_interval: Duration::from_secs(1),
            min_relist_gap: Duration::from_millis(10),
            start_retry: Duration::from_millis(400),
            max_backoff: Duration::from_secs(2),
            shutdown_timeout: Duration::from_secs(5),
            record_lag: Duration::ZERO,
            failover_memory: Duration::from_secs(60),
            ..WorkerTimings::default()
        };
        let store = Store::new(config.redis.clone(), LinkOptions::default());
        let engine = SimRuntime::new(options);
        Some(Self { redis, store, engine, config, timings, directory })
    }

    pub(super) fn worker(&self) -> RunningWorker {
        self.worker_on(Arc::new(self.engine.clone()))
    }

    pub(super) fn worker_on(&self, engine: Arc<dyn Runtime>) -> RunningWorker {
        self.worker_of(self.config.clone(), engine)
    }

    pub(super) fn worker_elsewhere(&self) -> RunningWorker {
        let machine = self.directory.path().join(HolderId::random().as_str());
        let config = Config { state_dir: machine.clone(), data_dir: machine, ..self.config.clone() };
        self.worker_of(config, Arc::new(SimRuntime::new(SimOptions::default())))
    }

    fn worker_of(&self, config: Config, engine: Arc<dyn Runtime>) -> RunningWorker {
        let store = Store::new(self.config.redis.clone(), LinkOptions::default());
        let shutdown = CancellationToken::new();
        let redis_log = Arc::new(RedisLog::default());
        let config = Arc::new(config);
        let env = WorkerEnv::real(&config, engine).unwrap();
        let worker = Worker::new(config, store, env, self.timings.clone(), redis_log);
        let task = tokio::spawn(crate::session::sessions::run(Arc::new(worker), shutdown.clone()));
        RunningWorker { shutdown, task }
    }

    pub(super) async fn incarnation(&self) -> String {
        let found: Option<String> = self.redis.cli(&["HGET", "node:w", "incarnation"]).await;
        found.unwrap_or_default()
    }

    pub(super) fn node(&self) -> NodeName {
        self.config.node.clone()
    }

    pub(super) fn push(&self, payload: &str) {
        let queue = format!("pq:{}", self.config.node);
        let _length: u64 = self.redis.blocking_cli(&["LPUSH", &queue, payload]);
    }

    pub(super) async fn assign_service(&self, json: &str) -> Vec<PodId> {
        let desired =
            ServiceInput::from_value(&serde_json::from_str(json).unwrap()).unwrap().normalize().unwrap();
        self.store.create_service(&desired).await.unwrap();
        if !desired.pod.persistent_volumes().is_empty() {
            let reported = || async { self.store.unreported_nodes().await.unwrap().is_empty() };
            eventually("the worker has reported its volumes", reported).await;
        }
        let scheduler = SchedulerId::new("rig").unwrap();
        let node = self.store.node(&self.node()).await.unwrap().unwrap();
        let taken = self.store.take(&scheduler, desired.replicas as usize).await.unwrap();
        let named = (!desired.pod.resources.is_empty()).then(|| NamedAssignment {
            request: Arc::new(desired.pod.resources.clone()),
            offered: node.offered_ids().clone(),
        });
        let assignments: Vec<Assignment> = taken
            .into_iter()
            .map(|raw| {
                let payload = Payload::parse(raw).unwrap();
                Assignment {
                    volumes: VolumeClaim::of_replica(&desired.name, &desired.pod, payload.replica),
                    seen_labels: None,
                    counted: None,
                    payload,
                    node: node.name.clone(),
                    incarnation: node.incarnation.clone(),
                    request: Resources { pods: 1, ..Resources::default() },
                    host_ports: desired.pod.host_ports(),
                    named: named.clone(),
                }
            })
            .collect();
        let outcomes = self.store.assign(&scheduler, Duration::from_secs(60), &assignments).await.unwrap();
        assert!(outcomes.iter().all(|outcome| *outcome == AssignOutcome::Assigned), "{outcomes:?}");
        assignments.into_iter().map(|assignment| assignment.payload.id).collect()
    }

    pub(super) async fn record(&self, pod: &str) -> Option<PodRecord> {
        self.store.pod(&id(pod)).await.unwrap()
    }

    pub(super) async fn has_phase(&self, pod: &str, phase: Phase) -> bool {
        self.record(pod).await.is_some_and(|record| record.phase == phase)
    }

    pub(super) async fn has_reason(&self, pod: &str, reason: &str) -> bool {
        self.record(pod).await.is_some_and(|record| record.reason == reason)
    }

    pub(super) async fn until(&self, pod: &str, phase: Phase) {
        eventually(&format!("{pod} is {phase}"), || self.has_phase(pod, phase)).await;
    }

    pub(super) async fn until_reason(&self, pod: &str, reason: &str) {
        eventually(&format!("{pod} has reason {reason:?}"), || self.has_reason(pod, reason)).await;
    }

    pub(super) async fn containers(&self, pod: &str) -> Vec<Container> {
        self.containers_on(&self.engine, pod).await
    }

    pub(super) async fn containers_on(&self, engine: &dyn Runtime, pod: &str) -> Vec<Container> {
        let all = engine.list(&self.node()).await.unwrap();
        all.into_iter().filter(|container| container.pod == id(pod)).collect()
    }

    pub(super) async fn until_containers(&self, pod: &str, count: usize) {
        eventually(&format!("{count} containers of {pod}"), || async {
            self.containers(pod).await.len() == count
        })
        .await;
    }

    pub(super) fn length(&self, key: &str) -> u64 {
        let command = if key.starts_with("cs:") { "SCARD" } else { "LLEN" };
        self.redis.blocking_cli(&[command, key])
    }

    pub(super) async fn until_settled(&self, running: u64) {
        eventually(&format!("queues empty and {running} in cs"), || async {
            (self.length("pq:w"), self.length("rq:w"), self.length("cs:w")) == (0, 0, running)
        })
        .await;
    }

    pub(super) async fn stop(&self, pod: &str) {
        let pods = [(id(pod), Some(self.node()))];
        self.store.stop_pods(None, &pods, "Test", "stopped by the test").await.unwrap();
    }

    pub(super) async fn declare_dead(&self) {
        let short = Duration::from_millis(1);
        eventually("the node is declared dead", || async {
            let _removed: u64 = self.redis.cli(&["HDEL", "node:w", "times"]).await;
            let node = self.store.node(&self.node()).await.unwrap().unwrap();
            let (zero, proof) = (Duration::ZERO, fixtures::long_proof());
            self.store.declare_dead(&node, short, zero, zero, proof).await.unwrap();
            self.store.node(&self.node()).await.unwrap().unwrap().state == model::node::NodeState::Dead
        })
        .await;
        let node = self.store.node(&self.node()).await.unwrap().unwrap();
        while let DrainOutcome::Moved(_) = self.store.drain_step(&node).await.unwrap() {}
    }
}

pub(super) fn id(pod: &str) -> PodId {
    PodId::new(pod).unwrap()
}

pub(super) fn payload(pod: &str, image: &str) -> String {
    format!(r#"{{"name":"test","uuid":"{pod}","image":"{image}","replica":3}}"#)
}

pub(super) fn payload_with(pod: &str, image: &str, more: &str) -> String {
    format!(r#"{{"name":"test","uuid":"{pod}","image":"{image}","replica":3,{more}}}"#)
}

fn config(url: &str, directory: &str) -> Config {
    fixtures::config(&[
        ("KUBELEET_REDIS_URL", url),
        ("KUBELEET_NODE", "w"),
        ("KUBELEET_HEARTBEAT", "200ms"),
        ("KUBELEET_FENCE_AFTER", "1s"),
        ("KUBELEET_DEAD_AFTER", "4s"),
        ("KUBELEET_STATE_DIR", directory),
        ("KUBELEET_DATA_DIR", directory),
        ("KUBELEET_RESTART_BACKOFF", "300ms"),
    ])
}
