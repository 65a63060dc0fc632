//! A worker's work: register, heartbeat, claim, acknowledge, report, finish. Invariants 2, 3 and 6.

use std::collections::BTreeSet;
use std::time::Duration;

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::{ATTEMPTS, Placed, REQUEST, facts, network, node, pushed};
use model::ids::{AssignmentId, ClusterId, HolderId, PodId, ServiceName};
use model::network::ContainerNetwork;
use model::node::Psi;
use model::node::timing::Timing;
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use store::{
    Ack, AckItem, Claim, ClaimReply, Claimant, Fenced, FinishReport, HoldReason, KnownCluster, PodOutcome,
    PodRef, Registration, StatusReport, WriteOutcome,
};
use testkit::fixtures;

use crate::{changing_nothing, checks};

async fn length(fixture: &Fixture, key: &str) -> usize {
    fixture.redis.cli(&["LLEN", key]).await
}

#[tokio::test]
async fn registering_returns_starting_pods_to_the_queue_in_order() {
    let fixture = Fixture::new().await;
    let old = fixture.node("w1").await;
    fixture.service("web", 4).await;
    fixture.assign_all(&old).await;
    let first = old.pop_more(2).await.unwrap();
    let facts = facts(fixture.store.node(&node("w1")).await.unwrap().unwrap().facts.capacity);
    let Registration::Registered { session, requeued, .. } =
        fixture.store.register(&node("w1"), &facts, fixtures::claimant(), None).await.unwrap()
    else {
        panic!("it lives");
    };
    assert_eq!((requeued, length(&fixture, "rq:w1").await, length(&fixture, "pq:w1").await), (2, 0, 4));
    assert_eq!(session.pop_more(2).await.unwrap(), first, "the same ones first");
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_node_has_what_its_worker_registered() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    let seen = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    assert_eq!(seen.facts, facts(seen.facts.capacity));
    assert_eq!(fixture.store.node_names().await.unwrap(), [node("w1")]);
    let psi = Psi { cpu_some: 1.5, memory_full: 3.0, ..Psi::default() };
    session.heartbeat(Some(&psi), Some("no answer for 5 s"), 0, &[]).await.unwrap().unwrap();
    let seen = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    assert_eq!((seen.psi, seen.engine_problem.as_deref()), (Some(psi), Some("no answer for 5 s")));
    session.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();
    let seen = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    assert_eq!((seen.psi, seen.engine_problem), (None, None));
    let reasons: Vec<_> =
        fixture.store.last_events(10).await.unwrap().into_iter().map(|event| event.reason).collect();
    assert_eq!(reasons, ["NodeReady", "EngineUnhealthy", "EngineHealthy"]);
}

#[tokio::test]
async fn a_worker_cannot_register_while_its_pods_are_being_moved() {
    let fixture = Fixture::new().await;
    let Placed { session, .. } = fixture.pod_in(Phase::Running, "web", "w1").await;
    fixture.kill_node("w1").await;
    let facts = facts(fixture.store.node(&node("w1")).await.unwrap().unwrap().facts.capacity);
    let register =
        async { fixture.store.register(&node("w1"), &facts, fixtures::claimant(), None).await.unwrap() };
    assert!(matches!(changing_nothing(&fixture, register).await, Registration::Draining));
    fixture.drain("w1").await;
    assert!(matches!(
        fixture.store.register(&node("w1"), &facts, fixtures::claimant(), None).await.unwrap(),
        Registration::Registered { .. }
    ));
    let old = changing_nothing(&fixture, session.heartbeat(None, None, 0, &[])).await.unwrap();
    assert_eq!(old, Err(Fenced::Replaced));
}

async fn register_elsewhere(fixture: &Fixture) -> Registration {
    let facts = facts(REQUEST);
    let holder = HolderId::random();
    let claimant = Claimant { holder: &holder, ..fixtures::claimant() };
    fixture.store.register(&node("w1"), &facts, claimant, None).await.unwrap()
}

