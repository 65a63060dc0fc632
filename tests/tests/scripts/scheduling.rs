//! A scheduler's operations: take, assign, park, and its leftovers in flight. Invariants 2, 3 and 9.

use std::collections::BTreeSet;
use std::time::Duration;

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::{DEAD_AFTER, REQUEST, node, pushed};
use model::ids::{PodId, SchedulerId};
use model::node::Resources;
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use model::pod::{NodeRefusal, Refusal};
use model::spec::{HostPorts, NodeConstraint};
use serde_json::json;
use store::{AssignOutcome, Assignment, CountedAssignment, ParkOutcome, Parked, Sibling};

use crate::{changing_nothing, checks};

const CAPACITY: Resources =
    Resources { cpu_millis: 64_000, memory_bytes: 64 << 30, pids: 1000, disk_bytes: 0, pods: 1000 };

async fn take(fixture: &Fixture, count: usize) -> Vec<Payload> {
    let taken = fixture.store.take(&fixture.scheduler, count).await.unwrap();
    taken.into_iter().map(|raw| Payload::parse(raw).unwrap()).collect()
}

fn indices(payloads: &[Payload]) -> Vec<u32> {
    payloads.iter().map(|payload| payload.replica).collect()
}

fn parked(payload: &Payload, message: &str) -> Parked {
    let nodes = vec![NodeRefusal { node: "w1".to_owned(), detail: "needs 2 GiB, 1 GiB free".to_owned() }];
    let refusals = vec![Refusal { reason: "InsufficientMemory".to_owned(), count: 1, nodes }];
    Parked { payload: payload.clone(), request: REQUEST, refusals, message: message.to_owned(), class: None }
}

