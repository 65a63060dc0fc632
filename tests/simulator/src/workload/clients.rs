//! The clients of the cluster, and the API that serves them. Clients repeat an operation until it is
//! acknowledged. The API may die between storing a service and creating its pods.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::ids::{NodeName, PodId, ServiceName};
use model::spec::{DesiredService, ServiceInput};
use parking_lot::{Mutex, MutexGuard};
use store::{Durability, PutMode, PutOutcome, ScaleOutcome, StopOutcome, Store, StoreError, WriteReceipt};
use tokio::time::sleep;

use crate::machine::random::Random;
use crate::workload::expected_state::{ExpectedService, ExpectedState};
use crate::workload::images::{
    CHECK_RETRIES, MAX_PER_NODE, SERVICES, away_from, has_check, has_ids, has_ordinals, has_rules,
    has_several_containers, has_volume, image_in_the_end, is_global, keeps_away, priority_of, update_order,
};

/// The part before the colon is the service's `on_disconnect`.
const IMAGES: [&str; 5] = ["stop:1", "stop:2", "keep:1", "keep:2", "stop:volume"];
const IMAGES_WITH_RULES: [&str; 5] = ["stop:disk1", "stop:disk3", "keep:disk1", "keep:disk3", "keep:disk5"];
const IMAGES_APART: [&str; 4] = ["stop:apart1", "stop:apart2", "keep:apart1", "keep:apart2"];
const IMAGES_WITH_ORDINALS: [&str; 5] =
    ["stop:ordinal1", "stop:ordinal2", "keep:ordinal1", "keep:ordinal2", "stop:ordinal-volume"];
const IMAGES_WITH_RESOURCES: [&str; 5] = ["stop:gpu1", "stop:gpu2", "keep:gpu1", "keep:gpu2", "keep:gpu3"];
const IMAGES_WITH_PRIORITIES: [&str; 5] =
    ["stop:prio0", "stop:prio5", "keep:prio0", "keep:prio5", "keep:prio9"];
const GLOBAL_IMAGES: [&str; 4] = ["stop:global1", "stop:global2", "keep:global1", "keep:global2"];
const MAX_REPLICAS: u64 = 4;

/// Of all services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleKind {
    None,
    Labels,
    Related,
    Ordinals { start: &'static str },
    Resources,
    Priorities,
    Global,
}

