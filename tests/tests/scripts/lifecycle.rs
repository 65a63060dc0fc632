//! The scripts follow the table of `model::pod::lifecycle`: a pod in every phase meets every event.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::Placed;
use model::ids::AssignmentId;
use model::pod::lifecycle::{Phase, PodEvent, transition};
use model::spec::HostPorts;
use store::{DeadLetterRequeue, FinishReport, PodOutcome, PodRef};

const NODE: &str = "w1";

#[tokio::test]
async fn every_event_changes_every_phase_as_the_table_says() {
    let mut failures = Vec::new();
    for from in Phase::ALL {
        for event in PodEvent::ALL {
            let fixture = Fixture::new().await;
            let placed = in_phase(&fixture, from, event).await;
            apply_event(&fixture, &placed, event).await;
            let to = fixture.record(&placed.record.id).await.phase;
            let expected = transition(from, effective_event(from, event)).unwrap_or(from);
            if to != expected {
                failures.push(format!("{from} + {event:?}: the table says {expected}, the scripts {to}"));
            }
            for wrong in fixture.violations().await {
                failures.push(format!("{from} + {event:?}: {wrong}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A pod that ends by itself while it is being stopped counts as stopped.
fn effective_event(from: Phase, event: PodEvent) -> PodEvent {
    match (from, event) {
        (Phase::Stopping, PodEvent::Succeeded | PodEvent::Failed) => PodEvent::Stopped,
        _ => event,
    }
}

async fn in_phase(fixture: &Fixture, phase: Phase, event: PodEvent) -> Placed {
    if (phase, event) != (Phase::Failed, PodEvent::Requeue) {
        return fixture.pod_in(phase, "web", NODE).await;
    }
    let mut placed = fixture.pod_in(Phase::Pending, "web", NODE).await;
    fixture.store.take(&fixture.scheduler, 1).await.unwrap();
    let id = placed.record.id.clone();
    fixture.store.reject_in_flight(&fixture.scheduler, &placed.payload.raw, Some(&id), "no").await.unwrap();
    placed.record = fixture.record(&id).await;
    placed
}

/// If the phase does not fit, a copy of the payload is there, as after a race.
async fn apply_event(fixture: &Fixture, placed: &Placed, event: PodEvent) {
    let Placed { session, record, payload } = placed;
    let held = record.assignment.clone().unwrap_or_else(AssignmentId::random);
    let pod = PodRef { id: &record.id, assignment: &held };
    let phase = record.phase;
    match event {
        PodEvent::Assign => {
            if phase != Phase::Pending {
                fixture.push("sq", &payload.raw).await;
            }
            fixture.assign_all(session).await;
        }
        PodEvent::Ack => {
            if phase == Phase::Assigned {
                session.pop_more(1).await.unwrap();
            }
            fixture.ack(session, payload, &held).await;
        }
        PodEvent::Lost => drop(session.report_lost(pod, &payload.raw).await.unwrap().unwrap()),
        PodEvent::NodeDied => {
            fixture.kill_node(NODE).await;
            fixture.drain(NODE).await;
        }
        PodEvent::GiveBack => {
            if phase == Phase::Assigned {
                session.pop_more(1).await.unwrap();
            }
            session
                .give_back(pod, &payload.raw, &HostPorts::default(), "StartFailed", "why")
                .await
                .unwrap()
                .unwrap();
        }
        PodEvent::Stop => drop(fixture.stop(record).await),
        PodEvent::Stopped => finish(placed, pod, PodOutcome::Stopped).await,
        PodEvent::Succeeded => finish(placed, pod, PodOutcome::Succeeded).await,
        PodEvent::Failed => finish(placed, pod, PodOutcome::Failed).await,
        PodEvent::Reject => reject(fixture, placed).await,
        PodEvent::Requeue => requeue(fixture, placed).await,
    }
}

async fn finish(placed: &Placed, pod: PodRef<'_>, outcome: PodOutcome) {
    let Placed { session, record, payload } = placed;
    let report = FinishReport::new(outcome);
    session.finish(pod, &payload.raw, record.service.as_ref(), &report).await.unwrap().unwrap();
}

async fn reject(fixture: &Fixture, placed: &Placed) {
    let Placed { session, record, payload } = placed;
    match record.phase {
        Phase::Pending => {
            fixture.store.take(&fixture.scheduler, 1).await.unwrap();
            fixture
                .store
                .reject_in_flight(&fixture.scheduler, &payload.raw, Some(&record.id), "no")
                .await
                .unwrap();
        }
        phase => {
            if phase == Phase::Assigned {
                session.pop_more(1).await.unwrap();
            } else {
                fixture.push("rq:w1", &payload.raw).await;
            }
            session.reject(&payload.raw, Some(&record.id), "no").await.unwrap().unwrap();
        }
    }
}

async fn requeue(fixture: &Fixture, placed: &Placed) {
    let Placed { session, record, payload } = placed;
    if record.phase != Phase::Failed {
        fixture.push("rq:w1", &payload.raw).await;
        session.reject(&payload.raw, None, "a copy").await.unwrap().unwrap();
    }
    let dead_letter = fixture.store.dead_letters(0, 1).await.unwrap().remove(0);
    let outcome = fixture.store.requeue_dead_letter(&dead_letter, None).await.unwrap();
    if matches!(record.phase, Phase::Stopped | Phase::Succeeded) {
        assert_eq!(outcome, DeadLetterRequeue::PodEnded);
        return;
    }
    assert_eq!(outcome, DeadLetterRequeue::Queued);
    if record.phase != Phase::Failed {
        let () = fixture.redis.cli(&[&b"LREM"[..], b"pq:w1", b"1", &payload.raw]).await;
        fixture.push("rq:w1", &payload.raw).await;
        if !matches!(record.phase, Phase::Assigned | Phase::Stopping) {
            fixture.claim(session, std::slice::from_ref(payload)).await;
        } else {
            let () = fixture.redis.cli(&["DEL", "rq:w1"]).await;
        }
    }
}
