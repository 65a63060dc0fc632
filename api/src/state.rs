//! Shared state of all requests. Nothing depends on it after the process.

use std::sync::Arc;
use std::time::Duration;

use api_types::{DurabilityState, DurabilityView};
use axum::http::StatusCode;
use daemon::config::Config;
use metrics_exporter_prometheus::PrometheusHandle;
use model::ids::{ServiceName, WriteId};
use model::node::Node;
use model::value::secret_key::SecretKey;
use parking_lot::Mutex;
use store::{Durability, Store, StoreError, WriteReceipt, WriteState};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::capacity::{Demand, Shortage};
use crate::admission::capacity_gate::CapacityGate;
use crate::admission::growth::{Growth, GrowthGate};
use crate::admission::plan_gate::PlanGate;
use crate::admission::secret_keys::WorkerKeys;
use crate::cluster::proxy_watch::ProxyWatch;
use crate::cluster::redis_watch::RedisWatch;
use crate::cluster::shared_answer::SharedAnswer;
use crate::cluster::usage::UsageCache;
use crate::http::auth::AccessControl;
use crate::http::problem::ApiProblem;
use crate::status::pod_counts::PodCounts;
use crate::streams::event_feed::EventFeed;
use crate::streams::forwards::Forwards;
use crate::streams::open_streams::OpenStreams;

/// Thousands of probes cost Redis ten requests a second.
const READINESS_MAX_AGE: Duration = Duration::from_millis(100);

pub(crate) type ReadinessAnswer = Result<u64, String>;

#[derive(Clone)]
pub(crate) struct AppState {
    pub(crate) config: Arc<Config>,
    pub(crate) store: Store,
    pub(crate) access: Arc<AccessControl>,
    pub(crate) feed: EventFeed,
    pub(crate) pod_counts: Arc<PodCounts>,
    pub(crate) readiness: Arc<SharedAnswer<ReadinessAnswer>>,
    pub(crate) redis_watch: Arc<RedisWatch>,
    pub(crate) proxy_watch: Arc<ProxyWatch>,
    growth: Arc<GrowthGate>,
    capacity: Arc<CapacityGate>,
    pub(crate) usage: Arc<UsageCache>,
    pub(crate) plan_gate: Arc<Mutex<PlanGate>>,
    pub(crate) streams: OpenStreams,
    pub(crate) forwards: Forwards,
    /// Continues after its request was answered.
    pub(crate) tasks: TaskTracker,
    pub(crate) shutdown: CancellationToken,
    pub(crate) metrics: PrometheusHandle,
    latest_write: Arc<Mutex<Option<LatestWrite>>>,
}

#[derive(Clone)]
struct LatestWrite {
    service: ServiceName,
    id: WriteId,
    view: DurabilityView,
}

impl AppState {
    pub(crate) fn new(config: Arc<Config>, store: Store) -> Self {
        let shutdown = CancellationToken::new();
        Self {
            access: Arc::new(AccessControl::new(config.token.as_ref(), config.read_token.as_ref())),
            feed: EventFeed::new(store.clone(), shutdown.clone()),
            pod_counts: Arc::default(),
            usage: Arc::default(),
            readiness: Arc::new(SharedAnswer::new(READINESS_MAX_AGE)),
            redis_watch: Arc::new(RedisWatch::new(store.clone())),
            proxy_watch: Arc::default(),
            growth: Arc::default(),
            capacity: Arc::default(),
            plan_gate: Arc::default(),
            streams: OpenStreams::new(config.max_connections),
            forwards: Forwards::default(),
            tasks: TaskTracker::new(),
            metrics: crate::metrics::recorder(),
            latest_write: Arc::default(),
            config,
            store,
            shutdown,
        }
    }

    pub(crate) async fn admit(&self, growth: Growth) -> Result<(), ApiProblem> {
        self.growth.admit(&self.store, &self.config.growth, growth).await
    }