#[tokio::test]
async fn a_payload_in_flight_in_a_new_scheduler_is_not_missing() {
    assert_eq!(
        checks::an_unlisted_scheduler_has_the_payload(&Fixture::new().await).await,
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn the_oldest_pods_are_taken_first_and_stay_in_flight() {
    let fixture = Fixture::new().await;
    fixture.service("web", 5).await;
    assert_eq!(indices(&take(&fixture, 2).await), [0, 1]);
    assert_eq!(indices(&take(&fixture, 2).await), [0, 1], "no more than asked for");
    assert_eq!(indices(&take(&fixture, 4).await), [0, 1, 2, 3]);
    let other = fixture.store.take(&SchedulerId::random(), 10).await.unwrap();
    assert_eq!(other.len(), 1, "another scheduler gets the rest");
    assert_eq!(fixture.store.schedulers().await.unwrap().len(), 2);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

/// More than `take` moves in one part, and more than it moves in one call.
#[tokio::test]
async fn many_pods_are_taken_in_the_order_of_the_queue() {
    let fixture = Fixture::new().await;
    fixture.service("web", 5000).await;
    take(&fixture, 100).await;
    assert_eq!(indices(&take(&fixture, 5000).await), (0..5000).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_scheduler_that_has_ended_counts_as_silent_and_what_it_still_gets_is_reclaimed() {
    let fixture = Fixture::new().await;
    fixture.service("web", 4).await;
    take(&fixture, 3).await;
    let (store, me) = (&fixture.store, &fixture.scheduler);
    let retire = async || {
        // A sign of life in this very millisecond counts.
        testkit::eventually("it is silent", || async {
            store.retire_scheduler(me, 2).await.unwrap().ok_or("it is alive".to_owned())
        })
        .await
    };
    let minutes_silent = async || {
        let (now, seen) = (store.redis_now().await.unwrap(), store.schedulers().await.unwrap());
        seen.iter().map(|(_, at)| (now - at) / 60_000).collect::<Vec<_>>()
    };
    assert_eq!((retire().await, minutes_silent().await), (2, vec![0]));
    assert_eq!((retire().await, minutes_silent().await), (1, vec![0]), "it may have had more");
    assert_eq!((retire().await, minutes_silent().await), (0, vec![59]));
    assert_eq!((retire().await, minutes_silent().await), (0, vec![59]), "repeated after a lost reply");
    let () = fixture.redis.cli(&["LMOVE", "sq", &format!("fq:{me}"), "RIGHT", "LEFT"]).await;
    assert_eq!(store.reclaim_in_flight(me, DEAD_AFTER, 10).await.unwrap(), Some(1));
    assert_eq!(minutes_silent().await, [59], "and it may not have been the last one");
    assert_eq!(fixture.violations().await, Vec::<String>::new());
    let never_seen = SchedulerId::random();
    assert_eq!(store.retire_scheduler(&never_seen, 2).await.unwrap(), Some(0));
    assert_eq!(store.schedulers().await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_blocking_queue_takes_pods_and_records_that_the_scheduler_is_alive() {
    let fixture = Fixture::new().await;
    let mut queue =
        fixture.store.scheduler_queue(&fixture.scheduler, Duration::from_millis(100)).await.unwrap();
    assert!(queue.next(2).await.unwrap().is_empty());
    assert_eq!(fixture.store.schedulers().await.unwrap().len(), 1, "it is alive although it got nothing");
    fixture.service("web", 3).await;
    let mut next = async || {
        let received = queue.next(2).await.unwrap().into_iter().map(|raw| Payload::parse(raw).unwrap());
        indices(&received.collect::<Vec<_>>())
    };
    assert_eq!(next().await, [0, 1], "the oldest, no more than asked for");
    assert_eq!(next().await, [0, 1, 2], "the pop takes one whatever is in flight");
    assert_eq!(indices(&take(&fixture, 10).await), [0, 1, 2], "all of it is in flight");
}

#[tokio::test]
async fn an_assignment_reserves_resources_and_queues_the_pod() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    fixture.service("web", 3).await;
    assert_eq!(fixture.assign_all(&session).await, [AssignOutcome::Assigned; 3]);
    let keyspace = fixture.keyspace().await;
    let used: Vec<_> =
        ["used_pods", "used_cpu", "used_memory"].map(|field| keyspace.field("node:w1", field)).into();
    assert_eq!(used, ["3", "300", &(3 * (64 << 20)).to_string()]);
    let queued: Vec<_> = keyspace.elements("pq:w1").into_iter().rev().collect();
    let indices: Vec<_> =
        queued.into_iter().map(|raw| Payload::parse(raw.to_vec().into()).unwrap().replica).collect();
    assert_eq!(indices, [0, 1, 2], "out in the order they came");
    let ids: BTreeSet<_> =
        fixture.pods(&"web".parse().unwrap()).await.into_iter().map(|pod| pod.assignment.unwrap()).collect();
    assert_eq!(ids.len(), 3, "each assignment has an id of its own");
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn pods_are_assigned_in_any_order_and_others_stay_in_flight() {
    for order in [vec![0, 1, 2, 3], vec![2, 0, 3, 1], vec![4, 5], vec![0, 5], vec![1]] {
        let fixture = Fixture::new().await;
        let session = fixture.node("w1").await;
        fixture.service("web", 6).await;
        let in_flight = take(&fixture, 6).await;
        let some: Vec<_> = order.iter().map(|&index: &usize| in_flight[index].clone()).collect();
        assert_eq!(fixture.assign(&session, some).await, vec![AssignOutcome::Assigned; order.len()]);
        let left: Vec<u32> = (0..6).filter(|index| !order.contains(&(*index as usize))).collect();
        assert_eq!(indices(&take(&fixture, 6).await), left, "{order:?}");
        assert_eq!(fixture.violations().await, Vec::<String>::new(), "{order:?}");
    }
}

#[tokio::test]
async fn of_the_oldest_in_flight_only_assigned_pods_are_removed() {
    let fixture = Fixture::new().await;
    let session = fixture.node_with("w1", Resources { pods: 2, ..CAPACITY }).await;
    fixture.service("web", 4).await;
    let taken = take(&fixture, 4).await;
    let [a, b] = [AssignOutcome::Assigned, AssignOutcome::Refused];
    assert_eq!(fixture.assign(&session, taken).await, [a, a, b, b]);
    assert_eq!(indices(&take(&fixture, 4).await), [2, 3]);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_refused_pod_stays_in_flight() {
    let cases: [(&str, &[&str]); 9] = [
        ("silent", &["HSET", "node:w1", "beat", "1000"]),
        ("dead", &["HSET", "node:w1", "state", "dead"]),
        ("another session", &["HSET", "node:w1", "incarnation", "another"]),
        ("cordoned", &["HSET", "node:w1", "cordoned", "1"]),
        ("engine ill", &["HSET", "node:w1", "engine_problem", "no answer"]),
        ("full disk", &["HSET", "node:w1", "disk_problem", "97 % is used"]),
        ("no cpu", &["HSET", "node:w1", "used_cpu", "63901"]),
        ("no memory on it", &["HSET", "node:w1", "memory", ""]),
        ("no room", &["HSET", "node:w1", "used_pods", "1000"]),
    ];
    for (why, words) in cases {
        let fixture = Fixture::new().await;
        let session = fixture.node("w1").await;
        let seen = fixture.store.node(session.node()).await.unwrap().unwrap().incarnation;
        fixture.service("web", 1).await;
        let payload = take(&fixture, 1).await.remove(0);
        let () = fixture.redis.cli(words).await;
        let assignment = Assignment {
            payload,
            node: node("w1"),
            incarnation: seen,
            request: REQUEST,
            host_ports: HostPorts::default(),
            named: None,
            volumes: Vec::new(),
            seen_labels: None,
            counted: None,
        };
        let assign = [assignment];
        let assign = fixture.store.assign(&fixture.scheduler, DEAD_AFTER, &assign);
        assert_eq!(changing_nothing(&fixture, assign).await.unwrap(), [AssignOutcome::Refused], "{why}");
        assert_eq!(take(&fixture, 1).await.len(), 1, "{why}: still in flight");
    }
}

#[tokio::test]
async fn an_unknown_node_refuses() {
    let fixture = Fixture::new().await;
    fixture.service("web", 1).await;
    let payload = take(&fixture, 1).await.remove(0);
    let assign = [Assignment {
        payload,
        node: node("nowhere"),
        incarnation: None,
        request: REQUEST,
        host_ports: HostPorts::default(),
        named: None,
        volumes: Vec::new(),
        seen_labels: None,
        counted: None,
    }];
    let assign = fixture.store.assign(&fixture.scheduler, DEAD_AFTER, &assign);
    assert_eq!(changing_nothing(&fixture, assign).await.unwrap(), [AssignOutcome::Refused]);
}

#[tokio::test]
async fn within_a_batch_only_pods_that_fit_are_assigned() {
    let fixture = Fixture::new().await;
    let two = Resources { cpu_millis: 250, memory_bytes: 1 << 30, pids: 1000, disk_bytes: 0, pods: 10 };
    let session = fixture.node_with("w1", two).await;
    fixture.service("web", 3).await;
    use AssignOutcome::{Assigned, Refused};
    assert_eq!(fixture.assign_all(&session).await, [Assigned, Assigned, Refused]);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_copy_of_a_payload_is_dropped_and_starts_nothing() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    fixture.service("web", 1).await;
    let payload = take(&fixture, 1).await.remove(0);
    let fq = format!("fq:{}", fixture.scheduler);
    fixture.push(&fq, &payload.raw).await;
    let twice = vec![payload.clone(), payload.clone()];
    assert_eq!(fixture.assign(&session, twice).await, [AssignOutcome::Assigned, AssignOutcome::Stale]);
    fixture.push(&fq, &payload.raw).await;
    assert_eq!(fixture.assign(&session, vec![payload.clone()]).await, [AssignOutcome::Stale]);
    assert_eq!(fixture.redis.cli::<usize>(&["LLEN", &fq]).await, 0);
    assert_eq!(fixture.redis.cli::<usize>(&["LLEN", "pq:w1"]).await, 1);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_pod_that_is_not_in_flight_any_more_is_not_assigned() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    fixture.service("web", 1).await;
    let payload = take(&fixture, 1).await.remove(0);
    let () = fixture.redis.cli(&["LMOVE", &format!("fq:{}", fixture.scheduler), "sq", "LEFT", "RIGHT"]).await;
    let assign = fixture.assign(&session, vec![payload]);
    assert_eq!(changing_nothing(&fixture, assign).await, [AssignOutcome::Gone]);
}

#[tokio::test]
async fn a_pod_pushed_to_sq_is_assigned_and_one_of_an_unknown_service_is_not() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    fixture.push("sq", &pushed("test", "mine").raw).await;
    assert_eq!(fixture.assign_all(&session).await, [AssignOutcome::Assigned]);
    let record = fixture.record(&"mine".parse().unwrap()).await;
    assert_eq!((record.phase, record.service, record.replica), (Phase::Assigned, None, 3));
    assert_eq!(fixture.store.pushed_pods().await.unwrap(), [PodId::new("mine").unwrap()]);
    let service = fixture.service("web", 1).await;
    let unknown = Payload::for_service("web".parse().unwrap(), PodId::random(), "i", 0, service.spec_id);
    let () = fixture.redis.cli(&["DEL", "sq"]).await;
    fixture.push("sq", &unknown.raw).await;
    let payloads = take(&fixture, 1).await;
    let assign = fixture.assign(&session, payloads.clone());
    assert_eq!(changing_nothing(&fixture, assign).await, [AssignOutcome::UnknownService]);
    let park = [parked(&payloads[0], "")];
    let park = fixture.store.park(&fixture.scheduler, &park);
    assert_eq!(changing_nothing(&fixture, park).await.unwrap(), [ParkOutcome::UnknownService]);
}

#[tokio::test]
async fn two_schedulers_cannot_overcommit_a_node() {
    let fixture = Fixture::new().await;
    assert_eq!(checks::two_schedulers_fill_a_node(&fixture).await, Vec::<String>::new());
}

#[tokio::test]
async fn siblings_are_pods_on_nodes_of_services_with_several_replicas() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    for (name, replicas) in [("web", 3), ("single", 1), ("large", 257), ("broken", 2)] {
        fixture.service(name, replicas).await;
    }
    let in_flight = take(&fixture, 300).await;
    let of_web: Vec<_> = in_flight.iter().filter(|payload| payload.name.as_str() == "web").cloned().collect();
    let spec = of_web[0].spec.clone().unwrap();
    assert_eq!(fixture.assign(&session, of_web[..2].to_vec()).await, [AssignOutcome::Assigned; 2]);
    let () = fixture.redis.cli(&["SET", "slots:broken", "no hash"]).await;
    let on_node =
        |replica| Sibling { spec: spec.clone(), replica, node: session.node().clone(), is_leaving: false };
    for (waiting, of_web) in
        [(1, of_web[..2].iter().map(|pod| on_node(pod.replica)).collect()), (3, Vec::new())]
    {
        let names = ["web", "single", "large", "broken", "unknown"];
        let services = names.map(|name| (name.parse().unwrap(), waiting.into())).into();
        let placed = fixture.store.placed_services(&services).await.unwrap();
        let siblings = names.map(|name| placed[&name.parse().unwrap()].siblings.clone());
        assert_eq!(siblings, [Some(of_web), None, None, Some(Vec::new()), None], "{waiting}");
    }
}

#[tokio::test]
async fn a_node_whose_labels_changed_since_they_were_judged_refuses() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    fixture.service("web", 3).await;
    let payloads = take(&fixture, 3).await;
    let assign = async |index: usize, seen_labels| {
        let one = fixture.assignment(&session, payloads[index].clone()).await;
        let one = Assignment { seen_labels, ..one };
        fixture.store.assign(&fixture.scheduler, DEAD_AFTER, &[one]).await.unwrap()
    };
    let revision = fixture.store.node(session.node()).await.unwrap().unwrap().labels_revision;
    let changes = [("zone".to_owned(), Some("b".to_owned()))].into();
    fixture.store.label_node(session.node(), &changes).await.unwrap();
    assert_eq!(assign(0, Some(revision)).await, [AssignOutcome::Refused]);
    assert_eq!(assign(0, Some(revision + 1)).await, [AssignOutcome::Assigned]);
    assert_eq!(assign(1, None).await, [AssignOutcome::Assigned], "it has no rules");
}

#[tokio::test]
async fn a_service_whose_rules_count_its_pods_has_no_assignment_between_a_look_and_its_own() {
    let fixture = Fixture::new().await;
    let sessions = [fixture.node("w1").await, fixture.node("w2").await];
    fixture
        .service_of(json!({"name": "web", "image": "nginx", "replicas": 5, "placement": {"max_per_node": 9}}))
        .await;
    let payloads = take(&fixture, 5).await;
    let mark = async || {
        let services = [("web".parse().unwrap(), 1.into())].into();
        let placed = fixture.store.placed_services(&services).await.unwrap();
        placed[&"web".parse().unwrap()].mark.clone()
    };
    let assign = async |pods: &[(usize, usize)], seen: &str, next: &str| {
        let (seen_mark, next_mark) = (seen.to_owned(), next.to_owned());
        let counted = CountedAssignment { seen_mark, next_mark, opens_domains: true, related: Vec::new() };
        let mut assignments = Vec::new();
        for (pod, node) in pods {
            let one = fixture.assignment(&sessions[*node], payloads[*pod].clone()).await;
            assignments.push(Assignment { counted: Some(counted.clone()), ..one });
        }
        fixture.store.assign(&fixture.scheduler, DEAD_AFTER, &assignments).await.unwrap()
    };
    use AssignOutcome::{Assigned, Refused};
    assert_eq!(mark().await, "");
    assert_eq!(assign(&[(0, 0)], "", "first").await, [Assigned]);
    assert_eq!(mark().await, "first");
    assert_eq!(assign(&[(1, 0)], "", "other").await, [Refused], "another pod was placed since");
    assert_eq!(mark().await, "first");

    let freed = fixture.store.freed().await.unwrap();
    let _set: u64 = fixture.redis.cli(&["HSET", "node:w2", "cordoned", "1"]).await;
    let of_three = assign(&[(1, 0), (2, 1), (3, 0)], "first", "second").await;
    assert_eq!(of_three, [Assigned, Refused, Refused], "each decision rests on those before it");
    assert_eq!(mark().await, "second partly", "nor is the next script what was expected");
    assert_eq!(fixture.store.freed().await.unwrap(), freed, "no pod waits");

    let parked = [parked(&payloads[2], "0/2 nodes are available: 2 Spread")];
    assert_eq!(fixture.store.park(&fixture.scheduler, &parked).await.unwrap(), [ParkOutcome::Parked]);
    assert_eq!(assign(&[(3, 0)], "second partly", "third").await, [Assigned]);
    assert!(fixture.store.freed().await.unwrap() > freed, "the one that waits may have a place now");

    let _deleted: u64 = fixture.redis.cli(&["DEL", "service:web"]).await;
    assert_eq!(assign(&[(4, 0)], "", "fourth").await, [Assigned]);
    let exists: bool = fixture.redis.cli(&["EXISTS", "service:web"]).await;
    assert!(!exists, "a deleted service stays deleted");
}

#[tokio::test]
async fn the_pods_of_a_service_whose_rules_count_them_are_read_however_many_there_are() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    let services = [("web".parse().unwrap(), 1.into())].into();
    let siblings = async |replicas: u64, placement| {
        let input = json!({"name": "web", "image": "nginx", "replicas": replicas, "placement": placement});
        fixture.service_of(input).await;
        fixture.store.placed_services(&services).await.unwrap()[&"web".parse().unwrap()].siblings.clone()
    };
    fixture.service("web", 1).await;
    let payload = take(&fixture, 1).await.remove(0);
    let one = fixture.assignment(&session, payload).await;
    fixture.store.assign(&fixture.scheduler, DEAD_AFTER, &[one]).await.unwrap();
    for (replicas, placement, expected) in [
        (1, json!({}), None),
        (300, json!({}), None),
        (2, json!({}), Some(1)),
        (1, json!({"max_per_node": 1}), Some(1)),
        (300, json!({"spread": [{"by": "zone"}]}), Some(1)),
    ] {
        let found = siblings(replicas, placement.clone()).await.map(|siblings| siblings.len());
        assert_eq!(found, expected, "{replicas} {placement}");
    }
}

#[tokio::test]
async fn rules_are_read_with_the_service_and_no_node_satisfies_unreadable_ones() {
    let fixture = Fixture::new().await;
    let input = json!({"name": "web", "image": "nginx", "placement": {"constraints": ["disk == ssd"]}});
    fixture.service_of(input).await;
    let services = [("web".parse().unwrap(), 1.into())].into();
    let constraints = async || {
        let placed = fixture.store.placed_services(&services).await.unwrap();
        placed[&"web".parse().unwrap()].placement.constraints.clone()
    };
    assert_eq!(constraints().await, ["disk == ssd"]);
    for wrong in [r#"{"placement":7}"#, "{", r#"{"placement":{"constraints":"all"}}"#] {
        let _set: u64 = fixture.redis.cli(&["HSET", "service:web", "fields", wrong]).await;
        let [constraint] = &constraints().await[..] else { panic!("{wrong}") };
        assert!(constraint.parse::<NodeConstraint>().is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn a_parked_pod_is_recorded_with_its_refusals_and_tried_again() {
    let fixture = Fixture::new().await;
    fixture.service("web", 2).await;
    let payloads = take(&fixture, 2).await;
    let message = "0/1 nodes take it: 1 InsufficientMemory";
    let items: Vec<_> = payloads.iter().map(|payload| parked(payload, message)).collect();
    assert_eq!(fixture.store.park(&fixture.scheduler, &items).await.unwrap(), [ParkOutcome::Parked; 2]);
    let record = fixture.record(&payloads[0].id).await;
    assert_eq!((record.phase, record.reason.as_str()), (Phase::Pending, "Unschedulable"));
    assert_eq!(record.message, message);
    let refusals = fixture.store.refusals(&payloads[0].id).await.unwrap().unwrap();
    assert_eq!(refusals, items[0].refusals);
    assert_eq!(fixture.store.queue_lengths().await.unwrap().unschedulable, 2);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
    let early = changing_nothing(&fixture, fixture.store.unpark_due(10)).await.unwrap();
    assert_eq!(early.pods, 0, "its wait is not over");
    let () = fixture.redis.cli(&["ZADD", "uq:at", "1000", payloads[1].id.as_str()]).await;
    let () = fixture.redis.cli(&["ZADD", "uq:at", "1000", payloads[0].id.as_str()]).await;
    assert_eq!(fixture.store.unpark_due(1).await.unwrap().pods, 1, "no more than asked for");
    assert_eq!(fixture.store.unpark_due(10).await.unwrap().pods, 1);
    assert_eq!(take(&fixture, 10).await.len(), 2);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_pod_is_parked_longer_each_time_up_to_a_minute() {
    let fixture = Fixture::new().await;
    fixture.service("web", 1).await;
    let payload = take(&fixture, 1).await.remove(0);
    let mut waits = Vec::new();
    for _ in 0..8 {
        fixture.store.park(&fixture.scheduler, &[parked(&payload, "m")]).await.unwrap();
        let due: f64 = fixture.redis.cli(&["ZSCORE", "uq:at", payload.id.as_str()]).await;
        waits.push((due - fixture.store.redis_now().await.unwrap() as f64) / 1000.0);
        let () = fixture.redis.cli(&["ZADD", "uq:at", "1", payload.id.as_str()]).await;
        fixture.store.unpark_due(1).await.unwrap();
        take(&fixture, 1).await;
    }
    for (wait, expected) in waits.into_iter().zip([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]) {
        assert!((expected - 1.0..=expected).contains(&wait), "{wait} s, not {expected} s");
    }
}

#[tokio::test]
async fn a_wait_written_by_a_clock_that_was_ahead_ends() {
    let fixture = Fixture::new().await;
    fixture.service("web", 1).await;
    let payload = take(&fixture, 1).await.remove(0);
    fixture.store.park(&fixture.scheduler, &[parked(&payload, "m")]).await.unwrap();
    let in_an_hour = (fixture.store.redis_now().await.unwrap() + 3_600_000).to_string();
    let () = fixture.redis.cli(&["ZADD", "uq:at", &in_an_hour, payload.id.as_str()]).await;
    assert_eq!(fixture.store.unpark_due(10).await.unwrap().pods, 1);
}

#[tokio::test]
async fn a_pod_that_is_not_in_flight_or_not_pending_is_not_parked() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    let park = [parked(&placed.payload, "")];
    let gone = fixture.store.park(&fixture.scheduler, &park);
    assert_eq!(changing_nothing(&fixture, gone).await.unwrap(), [ParkOutcome::Gone]);
    fixture.push(&format!("fq:{}", fixture.scheduler), &placed.payload.raw).await;
    let stale = fixture.store.park(&fixture.scheduler, &park).await.unwrap();
    assert_eq!(stale, [ParkOutcome::Stale]);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_stopped_pod_is_removed_from_the_unschedulable_set() {
    let fixture = Fixture::new().await;
    fixture.service("web", 1).await;
    let payload = take(&fixture, 1).await.remove(0);
    let parked = Parked { class: Some("a".to_owned()), ..parked(&payload, "m") };
    fixture.store.park(&fixture.scheduler, &[parked]).await.unwrap();
    fixture.stop(&fixture.record(&payload.id).await).await;
    let keyspace = fixture.keyspace().await;
    for key in ["uq", "uq:at", "uq:why", "uq:class", "uq:by_class"] {
        assert!(keyspace.get(key).is_none(), "{key}");
    }
}

#[tokio::test]
async fn a_silent_schedulers_pods_are_reclaimed_once_and_taken_first() {
    let fixture = Fixture::new().await;
    fixture.service("web", 5).await;
    take(&fixture, 3).await;
    let alive = fixture.store.reclaim_in_flight(&fixture.scheduler, DEAD_AFTER, 100);
    assert_eq!(changing_nothing(&fixture, alive).await.unwrap(), None);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let silent = Duration::from_millis(5);
    assert_eq!(
        fixture.store.reclaim_in_flight(&fixture.scheduler, silent, 2).await.unwrap(),
        Some(2),
        "in pages"
    );
    assert_eq!(fixture.store.reclaim_in_flight(&fixture.scheduler, silent, 100).await.unwrap(), Some(1));
    assert_eq!(fixture.store.reclaim_in_flight(&fixture.scheduler, silent, 100).await.unwrap(), Some(0));
    assert_eq!(indices(&take(&fixture, 5).await), [0, 1, 2, 3, 4], "as if nothing had been");
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_lease_has_one_holder_at_a_time() {
    let fixture = Fixture::new().await;
    let (me, other) = (&fixture.scheduler, &SchedulerId::random());
    assert!(fixture.store.lease("external", me, Duration::from_millis(200)).await.unwrap());
    assert!(fixture.store.lease("external", me, Duration::from_millis(200)).await.unwrap(), "kept");
    assert!(!fixture.store.lease("external", other, DEAD_AFTER).await.unwrap());
    assert!(fixture.store.lease("reconcile", other, DEAD_AFTER).await.unwrap(), "leases are apart");
    kubeleet_tests::eventually(Duration::from_secs(5), "the lease runs out", || async {
        let got = fixture.store.lease("external", other, DEAD_AFTER).await.unwrap();
        kubeleet_tests::wait::that(got, || "still held".to_owned())
    })
    .await;
}
