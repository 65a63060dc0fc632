//! A scheduler's work: take, assign, park, unpark, and what it leaves behind. Invariants 2, 3 and 9.

use std::collections::BTreeSet;
use std::time::Duration;

use common::ids::{PodId, SchedulerId};
use common::lifecycle::Phase;
use common::node::Resources;
use common::payload::Payload;
use common::pod::{NodeRefusal, Refusal};
use common::store::{AssignOutcome, Assignment, ParkOutcome, Parked, Unpark};
use kubeleet_tests::bed::{DEAD_AFTER, REQUEST, node, pushed};
use kubeleet_tests::{Bed, Redis};

use crate::{changing_nothing, checks};

const REQUEST_ROOM: Resources = Resources { cpu_millis: 64_000, memory_bytes: 64 << 30, pods: 1000 };

/// Takes up to `count` pods in hand.
async fn take(bed: &Bed, count: usize) -> Vec<Payload> {
    let taken = bed.store.take(&bed.scheduler, count).await.unwrap();
    taken.into_iter().map(|raw| Payload::parse(raw).unwrap()).collect()
}

fn indices(payloads: &[Payload]) -> Vec<u32> {
    payloads.iter().map(|payload| payload.replica).collect()
}

async fn push(redis: &Redis, key: &str, payload: &Payload) {
    let () = redis.cli(&[&b"LPUSH"[..], key.as_bytes(), &payload.raw]).await;
}

fn parked(payload: &Payload, message: &str) -> Parked {
    let nodes = vec![NodeRefusal { node: "w1".to_owned(), detail: "needs 2 GiB, 1 GiB free".to_owned() }];
    let refusals = vec![Refusal { reason: "InsufficientMemory".to_owned(), count: 1, nodes }];
    Parked { payload: payload.clone(), request: REQUEST, refusals, message: message.to_owned() }
}

#[tokio::test]
async fn what_is_in_the_hands_of_a_new_scheduler_is_not_missing() {
    assert_eq!(checks::a_newcomer_has_it(&Bed::new().await).await, Vec::<String>::new());
}