    pub(crate) async fn shortage(&self, demand: &Demand) -> Option<Shortage> {
        self.capacity.shortage(&self.store, demand).await
    }

    pub(crate) async fn nodes(&self) -> Arc<[Node]> {
        self.capacity.nodes_now(&self.store).await
    }

    /// Refuses a key that the workers lack: no pod could decrypt the value.
    pub(crate) async fn encryption_key(&self) -> Result<&SecretKey, ApiProblem> {
        let key = self.config.secret_key.as_ref().ok_or_else(ApiProblem::no_secret_key)?;
        WorkerKeys::of(&self.nodes().await, Some(key)).check(key)?;
        Ok(key)
    }

    pub(crate) fn note_write(&self, service: &ServiceName, written: WriteReceipt) -> DurabilityView {
        let view = durability_view(written.durability);
        let latest = LatestWrite { service: service.clone(), id: written.id, view: view.clone() };
        *self.latest_write.lock() = Some(latest);
        view
    }

    pub(crate) fn durability(&self) -> Option<DurabilityView> {
        self.latest_write.lock().as_ref().map(|latest| latest.view.clone())
    }

    /// Nothing is known of a write that was replaced or lost in a failover.
    pub(crate) async fn durability_now(&self) -> Result<Option<DurabilityView>, StoreError> {
        let latest = self.latest_write.lock().clone();
        let Some(latest) = latest.filter(|latest| latest.view.state == DurabilityState::Unconfirmed) else {
            return Ok(self.durability());
        };
        let state = self.store.write_state(&latest.service, &latest.id).await?;
        let mut known = self.latest_write.lock();
        if known.as_ref().is_some_and(|known| known.id == latest.id) {
            match state {
                WriteState::Waiting => {}
                WriteState::Confirmed => {
                    *known = Some(LatestWrite { view: confirmed_since(&latest.view), ..latest })
                }
                WriteState::Gone => *known = None,
            }
        }
        Ok(known.as_ref().map(|known| known.view.clone()))
    }
}

fn confirmed_since(before: &DurabilityView) -> DurabilityView {
    DurabilityView {
        state: DurabilityState::Confirmed,
        replicas: before.known,
        known: before.known,
        message: "stored, and confirmed by all replicas since".to_owned(),
    }
}

pub(crate) fn status_of(durability: &DurabilityView, confirmed: StatusCode) -> StatusCode {
    match durability.state {
        DurabilityState::Unconfirmed => StatusCode::ACCEPTED,
        DurabilityState::Confirmed | DurabilityState::SingleMachine => confirmed,
    }
}

pub(crate) fn durability_view(durability: Durability) -> DurabilityView {
    match durability {
        Durability::Confirmed { replicas } => DurabilityView {
            state: DurabilityState::Confirmed,
            replicas,
            known: replicas,
            message: format!("stored, and confirmed by {replicas} replicas"),
        },
        Durability::Unconfirmed { confirmed, known } => DurabilityView {
            state: DurabilityState::Unconfirmed,
            replicas: confirmed,
            known,
            message: match known {
                0 => "stored, not yet confirmed: the replicas could not be asked".to_owned(),
                known => {
                    let missing = known - confirmed.min(known);
                    format!("stored, not yet confirmed by {missing} of {known} replicas")
                }
            },
        },
        Durability::SingleMachine => DurabilityView {
            state: DurabilityState::SingleMachine,
            replicas: 0,
            known: 0,
            message: "stored on one machine: Redis has no replicas".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_durability_message_counts_replicas() {
        let message = |durability| durability_view(durability).message;
        let unconfirmed = Durability::Unconfirmed { confirmed: 1, known: 3 };
        assert_eq!(message(unconfirmed), "stored, not yet confirmed by 2 of 3 replicas");
        assert!(message(Durability::Unconfirmed { confirmed: 0, known: 0 }).contains("could not be asked"));
        assert!(message(Durability::Confirmed { replicas: 2 }).contains("confirmed by 2"));
    }
}
