//! Checks that return violations instead of panicking, for the ablations.

use std::sync::Arc;
use std::time::Duration;

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::{DEAD_AFTER, Placed, REQUEST, node, pushed};
use kubeleet_tests::invariants::overcommitted;
use model::ids::SchedulerId;
use model::network::ContainerNetwork;
use model::node::Resources;
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use model::spec::HostPorts;
use store::{
    Ack, AckItem, AssignOutcome, Assignment, Claim, FinishReport, PodOutcome, PodRef, StatusReport, Store,
};
use testkit::fixtures;

/// Invariant 9.
pub(crate) async fn two_schedulers_fill_a_node(fixture: &Fixture) -> Vec<String> {
    let room = Resources { cpu_millis: 1000, memory_bytes: 64 << 30, pids: 1000, disk_bytes: 0, pods: 1000 };
    fixture.node_with("w1", room).await;
    fixture.service("web", 30).await;
    let first = fixture.store.take(&fixture.scheduler, 15).await.unwrap();
    let other = SchedulerId::random();
    let second = fixture.store.take(&other, 15).await.unwrap();
    let work = [(fixture.scheduler.clone(), first), (other, second)];
    let schedulers = work.map(|(me, taken)| {
        let store = fixture.store.clone();
        let payloads: Vec<_> = taken.into_iter().map(|raw| Payload::parse(raw).unwrap()).collect();
        tokio::spawn(async move { fill(&store, &me, &payloads).await })
    });
    let mut assigned = 0;
    for scheduler in schedulers {
        assigned += scheduler.await.unwrap();
    }
    let keyspace = fixture.keyspace().await;
    let mut wrong = overcommitted(&keyspace);
    wrong.extend(kubeleet_tests::invariants::violations(&keyspace));
    if assigned != 10 {
        wrong.push(format!("{assigned} pods of 100 millicores each were put on one core"));
    }
    wrong
}

/// Invariant 2.
pub(crate) async fn an_unlisted_scheduler_has_the_payload(fixture: &Fixture) -> Vec<String> {
    let Placed { record, .. } = fixture.pod_in(Phase::Pending, "web", "w1").await;
    assert_eq!(fixture.store.take(&SchedulerId::random(), 1).await.unwrap().len(), 1);
    fixture.store.requeue_missing(&record, std::slice::from_ref(&fixture.scheduler)).await.unwrap();
    fixture.violations().await
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
            host_ports: HostPorts::default(),
            named: None,
            volumes: Vec::new(),
            seen_labels: None,
            counted: None,
        };
        let batch: Vec<_> = chunk.iter().map(one).collect();
        let outcomes = store.assign(me, DEAD_AFTER, &batch).await.unwrap();
        assigned += outcomes.iter().filter(|outcome| **outcome == AssignOutcome::Assigned).count();
    }
    assigned
}

/// The former master's clock was an hour ahead.
pub(crate) async fn a_dead_node_has_a_heartbeat_in_the_future(fixture: &Fixture) -> Vec<String> {
    fixture.node("w1").await;
    let ahead = fixture.store.redis_now().await.unwrap() + 3_600_000;
    let () = fixture.redis.cli(&["HSET", "node:w1", "beat", &ahead.to_string()]).await;
    let seen = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    fixture
        .store
        .declare_dead(&seen, DEAD_AFTER, Duration::ZERO, Duration::ZERO, fixtures::long_proof())
        .await
        .unwrap();
    let beat = fixture.store.node(&node("w1")).await.unwrap().unwrap().beat;
    if beat < ahead { Vec::new() } else { vec![format!("the heartbeat stays at {beat}")] }
}

pub(crate) async fn a_worker_beats_at_maxmemory(fixture: &Fixture) -> Vec<String> {
    let session = fixture.node("w1").await;
    // Then the first write of the heartbeat is one that grows.
    let () = fixture.redis.cli(&["HDEL", "meta", "run_id"]).await;
    let () = fixture.redis.cli(&["CONFIG", "SET", "maxmemory", "1"]).await;
    session.heartbeat(None, None, 0, &[]).await.err().map(|error| error.to_string()).into_iter().collect()
}

/// Invariant 3.
pub(crate) async fn a_dead_worker_writes(fixture: &Fixture) -> Vec<String> {
    let Placed { session, record, payload } = fixture.pod_in(Phase::Assigned, "web", "w1").await;
    session.pop_more(1).await.unwrap();
    let held = record.assignment.clone().unwrap();
    fixture.kill_node("w1").await;
    let before = fixture.keyspace().await;
    let pod = PodRef { id: &record.id, assignment: &held };
    let item = AckItem {
        payload: payload.clone(),
        assignment: held.clone(),
        network: ContainerNetwork::default(),
        starting: String::new(),
    };
    let report = FinishReport::new(PodOutcome::Failed);
    let claims = [fixture.claim_item(&payload).await];
    let fenced = [
        session.claim(&claims, 5, Duration::ZERO).await.unwrap().is_err(),
        session.ack(&[item]).await.unwrap().is_err(),
        session.report(pod, &StatusReport::default()).await.unwrap().is_err(),
        session.finish(pod, &payload.raw, record.service.as_ref(), &report).await.unwrap().is_err(),
        session.report_lost(pod, &payload.raw).await.unwrap().is_err(),
        session.reject(&payload.raw, Some(&record.id), "").await.unwrap().is_err(),
        session.heartbeat(None, None, 0, &[]).await.unwrap().is_err(),
    ];
    let mut wrong = before.changes(&fixture.keyspace().await);
    if fenced.contains(&false) {
        wrong.push(format!("not fenced: {fenced:?}"));
    }
    wrong
}

