//! Adoption: holding again what Redis says runs here, after a restart of the worker or when somebody healed `cs`.
//!
//! Nothing is started or stopped by it. What is held is then looked at like any other pod.

use std::sync::Arc;
use std::time::Duration;

use common::ids::PodId;
use common::lifecycle::Phase;
use common::payload::Payload;
use common::pod::PodRecord;
use common::spec::{OnDisconnect, RestartPolicy};
use common::store::StoreError;

use crate::life::Life;
use crate::step::Wish;
use crate::table::{Held, Rules};

/// For a pod whose specification is not there any more: what a smallest service has.
const FALLBACK: Rules = Rules {
    restart: RestartPolicy::Always,
    on_disconnect: OnDisconnect::Keep,
    grace: Duration::from_secs(10),
};

/// Holds all pods in `cs` that are not known yet and that their records give to this node.
pub(crate) async fn adopt(life: &Arc<Life>) -> Result<(), StoreError> {
    let members = life.session.container_set().await?;
    // What can not be read stays: only a person can say what it was meant to be.
    let payloads = members.into_iter().filter_map(|raw| Payload::parse(raw).ok());
    let unknown: Vec<Payload> = payloads.filter(|payload| !life.table.knows(&payload.id)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let ids: Vec<PodId> = unknown.iter().map(|payload| payload.id.clone()).collect();
    let records = life.worker.store.pods(&ids).await?;
    let mut adopted = 0;
    for (payload, record) in unknown.into_iter().zip(records) {
        if let Some(record) = record {
            adopted += usize::from(hold(life, payload, &record).await?);
        }
    }
    if adopted > 0 {
        tracing::info!(node = %life.worker.node, adopted, "pods of a life before go on");
    }
    Ok(())
}

/// Holds one pod if its record gives it to this node.
pub(crate) async fn hold(life: &Arc<Life>, payload: Payload, record: &PodRecord) -> Result<bool, StoreError> {
    let wish = match record.phase {
        Phase::Running => Wish::Run,
        Phase::Stopping => Wish::Stop,
        Phase::Pending | Phase::Assigned | Phase::Stopped | Phase::Succeeded | Phase::Failed => {
            return Ok(false);
        }
    };
    if record.node.as_ref() != Some(&life.worker.node) {
        return Ok(false);
    }
    let Some(assignment) = record.assignment.clone() else { return Ok(false) };
    let rules = rules(life, &payload).await?;
    let mut held = Held::new(payload, record.service.clone(), assignment, rules);
    (held.wish, held.restarts) = (wish, record.restarts);
    life.table.adopt(held);
    Ok(true)
}

async fn rules(life: &Life, payload: &Payload) -> Result<Rules, StoreError> {
    let rules = match &payload.spec {
        None => payload.inline_spec().ok().map(|inline| Rules::of(&inline.pod)),
        Some(id) => match life.worker.store.pod_spec(id).await {
            Ok(spec) => spec.map(|spec| Rules::of(&spec)),
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => None,
        },
    };
    Ok(rules.unwrap_or(FALLBACK))
}
