//! Carrying decisions out: no choices are left here, except whose fault it is when Redis says WRONGTYPE.
//!
//! Everything given to these functions is in this scheduler's in-flight list, and stays there until a script moves it
//! on. So whatever is not reached because of an error, or because the process dies, is taken again: by us in the
//! next step, or by another scheduler after the orphans loop has returned it.

use common::ids::{NodeName, PodId, SchedulerId};
use common::pod::Refusal;
use common::store::{AssignOutcome, Assignment, ParkOutcome, Parked, Store, StoreError};
use futures_util::{StreamExt, TryStreamExt};

use crate::intake::Bad;
use crate::measure;

/// How many pods one script assigns or parks: a few milliseconds of Redis.
const CHUNK: usize = 250;
/// While Redis assigns one chunk the next is on its way, and the last one's answer is read. They arrive in their order.
const CHUNKS_AT_A_TIME: usize = 3;

/// Who carries out.
pub(crate) struct Hands<'a> {
    pub(crate) store: &'a Store,
    pub(crate) id: &'a SchedulerId,
    pub(crate) dead_after: std::time::Duration,
}

/// What became of an assignment, beyond [`AssignOutcome`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Assigned {
    /// What the script said.
    Said(AssignOutcome),
    /// The node's keys are broken: decide again without it.
    NodeBroken(StoreError),
    /// The pod's record is broken: it went to the dead letters.
    Rejected,
}

/// Whether an error tells of a broken key rather than of Redis.
fn is_broken_key(error: &StoreError) -> bool {
    matches!(error, StoreError::WrongType { .. } | StoreError::Corrupt { .. })
}

