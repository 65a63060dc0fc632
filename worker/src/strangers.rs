//! Pods that Redis wants stopped here and that this life does not know.
//!
//! Mostly they wait in the queue, and the claim will finish them. Some are in `cs` and will be adopted. What is neither
//! after a while is either of another node, and the wish to stop it here is void; or its payload is nowhere (a failover
//! lost it), and it is held from its record, so that it can be finished.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::ids::{AssignmentId, PodId};
use common::lifecycle::Phase;
use common::store::{FinishReport, Outcome, PodRef, StoreError};
use futures_util::FutureExt;
use tokio::time::Instant;

use crate::adopt;
use crate::life::Life;

/// See the module.
#[derive(Default)]
pub(crate) struct Strangers {
    since: Mutex<HashMap<PodId, Instant>>,
}

impl Strangers {
    /// Somebody wants this unknown pod stopped.
    pub(crate) fn heard_of(&self, pod: &PodId) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.entry(pod.clone()).or_insert_with(Instant::now);
    }

    /// Those heard of for longer than `patience`; they are forgotten here, and heard of again if they persist.
    fn overdue(&self, patience: Duration) -> Vec<PodId> {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let overdue = since.iter().filter(|(_, at)| at.elapsed() >= patience);
        let overdue: Vec<PodId> = overdue.map(|(pod, _)| pod.clone()).collect();
        since.retain(|pod, _| !overdue.contains(pod));
        overdue
    }
}

/// Deals with those that have been unknown for too long.
pub(crate) async fn settle(life: &Arc<Life>) -> Result<(), StoreError> {
    let overdue = life.strangers.overdue(life.worker.pace.sweep);
    let unknown: Vec<PodId> = overdue.into_iter().filter(|pod| !life.table.knows(pod)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let records = life.worker.store.pods(&unknown).await?;
    for (pod, record) in unknown.iter().zip(records) {
        let here = record.as_ref().is_some_and(|record| record.node.as_ref() == Some(&life.worker.node));
        match record {
            Some(record) if here && record.phase == Phase::Stopping => {
                if let Some(payload) = life.worker.store.payload_of(&record).await? {
                    adopt::hold(life, payload, &record).await?;
                }
            }
            // To be started or at its end: the claim deals with it.
            Some(_) if here => {}
            Some(_) | None => withdraw(life, pod).await,
        }
    }
    Ok(())
}

/// The pod is not here: a finish under no assignment of its own changes nothing but the wish.
async fn withdraw(life: &Life, pod: &PodId) {
    let nobody = AssignmentId::random();
    let report = FinishReport { outcome: Outcome::Stopped, reason: "", message: "", exit_code: None };
    let pod = PodRef { id: pod, assignment: &nobody };
    life.insist("withdrawing a stop", || life.session.finish(pod, b"", None, &report).boxed()).await;
}
