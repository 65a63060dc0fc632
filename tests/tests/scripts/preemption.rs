//! Preemption: pods of a lower priority are stopped for a waiting one, and their room is kept for it.

use std::time::Duration;

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::{DEAD_AFTER, MACHINE, REQUEST, node};
use model::ids::{AssignmentId, Incarnation, ServiceName};
use model::node::Resources;
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use store::{AssignOutcome, PlannedPreemption, PreemptedPod, Session};

use crate::changing_nothing;

const KEPT: Duration = Duration::from_secs(130);

/// Two pods of `low` fill the node w1; those of `high` and `other` are in flight.
struct Full {
    session: Session,
    low: Vec<PodRecord>,
    high: Payload,
    other: Payload,
}

async fn full(fixture: &Fixture) -> Full {
    let session = fixture.node_with("w1", Resources { pods: 2, ..MACHINE }).await;
    let low = fixture.service("low", 2).await;
    fixture.assign_all(&session).await;
    fixture.run_all(&session).await;
    fixture.service("high", 1).await;
    fixture.service("other", 1).await;
    let mut waiting = fixture.take_all().await;
    let other = waiting.pop().unwrap();
    let high = waiting.pop().unwrap();
    assert_eq!((high.name.as_str(), other.name.as_str()), ("high", "other"));
    Full { session, low: fixture.pods(&low.name).await, high, other }
}

async fn preemption(fixture: &Fixture, victims: &[PodRecord]) -> PlannedPreemption {
    let w1 = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    let service = fixture.store.service(&ServiceName::new("low").unwrap()).await.unwrap().unwrap();
    let victim = |pod: &PodRecord| PreemptedPod {
        pod: pod.id.clone(),
        assignment: pod.assignment.clone().unwrap(),
        service: service.name.clone(),
        step: service.rollout.step.clone(),
        revision: service.revision,
    };
    PlannedPreemption {
        node: w1.name,
        incarnation: w1.incarnation.unwrap(),
        revision: 1,
        victims: victims.iter().map(victim).collect(),
        kept: KEPT,
    }
}

async fn preempt(fixture: &Fixture, nominee: &Payload, preemption: &PlannedPreemption) -> bool {
    let (id, name) = (&nominee.id, ServiceName::new(nominee.name.as_str()).unwrap());
    fixture.store.preempt((id, &name), REQUEST, DEAD_AFTER, preemption, "makes room").await.unwrap()
}

