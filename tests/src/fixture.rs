//! The fixture of the script tests: a private Redis, a store, and short ways to bring pods into a phase.

use std::sync::Arc;
use std::time::Duration;

use model::ids::{AssignmentId, HolderId, NodeName, PodId, SchedulerId, ServiceName};
use model::network::{ContainerNetwork, PublishedPort};
use model::node::{NodeInfo, NodeSettings, Resources};
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use model::service::Service;
use model::service::volume::{EngineCopy, VolumeClaim};
use model::spec::{HostPorts, Protocol, ServiceInput};
use store::{
    Ack, AckItem, AssignOutcome, Assignment, Claim, ClaimItem, ClaimReply, Claimant, DeclareOutcome,
    DrainOutcome, KnownCluster, NEWEST_FORM, NamedAssignment, PodRef, PutMode, Registration, Session, Store,
    VolumeReport,
};

use testkit::fixtures;

use crate::ablation::Ablation;
use crate::proxy::Proxy;
use crate::{Keyspace, Redis, invariants};

pub const REQUEST: Resources =
    Resources { cpu_millis: 100, memory_bytes: 64 << 20, pids: 0, disk_bytes: 0, pods: 1 };

pub const MACHINE: Resources =
    Resources { cpu_millis: 64_000, memory_bytes: 64 << 30, pids: 32_768, disk_bytes: 0, pods: 1000 };

/// [`Fixture::silence`] makes the last heartbeat older than this.
pub const DEAD_AFTER: Duration = Duration::from_secs(20);

pub const ATTEMPTS: u32 = 5;

/// As workers report it.
pub fn network() -> ContainerNetwork {
    let port = PublishedPort {
        container_port: 80,
        protocol: Protocol::Tcp,
        host_ip: [127, 0, 0, 1].into(),
        host_port: 32769,
    };
    ContainerNetwork { address: "10.0.0.1".to_owned(), ports: vec![port] }
}

pub struct Fixture {
    pub redis: Redis,
    /// Connected through the proxy, if there is one.
    pub store: Store,
    pub scheduler: SchedulerId,
    /// For ablated scripts or recorded requests.
    pub proxy: Option<Proxy>,
}

pub struct Placed {
    pub session: Session,
    pub record: PodRecord,
    pub payload: Payload,
}

impl Placed {
    pub fn reference(&self) -> PodRef<'_> {
        PodRef { id: &self.record.id, assignment: self.record.assignment.as_ref().unwrap() }
    }
}

impl Fixture {
    pub async fn new() -> Self {
        let redis = Redis::start().await;
        let store = redis.store();
        Self { redis, store, scheduler: SchedulerId::random(), proxy: None }
    }

    pub async fn ablated(ablation: Ablation) -> Self {
        let redis = Redis::start().await;
        let hashes = ablation.load(&redis).await;
        Self::behind_proxy(redis, hashes).await
    }

    pub async fn recorded() -> Self {
        Self::behind_proxy(Redis::start().await, Vec::new()).await
    }

    async fn behind_proxy(redis: Redis, hashes: Vec<(String, String)>) -> Self {
        let proxy = Proxy::start(redis.port(), hashes).await;
        let store = crate::redis::store(&proxy.url());
        Self { redis, store, scheduler: SchedulerId::random(), proxy: Some(proxy) }
    }

    pub async fn node(&self, name: &str) -> Session {
        self.node_with(name, MACHINE).await
    }

    /// Another `engine_id` is another machine.
    pub async fn machine(&self, name: &str, engine_id: &str) -> Registration {
        let facts = NodeInfo { engine_id: engine_id.to_owned(), ..facts(MACHINE) };
        self.store.register(&node(name), &facts, fixtures::claimant(), None).await.unwrap()
    }

    /// Another worker than [`machine`](Self::machine).
    pub async fn another_machine(&self, name: &str, engine_id: &str, knows_cluster: bool) -> Registration {
        let facts = NodeInfo { engine_id: engine_id.to_owned(), ..facts(MACHINE) };
        let id = self.store.cluster_id().await.unwrap().unwrap();
        let known = knows_cluster.then_some(KnownCluster { id: &id, containers: 0, own_labels: None });
        let holder = HolderId::random();
        let claimant = Claimant { holder: &holder, ..fixtures::claimant() };
        self.store.register(&node(name), &facts, claimant, known).await.unwrap()
    }

    pub async fn node_with(&self, name: &str, capacity: Resources) -> Session {
        self.node_of(name, &facts(capacity)).await
    }

    /// `declared` is as in `KUBELEET_RESOURCES`.
    pub async fn node_offering(&self, name: &str, declared: &str) -> Session {
        let resources = declared.parse().unwrap();
        let settings = Some(NodeSettings { resources, forms: NEWEST_FORM, ..NodeSettings::default() });
        self.node_of(name, &NodeInfo { settings, ..facts(MACHINE) }).await
    }

