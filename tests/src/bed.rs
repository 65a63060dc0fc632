//! A test bed for the verbs: a private Redis, a store on it, and short ways to bring pods where a test wants them.

use std::time::Duration;

use common::ids::{AssignmentId, NodeName, PodId, SchedulerId, ServiceName};
use common::lifecycle::Phase;
use common::node::{NodeFacts, Resources};
use common::payload::Payload;
use common::pod::PodRecord;
use common::service::Service;
use common::spec::ServiceInput;
use common::store::{
    Ack, AckItem, AssignOutcome, Assignment, Claim, ClaimItem, ClaimReply, DeclareOutcome, DrainOutcome,
    PodRef, PutMode, Registration, Session, Store,
};

use crate::ablation::Ablation;
use crate::proxy::Proxy;
use crate::{Keyspace, Redis, invariants};

/// What each pod of [`Bed::service`] asks for.
pub const REQUEST: Resources = Resources { cpu_millis: 100, memory_bytes: 64 << 20, pods: 1 };

/// How long a node may be silent, on a bed. [`Bed::silence`] makes it so by hand.
pub const DEAD_AFTER: Duration = Duration::from_secs(20);

/// How often a pod is tried.
pub const ATTEMPTS: u32 = 5;

/// Redis, a store, and one scheduler's identity.
pub struct Bed {
    /// The server: tests speak to it as outsiders do.
    pub redis: Redis,
    /// Through the proxy when something is ablated or recorded.
    pub store: Store,
    /// The scheduler that the short ways use.
    pub scheduler: SchedulerId,
    /// Between store and Redis, if anything is.
    pub proxy: Option<Proxy>,
}

/// A pod that was brought into a phase, and all one needs to say things about it.
pub struct Placed {
    /// Its node's worker.
    pub session: Session,
    /// Its record.
    pub record: PodRecord,
    /// Its payload.
    pub payload: Payload,
}

impl Placed {
    /// How a worker names it.
    pub fn reference(&self) -> PodRef<'_> {
        PodRef { id: &self.record.id, assignment: self.record.assignment.as_ref().unwrap() }
    }
}

impl Bed {
    /// An empty cluster.
    pub async fn new() -> Self {
        let redis = Redis::start().await;
        let store = redis.store();
        Self { redis, store, scheduler: SchedulerId::random(), proxy: None }
    }

    /// An empty cluster whose store runs changed scripts.
    pub async fn ablated(ablation: Ablation) -> Self {
        let redis = Redis::start().await;
        let hashes = ablation.load(&redis).await;
        Self::behind_proxy(redis, hashes).await
    }

    /// An empty cluster whose proxy remembers what the store sends.
    pub async fn recorded() -> Self {
        Self::behind_proxy(Redis::start().await, Vec::new()).await
    }

    async fn behind_proxy(redis: Redis, hashes: Vec<(String, String)>) -> Self {
        let proxy = Proxy::start(redis.port(), hashes).await;
        let store = crate::redis::store(&proxy.url());
        Self { redis, store, scheduler: SchedulerId::random(), proxy: Some(proxy) }
    }

    /// Registers a roomy node.
    pub async fn node(&self, name: &str) -> Session {
        self.node_with(name, Resources { cpu_millis: 64_000, memory_bytes: 64 << 30, pods: 1000 }).await
    }

    /// Registers a node with this capacity.
    pub async fn node_with(&self, name: &str, capacity: Resources) -> Session {
        match self.store.register(&node(name), &facts(capacity)).await.unwrap() {
            Registration::Registered { session, .. } => session,
            Registration::Draining => panic!("{name} is still being drained"),
        }
    }

    /// Posts a service and makes its pods: they wait in sq.
    pub async fn service(&self, name: &str, replicas: u32) -> Service {
        let input = serde_json::json!({
            "name": name, "image": "spaster/alpine-sleep", "replicas": replicas, "cpus": "0.1", "memory": "64MiB",
        });
        self.service_of(input).await
    }