#[tokio::test]
async fn pods_are_stopped_only_if_all_is_as_it_was_seen() {
    let fixture = Fixture::new().await;
    let Full { low, high, .. } = full(&fixture).await;
    let good = preemption(&fixture, &low[..1]).await;
    let victim = |change: &dyn Fn(&mut PreemptedPod)| {
        let mut changed = good.clone();
        changed.victims.iter_mut().for_each(change);
        changed
    };
    let is_another = PlannedPreemption { incarnation: Incarnation::random(), ..good.clone() };
    for (wrong, case) in [
        (is_another, "the worker has registered again"),
        (PlannedPreemption { victims: Vec::new(), ..good.clone() }, "not enough"),
        (preemption(&fixture, &low).await, "one too many"),
        (victim(&|pod| pod.assignment = AssignmentId::random()), "assigned again"),
        (victim(&|pod| pod.step = "7".to_owned()), "its service has taken a step"),
        (victim(&|pod| pod.revision = 7), "its service has changed"),
        (PlannedPreemption { revision: 7, ..good.clone() }, "the service of the waiting pod has changed"),
        (victim(&|pod| pod.pod = high.id.clone()), "a pod that is not there"),
        (PlannedPreemption { node: node("w2"), ..good.clone() }, "an unknown node"),
    ] {
        assert!(!changing_nothing(&fixture, preempt(&fixture, &high, &wrong)).await, "{case}");
    }
    fixture.store.cordon(&node("w1"), true).await.unwrap();
    assert!(!changing_nothing(&fixture, preempt(&fixture, &high, &good)).await, "cordoned");
    fixture.store.cordon(&node("w1"), false).await.unwrap();

    let before = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    assert!(preempt(&fixture, &high, &good).await);
    let after = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    let kept = after.nomination.clone().unwrap();
    assert_eq!((kept.pod, kept.request, kept.until), (high.id.clone(), REQUEST, kept.since + 130_000));
    assert_eq!(after.used, before.used, "it counts in no sum");
    let stopped = fixture.record(&low[0].id).await;
    assert_eq!((stopped.phase, stopped.reason.as_str()), (Phase::Stopping, "Preempted"));
    let reasons: Vec<String> =
        fixture.store.last_events(2).await.unwrap().into_iter().map(|event| event.reason).collect();
    assert_eq!(reasons, ["PodPreempted", "PodNominated"]);
    let next = preemption(&fixture, &low[1..]).await;
    assert!(!changing_nothing(&fixture, preempt(&fixture, &high, &next)).await, "one for each node");
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

/// Returns whatever is wrong.
pub(crate) async fn the_room_is_of_one_pod(fixture: &Fixture) -> Vec<String> {
    let Full { session, low, high, other } = full(fixture).await;
    assert!(preempt(fixture, &high, &preemption(fixture, &low[..1]).await).await);
    let mut wrong = Vec::new();
    let mut expect = |outcomes: Vec<AssignOutcome>, expected: AssignOutcome, what: &str| {
        if outcomes != [expected] {
            wrong.push(format!("{what}: {outcomes:?}"));
        }
    };
    let early = fixture.assign(&session, vec![high.clone()]).await;
    expect(early, AssignOutcome::Refused, "the pod fits before its victim has stopped");
    fixture.finish_stopped(&session, &fixture.record(&low[0].id).await).await;
    let slipped_in = fixture.assign(&session, vec![other.clone()]).await;
    expect(slipped_in, AssignOutcome::Refused, "another pod gets the room");
    let its = fixture.assign(&session, vec![high]).await;
    expect(its, AssignOutcome::Assigned, "the pod does not get its room");
    let too_many = fixture.assign(&session, vec![other]).await;
    expect(too_many, AssignOutcome::Refused, "another pod is assigned to the full node");
    let after = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    wrong.extend(after.nomination.map(|kept| format!("room is still kept: {kept:?}")));
    wrong.extend(fixture.violations().await);
    wrong
}

#[tokio::test]
async fn only_the_pod_that_it_is_kept_for_gets_the_room() {
    assert_eq!(the_room_is_of_one_pod(&Fixture::new().await).await, Vec::<String>::new());
}

#[tokio::test]
async fn both_in_one_script_whatever_their_order() {
    let fixture = Fixture::new().await;
    let Full { session, low, high, other } = full(&fixture).await;
    assert!(preempt(&fixture, &high, &preemption(&fixture, &low[..1]).await).await);
    fixture.finish_stopped(&session, &fixture.record(&low[0].id).await).await;
    let outcomes = fixture.assign(&session, vec![other, high]).await;
    assert_eq!(outcomes, [AssignOutcome::Refused, AssignOutcome::Assigned]);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn room_is_given_up_or_ends_by_itself() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let Full { session, low, high, other } = full(&fixture).await;
    assert!(preempt(&fixture, &high, &preemption(&fixture, &low[..1]).await).await);
    fixture.finish_stopped(&session, &fixture.record(&low[0].id).await).await;
    let (w1, now) = (node("w1"), store.redis_now().await.unwrap());
    assert!(!changing_nothing(&fixture, store.drop_nomination(&w1, &other.id)).await.unwrap());
    let freed = store.freed().await.unwrap();
    for (since, until) in
        [(now - 2, now - 1), (now + 60_000, now + 90_000), (now - 3_600_000, now + 3_600_000)]
    {
        let text = format!("{} {since} {until} 100 67108864 0 0", high.id);
        let () = fixture.redis.cli(&["HSET", "node:w1", "nominated", &text]).await;
        let outcome = fixture.assign(&session, vec![other.clone()]).await;
        assert_eq!(outcome, [AssignOutcome::Assigned], "{text}");
        let () = fixture.redis.cli(&["HSET", &format!("pod:{}", other.id), "phase", "pending"]).await;
        let () = fixture.redis.cli(&["HINCRBY", "node:w1", "used_pods", "-1"]).await;
        let scheduler = format!("fq:{}", fixture.scheduler);
        fixture.push(&scheduler, &other.raw).await;
    }
    assert_eq!(store.freed().await.unwrap(), freed);
    assert!(store.drop_nomination(&w1, &high.id).await.unwrap());
    assert_eq!(store.node(&w1).await.unwrap().unwrap().nomination, None);
    assert_eq!(store.freed().await.unwrap(), freed + 1, "those that wait look again");
    assert!(!changing_nothing(&fixture, store.drop_nomination(&w1, &high.id)).await.unwrap());
}