#[tokio::test]
async fn a_second_worker_cannot_register_while_the_heartbeats_of_the_first_arrive() {
    let fixture = Fixture::new().await;
    let first = fixture.node("w1").await;
    first.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();
    let registered_at = fixture.store.node(&node("w1")).await.unwrap().unwrap().registered_at;
    let heartbeat: String = fixture.redis.cli(&["GET", "hb:w1"]).await;
    let Registration::Taken(taken) = changing_nothing(&fixture, register_elsewhere(&fixture)).await else {
        panic!("the first one is alive");
    };
    assert_eq!((taken.since, &taken.last_heartbeat), (registered_at, &heartbeat));
    assert_eq!(taken.silence + taken.left, fixtures::claimant().takes_over_after);
    first.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();

    fixture.silence("w1").await;
    assert!(matches!(register_elsewhere(&fixture).await, Registration::Registered { .. }));
    let again = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    assert_eq!(again.created_at, registered_at, "a node is as old as its name");
    assert!(again.registered_at > registered_at);
    assert_eq!(first.heartbeat(None, None, 0, &[]).await.unwrap(), Err(Fenced::Replaced));
}

#[tokio::test]
async fn a_name_is_not_lost_before_the_own_time_of_the_worker_that_has_it() {
    let fixture = Fixture::new().await;
    let timing = Timing {
        heartbeat: Duration::from_secs(30),
        fence_after: Duration::from_secs(60),
        dead_after: Duration::from_secs(90),
    };
    let claimant = Claimant { timing, ..fixtures::claimant() };
    fixture.store.register(&node("w1"), &facts(REQUEST), claimant, None).await.unwrap();
    for (silence, is_taken) in [(80, true), (90, false)] {
        let beat = fixture.store.redis_now().await.unwrap() - silence * 1000;
        let () = fixture.redis.cli(&["HSET", "node:w1", "beat", &beat.to_string()]).await;
        let answer = register_elsewhere(&fixture).await;
        assert_eq!(matches!(answer, Registration::Taken(_)), is_taken, "{silence} s");
    }
}

#[tokio::test]
async fn a_restarted_worker_and_one_after_an_earlier_version_register_at_once() {
    let fixture = Fixture::new().await;
    let first = fixture.node("w1").await;
    fixture.node("w1").await;
    assert_eq!(first.heartbeat(None, None, 0, &[]).await.unwrap(), Err(Fenced::Replaced));
    for of_earlier_version in [uuid::Uuid::new_v4().to_string(), String::new(), "x.y".to_owned()] {
        let () = fixture.redis.cli(&["HSET", "node:w1", "incarnation", &of_earlier_version]).await;
        assert!(matches!(register_elsewhere(&fixture).await, Registration::Registered { .. }));
    }
    let () = fixture.redis.cli(&["HDEL", "node:w1", "incarnation"]).await;
    assert!(matches!(register_elsewhere(&fixture).await, Registration::Registered { .. }));
}

#[tokio::test]
async fn a_name_is_kept_and_lost_whatever_the_clocks_of_masters_say() {
    let fixture = Fixture::new().await;
    let first = fixture.node("w1").await;
    first.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();
    let takes_over_after = fixtures::claimant().takes_over_after;
    let mostly_left = |registration| match registration {
        Registration::Taken(taken) => taken.left > takes_over_after / 2 && taken.left <= takes_over_after,
        _ => false,
    };
    fixture.silence("w1").await;
    let () = fixture.redis.cli(&["HSET", "meta", "run_id", "another"]).await;
    assert!(mostly_left(register_elsewhere(&fixture).await));
    for wrong in ["99999999999999", "soon"] {
        let () = fixture.redis.cli(&["HSET", "node:w1", "beat", wrong]).await;
        assert!(mostly_left(register_elsewhere(&fixture).await), "{wrong}");
        let now = fixture.store.redis_now().await.unwrap();
        let beat: u64 = fixture.redis.cli(&["HGET", "node:w1", "beat"]).await;
        assert!(beat <= now && now - beat < 10_000, "{wrong}: it counts from now on");
    }
}

#[tokio::test]
async fn a_session_that_redis_has_lost_must_register_again() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    let () = fixture.redis.cli(&["DEL", "node:w1"]).await;
    let answer = changing_nothing(&fixture, session.heartbeat(None, None, 0, &[])).await.unwrap();
    assert_eq!(answer, Err(Fenced::Replaced), "not dead: nothing of it was given away");
}

#[tokio::test]
async fn a_heartbeat_returns_pods_to_stop_and_foreign_pods() {
    let fixture = Fixture::new().await;
    let Placed { session, record, .. } = fixture.pod_in(Phase::Stopping, "web", "w1").await;
    let held = record.assignment.clone().unwrap();
    let strange = (PodId::random(), AssignmentId::random());
    let older = (record.id.clone(), AssignmentId::random());
    let asked = [(record.id.clone(), held), strange.clone(), older.clone()];
    let reply = session.heartbeat(None, None, 0, &asked).await.unwrap().unwrap();
    assert_eq!(reply.stop, [record.id]);
    assert_eq!(reply.foreign, [strange.0, older.0]);
    assert_eq!(reply.master_changed_at, 0);
}