/// Invariant 2.
pub(crate) async fn pods_start(fixture: &Fixture) -> Vec<String> {
    let session = fixture.node("w1").await;
    fixture.service("web", 3).await;
    fixture.assign_all(&session).await;
    fixture.run_all(&session).await;
    fixture.violations().await
}

/// Invariant 1.
pub(crate) async fn many_create_the_same_pods(fixture: &Fixture) -> Vec<String> {
    let service = fixture.service("web", 20).await;
    let all: Arc<Vec<u32>> = Arc::new((0..20).collect());
    let callers = (0..3).map(|_| {
        let (store, service, all) = (fixture.store.clone(), service.clone(), all.clone());
        tokio::spawn(async move { store.create_pods(&service, &all).await.unwrap() })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    let mut wrong = fixture.violations().await;
    let pods = fixture.keyspace().await.below("pod:").count();
    if pods != 20 {
        wrong.push(format!("{pods} pods were created for 20 slots"));
    }
    wrong
}

/// Invariant 4.
pub(crate) async fn many_drain_one_node(fixture: &Fixture) -> Vec<String> {
    let session = fixture.node("w1").await;
    fixture.service("web", 150).await;
    fixture.assign_all(&session).await;
    session.pop_more(100).await.unwrap();
    let rq = session.in_flight().await.unwrap();
    let first: Vec<_> = rq.into_iter().take(50).map(|raw| Payload::parse(raw).unwrap()).collect();
    for (payload, claim) in first.iter().zip(fixture.claim(&session, &first).await) {
        if let Claim::Start { assignment, .. } = claim {
            assert_eq!(fixture.ack(&session, payload, &assignment).await, Ack::Running);
        }
    }
    for number in 0..50 {
        let unknown = pushed("test", &format!("mine-{number}"));
        fixture.push("pq:w1", &unknown.raw).await;
    }
    fixture.kill_node("w1").await;
    let dead = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    let drainers = (0..4).map(|_| {
        let (store, dead) = (fixture.store.clone(), dead.clone());
        tokio::spawn(async move {
            use store::DrainOutcome::Moved;
            while let Moved(_) = store.drain_step(&dead).await.unwrap() {}
        })
    });
    for drainer in drainers.collect::<Vec<_>>() {
        drainer.await.unwrap();
    }
    let mut wrong = fixture.violations().await;
    let queued: usize = fixture.redis.cli(&["LLEN", "sq"]).await;
    if queued != 200 {
        wrong.push(format!("{queued} payloads were queued for 200 pods"));
    }
    wrong
}

/// Invariant 3.
pub(crate) async fn an_old_assignment_is_acknowledged(fixture: &Fixture) -> Vec<String> {
    let Placed { session, record, payload } = fixture.pod_in(Phase::Assigned, "web", "w1").await;
    fixture.kill_node("w1").await;
    fixture.drain("w1").await;
    let back = fixture.node("w1").await;
    fixture.assign_all(&back).await;
    back.pop_more(1).await.unwrap();
    let before = fixture.keyspace().await;
    let old = record.assignment.unwrap();
    let answer = fixture.ack(&back, &payload, &old).await;
    drop(session);
    let mut wrong = before.changes(&fixture.keyspace().await);
    if answer != Ack::Stale {
        wrong.push(format!("an old assignment was answered with {answer:?}"));
    }
    wrong
}

/// Invariant 7.
pub(crate) async fn equal_junk_is_kept_twice(fixture: &Fixture) -> Vec<String> {
    let session = fixture.node("w1").await;
    let junk = b"no pod";
    for _ in 0..2 {
        fixture.push("rq:w1", junk).await;
    }
    for _ in 0..2 {
        let _gone = session.reject(junk, None, "it is no pod").await.unwrap();
    }
    let kept = fixture.store.dead_letters(0, 10).await.unwrap().len();
    if kept == 2 { Vec::new() } else { vec![format!("two were sent, and {kept} kept")] }
}

/// Invariant 7.
pub(crate) async fn equal_junk_of_a_dead_node_is_queued_twice(fixture: &Fixture) -> Vec<String> {
    fixture.node("w1").await;
    for _ in 0..2 {
        fixture.push("pq:w1", b"no pod").await;
    }
    fixture.kill_node("w1").await;
    fixture.drain("w1").await;
    let queued: usize = fixture.redis.cli(&["LLEN", "sq"]).await;
    if queued == 2 { Vec::new() } else { vec![format!("two were sent, and {queued} queued")] }
}

/// Invariant 9.
pub(crate) async fn a_pushed_pod_reserves_resources(fixture: &Fixture) -> Vec<String> {
    let session = fixture.node("w1").await;
    fixture.push("pq:w1", &pushed("test", "mine").raw).await;
    fixture.run_all(&session).await;
    fixture.violations().await
}
