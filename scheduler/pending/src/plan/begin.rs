//! Begins the moves of a plan.
//!
//! Tests: scheduler::tests::rebalancing, api::tests::openapi

use std::collections::BTreeMap;

use model::RedisMillis;
use model::ids::ServiceName;
use store::{Store, StoreError};

use super::outcome::PlanOutcome;
use crate::begin_moves::{BegunMove, begin_moves};

/// Returns the number of moves. The moves of a service that has changed since the plan read it are taken out
/// of the plan, with a note.
pub async fn begin_planned_moves(
    store: &Store,
    outcome: &mut PlanOutcome,
    until: RedisMillis,
    why: &str,
) -> Result<usize, StoreError> {
    let mut by_service: BTreeMap<ServiceName, Vec<BegunMove>> = BTreeMap::new();
    for pod in &outcome.moves {
        if let (Some(service), Some(id), Some(to)) = (&pod.service, &pod.id, &pod.to) {
            let begun = BegunMove { replica: pod.replica, pod: id.clone(), to: to.clone() };
            by_service.entry(service.clone()).or_default().push(begun);
        }
    }
    let mut total = 0;
    for (name, moves) in by_service {
        let begun = match store.service(&name).await? {
            Some(service) => begin_moves(store, &service, moves, Some(until), why).await?,
            None => 0,
        };
        total += begun;
        if begun == 0 {
            outcome.moves.retain(|pod| pod.service.as_ref() != Some(&name));
            outcome.notes.push(format!("{name} was changed meanwhile: its pods stay, ask again for them"));
        }
    }
    Ok(total)
}
