//! Fixture: a cluster of schedulers and of fake nodes that only send heartbeats.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use daemon::clock::BootClock;
use daemon::redis_url::RedisUrl;
use model::ids::{NodeName, PodId, SchedulerId, ServiceName};
use model::network::ContainerNetwork;
use model::node::timing::Timing;
use model::node::{HeldPod, NodeInfo, NodeSettings, Psi, RebalancePolicy, Resources};
use model::pod::PodRecord;
use model::pod::payload::Payload;
use model::service::Service;
use model::spec::{FORM_WITH_RULES, ServiceInput};
use parking_lot::Mutex;
use store::{
    AckItem, Claimant, FinishReport, PodOutcome, PodRef, PutMode, QueueName, Registration, Session, Store,
    StoreError,
};
use testkit::{Redis, fixtures};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use crate::timings::LoopTimings;
use crate::{SchedulerContext, run_context};

/// A node dies after three seconds.
pub(super) fn fast_failure_detection() -> LoopTimings {
    let timing = Timing {
        heartbeat: Duration::from_millis(200),
        fence_after: Duration::from_millis(2000),
        dead_after: Duration::from_millis(3000),
    };
    LoopTimings {
        settle_time: Duration::from_millis(300),
        full_pass_interval: Duration::from_secs(1),
        violation_time: Duration::from_secs(2),
        ..LoopTimings::of(&timing, &a_redis())
    }
}

/// However slow the machine is, no node dies.
pub(super) fn fast_repair() -> LoopTimings {
    let fast = fast_failure_detection();
    LoopTimings {
        reclaim_interval: fast.reclaim_interval,
        reclaim_after: fast.reclaim_after,
        full_pass_interval: fast.full_pass_interval,
        violation_time: fast.violation_time,
        settle_time: fast.settle_time,
        lost_record_wait: fast.lost_record_wait,
        ..defaults()
    }
}

fn a_redis() -> RedisUrl {
    "redis://localhost".parse().unwrap()
}

/// No node dies and nothing is repaired.
pub(super) fn defaults() -> LoopTimings {
    LoopTimings::of(&Timing::default(), &a_redis())
}

pub(super) struct Cluster {
    pub(super) server: Redis,
    pub(super) store: Store,
    timings: LoopTimings,
}

pub(super) struct Scheduler {
    pub(super) id: SchedulerId,
    pub(super) task: JoinHandle<Result<(), crate::SchedulerError>>,
    pub(super) stop: CancellationToken,
    _guard: DropGuard,
}

/// Registers again if declared dead.
pub(super) struct FakeNode {
    pub(super) name: NodeName,
    session: Arc<Mutex<Session>>,
    held: Arc<AtomicUsize>,
    pressure: Arc<Mutex<Option<Psi>>>,
    heartbeats: JoinHandle<()>,
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        self.heartbeats.abort();
    }
}

impl Cluster {
    pub(super) fn new(timings: LoopTimings) -> Self {
        let server = Redis::blocking_start();
        let store = server.store();
        Self { server, store, timings }
    }

    pub(super) fn scheduler(&self) -> Scheduler {
        self.scheduler_with(RebalancePolicy::default())
    }

    pub(super) fn scheduler_with(&self, rebalance: RebalancePolicy) -> Scheduler {
        let context = SchedulerContext { rebalance, ..self.context() };
        let id = context.id.clone();
        let stop = CancellationToken::new();
        let task = tokio::spawn(run_context(context, stop.clone()));
        Scheduler { id, task, _guard: stop.clone().drop_guard(), stop }
    }

    /// Of a scheduler whose loops a test drives.
    pub(super) fn context(&self) -> SchedulerContext {
        SchedulerContext {
            store: self.server.store(),
            clock: Arc::new(BootClock),
            id: SchedulerId::random(),
            timings: self.timings.clone(),
            profile: Default::default(),
            external_worker_pods: 100,
            volume_grace: None,
            rebalance: RebalancePolicy::default(),
            rebalance_moves: 60,
            node_died: Arc::default(),
        }
    }