#[tokio::test]
async fn a_pushed_pod_is_desired_from_its_claim_on() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    let payload = pushed("test", "djkf…");
    fixture.push("rq:w1", &payload.raw).await;
    let claim = fixture.claim(&session, std::slice::from_ref(&payload)).await.remove(0);
    let Claim::Start { assignment, attempt: 1 } = claim else { panic!("{claim:?}") };
    fixture.push("rq:w1", &payload.raw).await;
    let second = fixture.claim(&session, std::slice::from_ref(&payload)).await.remove(0);
    assert_eq!(second, Claim::Start { assignment: assignment.clone(), attempt: 2 });
    assert_eq!(fixture.store.pushed_pods().await.unwrap(), std::slice::from_ref(&payload.id));
    assert_eq!(fixture.ack(&session, &payload, &assignment).await, Ack::Running);
    assert_eq!(fixture.claim(&session, std::slice::from_ref(&payload)).await, [Claim::Running]);
    assert_eq!(length(&fixture, "rq:w1").await, 0, "the copy is dropped");
    assert_eq!(session.container_set().await.unwrap(), [payload.raw]);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

/// One step asks for both copies.
#[tokio::test]
async fn two_copies_in_one_claim_are_one_pod() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    let payload = pushed("test", "mine");
    let spaced =
        Payload::parse(format!(" {}", String::from_utf8_lossy(&payload.raw)).into_bytes().into()).unwrap();
    for copy in [&payload, &payload, &spaced] {
        fixture.push("rq:w1", &copy.raw).await;
    }
    let claims = fixture.claim(&session, &[payload.clone(), payload, spaced]).await;
    let assignments: BTreeSet<_> = claims
        .iter()
        .filter_map(|claim| match claim {
            Claim::Start { assignment, .. } => Some(assignment.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(assignments.len(), 1, "{claims:?}");
    assert_eq!(fixture.keyspace().await.field("node:w1", "used_pods"), "1");
}

#[tokio::test]
async fn a_claim_answers_according_to_the_phase() {
    let cases = [
        (Phase::Pending, Claim::Stale),
        (Phase::Running, Claim::Running),
        (Phase::Stopping, Claim::Stopping),
        (Phase::Stopped, Claim::Stale),
        (Phase::Succeeded, Claim::Stale),
        (Phase::Failed, Claim::Stale),
    ];
    for (phase, expected) in cases {
        let fixture = Fixture::new().await;
        let Placed { session, payload, .. } = fixture.pod_in(phase, "web", "w1").await;
        fixture.push("rq:w1", &payload.raw).await;
        if phase == Phase::Stopping {
            // As after a stop before the acknowledgement.
            let () = fixture.redis.cli(&["DEL", "cs:w1"]).await;
        }
        let claims = fixture.claim(&session, std::slice::from_ref(&payload)).await;
        assert_eq!(claims, std::slice::from_ref(&expected), "{phase}");
        assert_eq!(length(&fixture, "rq:w1").await, 0, "{phase}: dropped");
        if expected == Claim::Stale {
            let event = fixture.store.last_events(1).await.unwrap().remove(0);
            let on = if phase == Phase::Pending { "" } else { " on w1" };
            assert!(event.message.ends_with(&format!("dropped: the pod is {phase}{on}")), "{event:?}");
        }
        if phase == Phase::Stopping {
            assert_eq!(session.container_set().await.unwrap(), std::slice::from_ref(&payload.raw));
            assert_eq!(fixture.record(&payload.id).await.phase, Phase::Stopping);
        }
        assert_eq!(fixture.violations().await, Vec::<String>::new(), "{phase}");
        let gone = fixture.claim(&session, std::slice::from_ref(&payload));
        assert_eq!(changing_nothing(&fixture, gone).await, [Claim::Gone], "{phase}");
    }
}

#[tokio::test]
async fn a_claim_drops_another_nodes_payload_and_reports_an_unknown_service() {
    let fixture = Fixture::new().await;
    let Placed { record, payload, .. } = fixture.pod_in(Phase::Running, "web", "w1").await;
    let other = fixture.node("w2").await;
    fixture.push("rq:w2", &payload.raw).await;
    assert_eq!(fixture.claim(&other, std::slice::from_ref(&payload)).await, [Claim::Stale]);
    let unknown = Payload::for_service("web".parse().unwrap(), PodId::random(), "i", 0, record.spec.unwrap());
    fixture.push("rq:w2", &unknown.raw).await;
    let claim_unknown = fixture.claim(&other, std::slice::from_ref(&unknown));
    assert_eq!(
        changing_nothing(&fixture, claim_unknown).await,
        [Claim::UnknownService],
        "and it stays to be rejected"
    );
}

#[tokio::test]
async fn attempts_are_limited() {
    let fixture = Fixture::new().await;
    let Placed { session, record, payload } = fixture.pod_in(Phase::Assigned, "web", "w1").await;
    session.pop_more(1).await.unwrap();
    for attempt in 1..=ATTEMPTS {
        let claim = fixture.claim(&session, std::slice::from_ref(&payload)).await.remove(0);
        assert_eq!(claim, Claim::Start { assignment: record.assignment.clone().unwrap(), attempt });
    }
    let claim = fixture.claim(&session, std::slice::from_ref(&payload)).await.remove(0);
    assert_eq!(claim, Claim::Exhausted { attempt: ATTEMPTS + 1 });
    let rejected = session.reject(&payload.raw, Some(&payload.id), "tried 5 times").await.unwrap();
    assert_eq!(rejected, Ok(WriteOutcome::Done));
    assert_eq!(fixture.record(&record.id).await.phase, Phase::Failed);
    assert_eq!(fixture.violations().await, Vec::<String>::new(), "its resources are released");
}

#[tokio::test]
async fn an_ack_resets_the_attempts() {
    let fixture = Fixture::new().await;
    let Placed { record, .. } = fixture.pod_in(Phase::Running, "web", "w1").await;
    assert_eq!((record.attempts, record.address.as_str()), (0, "10.0.0.1"));
}

#[tokio::test]
async fn published_ports_are_those_of_the_current_container() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    let Placed { session, record, payload } = &placed;
    let ports = |record: &PodRecord| -> Vec<u16> {
        record.published_ports.iter().map(|port| port.host_port).collect()
    };
    assert_eq!(ports(record), [32769], "the acknowledgement has them");

    let mut network = network();
    network.ports[0].host_port = 32770;
    let moved = StatusReport { network: Some(&network), ..StatusReport::default() };
    assert_eq!(session.report(placed.reference(), &moved).await.unwrap(), Ok(WriteOutcome::Done));
    assert_eq!(ports(&fixture.record(&record.id).await), [32770], "a report changes them");
    let unchanged = StatusReport::default();
    assert_eq!(session.report(placed.reference(), &unchanged).await.unwrap(), Ok(WriteOutcome::Done));
    assert_eq!(ports(&fixture.record(&record.id).await), [32770], "a report without them keeps them");

    session.report_lost(placed.reference(), &payload.raw).await.unwrap().unwrap();
    assert!(ports(&fixture.record(&record.id).await).is_empty(), "another assignment has none yet");
}

/// In milliseconds.
async fn set_fence(fixture: &Fixture, node: &str, fence: u64) {
    let key = format!("node:{node}");
    let incarnation: String = fixture.redis.cli(&["HGET", &key, "incarnation"]).await;
    let times = format!("100 {fence} {} {incarnation}", fence + 1000);
    let () = fixture.redis.cli(&["HSET", &key, "times", &times]).await;
}

/// Returns the faults.
pub(crate) async fn another_node_has_a_longer_fence(fixture: &Fixture) -> Vec<String> {
    let Placed { session, payload, .. } = fixture.pod_in(Phase::Assigned, "web", "w1").await;
    let other = fixture.node("w2").await;
    session.pop_more(1).await.unwrap();
    set_fence(fixture, "w2", 60_000).await;
    other.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();
    let () = fixture.redis.cli(&["HSET", "meta", "run_id", "another"]).await;
    let items = [fixture.claim_item(&payload).await];
    match session.claim(&items, ATTEMPTS, Duration::from_secs(1)).await.unwrap().unwrap() {
        ClaimReply::Paused(left) if left > Duration::from_secs(30) => Vec::new(),
        reply => vec![format!("the pause is shorter than that fence: {reply:?}")],
    }
}

/// A pod may run on a node with a longer fence, although the new master does not know it.
#[tokio::test]
async fn after_a_change_of_master_claims_pause_for_the_longest_fence_of_all_nodes() {
    let fixture = Fixture::new().await;
    let Placed { session, payload, .. } = fixture.pod_in(Phase::Assigned, "web", "w1").await;
    let other = fixture.node("w2").await;
    session.pop_more(1).await.unwrap();
    let items = [fixture.claim_item(&payload).await];
    let pause_left = async || {
        let () = fixture.redis.cli(&["HSET", "meta", "run_id", "another"]).await;
        match session.claim(&items, ATTEMPTS, Duration::from_secs(1)).await.unwrap().unwrap() {
            ClaimReply::Paused(left) => left,
            claims => panic!("{claims:?}"),
        }
    };
    set_fence(&fixture, "w2", 60_000).await;
    other.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();
    session.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();
    let left = pause_left().await;
    assert!(left > Duration::from_secs(30) && left <= Duration::from_secs(60), "{left:?}");
    // No node has had it for an hour: the setting was a mistake.
    session.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();
    let () = fixture.redis.cli(&["HSET", "meta", "changed_at", "1", "longest_fence", "60000 1"]).await;
    session.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();
    let left = pause_left().await;
    assert!(left <= fixtures::claimant().timing.fence_after, "{left:?}");
}

#[tokio::test]
async fn after_a_change_of_master_claims_pause() {
    let fixture = Fixture::new().await;
    let Placed { session, payload, .. } = fixture.pod_in(Phase::Assigned, "web", "w1").await;
    set_fence(&fixture, "w1", 400).await;
    let _: u64 = fixture.redis.cli(&["HDEL", "meta", "longest_fence"]).await;
    session.pop_more(1).await.unwrap();
    session.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();
    let () = fixture.redis.cli(&["HSET", "meta", "run_id", "another"]).await;
    let items = [fixture.claim_item(&payload).await];
    let pause = Duration::from_millis(400);
    let Ok(ClaimReply::Paused(left)) = session.claim(&items, ATTEMPTS, pause).await.unwrap() else {
        panic!("it should pause");
    };
    assert!(left <= pause && left > Duration::ZERO, "{left:?}");
    let changed_at = session.heartbeat(None, None, 0, &[]).await.unwrap().unwrap().master_changed_at;
    assert!(changed_at > 0);
    let events = fixture.store.last_events(10).await.unwrap();
    assert_eq!(events.iter().filter(|event| event.reason == "MasterChanged").count(), 1, "one event");
    kubeleet_tests::eventually(Duration::from_secs(5), "the pause ends", || async {
        match session.claim(&items, ATTEMPTS, pause).await.unwrap().unwrap() {
            ClaimReply::Claims(claims) => Ok(claims),
            ClaimReply::Paused(left) => Err(format!("{left:?} left")),
        }
    })
    .await;
}

#[tokio::test]
async fn the_blocking_queue_moves_the_oldest_payload_to_rq() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    let mut queue = session.work_queue(Duration::from_millis(100)).await.unwrap();
    assert_eq!(queue.next().await.unwrap(), None);
    let (first, second) = (pushed("a", "1"), pushed("b", "2"));
    fixture.push("pq:w1", &first.raw).await;
    fixture.push("pq:w1", &second.raw).await;
    assert_eq!(queue.next().await.unwrap(), Some(first.raw.clone()));
    assert_eq!(session.in_flight().await.unwrap(), [first.raw]);
    assert_eq!(session.pop_more(5).await.unwrap(), [second.raw]);
}

