//! The table of `common::lifecycle` is what the scripts do: every phase meets every event, through the verbs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use common::ids::AssignmentId;
use common::lifecycle::{Phase, PodEvent, transition};
use common::store::{FinishReport, Outcome, PodRef};
use kubeleet_tests::Bed;
use kubeleet_tests::bed::Placed;

const NODE: &str = "w1";

#[tokio::test]
async fn every_phase_takes_every_event_as_the_table_says() {
    let mut failures = Vec::new();
    for from in Phase::ALL {
        for event in PodEvent::ALL {
            let bed = Bed::new().await;
            let placed = in_phase(&bed, from, event).await;
            happens(&bed, &placed, event).await;
            let to = bed.record(&placed.record.id).await.phase;
            let expected = transition(from, as_the_scripts_read_it(from, event)).unwrap_or(from);
            if to != expected {
                failures.push(format!("{from} + {event:?}: the table says {expected}, the scripts {to}"));
            }
            for wrong in bed.violations().await {
                failures.push(format!("{from} + {event:?}: {wrong}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A pod that ends by itself while it is being stopped has been stopped: nobody wants to know how it ended.
fn as_the_scripts_read_it(from: Phase, event: PodEvent) -> PodEvent {
    match (from, event) {
        (Phase::Stopping, PodEvent::Succeeded | PodEvent::Failed) => PodEvent::Stopped,
        _ => event,
    }
}

/// Only what went to the dead letters can be requeued from there; otherwise a pod failed by itself.
async fn in_phase(bed: &Bed, phase: Phase, event: PodEvent) -> Placed {
    if (phase, event) != (Phase::Failed, PodEvent::Requeue) {
        return bed.pod_in(phase, "web", NODE).await;
    }
    let mut placed = bed.pod_in(Phase::Pending, "web", NODE).await;
    bed.store.take(&bed.scheduler, 1).await.unwrap();
    let id = placed.record.id.clone();
    bed.store.reject_in_flight(&bed.scheduler, &placed.payload.raw, Some(&id), "no").await.unwrap();
    placed.record = bed.record(&id).await;
    placed
}

/// Does what the owner of the event would do. Where the pod is not in the phase for it, a copy of its payload lies where
/// the owner would find it, as it may after a race.
async fn happens(bed: &Bed, placed: &Placed, event: PodEvent) {
    let Placed { session, record, payload } = placed;
    let held = record.assignment.clone().unwrap_or_else(AssignmentId::random);
    let pod = PodRef { id: &record.id, assignment: &held };
    let phase = record.phase;
    match event {
        PodEvent::Assign => {
            if phase != Phase::Pending {
                copy(bed, "sq", &payload.raw).await;
            }
            bed.assign_all(session).await;
        }
        PodEvent::Ack => {
            if phase == Phase::Assigned {
                session.take_more(1).await.unwrap();
            }
            bed.ack(session, payload, &held).await;
        }
        PodEvent::Lost => drop(session.lost(pod, &payload.raw).await.unwrap().unwrap()),
        PodEvent::NodeDied => {
            bed.kill_node(NODE).await;
            bed.drain(NODE).await;
        }
        PodEvent::Stop => drop(bed.stop(record).await),
        PodEvent::Stopped => finish(placed, pod, Outcome::Stopped).await,
        PodEvent::Succeeded => finish(placed, pod, Outcome::Succeeded).await,
        PodEvent::Failed => finish(placed, pod, Outcome::Failed).await,
        PodEvent::Reject => reject(bed, placed).await,
        PodEvent::Requeue => requeue(bed, placed).await,
    }
}

async fn finish(placed: &Placed, pod: PodRef<'_>, outcome: Outcome) {
    let Placed { session, record, payload } = placed;
    let report = FinishReport { outcome, reason: "", message: "", exit_code: None };
    session.finish(pod, &payload.raw, record.service.as_ref(), &report).await.unwrap().unwrap();
}

async fn reject(bed: &Bed, placed: &Placed) {
    let Placed { session, record, payload } = placed;
    match record.phase {
        Phase::Pending => {
            bed.store.take(&bed.scheduler, 1).await.unwrap();
            bed.store.reject_in_flight(&bed.scheduler, &payload.raw, Some(&record.id), "no").await.unwrap();
        }
        phase => {
            if phase == Phase::Assigned {
                session.take_more(1).await.unwrap();
            } else {
                copy(bed, "rq:w1", &payload.raw).await;
            }
            session.reject(&payload.raw, Some(&record.id), "no").await.unwrap().unwrap();
        }
    }
}

async fn requeue(bed: &Bed, placed: &Placed) {
    let Placed { session, record, payload } = placed;
    if record.phase != Phase::Failed {
        copy(bed, "rq:w1", &payload.raw).await;
        session.reject(&payload.raw, None, "a copy").await.unwrap().unwrap();
    }
    let letter = bed.store.letters(0, 1).await.unwrap().remove(0);
    assert!(bed.store.requeue_letter(&letter).await.unwrap());
    if record.phase != Phase::Failed {
        // The copy is in the worker's queue; it finds out that there is nothing to do.
        let () = bed.redis.cli(&[&b"LREM"[..], b"pq:w1", b"1", &payload.raw]).await;
        copy(bed, "rq:w1", &payload.raw).await;
        if !matches!(record.phase, Phase::Assigned | Phase::Stopping) {
            bed.claim(session, std::slice::from_ref(payload)).await;
        } else {
            let () = bed.redis.cli(&["DEL", "rq:w1"]).await;
        }
    }
}

async fn copy(bed: &Bed, key: &str, raw: &[u8]) {
    let () = bed.redis.cli(&[&b"LPUSH"[..], key.as_bytes(), raw]).await;
}