    async fn node_of(&self, name: &str, facts: &NodeInfo) -> Session {
        match self.store.register(&node(name), facts, fixtures::claimant(), None).await.unwrap() {
            Registration::Registered { session, .. } => {
                report_volumes(&session, &[]).await;
                session
            }
            Registration::Draining | Registration::Held { .. } | Registration::Taken(_) => {
                panic!("{name} cannot register")
            }
        }
    }

    pub async fn service(&self, name: &str, replicas: u32) -> Service {
        let input = serde_json::json!({
            "name": name, "image": "spaster/alpine-sleep", "replicas": replicas, "cpus": "0.1", "memory": "64MiB",
        });
        self.service_of(input).await
    }

    pub async fn service_of(&self, input: serde_json::Value) -> Service {
        let desired = ServiceInput::from_value(&input).unwrap().normalize().unwrap();
        self.store.put_service(&desired, PutMode::Upsert, None).await.unwrap();
        let service = self.store.service(&desired.name).await.unwrap().unwrap();
        self.store.create_pods(&service, &service.first_replicas()).await.unwrap();
        service
    }

    pub async fn pods(&self, service: &ServiceName) -> Vec<PodRecord> {
        let slots = self.store.slots(service).await.unwrap();
        let ids: Vec<PodId> = slots.into_iter().map(|(_, id)| id).collect();
        self.store.pods(&ids).await.unwrap().into_iter().filter_map(Result::unwrap).collect()
    }

    pub async fn record(&self, id: &PodId) -> PodRecord {
        self.store.pod(id).await.unwrap().unwrap_or_else(|| panic!("there is no pod:{id}"))
    }

    pub async fn push(&self, key: &str, raw: &[u8]) {
        let () = self.redis.cli(&[&b"LPUSH"[..], key.as_bytes(), raw]).await;
    }

    pub async fn assign_all(&self, session: &Session) -> Vec<AssignOutcome> {
        let payloads = self.take_all().await;
        self.assign(session, payloads).await
    }

    pub async fn take_all(&self) -> Vec<Payload> {
        let taken = self.store.take(&self.scheduler, 1000).await.unwrap();
        taken.into_iter().map(|raw| Payload::parse(raw).unwrap()).collect()
    }

    pub async fn assign(&self, session: &Session, payloads: Vec<Payload>) -> Vec<AssignOutcome> {
        let mut assignments = Vec::new();
        for payload in payloads {
            assignments.push(self.assignment(session, payload).await);
        }
        self.store.assign(&self.scheduler, DEAD_AFTER, &assignments).await.unwrap()
    }

    pub async fn assignment(&self, session: &Session, payload: Payload) -> Assignment {
        let incarnation = self.store.node(session.node()).await.unwrap().and_then(|node| node.incarnation);
        let (host_ports, volumes) = (self.host_ports(&payload).await, self.volumes(&payload).await);
        let named = self.named(session, &payload).await;
        let node = session.node().clone();
        Assignment {
            payload,
            node,
            incarnation,
            request: REQUEST,
            host_ports,
            named,
            volumes,
            seen_labels: None,
            counted: None,
        }
    }

    pub async fn named(&self, session: &Session, payload: &Payload) -> Option<NamedAssignment> {
        let spec = self.store.pod_spec(payload.spec.as_ref()?).await.unwrap().unwrap();
        if spec.resources.is_empty() {
            return None;
        }
        let node = self.store.node(session.node()).await.unwrap().unwrap();
        let request = Arc::new(spec.resources.clone());
        Some(NamedAssignment { request, offered: node.offered_ids().clone() })
    }

    pub async fn volumes(&self, payload: &Payload) -> Vec<VolumeClaim> {
        let Some(spec) = &payload.spec else { return Vec::new() };
        let spec = self.store.pod_spec(spec).await.unwrap().unwrap();
        let service = ServiceName::new(payload.name.as_str()).unwrap();
        VolumeClaim::of_replica(&service, &spec, payload.replica)
    }

    pub async fn claim_all(&self, session: &Session) -> Vec<(Payload, Claim)> {
        session.pop_more(1000).await.unwrap();
        let rq = session.in_flight().await.unwrap();
        let payloads: Vec<_> = rq.into_iter().map(|raw| Payload::parse(raw).unwrap()).collect();
        let claims = self.claim(session, &payloads).await;
        payloads.into_iter().zip(claims).collect()
    }

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

    pub async fn host_ports(&self, payload: &Payload) -> HostPorts {
        match &payload.spec {
            Some(spec) => self.store.pod_spec(spec).await.unwrap().unwrap().host_ports(),
            None => payload.inline_spec().unwrap().pod.host_ports(),
        }
    }

