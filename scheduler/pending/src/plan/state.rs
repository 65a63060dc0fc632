//! The cluster as a plan begins with it, read once.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use model::RedisMillis;
use model::ids::{NodeName, PodId, ServiceName, VolumeName};
use model::node::{Node, Resources};
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::service::Service;
use model::service::volume::Volume;
use store::{Store, StoreError};

use crate::drain::is_calm;
use crate::intake::{Intake, PendingPod};
use crate::needs::most_frequent_of;

/// Reading more takes seconds of Redis.
pub const MAX_PLANNED_PODS: usize = 100_000;
const PAGE: usize = 2_000;
/// Between pages, for others.
const PAUSE: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Default)]
pub struct ClusterState {
    pub(super) now: RedisMillis,
    pub(super) nodes: Vec<Node>,
    pub(super) services: BTreeMap<ServiceName, Service>,
    pub(super) pods: Vec<KnownPod>,
    /// Also of replicas without a pod.
    pub(super) volumes: HashMap<VolumeName, Volume>,
    /// See [`read_needs`](crate::read_needs).
    pub(super) needs: Vec<(Resources, u64)>,
    /// Pods whose record, payload or specification is unreadable: a plan leaves them where they are.
    pub(super) unreadable: usize,
}

/// A pod that waits, runs or is being stopped.
#[derive(Debug, Clone)]
pub(super) struct KnownPod {
    pub(super) pod: PendingPod,
    pub(super) phase: Phase,
    pub(super) node: Option<NodeName>,
    pub(super) created_at: RedisMillis,
}

impl ClusterState {
    /// `None` if there are more than [`MAX_PLANNED_PODS`].
    pub async fn read(store: &Store) -> Result<Option<Self>, StoreError> {
        let names = store.service_names().await?;
        let mut state = Self::default();
        for page in names.chunks(PAGE) {
            let services = store.services(page).await?.found();
            state.services.extend(services.into_iter().map(|service| (service.name.clone(), service)));
            tokio::time::sleep(PAUSE).await;
        }
        let mut ids: Vec<PodId> = store.pushed_pods().await?;
        for name in state.services.keys() {
            let (slots, _broken) = store.slots_and_broken(name).await?;
            ids.extend(slots.into_iter().map(|(_, id)| id));
            if ids.len() > MAX_PLANNED_PODS {
                return Ok(None);
            }
        }
        ids.sort_unstable();
        ids.dedup();
        for page in ids.chunks(PAGE) {
            state.read_pods(store, page).await?;
            tokio::time::sleep(PAUSE).await;
        }
        let volumes = store.volume_names().await?;
        for page in volumes.chunks(PAGE) {
            let found = store.volumes(page).await?.found();
            state.volumes.extend(found.into_iter().map(|volume| (volume.claim.name.clone(), volume)));
        }
        state.needs = most_frequent_of(state.services.values());
        let names = store.node_names().await?;
        state.now = store.redis_now().await?;
        state.nodes = store.nodes(&names).await?.found();
        Ok(Some(state))
    }

    async fn read_pods(&mut self, store: &Store, ids: &[PodId]) -> Result<(), StoreError> {
        let (records, unreadable) = store.pods(ids).await?.separate(ids);
        self.unreadable += unreadable.len();
        let mut known: HashMap<PodId, PodRecord> = HashMap::new();
        let mut payloads: Vec<Bytes> = Vec::with_capacity(records.len());
        for record in records {
            let is_there =
                matches!(record.phase, Phase::Pending | Phase::Assigned | Phase::Running | Phase::Stopping);
            if !is_there {
                continue;
            }
            match store.payload_of(&record).await? {
                Some(payload) => payloads.push(payload.raw),
                None => self.unreadable += 1,
            }
            known.insert(record.id.clone(), record);
        }
        let intake = Intake::read(store, payloads).await?;
        self.unreadable += intake.invalid.len() + intake.without_spec.len();
        self.pods.extend(intake.pending.into_iter().filter_map(|pod| {
            let PodRecord { phase, node, created_at, .. } = known.remove(&pod.payload.id)?;
            Some(KnownPod { pod, phase, node, created_at })
        }));
        Ok(())
    }

    pub fn now(&self) -> RedisMillis {
        self.now
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// No service is being updated, or has pods that move.
    pub fn is_calm(&self) -> bool {
        self.services.values().all(is_calm)
    }

    pub fn service(&self, name: &ServiceName) -> Option<&Service> {
        self.services.get(name)
    }
}