#[tokio::test]
async fn a_pod_that_is_to_stop_while_it_starts_is_acknowledged_and_stopped() {
    let fixture = Fixture::new().await;
    let Placed { session, record, payload } = fixture.pod_in(Phase::Assigned, "web", "w1").await;
    let held = record.assignment.clone().unwrap();
    session.pop_more(1).await.unwrap();
    fixture.stop(&record).await;
    assert_eq!(fixture.ack(&session, &payload, &held).await, Ack::Stop);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
    let pod = PodRef { id: &record.id, assignment: &held };
    let report = FinishReport { exit_code: Some(143), ..FinishReport::new(PodOutcome::Stopped) };
    let done = session.finish(pod, &payload.raw, record.service.as_ref(), &report).await.unwrap();
    assert_eq!(done, Ok(WriteOutcome::Done));
    let keyspace = fixture.keyspace().await;
    assert_eq!(keyspace.field("node:w1", "used_pods"), "0");
    for key in ["stop:w1", "cs:w1", "rq:w1", "slots:web"] {
        assert!(keyspace.get(key).is_none(), "{key}");
    }
    assert_eq!(fixture.record(&record.id).await.exit_code, Some(143));
    let seconds: i64 = fixture.redis.cli(&["TTL", &format!("pod:{}", record.id)]).await;
    assert!((3000..=3600).contains(&seconds), "a tombstone for an hour, not {seconds} s");
}

