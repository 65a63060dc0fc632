//! Checks that say what is wrong instead of panicking, so that the ablations can show that they would notice.

use std::sync::Arc;
use std::time::Duration;

use common::ids::SchedulerId;
use common::lifecycle::Phase;
use common::node::Resources;
use common::payload::Payload;
use common::store::{
    Ack, AckItem, AssignOutcome, Assignment, Claim, FinishReport, Outcome, PodRef, StatusReport, Store,
};
use kubeleet_tests::Bed;
use kubeleet_tests::bed::{DEAD_AFTER, Placed, REQUEST, node, pushed};
use kubeleet_tests::invariants::overcommitted;

/// Invariant 9: two schedulers, each with a view of an empty node, assign all they have in small batches.
pub(crate) async fn two_schedulers_fill_a_node(bed: &Bed) -> Vec<String> {
    let room = Resources { cpu_millis: 1000, memory_bytes: 64 << 30, pods: 1000 };
    bed.node_with("w1", room).await;
    bed.service("web", 30).await;
    let first = bed.store.take(&bed.scheduler, 15).await.unwrap();
    let other = SchedulerId::random();
    let second = bed.store.take(&other, 15).await.unwrap();
    let work = [(bed.scheduler.clone(), first), (other, second)];
    let schedulers = work.map(|(me, taken)| {
        let store = bed.store.clone();
        let payloads: Vec<_> = taken.into_iter().map(|raw| Payload::parse(raw).unwrap()).collect();
        tokio::spawn(async move { fill(&store, &me, &payloads).await })
    });
    let mut assigned = 0;
    for scheduler in schedulers {
        assigned += scheduler.await.unwrap();
    }
    let keyspace = bed.keyspace().await;
    let mut wrong = overcommitted(&keyspace);
    wrong.extend(kubeleet_tests::invariants::violations(&keyspace));
    if assigned != 10 {
        wrong.push(format!("{assigned} pods of 100 millicores each were put on one core"));
    }
    wrong
}

/// Invariant 2: somebody looks for a pod's payload that is in the hands of a scheduler he has not heard of.
pub(crate) async fn a_newcomer_has_it(bed: &Bed) -> Vec<String> {
    let Placed { record, .. } = bed.pod_in(Phase::Pending, "web", "w1").await;
    assert_eq!(bed.store.take(&SchedulerId::random(), 1).await.unwrap().len(), 1);
    bed.store.requeue_missing(&record, std::slice::from_ref(&bed.scheduler)).await.unwrap();
    bed.violations().await
}

async fn fill(store: &Store, me: &SchedulerId, payloads: &[Payload]) -> usize {
    let incarnation = store.node(&node("w1")).await.unwrap().unwrap().incarnation;
    let mut assigned = 0;
    for chunk in payloads.chunks(2) {
        let one = |payload: &Payload| Assignment {
            payload: payload.clone(),
            node: node("w1"),
            incarnation: incarnation.clone(),
            request: REQUEST,
        };
        let batch: Vec<_> = chunk.iter().map(one).collect();
        let outcomes = store.assign(me, DEAD_AFTER, &batch).await.unwrap();
        assigned += outcomes.iter().filter(|outcome| **outcome == AssignOutcome::Assigned).count();
    }
    assigned
}

/// Invariant 3: a worker that was declared dead says everything a worker can say, and nothing may change by it.
pub(crate) async fn a_zombie_speaks(bed: &Bed) -> Vec<String> {
    let Placed { session, record, payload } = bed.pod_in(Phase::Assigned, "web", "w1").await;
    session.take_more(1).await.unwrap();
    let held = record.assignment.clone().unwrap();
    bed.kill_node("w1").await;
    let before = bed.keyspace().await;
    let pod = PodRef { id: &record.id, assignment: &held };
    let item = AckItem { payload: payload.clone(), assignment: held.clone(), address: String::new() };
    let report = FinishReport { outcome: Outcome::Failed, reason: "", message: "", exit_code: None };
    let claims = [bed.claim_item(&payload).await];
    let fenced = [
        session.claim(&claims, 5, Duration::ZERO).await.unwrap().is_err(),
        session.ack(&[item]).await.unwrap().is_err(),
        session.report(pod, &StatusReport::default()).await.unwrap().is_err(),
        session.finish(pod, &payload.raw, record.service.as_ref(), &report).await.unwrap().is_err(),
        session.lost(pod, &payload.raw).await.unwrap().is_err(),
        session.reject(&payload.raw, Some(&record.id), "").await.unwrap().is_err(),
        session.heartbeat(None, None, &[]).await.unwrap().is_err(),
    ];
    let mut wrong = before.changes(&bed.keyspace().await);
    if fenced.contains(&false) {
        wrong.push(format!("not told that it is fenced: {fenced:?}"));
    }
    wrong
}

