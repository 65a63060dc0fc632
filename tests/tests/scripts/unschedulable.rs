//! Unschedulable pods by class: park, unpark, and the list of classes. Invariant 2.

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::REQUEST;
use model::pod::payload::Payload;
use store::{ParkOutcome, Parked};

async fn take(fixture: &Fixture, count: usize) -> Vec<Payload> {
    let taken = fixture.store.take(&fixture.scheduler, count).await.unwrap();
    taken.into_iter().map(|raw| Payload::parse(raw).unwrap()).collect()
}

fn parked(payload: &Payload, class: &str) -> Parked {
    let message = "0/1 nodes are available: 1 InsufficientMemory".to_owned();
    let class = Some(class.to_owned());
    Parked { payload: payload.clone(), request: REQUEST, refusals: Vec::new(), message, class }
}

/// Parks pods of the service in these classes, one after the other.
async fn park(fixture: &Fixture, classes: &[&str]) -> Vec<Payload> {
    fixture.service("web", classes.len() as u32).await;
    let payloads = take(fixture, classes.len()).await;
    for (payload, class) in payloads.iter().zip(classes) {
        let items = [parked(payload, class)];
        assert_eq!(fixture.store.park(&fixture.scheduler, &items).await.unwrap(), [ParkOutcome::Parked]);
        let now = fixture.store.redis_now().await.unwrap();
        while fixture.store.redis_now().await.unwrap() == now {}
    }
    payloads
}

async fn classes(fixture: &Fixture) -> Vec<(String, usize, u32)> {
    let found = fixture.store.unschedulable_classes("", 10).await.unwrap();
    let replica = |raw| Payload::parse(raw).unwrap().replica;
    found.into_iter().map(|one| (one.class, one.pods, replica(one.example))).collect()
}

fn class(name: &str, pods: usize, oldest: u32) -> (String, usize, u32) {
    (name.to_owned(), pods, oldest)
}

async fn waiting(fixture: &Fixture) -> Vec<u32> {
    let found: Vec<Vec<u8>> = fixture.redis.cli(&["LRANGE", "sq", "0", "-1"]).await;
    found.into_iter().rev().map(|raw| Payload::parse(raw.into()).unwrap().replica).collect()
}

async fn make_due(fixture: &Fixture, payloads: &[Payload]) {
    for (at, payload) in (1..).zip(payloads) {
        let at: u64 = at;
        let () = fixture.redis.cli(&["ZADD", "uq:at", "XX", &at.to_string(), payload.id.as_str()]).await;
    }
}

pub(crate) async fn room_appears_before_pods_are_parked(fixture: &Fixture) -> Vec<String> {
    let session = fixture.node("w1").await;
    fixture.service("web", 2).await;
    let payloads = take(fixture, 2).await;
    let items = [parked(&payloads[0], "a"), parked(&payloads[1], "a")];
    let seen = fixture.store.freed().await.unwrap();
    for cordoned in [true, false] {
        assert!(fixture.store.cordon(session.node(), cordoned).await.unwrap());
    }
    let mut wrong = Vec::new();
    let outcomes = fixture.store.park_as_seen(&fixture.scheduler, &items, Some(seen)).await.unwrap();
    if outcomes != [ParkOutcome::Changed; 2] || take(fixture, 2).await != payloads {
        wrong.push(format!("pods are parked although there is room: {outcomes:?}"));
    }
    let seen = Some(fixture.store.freed().await.unwrap());
    let outcomes = fixture.store.park_as_seen(&fixture.scheduler, &items, seen).await.unwrap();
    if outcomes != [ParkOutcome::Parked; 2] {
        wrong.push(format!("nothing has happened since, and yet {outcomes:?}"));
    }
    wrong
}

#[tokio::test]
async fn no_pod_is_parked_if_room_has_appeared_since_the_nodes_were_read() {
    let wrong = room_appears_before_pods_are_parked(&Fixture::new().await).await;
    assert_eq!(wrong, Vec::<String>::new());
}