    /// Posts a service in its wire form and makes its pods.
    pub async fn service_of(&self, input: serde_json::Value) -> Service {
        let desired = serde_json::from_value::<ServiceInput>(input).unwrap().normalize().unwrap();
        self.store.put_service(&desired, PutMode::Upsert, None).await.unwrap();
        let service = self.store.service(&desired.name).await.unwrap().unwrap();
        self.store.create_pods(&service, &service.all_replicas()).await.unwrap();
        service
    }

    /// The records of a service's pods, by replica.
    pub async fn pods(&self, service: &ServiceName) -> Vec<PodRecord> {
        let slots = self.store.slots(service).await.unwrap();
        let ids: Vec<PodId> = slots.into_iter().map(|(_, id)| id).collect();
        self.store.pods(&ids).await.unwrap().into_iter().flatten().collect()
    }

    /// One pod's record.
    pub async fn record(&self, id: &PodId) -> PodRecord {
        self.store.pod(id).await.unwrap().unwrap_or_else(|| panic!("there is no pod:{id}"))
    }

    /// Takes all that waits and gives it to one node.
    pub async fn assign_all(&self, session: &Session) -> Vec<AssignOutcome> {
        let taken = self.store.take(&self.scheduler, 1000).await.unwrap();
        let payloads = taken.into_iter().map(|raw| Payload::parse(raw).unwrap());
        self.assign(session, payloads.collect()).await
    }

    /// Gives pods in the scheduler's hands to one node.
    pub async fn assign(&self, session: &Session, payloads: Vec<Payload>) -> Vec<AssignOutcome> {
        let incarnation = self.store.node(session.node()).await.unwrap().and_then(|node| node.incarnation);
        let assignment = |payload| Assignment {
            payload,
            node: session.node().clone(),
            incarnation: incarnation.clone(),
            request: REQUEST,
        };
        let assignments: Vec<_> = payloads.into_iter().map(assignment).collect();
        self.store.assign(&self.scheduler, DEAD_AFTER, &assignments).await.unwrap()
    }

    /// Takes all that waits for a node into rq and asks what to do with it.
    pub async fn claim_all(&self, session: &Session) -> Vec<(Payload, Claim)> {
        session.take_more(1000).await.unwrap();
        let rq = session.starting().await.unwrap();
        let payloads: Vec<_> = rq.into_iter().map(|raw| Payload::parse(raw).unwrap()).collect();
        let claims = self.claim(session, &payloads).await;
        payloads.into_iter().zip(claims).collect()
    }

    /// Asks what to do with payloads in rq.
    pub async fn claim(&self, session: &Session, payloads: &[Payload]) -> Vec<Claim> {
        let mut items = Vec::new();
        for payload in payloads {
            items.push(self.claim_item(payload).await);
        }
        match session.claim(&items, ATTEMPTS, Duration::ZERO).await.unwrap().unwrap() {
            ClaimReply::Claims(claims) => claims,
            ClaimReply::Paused(left) => panic!("claims pause for {left:?}"),
        }
    }

    /// A payload with what its record says.
    pub async fn claim_item(&self, payload: &Payload) -> ClaimItem {
        let service = self.store.pod(&payload.id).await.unwrap().and_then(|record| record.service);
        ClaimItem { payload: payload.clone(), request: REQUEST, service }
    }

    /// Claims and acknowledges all that waits for a node.
    pub async fn run_all(&self, session: &Session) -> Vec<Ack> {
        let mut items = Vec::new();
        for (payload, claim) in self.claim_all(session).await {
            if let Claim::Start { assignment, .. } = claim {
                items.push(AckItem { payload, assignment, address: "10.0.0.1".to_owned() });
            }
        }
        session.ack(&items).await.unwrap().unwrap()
    }

    /// Acknowledges one pod as this assignment.
    pub async fn ack(&self, session: &Session, payload: &Payload, assignment: &AssignmentId) -> Ack {
        let item =
            AckItem { payload: payload.clone(), assignment: assignment.clone(), address: String::new() };
        session.ack(&[item]).await.unwrap().unwrap()[0]
    }