impl Hands<'_> {
    /// Gives pods to nodes; one outcome each. `seen` is how many pods a node may have by now, where that matters: at
    /// most one chunk of pods then, for each adds to the next one's count.
    pub(crate) async fn assign(
        &self,
        assignments: &[Assignment],
        seen: &(dyn Fn(&NodeName) -> Option<u64> + Sync),
    ) -> Result<Vec<Assigned>, StoreError> {
        let chunks: Vec<_> = assignments.chunks(CHUNK).map(|chunk| self.assign_chunk(chunk, seen)).collect();
        let mut chunks = futures_util::stream::iter(chunks).buffered(CHUNKS_AT_A_TIME);
        let mut outcomes = Vec::with_capacity(assignments.len());
        while let Some(chunk) = chunks.try_next().await? {
            outcomes.extend(chunk);
        }
        let placed = outcomes.iter().filter(|o| **o == Assigned::Said(AssignOutcome::Assigned)).count();
        measure::placed(placed);
        Ok(outcomes)
    }

    async fn assign_chunk(
        &self,
        chunk: &[Assignment],
        seen: &(dyn Fn(&NodeName) -> Option<u64> + Sync),
    ) -> Result<Vec<Assigned>, StoreError> {
        match self.store.assign_as_seen(self.id, self.dead_after, chunk, seen).await {
            Ok(said) => Ok(said.into_iter().map(Assigned::Said).collect()),
            Err(error) if is_broken_key(&error) => {
                // One broken key fails its whole chunk: one by one, the others get through.
                let mut outcomes = Vec::with_capacity(chunk.len());
                for assignment in chunk {
                    outcomes.push(self.assign_one(assignment).await?);
                }
                Ok(outcomes)
            }
            Err(error) => Err(error),
        }
    }

    async fn assign_one(&self, assignment: &Assignment) -> Result<Assigned, StoreError> {
        let said = self.store.assign(self.id, self.dead_after, std::slice::from_ref(assignment)).await;
        let error = match said {
            Ok(said) => {
                let said = said.into_iter().next().unwrap_or(AssignOutcome::Gone);
                return Ok(Assigned::Said(said));
            }
            Err(error) if is_broken_key(&error) => error,
            Err(error) => return Err(error),
        };
        if self.is_pod_broken(&assignment.payload.id).await? {
            self.reject_broken(&assignment.payload.raw, &error).await?;
            return Ok(Assigned::Rejected);
        }
        if self.is_node_broken(&assignment.node).await? {
            return Ok(Assigned::NodeBroken(error));
        }
        // Then it is a key that all pods need.
        Err(error)
    }

    /// Records pods that fit nowhere.
    pub(crate) async fn park(&self, parked: &[Parked]) -> Result<(), StoreError> {
        for chunk in parked.chunks(CHUNK) {
            match self.store.park(self.id, chunk).await {
                Ok(outcomes) => {
                    for (parked, outcome) in chunk.iter().zip(outcomes) {
                        self.after_parking(parked, outcome).await?;
                    }
                }
                Err(error) if is_broken_key(&error) => {
                    for parked in chunk {
                        self.park_one(parked).await?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn park_one(&self, parked: &Parked) -> Result<(), StoreError> {
        match self.store.park(self.id, std::slice::from_ref(parked)).await {
            Ok(outcomes) => match outcomes.into_iter().next() {
                Some(outcome) => self.after_parking(parked, outcome).await,
                None => Ok(()),
            },
            Err(error) if is_broken_key(&error) && self.is_pod_broken(&parked.payload.id).await? => {
                self.reject_broken(&parked.payload.raw, &error).await
            }
            Err(error) => Err(error),
        }
    }

    async fn after_parking(&self, parked: &Parked, outcome: ParkOutcome) -> Result<(), StoreError> {
        match outcome {
            ParkOutcome::Parked => measure::parked(1),
            ParkOutcome::Stale | ParkOutcome::Gone => {}
            ParkOutcome::Orphan => self.reject_orphan(&parked.payload).await?,
        }
        Ok(())
    }

    /// A pod of a service that does not know it.
    pub(crate) async fn reject_orphan(&self, payload: &common::payload::Payload) -> Result<(), StoreError> {
        let reason = format!(
            "there is no record of pod {}: its service {} does not know it (it was deleted, or the payload was \
             pushed by hand with a `spec`; without one it is a pod of its own)",
            payload.id, payload.name
        );
        self.reject(&Bad { raw: payload.raw.clone(), id: Some(payload.id.clone()), reason }).await
    }

    /// Moves a payload to the dead letters.
    pub(crate) async fn reject(&self, bad: &Bad) -> Result<(), StoreError> {
        match self.store.reject_in_flight(self.id, &bad.raw, bad.id.as_ref(), &bad.reason).await {
            // Its record may be what is broken; the letter does not need it.
            Err(error) if bad.id.is_some() && is_broken_key(&error) => {
                self.store.reject_in_flight(self.id, &bad.raw, None, &bad.reason).await.map(drop)
            }
            done => done.map(drop),
        }
    }

    async fn reject_broken(&self, raw: &bytes::Bytes, error: &StoreError) -> Result<(), StoreError> {
        let reason = format!("the pod's record can not be used: {error}");
        self.reject(&Bad { raw: raw.clone(), id: None, reason }).await
    }

    async fn is_pod_broken(&self, id: &PodId) -> Result<bool, StoreError> {
        is_broken(self.store.pod(id).await)
    }

    async fn is_node_broken(&self, name: &NodeName) -> Result<bool, StoreError> {
        let names = std::slice::from_ref(name);
        Ok(is_broken(self.store.nodes(names).await)? || is_broken(self.store.node_queues(names).await)?)
    }
}

fn is_broken<T>(read: Result<T, StoreError>) -> Result<bool, StoreError> {
    match read {
        Ok(_) => Ok(false),
        Err(error) if is_broken_key(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Why a pod was parked, in a sentence: "0/3 nodes take it: 2 InsufficientMemory, 1 Cordoned".
pub(crate) fn sentence(nodes: usize, refusals: &[Refusal]) -> String {
    if nodes == 0 {
        return "no node takes it: there is none; start `kubeleet worker` on a machine".to_owned();
    }
    let reasons: Vec<String> = refusals.iter().map(|r| format!("{} {}", r.count, r.reason)).collect();
    format!("0/{nodes} nodes take it: {}", reasons.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences() {
        let refusal = |reason: &str, count| Refusal { reason: reason.to_owned(), count, nodes: Vec::new() };
        let refusals = [refusal("InsufficientMemory", 2), refusal("Cordoned", 1)];
        assert_eq!(sentence(3, &refusals), "0/3 nodes take it: 2 InsufficientMemory, 1 Cordoned");
        assert!(sentence(0, &[refusal("NoNodes", 0)]).contains("there is none"));
    }
}
