//! A cluster of schedulers and of nodes that only beat.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::config::Timing;
use common::ids::{NodeName, PodId, SchedulerId, ServiceName};
use common::node::{NodeFacts, Resources};
use common::payload::Payload;
use common::pod::PodRecord;
use common::service::Service;
use common::spec::ServiceInput;
use common::store::{
    AckItem, FinishReport, Outcome, PodRef, PutMode, QueueName, Registration, Session, Store,
};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::redis::Server;
use crate::pace::Pace;
use crate::{Context, run_context};

/// Silence is noticed within three seconds, of nodes that beat five times a second.
pub(super) fn quick() -> Pace {
    let timing = Timing {
        heartbeat: Duration::from_millis(200),
        fence_after: Duration::from_millis(2000),
        dead_after: Duration::from_millis(3000),
    };
    Pace {
        suspicious_after: Duration::from_millis(300),
        full_pass: Duration::from_secs(1),
        ..Pace::of(&timing)
    }
}

/// Nobody dies, however slow the machine is; all else is noticed soon.
pub(super) fn healing() -> Pace {
    let Pace { orphan_tick, orphan_after, full_pass, suspicious_after, .. } = quick();
    Pace { orphan_tick, orphan_after, full_pass, suspicious_after, ..calm() }
}

/// Nobody dies, nothing is suspicious: for tests of other things.
pub(super) fn calm() -> Pace {
    Pace::of(&Timing::default())
}

pub(super) struct Cluster {
    pub(super) server: Server,
    pub(super) store: Store,
    pace: Pace,
}

/// A running scheduler; it ends when this is dropped.
pub(super) struct Scheduler {
    pub(super) id: SchedulerId,
    pub(super) task: JoinHandle<Result<(), crate::SchedulerError>>,
    pub(super) stop: CancellationToken,
    _guard: DropGuard,
}

/// A node that beats as long as this lives, and does nothing else. Declared dead, it begins another life.
pub(super) struct FakeNode {
    pub(super) name: NodeName,
    session: Arc<Mutex<Session>>,
    beating: JoinHandle<()>,
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        self.beating.abort();
    }
}

impl Cluster {
    pub(super) fn new(pace: Pace) -> Self {
        let server = Server::start();
        let store = server.store();
        Self { server, store, pace }
    }

    pub(super) fn scheduler(&self) -> Scheduler {
        let id = SchedulerId::random();
        let context = Context {
            store: self.server.store(),
            id: id.clone(),
            pace: self.pace.clone(),
            guest_pods: 100,
            died: Arc::default(),
        };
        let stop = CancellationToken::new();
        let task = tokio::spawn(run_context(context, stop.clone()));
        Scheduler { id, task, _guard: stop.clone().drop_guard(), stop }
    }