#[tokio::test]
async fn a_pod_ends_once_and_an_unrequested_stop_is_refused() {
    for (outcome, phase) in [(PodOutcome::Succeeded, Phase::Succeeded), (PodOutcome::Failed, Phase::Failed)] {
        let fixture = Fixture::new().await;
        let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
        let Placed { session, record, payload } = &placed;
        let report = |outcome| FinishReport {
            reason: "Exited",
            message: "with 1",
            exit_code: Some(1),
            ..FinishReport::new(outcome)
        };
        let (unrequested, actual) = (report(PodOutcome::Stopped), report(outcome));
        let finish =
            |report| session.finish(placed.reference(), &payload.raw, record.service.as_ref(), report);
        assert_eq!(changing_nothing(&fixture, finish(&unrequested)).await.unwrap(), Ok(WriteOutcome::Wanted));
        // It would be told with each heartbeat, and stop each successor.
        let () = fixture.redis.cli(&["SADD", "stop:w1", record.id.as_str()]).await;
        assert_eq!(finish(&unrequested).await.unwrap(), Ok(WriteOutcome::Wanted));
        assert_eq!(fixture.redis.cli::<u64>(&["EXISTS", "stop:w1"]).await, 0);
        assert_eq!(finish(&actual).await.unwrap(), Ok(WriteOutcome::Done));
        let ended = fixture.record(&record.id).await;
        assert_eq!((ended.phase, ended.reason.as_str(), ended.exit_code), (phase, "Exited", Some(1)));
        let other =
            report(if outcome == PodOutcome::Failed { PodOutcome::Succeeded } else { PodOutcome::Failed });
        let again = changing_nothing(&fixture, finish(&other)).await.unwrap();
        assert_eq!(again, Ok(WriteOutcome::Done), "it ended already, and keeps its first outcome");
        assert_eq!(fixture.violations().await, Vec::<String>::new());
        assert_eq!(fixture.pods(&"web".parse().unwrap()).await.len(), 1, "it keeps its slot");
    }
}