    /// A service with one pod in this phase, on this node if the phase has one. Its worker is registered.
    pub async fn pod_in(&self, phase: Phase, service: &str, on: &str) -> Placed {
        use common::store::{FinishReport, Outcome};
        let session = self.node(on).await;
        let service = self.service(service, 1).await;
        let id = self.pods(&service.name).await[0].id.clone();
        if phase != Phase::Pending {
            self.assign_all(&session).await;
        }
        if !matches!(phase, Phase::Pending | Phase::Assigned) {
            self.run_all(&session).await;
        }
        let record = self.record(&id).await;
        let payload = self.store.payload_of(&record).await.unwrap().unwrap();
        if matches!(phase, Phase::Stopping | Phase::Stopped) {
            self.stop(&record).await;
        }
        let outcome = match phase {
            Phase::Stopped => Some(Outcome::Stopped),
            Phase::Succeeded => Some(Outcome::Succeeded),
            Phase::Failed => Some(Outcome::Failed),
            Phase::Pending | Phase::Assigned | Phase::Running | Phase::Stopping => None,
        };
        if let Some(outcome) = outcome {
            let pod = PodRef { id: &id, assignment: record.assignment.as_ref().unwrap() };
            let report = FinishReport { outcome, reason: "", message: "", exit_code: None };
            let done = session.finish(pod, &payload.raw, Some(&service.name), &report).await;
            done.unwrap().unwrap();
        }
        let record = self.record(&id).await;
        assert_eq!(record.phase, phase, "the way into the phase");
        Placed { session, record, payload }
    }

    /// Says that a pod is not wanted any more.
    pub async fn stop(&self, pod: &PodRecord) -> common::store::StopOutcome {
        let seen = [(pod.id.clone(), pod.node.clone())];
        self.store.stop_pods(pod.service.as_ref(), &seen, "Surplus", "not wanted").await.unwrap()[0]
    }

    /// Makes a node's last beat lie in the distant past.
    pub async fn silence(&self, name: &str) {
        let () = self.redis.cli(&["HSET", &format!("node:{name}"), "beat", "1000"]).await;
        let () = self.redis.cli(&["ZADD", "beats", "1000", name]).await;
    }

    /// Declares a node dead, silencing it first.
    pub async fn kill_node(&self, name: &str) {
        self.silence(name).await;
        let seen = self.store.node(&node(name)).await.unwrap().unwrap();
        let outcome =
            self.store.declare_dead(&seen, DEAD_AFTER, Duration::ZERO, Duration::ZERO).await.unwrap();
        assert_eq!(outcome, DeclareOutcome::Declared);
    }

    /// Drains a dead node to the end.
    pub async fn drain(&self, name: &str) {
        let dead = self.store.node(&node(name)).await.unwrap().unwrap();
        while let DrainOutcome::Moved(_) = self.store.drain_step(&dead).await.unwrap() {}
    }

    /// All that stands in Redis.
    pub async fn keyspace(&self) -> Keyspace {
        Keyspace::read(&self.redis).await
    }

    /// What of the invariants does not hold at this instant.
    pub async fn violations(&self) -> Vec<String> {
        invariants::violations(&self.keyspace().await)
    }
}

/// A node's name.
pub fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

/// What a worker tells when it registers.
pub fn facts(capacity: Resources) -> NodeFacts {
    NodeFacts {
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        capacity,
        runtime: "sim".to_owned(),
        engine_version: "1".to_owned(),
        version: "0.1.0".to_owned(),
    }
}

/// The payload of a pod that somebody pushes by hand.
pub fn pushed(name: &str, uuid: &str) -> Payload {
    let text = format!(r#"{{"name":"{name}","uuid":"{uuid}","image":"spaster/alpine-sleep","replica":3}}"#);
    Payload::parse(text.into_bytes().into()).unwrap()
}