    pub(super) async fn node(&self, name: &str, pods: u64) -> FakeNode {
        let capacity = Resources { cpu_millis: 4_000, memory_bytes: 1 << 30, pods };
        let facts = NodeFacts {
            labels: std::collections::BTreeMap::new(),
            capacity,
            runtime: "fake".into(),
            engine_version: "1".into(),
            version: "1".into(),
        };
        let name = NodeName::new(name).unwrap();
        let first = register(&self.store, &name, &facts).await.unwrap();
        let session = Arc::new(Mutex::new(first));
        let (shared, store, own) = (Arc::clone(&session), self.store.clone(), name.clone());
        let beating = tokio::spawn(async move {
            loop {
                let current = shared.lock().unwrap().clone();
                if let Ok(Err(_fenced)) = current.heartbeat(None, None, &[]).await
                    && let Some(next) = register(&store, &own, &facts).await
                {
                    *shared.lock().unwrap() = next;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        FakeNode { name, session, beating }
    }

    /// What `POST /service` does; with fewer `made` than replicas, what an API does that is killed on the way.
    pub(super) async fn post(&self, json: &str, made: Option<u32>) -> Service {
        let desired = serde_json::from_str::<ServiceInput>(json).unwrap().normalize().unwrap();
        self.store.put_service(&desired, PutMode::Upsert, None).await.unwrap();
        let service = self.store.service(&desired.name).await.unwrap().unwrap();
        let replicas: Vec<u32> = (0..made.unwrap_or(service.replicas)).collect();
        self.store.create_pods(&service, &replicas).await.unwrap();
        service
    }

    pub(super) fn push(&self, key: &str, payload: impl AsRef<[u8]>) {
        let _length: u64 = self.server.cli(&[b"LPUSH", key.as_bytes(), payload.as_ref()]);
    }

    pub(super) async fn queue(&self, queue: QueueName) -> Vec<Vec<u8>> {
        self.store.peek(&queue, 100_000).await.unwrap()
    }

    /// How many wait on each of these nodes.
    pub(super) async fn spread(&self, nodes: &[&FakeNode]) -> Vec<u64> {
        let names: Vec<NodeName> = nodes.iter().map(|node| node.name.clone()).collect();
        self.store.node_queues(&names).await.unwrap().into_iter().map(|queues| queues.pending).collect()
    }

    /// The records of a service's pods, by slot.
    pub(super) async fn pods(&self, service: &str) -> Vec<PodRecord> {
        let slots = self.store.slots(&ServiceName::new(service).unwrap()).await.unwrap();
        let ids: Vec<PodId> = slots.into_iter().map(|(_, id)| id).collect();
        self.store.pods(&ids).await.unwrap().into_iter().flatten().collect()
    }
}

/// None while it is still being drained.
async fn register(store: &Store, name: &NodeName, facts: &NodeFacts) -> Option<Session> {
    match store.register(name, facts).await {
        Ok(Registration::Registered { session, .. }) => Some(session),
        Ok(Registration::Draining) | Err(_) => None,
    }
}

/// A payload as a person pushes it.
pub(super) fn pushed(id: &str) -> String {
    format!(r#"{{"name":"test","uuid":"{id}","image":"nginx","replica":0}}"#)
}

impl Scheduler {
    /// As SIGKILL would, as far as that goes within a process: nothing is given back.
    pub(super) async fn kill(mut self) {
        self.task.abort();
        let ended = (&mut self.task).await;
        assert!(ended.is_err_and(|error| error.is_cancelled()));
    }
}

impl FakeNode {
    /// Does not beat any more.
    pub(super) fn fall_silent(&self) {
        self.beating.abort();
    }

    pub(super) fn session(&self) -> Session {
        self.session.lock().unwrap().clone()
    }

    /// Starts all that waits here, and stops all that shall be stopped, in no time.
    pub(super) async fn work(&self) {
        self.work_on(1000).await;
    }

    /// The same, with so many at most.
    pub(super) async fn work_on(&self, most: usize) {
        let session = self.session();
        let store = session.store();
        let taken = session.take_more(most).await.unwrap();
        let payloads: Vec<Payload> = taken.into_iter().map(|raw| Payload::parse(raw).unwrap()).collect();
        let ids: Vec<PodId> = payloads.iter().map(|payload| payload.id.clone()).collect();
        let records = store.pods(&ids).await.unwrap();
        let started = payloads.into_iter().zip(records).filter_map(|(payload, record)| {
            let assignment = record?.assignment?;
            Some(AckItem { payload, assignment, address: String::new() })
        });
        let _said = session.ack(&started.collect::<Vec<_>>()).await.unwrap();
        let Ok(reply) = session.heartbeat(None, None, &[]).await.unwrap() else { return };
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
        outcome: Outcome::Stopped,
        reason: "Stopped",
        message: "as asked",
        exit_code: Some(0),
    };
    let pod = PodRef { id, assignment };
    let _said = session.finish(pod, &payload.raw, record.service.as_ref(), &report).await.unwrap();
}