/// Invariant 2: acknowledged pods are in cs and nowhere else, the copies somebody pushed while they started included.
pub(crate) async fn pods_start(bed: &Bed) -> Vec<String> {
    let session = bed.node("w1").await;
    bed.service("web", 3).await;
    bed.assign_all(&session).await;
    bed.run_all(&session).await;
    bed.violations().await
}

/// Invariant 1: however many make the pods of a service, each slot has one, and no pod is without a slot.
pub(crate) async fn many_make_the_same_pods(bed: &Bed) -> Vec<String> {
    let service = bed.service("web", 20).await;
    let all: Arc<Vec<u32>> = Arc::new((0..20).collect());
    let makers = (0..3).map(|_| {
        let (store, service, all) = (bed.store.clone(), service.clone(), all.clone());
        tokio::spawn(async move { store.create_pods(&service, &all).await.unwrap() })
    });
    for maker in makers.collect::<Vec<_>>() {
        maker.await.unwrap();
    }
    let mut wrong = bed.violations().await;
    let pods = bed.keyspace().await.below("pod:").count();
    if pods != 20 {
        wrong.push(format!("{pods} pods were made for 20 slots"));
    }
    wrong
}

/// Invariant 4: however many schedulers drain a dead node at a time, each payload is queued once, those that were pushed
/// to the node and that nobody knows yet included.
pub(crate) async fn many_drain_one_node(bed: &Bed) -> Vec<String> {
    let session = bed.node("w1").await;
    bed.service("web", 150).await;
    bed.assign_all(&session).await;
    session.take_more(100).await.unwrap();
    let rq = session.starting().await.unwrap();
    let first: Vec<_> = rq.into_iter().take(50).map(|raw| Payload::parse(raw).unwrap()).collect();
    for (payload, claim) in first.iter().zip(bed.claim(&session, &first).await) {
        if let Claim::Start { assignment, .. } = claim {
            assert_eq!(bed.ack(&session, payload, &assignment).await, Ack::Running);
        }
    }
    for number in 0..50 {
        let unknown = pushed("test", &format!("mine-{number}"));
        let () = bed.redis.cli(&[&b"LPUSH"[..], b"pq:w1", &unknown.raw]).await;
    }
    bed.kill_node("w1").await;
    let dead = bed.store.node(&node("w1")).await.unwrap().unwrap();
    let drainers = (0..4).map(|_| {
        let (store, dead) = (bed.store.clone(), dead.clone());
        tokio::spawn(async move {
            use common::store::DrainOutcome::Moved;
            while let Moved(_) = store.drain_step(&dead).await.unwrap() {}
        })
    });
    for drainer in drainers.collect::<Vec<_>>() {
        drainer.await.unwrap();
    }
    let mut wrong = bed.violations().await;
    let queued: usize = bed.redis.cli(&["LLEN", "sq"]).await;
    if queued != 200 {
        wrong.push(format!("{queued} payloads were queued for 200 pods"));
    }
    wrong
}

/// Invariant 3: an acknowledgement as an assignment that is not the pod's own any more.
pub(crate) async fn an_old_assignment_speaks(bed: &Bed) -> Vec<String> {
    let Placed { session, record, payload } = bed.pod_in(Phase::Assigned, "web", "w1").await;
    bed.kill_node("w1").await;
    bed.drain("w1").await;
    let back = bed.node("w1").await;
    bed.assign_all(&back).await;
    back.take_more(1).await.unwrap();
    let before = bed.keyspace().await;
    // It is the same pod on the same node, and the node lives: only the assignment tells the two apart.
    let old = record.assignment.unwrap();
    let answer = bed.ack(&back, &payload, &old).await;
    drop(session);
    let mut wrong = before.changes(&bed.keyspace().await);
    if answer != Ack::Stale {
        wrong.push(format!("an old assignment was told {answer:?}"));
    }
    wrong
}

/// Invariant 7: what is pushed twice and is no pod is two dead letters: nothing that anybody sent is thrown away.
pub(crate) async fn equal_junk_is_kept_twice(bed: &Bed) -> Vec<String> {
    let session = bed.node("w1").await;
    let junk = b"no pod";
    for _ in 0..2 {
        let () = bed.redis.cli(&[&b"LPUSH"[..], b"rq:w1", junk]).await;
    }
    for _ in 0..2 {
        let _gone = session.reject(junk, None, "it is no pod").await.unwrap();
    }
    let letters = bed.store.letters(0, 10).await.unwrap().len();
    if letters == 2 { Vec::new() } else { vec![format!("two were sent, and {letters} kept")] }
}

/// Invariant 9: a claim of a pod that nobody knew sets aside what it asks for.
pub(crate) async fn a_pushed_pod_is_accounted_for(bed: &Bed) -> Vec<String> {
    let session = bed.node("w1").await;
    let () = bed.redis.cli(&[&b"LPUSH"[..], b"pq:w1", &pushed("test", "mine").raw]).await;
    bed.run_all(&session).await;
    bed.violations().await
}