#[tokio::test]
async fn the_oldest_are_taken_first_and_what_is_in_hand_stays_there() {
    let bed = Bed::new().await;
    bed.service("web", 5).await;
    assert_eq!(indices(&take(&bed, 2).await), [0, 1]);
    assert_eq!(indices(&take(&bed, 2).await), [0, 1], "no more than asked for");
    assert_eq!(indices(&take(&bed, 4).await), [0, 1, 2, 3]);
    let other = bed.store.take(&SchedulerId::random(), 10).await.unwrap();
    assert_eq!(other.len(), 1, "another scheduler gets the rest");
    assert_eq!(bed.store.schedulers().await.unwrap().len(), 2);
    assert_eq!(bed.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn who_waits_for_a_pod_gets_what_comes_and_shows_that_it_lives() {
    let bed = Bed::new().await;
    let mut queue = bed.store.scheduler_queue(&bed.scheduler, Duration::from_millis(100)).await.unwrap();
    assert!(queue.next(2).await.unwrap().is_empty());
    assert_eq!(bed.store.schedulers().await.unwrap().len(), 1, "it waited in vain, and lives");
    bed.service("web", 3).await;
    let mut next = async || {
        let came = queue.next(2).await.unwrap().into_iter().map(|raw| Payload::parse(raw).unwrap());
        indices(&came.collect::<Vec<_>>())
    };
    assert_eq!(next().await, [0, 1], "the oldest, no more than asked for");
    assert_eq!(next().await, [0, 1, 2], "the pop takes one whatever is in hand");
    assert_eq!(indices(&take(&bed, 10).await), [0, 1, 2], "all of it is in hand");
}

#[tokio::test]
async fn an_assignment_sets_the_resources_aside_and_queues_the_pod() {
    let bed = Bed::new().await;
    let session = bed.node("w1").await;
    bed.service("web", 3).await;
    assert_eq!(bed.assign_all(&session).await, [AssignOutcome::Assigned; 3]);
    let keyspace = bed.keyspace().await;
    let used: Vec<_> =
        ["used_pods", "used_cpu", "used_memory"].map(|field| keyspace.field("node:w1", field)).into();
    assert_eq!(used, ["3", "300", &(3 * (64 << 20)).to_string()]);
    let queued: Vec<_> = keyspace.elements("pq:w1").into_iter().rev().collect();
    let indices: Vec<_> =
        queued.into_iter().map(|raw| Payload::parse(raw.to_vec().into()).unwrap().replica).collect();
    assert_eq!(indices, [0, 1, 2], "out in the order they came");
    let ids: BTreeSet<_> =
        bed.pods(&"web".parse().unwrap()).await.into_iter().map(|pod| pod.assignment.unwrap()).collect();
    assert_eq!(ids.len(), 3, "each assignment has an id of its own");
    assert_eq!(bed.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn pods_are_assigned_in_any_order_and_others_in_hand_stay() {
    for order in [vec![0, 1, 2, 3], vec![2, 0, 3, 1], vec![4, 5], vec![0, 5], vec![1]] {
        let bed = Bed::new().await;
        let session = bed.node("w1").await;
        bed.service("web", 6).await;
        let in_hand = take(&bed, 6).await;
        let some: Vec<_> = order.iter().map(|&index: &usize| in_hand[index].clone()).collect();
        assert_eq!(bed.assign(&session, some).await, vec![AssignOutcome::Assigned; order.len()]);
        let left: Vec<u32> = (0..6).filter(|index| !order.contains(&(*index as usize))).collect();
        assert_eq!(indices(&take(&bed, 6).await), left, "{order:?}");
        assert_eq!(bed.violations().await, Vec::<String>::new(), "{order:?}");
    }
}

#[tokio::test]
async fn of_the_oldest_in_hand_only_those_go_that_a_node_took() {
    let bed = Bed::new().await;
    let session = bed.node_with("w1", Resources { pods: 2, ..REQUEST_ROOM }).await;
    bed.service("web", 4).await;
    let taken = take(&bed, 4).await;
    let [a, b] = [AssignOutcome::Assigned, AssignOutcome::Refused];
    assert_eq!(bed.assign(&session, taken).await, [a, a, b, b]);
    assert_eq!(indices(&take(&bed, 4).await), [2, 3]);
    assert_eq!(bed.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_node_that_can_not_take_it_refuses_and_the_pod_stays_in_hand() {
    let cases: [(&str, &[&str]); 7] = [
        ("silent", &["HSET", "node:w1", "beat", "1000"]),
        ("dead", &["HSET", "node:w1", "state", "dead"]),
        ("another life", &["HSET", "node:w1", "incarnation", "another"]),
        ("cordoned", &["HSET", "node:w1", "cordoned", "1"]),
        ("engine ill", &["HSET", "node:w1", "engine_problem", "no answer"]),
        ("no cpu", &["HSET", "node:w1", "used_cpu", "63901"]),
        ("no room", &["HSET", "node:w1", "used_pods", "1000"]),
    ];
    for (why, words) in cases {
        let bed = Bed::new().await;
        let session = bed.node("w1").await;
        let seen = bed.store.node(session.node()).await.unwrap().unwrap().incarnation;
        bed.service("web", 1).await;
        let payload = take(&bed, 1).await.remove(0);
        let () = bed.redis.cli(words).await;
        let assignment = Assignment { payload, node: node("w1"), incarnation: seen, request: REQUEST };
        let assign = [assignment];
        let assign = bed.store.assign(&bed.scheduler, DEAD_AFTER, &assign);
        assert_eq!(changing_nothing(&bed, assign).await.unwrap(), [AssignOutcome::Refused], "{why}");
        assert_eq!(take(&bed, 1).await.len(), 1, "{why}: still in hand");
    }
}

#[tokio::test]
async fn an_unknown_node_refuses() {
    let bed = Bed::new().await;
    bed.service("web", 1).await;
    let payload = take(&bed, 1).await.remove(0);
    let assign = [Assignment { payload, node: node("nowhere"), incarnation: None, request: REQUEST }];
    let assign = bed.store.assign(&bed.scheduler, DEAD_AFTER, &assign);
    assert_eq!(changing_nothing(&bed, assign).await.unwrap(), [AssignOutcome::Refused]);
}

#[tokio::test]
async fn what_fits_is_assigned_and_what_does_not_is_not_within_one_batch() {
    let bed = Bed::new().await;
    let two = Resources { cpu_millis: 250, memory_bytes: 1 << 30, pods: 10 };
    let session = bed.node_with("w1", two).await;
    bed.service("web", 3).await;
    use AssignOutcome::{Assigned, Refused};
    assert_eq!(bed.assign_all(&session).await, [Assigned, Assigned, Refused]);
    assert_eq!(bed.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_copy_of_a_payload_is_dropped_and_starts_nothing() {
    let bed = Bed::new().await;
    let session = bed.node("w1").await;
    bed.service("web", 1).await;
    let payload = take(&bed, 1).await.remove(0);
    let fq = format!("fq:{}", bed.scheduler);
    push(&bed.redis, &fq, &payload).await;
    let twice = vec![payload.clone(), payload.clone()];
    assert_eq!(bed.assign(&session, twice).await, [AssignOutcome::Assigned, AssignOutcome::Stale]);
    push(&bed.redis, &fq, &payload).await;
    assert_eq!(bed.assign(&session, vec![payload.clone()]).await, [AssignOutcome::Stale]);
    assert_eq!(bed.redis.cli::<usize>(&["LLEN", &fq]).await, 0);
    assert_eq!(bed.redis.cli::<usize>(&["LLEN", "pq:w1"]).await, 1);
    assert_eq!(bed.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn what_is_not_in_hand_any_more_is_not_assigned() {
    let bed = Bed::new().await;
    let session = bed.node("w1").await;
    bed.service("web", 1).await;
    let payload = take(&bed, 1).await.remove(0);
    let () = bed.redis.cli(&["LMOVE", &format!("fq:{}", bed.scheduler), "sq", "LEFT", "RIGHT"]).await;
    let assign = bed.assign(&session, vec![payload]);
    assert_eq!(changing_nothing(&bed, assign).await, [AssignOutcome::Gone]);
}

#[tokio::test]
async fn a_pod_pushed_to_sq_becomes_a_pod_and_one_of_a_forgotten_service_does_not() {
    let bed = Bed::new().await;
    let session = bed.node("w1").await;
    push(&bed.redis, "sq", &pushed("test", "mine")).await;
    assert_eq!(bed.assign_all(&session).await, [AssignOutcome::Assigned]);
    let record = bed.record(&"mine".parse().unwrap()).await;
    assert_eq!((record.phase, record.service, record.replica), (Phase::Assigned, None, 3));
    assert_eq!(bed.store.pushed_pods().await.unwrap(), [PodId::new("mine").unwrap()]);
    let service = bed.service("web", 1).await;
    let stranger = Payload::of_service("web".parse().unwrap(), PodId::random(), "i", 0, service.spec_id);
    let () = bed.redis.cli(&["DEL", "sq"]).await;
    push(&bed.redis, "sq", &stranger).await;
    let payloads = take(&bed, 1).await;
    let assign = bed.assign(&session, payloads.clone());
    assert_eq!(changing_nothing(&bed, assign).await, [AssignOutcome::Orphan]);
    let park = [parked(&payloads[0], "")];
    let park = bed.store.park(&bed.scheduler, &park);
    assert_eq!(changing_nothing(&bed, park).await.unwrap(), [ParkOutcome::Orphan]);
}

#[tokio::test]
async fn two_schedulers_can_not_overcommit_a_node() {
    let bed = Bed::new().await;
    assert_eq!(checks::two_schedulers_fill_a_node(&bed).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_parked_pod_is_recorded_with_its_reasons_and_comes_back() {
    let bed = Bed::new().await;
    bed.service("web", 2).await;
    let payloads = take(&bed, 2).await;
    let message = "0/1 nodes take it: 1 InsufficientMemory";
    let items: Vec<_> = payloads.iter().map(|payload| parked(payload, message)).collect();
    assert_eq!(bed.store.park(&bed.scheduler, &items).await.unwrap(), [ParkOutcome::Parked; 2]);
    let record = bed.record(&payloads[0].id).await;
    assert_eq!((record.phase, record.reason.as_str()), (Phase::Pending, "Unschedulable"));
    assert_eq!(record.message, message);
    let refusals = bed.store.refusals(&payloads[0].id).await.unwrap().unwrap();
    assert_eq!(refusals, items[0].refusals);
    assert_eq!(bed.store.queue_lengths().await.unwrap().unschedulable, 2);
    assert_eq!(bed.violations().await, Vec::<String>::new());
    let early = changing_nothing(&bed, bed.store.unpark(Unpark::Due, 10)).await.unwrap();
    assert_eq!(early, 0, "its wait is not over");
    assert_eq!(bed.store.unpark(Unpark::All, 1).await.unwrap(), 1, "no more than asked for");
    let () = bed.redis.cli(&["ZADD", "uq:at", "1000", payloads[1].id.as_str()]).await;
    let () = bed.redis.cli(&["ZADD", "uq:at", "1000", payloads[0].id.as_str()]).await;
    assert_eq!(bed.store.unpark(Unpark::Due, 10).await.unwrap(), 1);
    assert_eq!(take(&bed, 10).await.len(), 2);
    assert_eq!(bed.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn each_parking_waits_longer_than_the_last_up_to_a_minute() {
    let bed = Bed::new().await;
    bed.service("web", 1).await;
    let payload = take(&bed, 1).await.remove(0);
    let mut waits = Vec::new();
    for _ in 0..8 {
        bed.store.park(&bed.scheduler, &[parked(&payload, "m")]).await.unwrap();
        let due: f64 = bed.redis.cli(&["ZSCORE", "uq:at", payload.id.as_str()]).await;
        waits.push((due - bed.store.redis_now().await.unwrap() as f64) / 1000.0);
        bed.store.unpark(Unpark::All, 1).await.unwrap();
        take(&bed, 1).await;
    }
    for (wait, expected) in waits.into_iter().zip([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]) {
        assert!((expected - 1.0..=expected).contains(&wait), "{wait} s, not {expected} s");
    }
}

#[tokio::test]
async fn a_wait_by_a_clock_that_was_ahead_is_over() {
    let bed = Bed::new().await;
    bed.service("web", 1).await;
    let payload = take(&bed, 1).await.remove(0);
    bed.store.park(&bed.scheduler, &[parked(&payload, "m")]).await.unwrap();
    let in_an_hour = (bed.store.redis_now().await.unwrap() + 3_600_000).to_string();
    let () = bed.redis.cli(&["ZADD", "uq:at", &in_an_hour, payload.id.as_str()]).await;
    assert_eq!(bed.store.unpark(Unpark::Due, 10).await.unwrap(), 1);
}

#[tokio::test]
async fn what_is_not_in_hand_or_not_pending_is_not_parked() {
    let bed = Bed::new().await;
    let placed = bed.pod_in(Phase::Running, "web", "w1").await;
    let park = [parked(&placed.payload, "")];
    let gone = bed.store.park(&bed.scheduler, &park);
    assert_eq!(changing_nothing(&bed, gone).await.unwrap(), [ParkOutcome::Gone]);
    push(&bed.redis, &format!("fq:{}", bed.scheduler), &placed.payload).await;
    let stale = bed.store.park(&bed.scheduler, &park).await.unwrap();
    assert_eq!(stale, [ParkOutcome::Stale]);
    assert_eq!(bed.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_stopped_pod_leaves_the_unschedulable() {
    let bed = Bed::new().await;
    bed.service("web", 1).await;
    let payload = take(&bed, 1).await.remove(0);
    bed.store.park(&bed.scheduler, &[parked(&payload, "m")]).await.unwrap();
    bed.stop(&bed.record(&payload.id).await).await;
    let keyspace = bed.keyspace().await;
    for key in ["uq", "uq:at", "uq:why"] {
        assert!(keyspace.get(key).is_none(), "{key}");
    }
}

#[tokio::test]
async fn a_silent_schedulers_pods_go_back_once_and_first_in_line() {
    let bed = Bed::new().await;
    bed.service("web", 5).await;
    take(&bed, 3).await;
    let alive = bed.store.return_orphans(&bed.scheduler, DEAD_AFTER, 100);
    assert_eq!(changing_nothing(&bed, alive).await.unwrap(), None);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let silent = Duration::from_millis(5);
    assert_eq!(bed.store.return_orphans(&bed.scheduler, silent, 2).await.unwrap(), Some(2), "in pages");
    assert_eq!(bed.store.return_orphans(&bed.scheduler, silent, 100).await.unwrap(), Some(1));
    assert_eq!(bed.store.return_orphans(&bed.scheduler, silent, 100).await.unwrap(), Some(0));
    assert_eq!(indices(&take(&bed, 5).await), [0, 1, 2, 3, 4], "as if nothing had been");
    assert_eq!(bed.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn one_holds_a_lease_at_a_time() {
    let bed = Bed::new().await;
    let (me, other) = (&bed.scheduler, &SchedulerId::random());
    assert!(bed.store.lease("guests", me, Duration::from_millis(200)).await.unwrap());
    assert!(bed.store.lease("guests", me, Duration::from_millis(200)).await.unwrap(), "kept");
    assert!(!bed.store.lease("guests", other, DEAD_AFTER).await.unwrap());
    assert!(bed.store.lease("reconcile", other, DEAD_AFTER).await.unwrap(), "leases are apart");
    kubeleet_tests::eventually(Duration::from_secs(5), "the lease runs out", || async {
        let got = bed.store.lease("guests", other, DEAD_AFTER).await.unwrap();
        kubeleet_tests::wait::that(got, || "still held".to_owned())
    })
    .await;
}