#[tokio::test]
async fn the_oldest_pods_of_a_class_are_queued_and_no_others() {
    let fixture = Fixture::new().await;
    park(&fixture, &["b", "a", "b", "b", "ab"]).await;
    assert_eq!(classes(&fixture).await, [class("a", 1, 1), class("ab", 1, 4), class("b", 3, 0)]);
    let after = fixture.store.unschedulable_classes("a", 1).await.unwrap();
    assert_eq!(after.into_iter().map(|one| one.class).collect::<Vec<_>>(), ["ab"], "one page");
    assert_eq!(fixture.store.unpark_classes(&[("b", 2), ("c", 5)]).await.unwrap(), 2);
    assert_eq!(waiting(&fixture).await, [0, 2]);
    assert_eq!(classes(&fixture).await, [class("a", 1, 1), class("ab", 1, 4), class("b", 1, 3)]);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

/// Each minute the oldest pod is tried.
pub(crate) async fn a_minute_passes(fixture: &Fixture) -> Vec<String> {
    let payloads = park(fixture, &["a", "a", "a", "b"]).await;
    let mut wrong = Vec::new();
    for expected in [vec![0, 3], vec![0, 3, 1]] {
        make_due(fixture, &payloads).await;
        fixture.store.unpark_due(10).await.unwrap();
        // Another scheduler, at the same moment.
        fixture.store.unpark_due(10).await.unwrap();
        let tried = waiting(fixture).await;
        if tried.len() < expected.len() {
            wrong.push(format!("a class is never tried: {tried:?}"));
        } else if tried != expected {
            wrong.push(format!("pods {tried:?} are tried, and not {expected:?}"));
        }
    }
    wrong
}

#[tokio::test]
async fn once_a_minute_the_oldest_pod_of_each_class_is_queued() {
    assert_eq!(a_minute_passes(&Fixture::new().await).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_pod_whose_nodes_were_not_compared_asks_for_a_look() {
    let fixture = Fixture::new().await;
    let mut hints = fixture.store.subscribe(store::channel::SCHEDULER);
    // Before the subscription, and after it.
    for _ in 0..2 {
        assert!(hints.next().await.is_empty());
    }
    fixture.service("web", 2).await;
    let payloads = take(&fixture, 2).await;
    let seen = Some(fixture.store.freed().await.unwrap());
    let park = async |payload, seen| {
        fixture.store.park_as_seen(&fixture.scheduler, &[parked(payload, "a")], seen).await.unwrap()
    };
    park(&payloads[0], seen).await;
    assert_eq!(store::pending_hints(&mut hints), Vec::<bytes::Bytes>::new());
    park(&payloads[1], None).await;
    let wait = std::time::Duration::from_secs(10);
    assert!(!store::tick_or_hints(wait, &mut hints).await.is_empty());
}

#[tokio::test]
async fn the_version_before_parks_and_queues_pods_of_any_class() {
    let fixture = Fixture::new().await;
    let payloads = park(&fixture, &["a", "a", "a"]).await;
    // Its `unpark` knows only these keys.
    for key in ["uq", "uq:why"] {
        let () = fixture.redis.cli(&["HDEL", key, payloads[0].id.as_str()]).await;
    }
    let () = fixture.redis.cli(&["ZREM", "uq:at", payloads[0].id.as_str()]).await;
    fixture.push("sq", &payloads[0].raw).await;
    assert_eq!(fixture.store.unpark_classes(&[("a", 1)]).await.unwrap(), 1);
    assert_eq!(waiting(&fixture).await, [0, 1]);
    assert_eq!(classes(&fixture).await, [class("a", 1, 2)], "what it left is removed");
    // Its `park`, too.
    take(&fixture, 2).await;
    let without_class = Parked { class: None, ..parked(&payloads[0], "") };
    fixture.store.park(&fixture.scheduler, &[without_class]).await.unwrap();
    make_due(&fixture, &payloads).await;
    assert_eq!(fixture.store.unpark_due(10).await.unwrap().pods, 2);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn without_one_of_their_keys_pods_wait_for_a_minute_at_most() {
    for (command, key) in
        [("DEL", "uq:class"), ("DEL", "uq:by_class"), ("SET", "uq:class"), ("SET", "uq:by_class")]
    {
        let fixture = Fixture::new().await;
        let payloads = park(&fixture, &["a", "a", "a", "a"]).await;
        let words = if command == "DEL" { vec![command, key] } else { vec![command, key, "mine"] };
        let () = fixture.redis.cli(&words).await;
        if command == "SET" {
            assert_eq!(fixture.store.set_aside_cluster_keys().await.unwrap(), [key]);
        }
        assert_eq!(classes(&fixture).await, [], "{command} {key}");
        // One that is parked afterwards does not stand for the others.
        make_due(&fixture, &payloads[3..]).await;
        fixture.store.unpark_due(10).await.unwrap();
        let last = take(&fixture, 1).await.remove(0);
        fixture.store.park(&fixture.scheduler, &[parked(&last, "a")]).await.unwrap();
        make_due(&fixture, &payloads).await;
        fixture.store.unpark_due(10).await.unwrap();
        assert_eq!(waiting(&fixture).await, [0, 1, 2, 3], "{command} {key}");
        let items: Vec<_> = take(&fixture, 4).await.iter().map(|payload| parked(payload, "a")).collect();
        fixture.store.park(&fixture.scheduler, &items).await.unwrap();
        assert_eq!(classes(&fixture).await.len(), 1, "{command} {key}");
        assert_eq!(classes(&fixture).await[0].1, 4, "{command} {key}");
    }
}

#[tokio::test]
async fn entries_of_other_programs_are_removed() {
    let fixture = Fixture::new().await;
    park(&fixture, &["b"]).await;
    for entry in ["a", "a 1 no-pod", "b x y", &"long".repeat(1_000)] {
        let () = fixture.redis.cli(&["ZADD", "uq:by_class", "0", entry]).await;
    }
    assert_eq!(classes(&fixture).await, [class("b", 2, 0)]);
    assert_eq!(fixture.store.unpark_classes(&[("b", 9)]).await.unwrap(), 1);
    assert_eq!(classes(&fixture).await, []);
    assert!(fixture.keyspace().await.get("uq:by_class").is_none());
}