#[derive(Debug, Clone)]
enum Operation {
    Put(&'static str, ExpectedService),
    Scale(&'static str, u32),
    Delete(&'static str),
    DeletePushed(PodId),
    /// True adds the label `disk`, false removes it.
    Label(NodeName, bool),
    /// Or it takes pods again.
    Drain(NodeName, bool),
    Document(String),
}

/// They outlive the process of the API.
#[derive(Clone)]
pub(crate) struct SimulatedClients(Arc<Mutex<ClientState>>);

pub(crate) struct ClientState {
    random: Random,
    pub(crate) now: u64,
    pub(crate) expected: ExpectedState,
    pending: Option<Operation>,
    images_before: BTreeMap<&'static str, String>,
    /// `None` without requests to pods.
    drain: Option<&'static str>,
    rules: RuleKind,
    has_drains: bool,
    /// In milliseconds.
    mean_pause: u64,
    pub(crate) are_done: bool,
}

impl SimulatedClients {
    pub(crate) fn new(
        mut random: Random,
        drain: Option<&'static str>,
        rules: RuleKind,
        has_drains: bool,
    ) -> Self {
        let mean_pause = [150, 600, 2500][random.below(3)];
        Self(Arc::new(Mutex::new(ClientState {
            random,
            now: 0,
            expected: ExpectedState::default(),
            pending: None,
            images_before: BTreeMap::new(),
            drain,
            rules,
            has_drains,
            mean_pause,
            are_done: false,
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ClientState> {
        self.0.lock()
    }
}

impl ClientState {
    pub(crate) fn put_only(&mut self, service: ExpectedService) {
        self.pending = Some(Operation::Put(SERVICES[0], service));
        self.are_done = true;
    }

    pub(crate) fn have_labels(&self) -> bool {
        self.rules == RuleKind::Labels
    }

    pub(crate) fn has_drains(&self) -> bool {
        self.has_drains
    }

    pub(crate) fn put_document(&mut self, document: String) {
        self.pending = Some(Operation::Document(document));
        self.are_done = true;
    }

    pub(crate) fn delete_by_hand(&mut self, uuid: &str) -> bool {
        let is_idle = self.is_idle();
        if is_idle {
            self.pending = Some(Operation::DeletePushed(PodId::new(uuid).unwrap()));
        }
        is_idle
    }

    pub(crate) fn service_in_doubt(&self) -> Option<&'static str> {
        match &self.pending {
            Some(Operation::Put(name, _) | Operation::Scale(name, _) | Operation::Delete(name)) => Some(name),
            Some(
                Operation::DeletePushed(_)
                | Operation::Label(..)
                | Operation::Drain(..)
                | Operation::Document(_),
            )
            | None => None,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_none()
    }

    fn next_operation(&mut self) -> Option<Operation> {
        if self.pending.is_none() && !self.are_done {
            self.pending = Some(self.random_operation());
        }
        self.pending.clone()
    }

    fn random_operation(&mut self) -> Operation {
        let relabels = self.have_labels() || self.rules == RuleKind::Global;
        if relabels && self.random.per_mille(400) {
            let node = NodeName::new(format!("w{}", self.random.between(1, 3))).unwrap();
            return Operation::Label(node, self.random.per_mille(600));
        }
        if self.has_drains() && self.random.per_mille(300) {
            let node = NodeName::new(format!("w{}", self.random.between(1, 3))).unwrap();
            return Operation::Drain(node, self.random.per_mille(500));
        }
        let name = SERVICES[self.random.below(SERVICES.len())];
        let replicas = self.random.between(0, MAX_REPLICAS) as u32;
        match self.random.below(10) {
            0..6 => {
                let image = self.random_image(name);
                Operation::Put(name, ExpectedService { replicas, image })
            }
            6..8 => Operation::Scale(name, replicas),
            8 => Operation::Delete(name),
            _ => match self.random.pick(&self.expected.pushed_pods()) {
                Some(uuid) => Operation::DeletePushed(PodId::new(uuid.clone()).unwrap()),
                None => Operation::Scale(name, replicas),
            },
        }
    }

    fn random_image(&mut self, name: &'static str) -> String {
        let images: &[&str] = match self.rules {
            RuleKind::None => &IMAGES,
            RuleKind::Labels => &IMAGES_WITH_RULES,
            RuleKind::Related => &IMAGES_APART,
            RuleKind::Ordinals { .. } => &IMAGES_WITH_ORDINALS,
            RuleKind::Resources => &IMAGES_WITH_RESOURCES,
            RuleKind::Priorities => &IMAGES_WITH_PRIORITIES,
            RuleKind::Global => &GLOBAL_IMAGES,
        };
        let image = images[self.random.below(images.len())].to_owned();
        let (keeps_image, undoes) = (self.random.per_mille(650), self.random.per_mille(500));
        let Some(existing) = self.expected.service(name).map(|service| service.image.clone()) else {
            return image;
        };
        if keeps_image {
            return existing;
        }
        let before = self.images_before.insert(name, existing);
        before.filter(|_| undoes).unwrap_or(image)
    }

    fn random_pause(&mut self) -> Duration {
        Duration::from_millis(self.random.between(0, 2 * self.mean_pause))
    }

    fn acknowledge(&mut self, name: &str, service: Option<ExpectedService>) {
        self.expected.acknowledge(name, service, self.now);
    }
}

pub(crate) async fn serve(store: Store, clients: SimulatedClients) {
    loop {
        let operation = clients.lock().next_operation();
        if let Some(operation) = operation
            && execute(&store, &clients, operation).await.is_ok_and(|is_acknowledged| is_acknowledged)
        {
            clients.lock().pending = None;
        }
        let pause = clients.lock().random_pause();
        sleep(pause).await;
    }
}

async fn execute(
    store: &Store,
    clients: &SimulatedClients,
    operation: Operation,
) -> Result<bool, StoreError> {
    match operation {
        Operation::Put(name, service) => return put(store, clients, name, service).await,
        Operation::Scale(name, replicas) => {
            let (outcome, receipt) = store.scale_service(&service_name(name), replicas).await?;
            if is_unconfirmed(&receipt) {
                return Ok(false);
            }
            let mut clients = clients.lock();
            if let ScaleOutcome::Scaled { .. } = outcome
                && let Some(service) = clients.expected.service(name).cloned()
            {
                clients.acknowledge(name, Some(ExpectedService { replicas, ..service }));
            }
        }
        Operation::Delete(name) => {
            let (_, receipt) = store.delete_service(&service_name(name)).await?;
            if is_unconfirmed(&receipt) {
                return Ok(false);
            }
            clients.lock().acknowledge(name, None);
        }
        Operation::Document(document) => {
            let document: serde_json::Value = serde_json::from_str(&document).unwrap();
            let desired = ServiceInput::from_value(&document).unwrap().normalize().unwrap();
            let (_, receipt) = store.put_service(&desired, PutMode::Upsert, None).await?;
            return Ok(!is_unconfirmed(&receipt));
        }
        Operation::Label(node, has_disk) => {
            let changes = [("disk".to_owned(), has_disk.then(|| "ssd".to_owned()))].into();
            store.label_node(&node, &changes).await?;
        }
        Operation::Drain(node, true) => drop(store.drain_node(&node, None, false).await?),
        Operation::Drain(node, false) => drop(store.cordon(&node, false).await?),
        Operation::DeletePushed(pod) => return delete_pushed(store, clients, &pod).await,
    }
    Ok(true)
}

/// A failover may lose a 202, so the client repeats it.
fn is_unconfirmed(receipt: &WriteReceipt) -> bool {
    matches!(receipt.durability, Durability::Unconfirmed { .. })
}

async fn put(
    store: &Store,
    clients: &SimulatedClients,
    name: &str,
    service: ExpectedService,
) -> Result<bool, StoreError> {
    let on_disconnect = service.image.split(':').next().unwrap_or_default();
    let mut input = serde_json::json!({"name": name, "on_disconnect": on_disconnect});
    if is_global(&service.image) {
        input["mode"] = "global".into();
        input["placement"] = serde_json::json!({"constraints": ["disk"]});
    } else {
        input["replicas"] = service.replicas.into();
    }
    if has_several_containers(&service.image) {
        input["containers"] = serde_json::json!([
            {"name": "main", "image": service.image, "cpus": "0.5"},
            {"name": "side", "image": service.image, "depends_on": ["main"]},
        ]);
    } else if has_volume(&service.image) {
        // A node has the disk for a few. Without CPUs: it cannot move, and its node may be full in the end.
        input["image"] = service.image.clone().into();
        input["volumes"] = serde_json::json!([{"source": "data", "target": "/data", "space": "1G"}]);
    } else {
        // The only node that the rules leave may be full otherwise.
        let image = &service.image;
        let has_few_nodes = has_rules(image)
            || keeps_away(image)
            || has_ordinals(image)
            || has_ids(image)
            || is_global(image);
        let cpus = if has_few_nodes { "0.1" } else { "0.5" };
        (input["image"], input["cpus"]) = (service.image.clone().into(), cpus.into());
    }
    if let Some(priority) = priority_of(&service.image) {
        input["priority"] = priority.into();
    }
    if has_check(&service.image) {
        input["healthcheck"] = serde_json::json!({
            "command": ["check"], "interval": "1s", "timeout": "1s", "retries": CHECK_RETRIES,
        });
    }
    if let Some(order) = update_order(&service.image) {
        input["update"] = serde_json::json!({
            "order": order, "parallelism": 1, "monitor": 1, "on_failure": "rollback",
        });
    }
    if has_rules(&service.image) {
        input["placement"] = serde_json::json!({"constraints": ["disk"], "max_per_node": MAX_PER_NODE});
    }
    if keeps_away(&service.image) {
        input["placement"] = match away_from(name) {
            Some(other) => serde_json::json!({
                "constraints": [if name == "a" { "node.hostname != w3" } else { "node.hostname != w1" }],
                "anti_affinity": [{"service": other}],
            }),
            None => serde_json::json!({"affinity": [{"service": "b"}]}),
        };
    }
    if has_ids(&service.image) {
        let slots = if service.image.ends_with('2') { "slots" } else { "gpu" };
        input["resources"] = serde_json::json!({"gpu": 1, slots: 1});
    }
    if let RuleKind::Ordinals { start } = clients.lock().rules {
        input["stateful"] = serde_json::json!({"by": "node.hostname", "start": start});
    }
    if let Some(drain) = clients.lock().drain {
        input["drain"] = drain.into();
    }
    let desired = ServiceInput::from_value(&input).unwrap().normalize().unwrap();
    let (outcome, created_pods, receipt) = create_or_put(store, clients, &desired).await?;
    if outcome == PutOutcome::Deleting || is_unconfirmed(&receipt) {
        return Ok(outcome == PutOutcome::Deleting);
    }
    {
        let mut clients = clients.lock();
        let image = image_in_the_end(&service.image);
        clients.acknowledge(name, Some(ExpectedService { image, ..service }));
        // If this process dies from here on, reconcile creates the pods.
        clients.pending = None;
    }
    let stored = match outcome {
        PutOutcome::Created(service) => Some(*service),
        _ => store.service(&desired.name).await?,
    };
    if let Some(service) = stored
        && created_pods < service.first_replicas().len()
    {
        store.create_pods(&service, &service.first_replicas()).await?;
    }
    Ok(true)
}

/// An earlier create may never have been answered.
async fn create_or_put(
    store: &Store,
    clients: &SimulatedClients,
    desired: &DesiredService,
) -> Result<(PutOutcome, usize, WriteReceipt), StoreError> {
    if clients.lock().expected.service(desired.name.as_str()).is_none() {
        let created = store.create_service(desired).await?;
        if created.0 != PutOutcome::Exists {
            return Ok(created);
        }
    }
    let (outcome, receipt) = store.put_service(desired, PutMode::Upsert, None).await?;
    Ok((outcome, 0, receipt))
}

async fn delete_pushed(store: &Store, clients: &SimulatedClients, pod: &PodId) -> Result<bool, StoreError> {
    let Some(record) = store.pod(pod).await? else { return Ok(true) };
    let seen: [(PodId, Option<NodeName>); 1] = [(pod.clone(), record.node)];
    let outcomes = store.stop_pods(None, &seen, "Stopped", "by hand").await?;
    let is_stopped = outcomes.iter().all(|outcome| *outcome != StopOutcome::Moved);
    if is_stopped {
        clients.lock().expected.delete_pushed(pod.as_str());
    }
    Ok(is_stopped)
}

fn service_name(name: &str) -> ServiceName {
    ServiceName::new(name).unwrap()
}
