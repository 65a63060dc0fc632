//! A worker's work: register, heartbeat, claim, acknowledge, report, finish. Invariants 2, 3 and 6.

use std::collections::BTreeSet;
use std::time::Duration;

use common::ids::{AssignmentId, PodId};
use common::lifecycle::Phase;
use common::node::Psi;
use common::payload::Payload;
use common::store::{
    Ack, Claim, ClaimReply, Fenced, FinishReport, Outcome, PodRef, Registration, StatusReport, Write,
};
use kubeleet_tests::Bed;
use kubeleet_tests::bed::{ATTEMPTS, Placed, facts, node, pushed};

use crate::{changing_nothing, checks};

async fn push(bed: &Bed, key: &str, payload: &Payload) {
    let () = bed.redis.cli(&[&b"LPUSH"[..], key.as_bytes(), &payload.raw]).await;
}

async fn length(bed: &Bed, key: &str) -> usize {
    bed.redis.cli(&["LLEN", key]).await
}

#[tokio::test]
async fn a_new_life_finds_what_the_old_one_was_starting_in_its_queue_in_order() {
    let bed = Bed::new().await;
    let old = bed.node("w1").await;
    bed.service("web", 4).await;
    bed.assign_all(&old).await;
    let first = old.take_more(2).await.unwrap();
    let facts = facts(bed.store.node(&node("w1")).await.unwrap().unwrap().facts.capacity);
    let Registration::Registered { session, requeued } =
        bed.store.register(&node("w1"), &facts).await.unwrap()
    else {
        panic!("it lives");
    };
    assert_eq!((requeued, length(&bed, "rq:w1").await, length(&bed, "pq:w1").await), (2, 0, 4));
    assert_eq!(session.take_more(2).await.unwrap(), first, "the same ones first");
    assert_eq!(bed.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_node_is_as_its_worker_says() {
    let bed = Bed::new().await;
    let session = bed.node("w1").await;
    let seen = bed.store.node(&node("w1")).await.unwrap().unwrap();
    assert_eq!(seen.facts, facts(seen.facts.capacity));
    assert_eq!(bed.store.node_names().await.unwrap(), [node("w1")]);
    let psi = Psi { cpu_some: 1.5, memory_full: 3.0, ..Psi::default() };
    session.heartbeat(Some(&psi), Some("no answer for 5 s"), &[]).await.unwrap().unwrap();
    let seen = bed.store.node(&node("w1")).await.unwrap().unwrap();
    assert_eq!((seen.psi, seen.engine_problem.as_deref()), (Some(psi), Some("no answer for 5 s")));
    session.heartbeat(None, None, &[]).await.unwrap().unwrap();
    let seen = bed.store.node(&node("w1")).await.unwrap().unwrap();
    assert_eq!((seen.psi, seen.engine_problem), (None, None));
    let reasons: Vec<_> =
        bed.store.last_events(10).await.unwrap().into_iter().map(|event| event.reason).collect();
    assert_eq!(reasons, ["NodeReady", "EngineUnhealthy", "EngineHealthy"]);
}

#[tokio::test]
async fn a_worker_is_not_let_in_while_its_pods_are_being_moved() {
    let bed = Bed::new().await;
    let Placed { session, .. } = bed.pod_in(Phase::Running, "web", "w1").await;
    bed.kill_node("w1").await;
    let facts = facts(bed.store.node(&node("w1")).await.unwrap().unwrap().facts.capacity);
    let register = async { bed.store.register(&node("w1"), &facts).await.unwrap() };
    assert!(matches!(changing_nothing(&bed, register).await, Registration::Draining));
    bed.drain("w1").await;
    assert!(matches!(
        bed.store.register(&node("w1"), &facts).await.unwrap(),
        Registration::Registered { .. }
    ));
    let old = changing_nothing(&bed, session.heartbeat(None, None, &[])).await.unwrap();
    assert_eq!(old, Err(Fenced::Replaced));
}

#[tokio::test]
async fn a_life_that_redis_has_lost_is_told_to_register() {
    let bed = Bed::new().await;
    let session = bed.node("w1").await;
    let () = bed.redis.cli(&["DEL", "node:w1"]).await;
    let answer = changing_nothing(&bed, session.heartbeat(None, None, &[])).await.unwrap();
    assert_eq!(answer, Err(Fenced::Replaced), "not dead: nothing of it was given away");
}

#[tokio::test]
async fn a_heartbeat_hears_what_to_stop_and_what_is_not_its_own() {
    let bed = Bed::new().await;
    let Placed { session, record, .. } = bed.pod_in(Phase::Stopping, "web", "w1").await;
    let held = record.assignment.clone().unwrap();
    let strange = (PodId::random(), AssignmentId::random());
    let older = (record.id.clone(), AssignmentId::random());
    let asked = [(record.id.clone(), held), strange.clone(), older.clone()];
    let reply = session.heartbeat(None, None, &asked).await.unwrap().unwrap();
    assert_eq!(reply.stop, [record.id]);
    assert_eq!(reply.foreign, [strange.0, older.0]);
    assert_eq!(reply.master_changed_at, 0);
}

#[tokio::test]
async fn a_pod_pushed_to_a_node_is_desired_from_its_claim_on() {
    let bed = Bed::new().await;
    let session = bed.node("w1").await;
    let payload = pushed("test", "djkf…");
    push(&bed, "rq:w1", &payload).await;
    let claim = bed.claim(&session, std::slice::from_ref(&payload)).await.remove(0);
    let Claim::Start { assignment, attempt: 1 } = claim else { panic!("{claim:?}") };
    push(&bed, "rq:w1", &payload).await;
    // The second copy asks to be started as the very same assignment: the worker sees that it is under way.
    let second = bed.claim(&session, std::slice::from_ref(&payload)).await.remove(0);
    assert_eq!(second, Claim::Start { assignment: assignment.clone(), attempt: 2 });
    assert_eq!(bed.store.pushed_pods().await.unwrap(), std::slice::from_ref(&payload.id));
    assert_eq!(bed.ack(&session, &payload, &assignment).await, Ack::Running);
    assert_eq!(bed.claim(&session, std::slice::from_ref(&payload)).await, [Claim::Running]);
    assert_eq!(length(&bed, "rq:w1").await, 0, "the copy is dropped");
    assert_eq!(session.container_set().await.unwrap(), [payload.raw]);
    assert_eq!(bed.violations().await, Vec::<String>::new());
}

/// The first copy makes the record; the second must see it although both are asked about in one step.
#[tokio::test]
async fn two_copies_in_one_claim_are_one_pod() {
    let bed = Bed::new().await;
    let session = bed.node("w1").await;
    let payload = pushed("test", "mine");
    let spaced =
        Payload::parse(format!(" {}", String::from_utf8_lossy(&payload.raw)).into_bytes().into()).unwrap();
    for copy in [&payload, &payload, &spaced] {
        push(&bed, "rq:w1", copy).await;
    }
    let claims = bed.claim(&session, &[payload.clone(), payload, spaced]).await;
    let assignments: BTreeSet<_> = claims
        .iter()
        .filter_map(|claim| match claim {
            Claim::Start { assignment, .. } => Some(assignment.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(assignments.len(), 1, "{claims:?}");
    assert_eq!(bed.keyspace().await.field("node:w1", "used_pods"), "1");
}

#[tokio::test]
async fn a_claim_says_for_each_phase_what_to_do() {
    let cases = [
        (Phase::Pending, Claim::Stale),
        (Phase::Running, Claim::Running),
        (Phase::Stopping, Claim::Stopped),
        (Phase::Stopped, Claim::Stale),
        (Phase::Succeeded, Claim::Stale),
        (Phase::Failed, Claim::Stale),
    ];
    for (phase, expected) in cases {
        let bed = Bed::new().await;
        let Placed { session, payload, .. } = bed.pod_in(phase, "web", "w1").await;
        push(&bed, "rq:w1", &payload).await;
        if phase == Phase::Stopping {
            // As it is when it was stopped before it started: in rq and not in cs.
            let () = bed.redis.cli(&["DEL", "cs:w1"]).await;
        }
        assert_eq!(bed.claim(&session, std::slice::from_ref(&payload)).await, [expected], "{phase}");
        assert_eq!(length(&bed, "rq:w1").await, 0, "{phase}: dropped");
        assert_eq!(bed.violations().await, Vec::<String>::new(), "{phase}");
        let gone = bed.claim(&session, std::slice::from_ref(&payload));
        assert_eq!(changing_nothing(&bed, gone).await, [Claim::Gone], "{phase}");
    }
}

#[tokio::test]
async fn what_is_another_nodes_is_dropped_and_what_no_service_knows_is_an_orphan() {
    let bed = Bed::new().await;
    let Placed { record, payload, .. } = bed.pod_in(Phase::Running, "web", "w1").await;
    let other = bed.node("w2").await;
    push(&bed, "rq:w2", &payload).await;
    assert_eq!(bed.claim(&other, std::slice::from_ref(&payload)).await, [Claim::Stale]);
    let stranger = Payload::of_service("web".parse().unwrap(), PodId::random(), "i", 0, record.spec.unwrap());
    push(&bed, "rq:w2", &stranger).await;
    let orphan = bed.claim(&other, std::slice::from_ref(&stranger));
    assert_eq!(changing_nothing(&bed, orphan).await, [Claim::Orphan], "and it stays to be rejected");
}

#[tokio::test]
async fn a_pod_is_tried_so_often_and_no_more() {
    let bed = Bed::new().await;
    let Placed { session, record, payload } = bed.pod_in(Phase::Assigned, "web", "w1").await;
    session.take_more(1).await.unwrap();
    for attempt in 1..=ATTEMPTS {
        let claim = bed.claim(&session, std::slice::from_ref(&payload)).await.remove(0);
        assert_eq!(claim, Claim::Start { assignment: record.assignment.clone().unwrap(), attempt });
    }
    let claim = bed.claim(&session, std::slice::from_ref(&payload)).await.remove(0);
    assert_eq!(claim, Claim::Exhausted { attempt: ATTEMPTS + 1 });
    let rejected = session.reject(&payload.raw, Some(&payload.id), "tried 5 times").await.unwrap();
    assert_eq!(rejected, Ok(Write::Done));
    assert_eq!(bed.record(&record.id).await.phase, Phase::Failed);
    assert_eq!(bed.violations().await, Vec::<String>::new(), "what it held is given back");
}

#[tokio::test]
async fn an_ack_starts_the_count_of_attempts_again() {
    let bed = Bed::new().await;
    let Placed { record, .. } = bed.pod_in(Phase::Running, "web", "w1").await;
    assert_eq!((record.attempts, record.address.as_str()), (0, "10.0.0.1"));
}

#[tokio::test]
async fn after_a_change_of_master_nothing_starts_for_a_while() {
    let bed = Bed::new().await;
    let Placed { session, payload, .. } = bed.pod_in(Phase::Assigned, "web", "w1").await;
    session.take_more(1).await.unwrap();
    session.heartbeat(None, None, &[]).await.unwrap().unwrap();
    // As a replica that took over finds it: written by the master that was.
    let () = bed.redis.cli(&["HSET", "meta", "run_id", "another"]).await;
    let items = [bed.claim_item(&payload).await];
    let pause = Duration::from_millis(400);
    let Ok(ClaimReply::Paused(left)) = session.claim(&items, ATTEMPTS, pause).await.unwrap() else {
        panic!("it should pause");
    };
    assert!(left <= pause && left > Duration::ZERO, "{left:?}");
    let changed_at = session.heartbeat(None, None, &[]).await.unwrap().unwrap().master_changed_at;
    assert!(changed_at > 0);
    let events = bed.store.last_events(10).await.unwrap();
    assert_eq!(events.iter().filter(|event| event.reason == "MasterChanged").count(), 1, "said once");
    kubeleet_tests::eventually(Duration::from_secs(5), "the pause ends", || async {
        match session.claim(&items, ATTEMPTS, pause).await.unwrap().unwrap() {
            ClaimReply::Claims(claims) => Ok(claims),
            ClaimReply::Paused(left) => Err(format!("{left:?} left")),
        }
    })
    .await;
}

#[tokio::test]
async fn the_blocking_end_of_the_queue_moves_the_oldest_into_rq() {
    let bed = Bed::new().await;
    let session = bed.node("w1").await;
    let mut queue = session.work_queue(Duration::from_millis(100)).await.unwrap();
    assert_eq!(queue.next().await.unwrap(), None);
    let (first, second) = (pushed("a", "1"), pushed("b", "2"));
    push(&bed, "pq:w1", &first).await;
    push(&bed, "pq:w1", &second).await;
    assert_eq!(queue.next().await.unwrap(), Some(first.raw.clone()));
    assert_eq!(session.starting().await.unwrap(), [first.raw]);
    assert_eq!(session.take_more(5).await.unwrap(), [second.raw]);
}

#[tokio::test]
async fn a_pod_that_was_stopped_while_it_started_is_acknowledged_and_stopped() {
    let bed = Bed::new().await;
    let Placed { session, record, payload } = bed.pod_in(Phase::Assigned, "web", "w1").await;
    let held = record.assignment.clone().unwrap();
    session.take_more(1).await.unwrap();
    bed.stop(&record).await;
    assert_eq!(bed.ack(&session, &payload, &held).await, Ack::Stop);
    assert_eq!(bed.violations().await, Vec::<String>::new());
    let pod = PodRef { id: &record.id, assignment: &held };
    let report = FinishReport { outcome: Outcome::Stopped, reason: "", message: "", exit_code: Some(143) };
    let done = session.finish(pod, &payload.raw, record.service.as_ref(), &report).await.unwrap();
    assert_eq!(done, Ok(Write::Done));
    let keyspace = bed.keyspace().await;
    assert_eq!(keyspace.field("node:w1", "used_pods"), "0");
    for key in ["stop:w1", "cs:w1", "rq:w1", "slots:web"] {
        assert!(keyspace.get(key).is_none(), "{key}");
    }
    assert_eq!(bed.record(&record.id).await.exit_code, Some(143));
    let lives: i64 = bed.redis.cli(&["TTL", &format!("pod:{}", record.id)]).await;
    assert!((3000..=3600).contains(&lives), "a tombstone for an hour, not {lives} s");
}

#[tokio::test]
async fn a_pod_ends_once_and_stopping_it_unasked_is_refused() {
    for (outcome, phase) in [(Outcome::Succeeded, Phase::Succeeded), (Outcome::Failed, Phase::Failed)] {
        let bed = Bed::new().await;
        let placed = bed.pod_in(Phase::Running, "web", "w1").await;
        let Placed { session, record, payload } = &placed;
        let report =
            |outcome| FinishReport { outcome, reason: "Exited", message: "with 1", exit_code: Some(1) };
        let (unasked, asked) = (report(Outcome::Stopped), report(outcome));
        let finish =
            |report| session.finish(placed.reference(), &payload.raw, record.service.as_ref(), report);
        assert_eq!(changing_nothing(&bed, finish(&unasked)).await.unwrap(), Ok(Write::Wanted));
        assert_eq!(finish(&asked).await.unwrap(), Ok(Write::Done));
        let ended = bed.record(&record.id).await;
        assert_eq!((ended.phase, ended.reason.as_str(), ended.exit_code), (phase, "Exited", Some(1)));
        let other = report(if outcome == Outcome::Failed { Outcome::Succeeded } else { Outcome::Failed });
        let again = changing_nothing(&bed, finish(&other)).await.unwrap();
        assert_eq!(again, Ok(Write::Done), "it has ended, as it ended first");
        assert_eq!(bed.violations().await, Vec::<String>::new());
        assert_eq!(bed.pods(&"web".parse().unwrap()).await.len(), 1, "it keeps its slot");
    }
}

#[tokio::test]
async fn a_lost_container_is_a_new_assignment_on_the_same_node() {
    let bed = Bed::new().await;
    let placed = bed.pod_in(Phase::Running, "web", "w1").await;
    let Placed { session, record, payload } = &placed;
    assert_eq!(session.lost(placed.reference(), &payload.raw).await.unwrap(), Ok(Write::Done));
    let again = bed.record(&record.id).await;
    assert_eq!((again.phase, again.node.as_ref()), (Phase::Assigned, record.node.as_ref()));
    assert_ne!(again.assignment, record.assignment);
    assert_eq!(bed.violations().await, Vec::<String>::new());
    assert_eq!(bed.run_all(session).await, [Ack::Running]);
    let late = changing_nothing(&bed, bed.ack(session, payload, record.assignment.as_ref().unwrap())).await;
    assert_eq!(late, Ack::Stale);
}

#[tokio::test]
async fn a_report_says_how_a_pod_is_without_moving_it() {
    let bed = Bed::new().await;
    let placed = bed.pod_in(Phase::Running, "web", "w1").await;
    let ill = StatusReport {
        reason: "CrashLoopBackOff",
        message: "exited with 1",
        restarts: Some(2),
        exit_code: Some(1),
    };
    assert_eq!(placed.session.report(placed.reference(), &ill).await.unwrap(), Ok(Write::Done));
    let record = bed.record(&placed.record.id).await;
    assert_eq!(
        (record.phase, record.reason.as_str(), record.restarts),
        (Phase::Running, "CrashLoopBackOff", 2)
    );
    let well = StatusReport { restarts: Some(2), ..StatusReport::default() };
    assert_eq!(placed.session.report(placed.reference(), &well).await.unwrap(), Ok(Write::Done));
    assert_eq!(bed.record(&placed.record.id).await.reason, "");
    let events = bed.store.last_events(2).await.unwrap();
    let reasons: Vec<_> = events.iter().map(|event| event.reason.as_str()).collect();
    assert_eq!(reasons, ["CrashLoopBackOff", "PodRecovered"]);
}

#[tokio::test]
async fn nothing_a_zombie_says_changes_anything() {
    assert_eq!(checks::a_zombie_speaks(&Bed::new().await).await, Vec::<String>::new());
}

#[tokio::test]
async fn nothing_said_as_an_old_assignment_changes_anything() {
    assert_eq!(checks::an_old_assignment_speaks(&Bed::new().await).await, Vec::<String>::new());
}

#[tokio::test]
async fn pods_start_and_are_in_one_place_each() {
    assert_eq!(checks::pods_start(&Bed::new().await).await, Vec::<String>::new());
}

/// After a failover the payload may be in pq again while its worker runs it already.
#[tokio::test]
async fn a_stopping_pod_whose_payload_is_in_two_places_leaves_both() {
    let bed = Bed::new().await;
    let Placed { session, record, payload } = bed.pod_in(Phase::Assigned, "web", "w1").await;
    let held = record.assignment.clone().unwrap();
    // The worker took it and started it, and the database forgot that it took it.
    assert_eq!(bed.ack(&session, &payload, &held).await, Ack::Running);
    bed.stop(&bed.record(&record.id).await).await;
    session.take_more(1).await.unwrap();
    bed.claim(&session, std::slice::from_ref(&payload)).await;
    let pod = PodRef { id: &record.id, assignment: &held };
    let report = FinishReport { outcome: Outcome::Stopped, reason: "", message: "", exit_code: None };
    session.finish(pod, &payload.raw, record.service.as_ref(), &report).await.unwrap().unwrap();
    assert_eq!(bed.violations().await, Vec::<String>::new());
}

/// A pod can be told to stop again after its node was declared dead; the next life hears of it for ever.
#[tokio::test]
async fn what_has_ended_is_not_to_be_stopped_any_more() {
    let bed = Bed::new().await;
    let placed = bed.pod_in(Phase::Stopping, "web", "w1").await;
    bed.kill_node("w1").await;
    bed.stop(&placed.record).await;
    bed.drain("w1").await;
    let session = bed.node("w1").await;
    let reply = session.heartbeat(None, None, &[]).await.unwrap().unwrap();
    for pod in &reply.stop {
        let record = bed.record(pod).await;
        let reference = PodRef { id: pod, assignment: record.assignment.as_ref().unwrap() };
        let report = FinishReport { outcome: Outcome::Stopped, reason: "", message: "", exit_code: None };
        session
            .finish(reference, &placed.payload.raw, record.service.as_ref(), &report)
            .await
            .unwrap()
            .unwrap();
    }
    assert_eq!(session.heartbeat(None, None, &[]).await.unwrap().unwrap().stop, []);
}
