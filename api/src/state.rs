//! What all requests of one API process share. Nothing here outlives the process, and nothing needs to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::config::Config;
use common::ids::{ServiceName, WriteId};
use common::store::{Durability, Store, StoreError, WriteState, Written};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::Guard;
use crate::census::Census;
use crate::dto::{DurabilityState, DurabilityView};
use crate::feed::Feed;

/// Handed to every handler. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App {
    /// The configuration.
    pub(crate) config: Arc<Config>,
    /// The one door to Redis.
    pub(crate) store: Store,
    /// Who may come in.
    pub(crate) guard: Arc<Guard>,
    /// Events, read once for all clients.
    pub(crate) feed: Feed,
    /// Counts of all pods, shared by those who ask at the same time.
    pub(crate) census: Arc<Census>,
    /// Work that goes on after its request was answered.
    pub(crate) tasks: TaskTracker,
    /// Ends streams and background work.
    pub(crate) shutdown: CancellationToken,
    /// Renders the metrics of this process.
    pub(crate) metrics: PrometheusHandle,
    latest_write: Arc<Mutex<Option<LatestWrite>>>,
}

/// The latest write of a service through this process, and what is known of it.
#[derive(Clone)]
struct LatestWrite {
    service: ServiceName,
    id: WriteId,
    view: DurabilityView,
}

impl App {
    /// What a process needs, over this store.
    pub(crate) fn new(config: Arc<Config>, store: Store) -> Self {
        let shutdown = CancellationToken::new();
        Self {
            guard: Arc::new(Guard::new(config.token.as_ref())),
            feed: Feed::new(store.clone(), shutdown.clone()),
            census: Arc::default(),
            tasks: TaskTracker::new(),
            metrics: crate::metrics::handle(),
            latest_write: Arc::default(),
            config,
            store,
            shutdown,
        }
    }

    /// Remembers what a write got, for `/status`, and says it in the API's words.
    pub(crate) fn note_write(&self, service: &ServiceName, written: Written) -> DurabilityView {
        let view = durability_view(written.durability);
        let latest = LatestWrite { service: service.clone(), id: written.id, view: view.clone() };
        *self.latest_write() = Some(latest);
        view
    }

    /// What was known of the latest write when this was last looked at.
    pub(crate) fn durability(&self) -> Option<DurabilityView> {
        self.latest_write().as_ref().map(|latest| latest.view.clone())
    }

    /// What is known of the latest write by now: what was not yet confirmed may be, and of one that a newer one replaced,
    /// or a failover lost, nothing is known any more.
    pub(crate) async fn durability_now(&self) -> Result<Option<DurabilityView>, StoreError> {
        let latest = self.latest_write().clone();
        let Some(latest) = latest.filter(|latest| latest.view.state == DurabilityState::Unconfirmed) else {
            return Ok(self.durability());
        };
        let state = self.store.write_state(&latest.service, &latest.id).await?;
        let mut known = self.latest_write();
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

    fn latest_write(&self) -> MutexGuard<'_, Option<LatestWrite>> {
        self.latest_write.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All that had to have it do.
fn confirmed_since(before: &DurabilityView) -> DurabilityView {
    DurabilityView {
        state: DurabilityState::Confirmed,
        replicas: before.known,
        known: before.known,
        message: "stored, and confirmed by all replicas since".to_owned(),
    }
}

fn durability_view(durability: Durability) -> DurabilityView {
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
                    format!(
                        "stored, not yet confirmed by {} of {known} replicas",
                        known - confirmed.min(known)
                    )
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
    fn durability_in_words() {
        let said = |durability| durability_view(durability).message;
        let unconfirmed = Durability::Unconfirmed { confirmed: 1, known: 3 };
        assert_eq!(said(unconfirmed), "stored, not yet confirmed by 2 of 3 replicas");
        assert!(said(Durability::Unconfirmed { confirmed: 0, known: 0 }).contains("could not be asked"));
        assert!(said(Durability::Confirmed { replicas: 2 }).contains("confirmed by 2"));
    }
}