#[tokio::test]
async fn a_lost_container_is_a_new_assignment_on_the_same_node() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    let Placed { session, record, payload } = &placed;
    assert_eq!(session.report_lost(placed.reference(), &payload.raw).await.unwrap(), Ok(WriteOutcome::Done));
    let again = fixture.record(&record.id).await;
    assert_eq!((again.phase, again.node.as_ref()), (Phase::Assigned, record.node.as_ref()));
    assert_ne!(again.assignment, record.assignment);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
    assert_eq!(fixture.run_all(session).await, [Ack::Running]);
    let late =
        changing_nothing(&fixture, fixture.ack(session, payload, record.assignment.as_ref().unwrap())).await;
    assert_eq!(late, Ack::Stale);
}

#[tokio::test]
async fn a_report_does_not_change_the_phase() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    let ill = StatusReport {
        reason: "CrashLoopBackOff",
        message: "exited with 1",
        restarts: Some(2),
        exit_code: Some(1),
        network: None,
        ..StatusReport::default()
    };
    assert_eq!(placed.session.report(placed.reference(), &ill).await.unwrap(), Ok(WriteOutcome::Done));
    let record = fixture.record(&placed.record.id).await;
    assert_eq!(
        (record.phase, record.reason.as_str(), record.restarts),
        (Phase::Running, "CrashLoopBackOff", 2)
    );
    let well = StatusReport { restarts: Some(2), ..StatusReport::default() };
    assert_eq!(placed.session.report(placed.reference(), &well).await.unwrap(), Ok(WriteOutcome::Done));
    assert_eq!(fixture.record(&placed.record.id).await.reason, "");
    let events = fixture.store.last_events(2).await.unwrap();
    let reasons: Vec<_> = events.iter().map(|event| event.reason.as_str()).collect();
    assert_eq!(reasons, ["CrashLoopBackOff", "PodRecovered"]);
}

