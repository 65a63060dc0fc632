//! What the tests stand on: one Redis, one simulated engine that outlives workers, and workers that come and go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::config::{Config, Sources};
use common::ids::{NodeName, PodId};
use common::lifecycle::Phase;
use common::pod::PodRecord;
use common::store::{DrainOutcome, LinkOptions, Store};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::redis::Redis;
use crate::runtime::sim::{SimOptions, SimRuntime};
use crate::runtime::{Container, Runtime};
use crate::trouble::Trouble;
use crate::worker::{Pace, Worker};
use crate::{Hands, WorkerError};

/// Waits until it is so, at most twenty seconds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition().await {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(super) struct Rig {
    pub(super) redis: Redis,
    pub(super) store: Store,
    pub(super) engine: SimRuntime,
    pub(super) config: Config,
    pub(super) pace: Pace,
    _directory: tempfile::TempDir,
}

/// A worker at work. Dropping it is a crash.
pub(super) struct Working {
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), WorkerError>>,
}

impl Working {
    /// Asks it to end, and waits.
    pub(super) async fn end(mut self) -> Result<(), WorkerError> {
        self.shutdown.cancel();
        (&mut self.task).await.unwrap()
    }

    /// Waits until it ends by itself.
    pub(super) async fn ends(mut self) -> Result<(), WorkerError> {
        tokio::time::timeout(Duration::from_secs(20), &mut self.task).await.unwrap().unwrap()
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Rig {
    /// Short timings: heartbeat 0.2 s, fence 1 s, death 4 s. None where there is no Redis.
    pub(super) fn new(test: &str) -> Option<Self> {
        Self::with_engine(test, SimOptions::default())
    }

    pub(super) fn with_engine(test: &str, options: SimOptions) -> Option<Self> {
        let redis = Redis::start(test)?;
        let directory = tempfile::tempdir().unwrap();
        let config = config(&redis.url(), directory.path().to_str().unwrap());
        let pace = Pace {
            block: Duration::from_millis(300),
            sweep: Duration::from_millis(500),
            relist: Duration::from_secs(1),
            gap: Duration::from_millis(10),
            start_retry: Duration::from_millis(400),
            longest: Duration::from_secs(2),
            shutdown: Duration::from_secs(5),
            ..Pace::default()
        };
        let store = Store::new(config.redis.clone(), LinkOptions::default());
        let engine = SimRuntime::new(options);
        Some(Self { redis, store, engine, config, pace, _directory: directory })
    }

    pub(super) fn worker(&self) -> Working {
        self.worker_on(Arc::new(self.engine.clone()))
    }

    pub(super) fn worker_on(&self, engine: Arc<dyn Runtime>) -> Working {
        let store = Store::new(self.config.redis.clone(), LinkOptions::default());
        let shutdown = CancellationToken::new();
        let redis = Arc::new(Trouble::of("talking to Redis"));
        let config = Arc::new(self.config.clone());
        let hands = Hands::real(engine, crate::keeper(&config).unwrap());
        let worker = Worker::new(config, store, hands, self.pace.clone(), redis);
        let task = tokio::spawn(crate::life::run(Arc::new(worker), shutdown.clone()));
        Working { shutdown, task }
    }

    pub(super) fn node(&self) -> NodeName {
        self.config.node.clone()
    }

    /// LPUSH onto the worker's queue.
    pub(super) fn push(&self, payload: &str) {
        let queue = format!("pq:{}", self.config.node);
        let answer = self.redis.cli(["LPUSH", &queue, payload]);
        assert!(answer.parse::<u64>().is_ok(), "{answer}");
    }

    pub(super) async fn record(&self, pod: &str) -> Option<PodRecord> {
        self.store.pod(&id(pod)).await.unwrap()
    }

    pub(super) async fn is(&self, pod: &str, phase: Phase) -> bool {
        self.record(pod).await.is_some_and(|record| record.phase == phase)
    }

    pub(super) async fn says(&self, pod: &str, reason: &str) -> bool {
        self.record(pod).await.is_some_and(|record| record.reason == reason)
    }

    pub(super) async fn until(&self, pod: &str, phase: Phase) {
        eventually(&format!("{pod} is {phase}"), || self.is(pod, phase)).await;
    }

    pub(super) async fn until_says(&self, pod: &str, reason: &str) {
        eventually(&format!("{pod} says {reason:?}"), || self.says(pod, reason)).await;
    }

    /// What there is of a pod on the engine.
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
        self.redis.cli([command, key]).parse().unwrap()
    }

    /// Nothing on its way, and so many pods in cs.
    pub(super) async fn until_settled(&self, running: u64) {
        eventually(&format!("queues empty and {running} in cs"), || async {
            (self.length("pq:w"), self.length("rq:w"), self.length("cs:w")) == (0, 0, running)
        })
        .await;
    }

    pub(super) async fn stop(&self, pod: &str) {
        let pods = [(id(pod), Some(self.node()))];
        self.store.stop_pods(None, &pods, "Test", "the test wants it so").await.unwrap();
    }

    /// What a scheduler does once the worker has been silent for long enough: declares and drains.
    pub(super) async fn bury(&self) {
        let short = Duration::from_millis(1);
        eventually("the node is declared dead", || async {
            let node = self.store.node(&self.node()).await.unwrap().unwrap();
            self.store.declare_dead(&node, short, Duration::ZERO, Duration::ZERO).await.unwrap();
            self.store.node(&self.node()).await.unwrap().unwrap().state == common::node::NodeState::Dead
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

/// A payload with further fields.
pub(super) fn payload_with(pod: &str, image: &str, more: &str) -> String {
    format!(r#"{{"name":"test","uuid":"{pod}","image":"{image}","replica":3,{more}}}"#)
}

fn config(url: &str, directory: &str) -> Config {
    let settings = [
        ("KUBELEET_REDIS_URL", url),
        ("KUBELEET_NODE", "w"),
        ("KUBELEET_HEARTBEAT", "200ms"),
        ("KUBELEET_FENCE_AFTER", "1s"),
        ("KUBELEET_DEAD_AFTER", "4s"),
        ("KUBELEET_STATE_DIR", directory),
        ("KUBELEET_RESTART_BACKOFF", "300ms"),
    ];
    let flags: BTreeMap<String, String> =
        settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let sources = Sources {
        flags,
        environment: &|_| None,
        file: BTreeMap::new(),
        read_file: &|path| Err(format!("{path} is not for tests")),
        host_name: "w".to_owned(),
    };
    sources.config().unwrap()
}