    pub async fn claim_item(&self, payload: &Payload) -> ClaimItem {
        ClaimItem { payload: payload.clone(), request: REQUEST, host_ports: self.host_ports(payload).await }
    }

    pub async fn run_all(&self, session: &Session) -> Vec<Ack> {
        let mut items = Vec::new();
        for (payload, claim) in self.claim_all(session).await {
            if let Claim::Start { assignment, .. } = claim {
                items.push(AckItem { payload, assignment, network: network(), starting: String::new() });
            }
        }
        session.ack(&items).await.unwrap().unwrap()
    }

    pub async fn ack(&self, session: &Session, payload: &Payload, assignment: &AssignmentId) -> Ack {
        let item = AckItem {
            payload: payload.clone(),
            assignment: assignment.clone(),
            network: ContainerNetwork::default(),
            starting: String::new(),
        };
        session.ack(&[item]).await.unwrap().unwrap()[0]
    }

    /// The service has one pod.
    pub async fn pod_in(&self, phase: Phase, service: &str, on: &str) -> Placed {
        use store::{FinishReport, PodOutcome};
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
            Phase::Stopped => Some(PodOutcome::Stopped),
            Phase::Succeeded => Some(PodOutcome::Succeeded),
            Phase::Failed => Some(PodOutcome::Failed),
            Phase::Pending | Phase::Assigned | Phase::Running | Phase::Stopping => None,
        };
        if let Some(outcome) = outcome {
            let pod = PodRef { id: &id, assignment: record.assignment.as_ref().unwrap() };
            let report = FinishReport::new(outcome);
            let done = session.finish(pod, &payload.raw, Some(&service.name), &report).await;
            done.unwrap().unwrap();
        }
        let record = self.record(&id).await;
        assert_eq!(record.phase, phase, "the pod reaches the phase");
        Placed { session, record, payload }
    }

    pub async fn stop(&self, pod: &PodRecord) -> store::StopOutcome {
        let seen = [(pod.id.clone(), pod.node.clone())];
        self.store.stop_pods(pod.service.as_ref(), &seen, "Surplus", "not wanted").await.unwrap()[0]
    }

    pub async fn finish_stopped(&self, session: &Session, pod: &PodRecord) {
        use store::{FinishReport, PodOutcome};
        let payload = self.store.payload_of(pod).await.unwrap().unwrap();
        let reference = PodRef { id: &pod.id, assignment: pod.assignment.as_ref().unwrap() };
        let report = FinishReport::new(PodOutcome::Stopped);
        session.finish(reference, &payload.raw, pod.service.as_ref(), &report).await.unwrap().unwrap();
    }

    pub async fn silence(&self, name: &str) {
        let () = self.redis.cli(&["HSET", &format!("node:{name}"), "beat", "1000"]).await;
        let () = self.redis.cli(&["ZADD", "beats", "1000", name]).await;
    }

    pub async fn kill_node(&self, name: &str) {
        self.silence(name).await;
        let seen = self.store.node(&node(name)).await.unwrap().unwrap();
        let outcome = self
            .store
            .declare_dead(&seen, DEAD_AFTER, Duration::ZERO, Duration::ZERO, fixtures::long_proof())
            .await
            .unwrap();
        assert_eq!(outcome, DeclareOutcome::Declared);
    }

    pub async fn drain(&self, name: &str) {
        let dead = self.store.node(&node(name)).await.unwrap().unwrap();
        while let DrainOutcome::Moved(_) = self.store.drain_step(&dead).await.unwrap() {}
    }

    pub async fn keyspace(&self) -> Keyspace {
        Keyspace::read(&self.redis).await
    }

    pub async fn violations(&self) -> Vec<String> {
        invariants::violations(&self.keyspace().await)
    }
}

/// As a worker does: first to learn the run of Redis, then for that run.
pub async fn report_volumes(session: &Session, present: &[VolumeClaim]) -> VolumeReport {
    let copies: Vec<EngineCopy> = present.iter().cloned().map(EngineCopy::from).collect();
    report_copies(session, &copies).await
}

pub async fn report_copies(session: &Session, copies: &[EngineCopy]) -> VolumeReport {
    let first = session.report_volumes(copies, None, DEAD_AFTER).await.unwrap().unwrap();
    session.report_volumes(copies, Some(&first.redis_run), DEAD_AFTER).await.unwrap().unwrap()
}

pub fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

pub fn facts(capacity: Resources) -> NodeInfo {
    NodeInfo {
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        ..testkit::fixtures::node_info(capacity)
    }
}

pub fn pushed(name: &str, uuid: &str) -> Payload {
    let text = format!(r#"{{"name":"{name}","uuid":"{uuid}","image":"spaster/alpine-sleep","replica":3}}"#);
    Payload::parse(text.into_bytes().into()).unwrap()
}