#[tokio::test]
async fn a_dead_worker_changes_nothing() {
    assert_eq!(checks::a_dead_worker_writes(&Fixture::new().await).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_old_assignment_changes_nothing() {
    assert_eq!(checks::an_old_assignment_is_acknowledged(&Fixture::new().await).await, Vec::<String>::new());
}

#[tokio::test]
async fn started_pods_are_in_one_queue_each() {
    assert_eq!(checks::pods_start(&Fixture::new().await).await, Vec::<String>::new());
}

/// After a failover the payload may be in pq again while its worker runs it already.
#[tokio::test]
async fn a_stopped_pod_is_removed_from_both_queues_it_is_in() {
    let fixture = Fixture::new().await;
    let Placed { session, record, payload } = fixture.pod_in(Phase::Assigned, "web", "w1").await;
    let held = record.assignment.clone().unwrap();
    assert_eq!(fixture.ack(&session, &payload, &held).await, Ack::Running);
    fixture.stop(&fixture.record(&record.id).await).await;
    session.pop_more(1).await.unwrap();
    fixture.claim(&session, std::slice::from_ref(&payload)).await;
    let pod = PodRef { id: &record.id, assignment: &held };
    let report = FinishReport::new(PodOutcome::Stopped);
    session.finish(pod, &payload.raw, record.service.as_ref(), &report).await.unwrap().unwrap();
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

/// The request may come after its node was declared dead.
#[tokio::test]
async fn a_pod_that_has_ended_is_not_to_be_stopped() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Stopping, "web", "w1").await;
    fixture.kill_node("w1").await;
    fixture.stop(&placed.record).await;
    fixture.drain("w1").await;
    let session = fixture.node("w1").await;
    let reply = session.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();
    for pod in &reply.stop {
        let record = fixture.record(pod).await;
        let reference = PodRef { id: pod, assignment: record.assignment.as_ref().unwrap() };
        let report = FinishReport::new(PodOutcome::Stopped);
        session
            .finish(reference, &placed.payload.raw, record.service.as_ref(), &report)
            .await
            .unwrap()
            .unwrap();
    }
    assert_eq!(session.heartbeat(None, None, 0, &[]).await.unwrap().unwrap().stop, []);
}

#[tokio::test]
async fn a_worker_of_another_cluster_is_held_and_nothing_else_changes() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    let own = fixture.store.cluster_id().await.unwrap().unwrap();
    let facts = facts(fixture.store.node(&node("w1")).await.unwrap().unwrap().facts.capacity);
    let other = ClusterId::random();
    let before = fixture.keyspace().await;
    let known = KnownCluster { id: &other, containers: 7, own_labels: None };
    let answer =
        fixture.store.register(&node("w1"), &facts, fixtures::claimant(), Some(known)).await.unwrap();
    assert!(matches!(answer, Registration::Held { found: Some(found), .. } if found == own));
    let changes = before.changes(&fixture.keyspace().await);
    assert!(!changes.is_empty() && changes.iter().all(|change| change.starts_with("held")), "{changes:?}");
    let held = fixture.store.held_nodes().await.unwrap().remove(0);
    assert_eq!((held.cluster, held.containers, held.reason), (other, 7, HoldReason::Cluster));

    session.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();
    assert_eq!(fixture.store.held_nodes().await.unwrap(), [], "its session goes on");
}

#[tokio::test]
async fn an_emptied_redis_holds_its_workers_and_gets_no_new_id_from_them() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    let own = fixture.store.cluster_id().await.unwrap().unwrap();
    let facts = facts(fixture.store.node(&node("w1")).await.unwrap().unwrap().facts.capacity);
    let _ok: String = fixture.redis.cli(&["FLUSHALL"]).await;
    let answer = changing_nothing(&fixture, session.heartbeat(None, None, 0, &[])).await.unwrap();
    assert_eq!(answer, Err(Fenced::UnknownCluster));
    let known = KnownCluster { id: &own, containers: 0, own_labels: None };
    let answer =
        fixture.store.register(&node("w1"), &facts, fixtures::claimant(), Some(known)).await.unwrap();
    assert!(matches!(answer, Registration::Held { found: None, .. }));
    assert_eq!(fixture.store.cluster_id().await.unwrap(), None);
    assert_eq!(fixture.store.node_names().await.unwrap(), []);
    let answer = fixture.store.register(&node("w1"), &facts, fixtures::claimant(), None).await.unwrap();
    assert!(matches!(answer, Registration::Registered { .. }), "a worker that knows no cluster makes one");
    assert_ne!(fixture.store.cluster_id().await.unwrap(), Some(own));
}