    pub(super) async fn node(&self, name: &str, pods: u64) -> FakeNode {
        self.node_in(name, None, Resources { memory_bytes: 1 << 30, pods, ..Resources::default() }).await
    }

    pub(super) async fn node_in(&self, name: &str, zone: Option<&str>, capacity: Resources) -> FakeNode {
        let settings = NodeSettings { forms: FORM_WITH_RULES, ..NodeSettings::default() };
        let facts = NodeInfo {
            labels: zone.map(|zone| ("zone".to_owned(), zone.to_owned())).into_iter().collect(),
            capacity: Resources { cpu_millis: 4_000, pids: 1_000, ..capacity },
            reserved: Resources::default(),
            runtime: "fake".into(),
            engine_version: "1".into(),
            engine_id: String::new(),
            version: "1".into(),
            settings: zone.map(|_| settings),
        };
        let name = NodeName::new(name).unwrap();
        let timing = self.timings.detection;
        let first = register(&self.store, &name, &facts, timing).await.unwrap();
        let session = Arc::new(Mutex::new(first));
        let shared = Arc::clone(&session);
        let store = self.store.clone();
        let own_name = name.clone();
        let pressure: Arc<Mutex<Option<Psi>>> = Arc::default();
        let shared_pressure = Arc::clone(&pressure);
        let held = Arc::new(AtomicUsize::new(0));
        let shared_held = held.clone();
        let heartbeats = tokio::spawn(async move {
            loop {
                let current = shared.lock().clone();
                let held = shared_held.load(Ordering::Relaxed);
                let psi = *shared_pressure.lock();
                if let Ok(Err(_fenced)) = current.heartbeat(psi.as_ref(), None, held, &[]).await
                    && let Some(next) = register(&store, &own_name, &facts, timing).await
                {
                    *shared.lock() = next;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        FakeNode { name, session, held, pressure, heartbeats }
    }

    /// With fewer `created` pods than replicas, the API is killed on the way.
    pub(super) async fn post(&self, json: &str, created: Option<u32>) -> Service {
        let desired =
            ServiceInput::from_value(&serde_json::from_str(json).unwrap()).unwrap().normalize().unwrap();
        self.store.put_service(&desired, PutMode::Upsert, None).await.unwrap();
        let service = self.store.service(&desired.name).await.unwrap().unwrap();
        let replicas: Vec<u32> = (0..created.unwrap_or(service.replicas)).collect();
        self.store.create_pods(&service, &replicas).await.unwrap();
        service
    }

    pub(super) fn push(&self, key: &str, payload: impl AsRef<[u8]>) {
        let _length: u64 = self.server.blocking_cli(&[b"LPUSH", key.as_bytes(), payload.as_ref()]);
    }

    /// Ten times a second.
    pub(super) fn write_often(&self, key: &'static str) -> AbortOnDropHandle<()> {
        let url = self.server.url();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut connection = testkit::redis::connect(&url, Duration::from_secs(30)).await.unwrap();
            for count in 0.. {
                let value = format!("any words {count}");
                redis::cmd("SET").arg(key).arg(value).exec_async(&mut connection).await.unwrap();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }))
    }

    /// As if each had a class of its own and had waited for a minute.
    pub(super) async fn unpark_all(&self) {
        let _: u64 = self.server.cli(&["DEL", "uq:class"]).await;
        let ids: Vec<String> = self.server.cli(&["ZRANGE", "uq:at", "0", "-1"]).await;
        for id in &ids {
            let _: u64 = self.server.cli(&["ZADD", "uq:at", "XX", "1", id]).await;
        }
        self.store.unpark_due(ids.len()).await.unwrap();
    }

    pub(super) async fn queue(&self, queue: QueueName) -> Vec<Vec<u8>> {
        let found = self.store.peek(&queue, 100_000).await.unwrap();
        found.items.into_iter().map(|payload| payload.bytes).collect()
    }

    pub(super) async fn pending_counts(&self, nodes: &[&FakeNode]) -> Vec<u64> {
        let names: Vec<NodeName> = nodes.iter().map(|node| node.name.clone()).collect();
        self.store.node_queues(&names).await.unwrap().0.into_iter().map(|queues| queues.pending).collect()
    }

    pub(super) async fn pods(&self, service: &str) -> Vec<PodRecord> {
        let slots = self.store.slots(&ServiceName::new(service).unwrap()).await.unwrap();
        let ids: Vec<PodId> = slots.into_iter().map(|(_, id)| id).collect();
        self.store.pods(&ids).await.unwrap().into_iter().filter_map(Result::unwrap).collect()
    }
}

/// `None` while it is still being drained.
async fn register(store: &Store, name: &NodeName, facts: &NodeInfo, timing: Timing) -> Option<Session> {
    let claimant = Claimant { timing, ..fixtures::claimant() };
    match store.register(name, facts, claimant, None).await {
        Ok(Registration::Registered { session, .. }) => Some(session),
        Ok(Registration::Draining | Registration::Held { .. } | Registration::Taken(_)) | Err(_) => None,
    }
}

pub(super) fn pushed(id: &str) -> String {
    format!(r#"{{"name":"test","uuid":"{id}","image":"nginx","replica":0}}"#)
}

impl Scheduler {
    /// Returns nothing to the queue.
    pub(super) async fn kill(mut self) {
        self.task.abort();
        let ended = (&mut self.task).await;
        assert!(ended.is_err_and(|error| error.is_cancelled()));
    }
}

impl FakeNode {
    pub(super) fn fall_silent(&self) {
        self.heartbeats.abort();
    }

    pub(super) fn session(&self) -> Session {
        self.session.lock().clone()
    }

    /// From the next heartbeat on.
    pub(super) fn wait_for_cpu(&self, cpu_some: f32) {
        *self.pressure.lock() = Some(Psi { cpu_some, ..Psi::default() });
    }

    pub(super) async fn hold(&self, pods: &[HeldPod]) {
        self.held.store(pods.len(), Ordering::Relaxed);
        self.session().report_held_pods(pods).await.unwrap().unwrap();
    }

    pub(super) async fn work(&self) {
        self.work_on(1000).await;
    }

    pub(super) async fn work_on(&self, max: usize) {
        let session = self.session();
        let store = session.store();
        let taken = match session.pop_more(max).await {
            // Others repair it.
            Err(StoreError::WrongType { .. }) => return,
            taken => taken.unwrap(),
        };
        let payloads: Vec<Payload> = taken.into_iter().map(|raw| Payload::parse(raw).unwrap()).collect();
        let ids: Vec<PodId> = payloads.iter().map(|payload| payload.id.clone()).collect();
        let records = store.pods(&ids).await.unwrap();
        let started = payloads.into_iter().zip(records).filter_map(|(payload, record)| {
            // Others repair a broken one.
            let assignment = record.ok()??.assignment?;
            let network = ContainerNetwork::default();
            Some(AckItem { payload, assignment, network, starting: String::new() })
        });
        let _outcomes = session.ack(&started.collect::<Vec<_>>()).await.unwrap();
        let held = self.held.load(Ordering::Relaxed);
        let psi = *self.pressure.lock();
        let Ok(reply) = session.heartbeat(psi.as_ref(), None, held, &[]).await.unwrap() else { return };
        for id in reply.stop {
            stop(&session, &id).await;
        }
    }
}

async fn stop(session: &Session, id: &PodId) {
    let store = session.store();
    let Some(record) = store.pod(id).await.unwrap() else { return };
    let Some(payload) = store.payload_of(&record).await.unwrap() else { return };
    let Some(assignment) = &record.assignment else { return };
    let report = FinishReport {
        reason: "Stopped",
        message: "as requested",
        exit_code: Some(0),
        ..FinishReport::new(PodOutcome::Stopped)
    };
    let pod = PodRef { id, assignment };
    let _outcome = session.finish(pod, &payload.raw, record.service.as_ref(), &report).await.unwrap();
}