#[tokio::test]
async fn a_heartbeat_tells_pods_without_a_record_from_pods_that_have_moved() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    fixture.service("web", 1).await;
    let pod = fixture.store.slots(&ServiceName::new("web").unwrap()).await.unwrap().remove(0).1;
    let lost = PodId::random();
    let asked = [(pod.clone(), AssignmentId::random()), (lost.clone(), AssignmentId::random())];
    let reply = session.heartbeat(None, None, 3, &asked).await.unwrap().unwrap();
    assert_eq!((reply.foreign, reply.unknown), (vec![pod, lost.clone()], vec![lost]));
    let held = fixture.store.held_nodes().await.unwrap().remove(0);
    assert_eq!((held.containers, held.reason), (3, HoldReason::Records));
    session.heartbeat(None, None, 4, &[]).await.unwrap().unwrap();
    for _ in 0..2 {
        session.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();
    }
    let events = fixture.store.last_events(100).await.unwrap();
    let of_hold = events
        .iter()
        .map(|event| event.reason.as_str())
        .filter(|reason| reason.contains("Hel") || reason.contains("Hold"));
    assert_eq!(
        of_hold.collect::<Vec<_>>(),
        ["ContainersHeld", "HoldEnded"],
        "one each, however many heartbeats"
    );
}

/// Without a readable reply the worker stops its `stop` pods, while Redis counts the node as alive.
#[tokio::test]
async fn a_stop_request_that_names_no_pod_fails_no_heartbeat() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    let wanted = PodId::random();
    for member in [&b"\xff\x00nonsense"[..], b"", b"no pod", wanted.as_str().as_bytes()] {
        let _: u64 = fixture.redis.cli(&[&b"SADD"[..], b"stop:w1", member]).await;
    }
    let reply = session.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();
    assert_eq!(reply.stop, [wanted]);
}

#[tokio::test]
async fn a_broken_record_affects_only_its_own_pod_of_a_batch() {
    let broken: [&[&str]; 6] = [
        &["SET", "pod:cursed", "1"],
        &["HSET", "pod:cursed", "phase", "running", "node", "w1", "assignment", ""],
        &["HSET", "pod:cursed", "phase", "running", "node", "", "assignment", "a"],
        &["HSET", "pod:cursed", "phase", "Running", "node", "w1", "assignment", "a"],
        &["HSET", "pod:cursed", "phase", "running", "assignment", "a"],
        &["HSET", "pod:cursed", "node", "w1", "attempts", "x"],
    ];
    for command in broken {
        let fixture = Fixture::new().await;
        let Placed { session, record, payload } = fixture.pod_in(Phase::Assigned, "web", "w1").await;
        session.pop_more(1).await.unwrap();
        let cursed = pushed("cursed", "cursed");
        fixture.push("rq:w1", &cursed.raw).await;
        let () = fixture.redis.cli(command).await;
        let assignment = record.assignment.clone().unwrap();

        let claims = fixture.claim(&session, &[cursed.clone(), payload.clone()]).await;
        let start = Claim::Start { assignment: assignment.clone(), attempt: 1 };
        assert_eq!(claims, [Claim::BrokenRecord, start], "{command:?}");
        let item = |payload: &Payload, assignment: &AssignmentId| AckItem {
            payload: payload.clone(),
            assignment: assignment.clone(),
            network: ContainerNetwork::default(),
            starting: String::new(),
        };
        let other: AssignmentId = "a".parse().unwrap();
        let items = [item(&cursed, &other), item(&payload, &assignment)];
        let acks = session.ack(&items).await.unwrap().unwrap();
        assert_eq!(acks, [Ack::BrokenRecord, Ack::Running], "{command:?}");
        let asked = [(cursed.id.clone(), other), (record.id.clone(), assignment)];
        let reply = session.heartbeat(None, None, 0, &asked).await.unwrap().unwrap();
        assert_eq!((reply.foreign, reply.broken), (vec![], vec![cursed.id.clone()]), "{command:?}");
        let rejected = session.reject(&cursed.raw, Some(&cursed.id), "broken").await.unwrap();
        assert_eq!((rejected, length(&fixture, "rq:w1").await), (Ok(WriteOutcome::Done), 0), "{command:?}");
    }
}
