//! No script holds Redis up for long, however large the service: everything goes in batches.

use common::ids::ServiceName;
use common::node::Resources;
use common::payload::Payload;
use common::store::{Assignment, CreateOutcome, DrainOutcome};
use kubeleet_tests::Bed;
use kubeleet_tests::bed::{DEAD_AFTER, REQUEST, node};

/// What a script may take at most, in microseconds.
const LONGEST: &str = "50000";

async fn slow(bed: &Bed) -> Vec<(String, u64)> {
    let entries: Vec<redis::Value> = bed.redis.cli(&["SLOWLOG", "GET", "10"]).await;
    let read = |entry| {
        let (_, _, took, words): (u64, u64, u64, Vec<redis::Value>) = {
            let fields: Vec<redis::Value> = redis::from_redis_value(entry).unwrap();
            let mut fields = fields.into_iter();
            let mut number = || redis::from_redis_value(fields.next().unwrap()).unwrap();
            let (id, at, took) = (number(), number(), number());
            (id, at, took, redis::from_redis_value(fields.next().unwrap()).unwrap())
        };
        let command: String = redis::from_redis_value(words.into_iter().next().unwrap()).unwrap();
        (command, took)
    };
    entries.into_iter().map(read).collect()
}

/// Redis measures wall time: on a machine that is busy with something else a short script can look long, now and then.
/// One that is long is so each time.
#[tokio::test]
async fn a_hundred_thousand_replicas_hold_redis_up_for_no_more_than_a_blink() {
    let mut slow = Vec::new();
    for _ in 0..3 {
        slow = a_hundred_thousand().await;
        if slow.is_empty() {
            return;
        }
    }
    panic!("(command, microseconds): {slow:?}");
}

/// Makes, assigns and drains them; gives what took too long.
async fn a_hundred_thousand() -> Vec<(String, u64)> {
    let bed = Bed::new().await;
    let name = ServiceName::new("web").unwrap();
    let service = bed.service("web", 0).await;
    bed.store.scale_service(&name, 100_000).await.unwrap();
    let () = bed.redis.cli(&["CONFIG", "SET", "slowlog-log-slower-than", LONGEST]).await;
    let all: Vec<u32> = (0..100_000).collect();
    assert_eq!(bed.store.create_pods(&service, &all).await.unwrap(), CreateOutcome::Created(100_000));
    assert_eq!(bed.store.create_pods(&service, &all).await.unwrap(), CreateOutcome::Created(0));
    let slots = bed.store.slots(&name).await.unwrap();
    assert_eq!((slots.len(), bed.redis.cli::<usize>(&["LLEN", "sq"]).await), (100_000, 100_000));

    let room = Resources { cpu_millis: 1 << 40, memory_bytes: 1 << 50, pods: 100_000 };
    let session = bed.node_with("w1", room).await;
    let incarnation = bed.store.node(&node("w1")).await.unwrap().unwrap().incarnation;
    for _ in 0..10 {
        let taken = bed.store.take(&bed.scheduler, 1000).await.unwrap();
        let one = |raw| Assignment {
            payload: Payload::parse(raw).unwrap(),
            node: node("w1"),
            incarnation: incarnation.clone(),
            request: REQUEST,
        };
        let assignments: Vec<_> = taken.into_iter().map(one).collect();
        for chunk in assignments.chunks(250) {
            bed.store.assign(&bed.scheduler, DEAD_AFTER, chunk).await.unwrap();
        }
    }
    session.take_more(1000).await.unwrap();
    bed.kill_node("w1").await;
    let dead = bed.store.node(&node("w1")).await.unwrap().unwrap();
    while let DrainOutcome::Moved(_) = bed.store.drain_step(&dead).await.unwrap() {}
    assert_eq!(bed.redis.cli::<usize>(&["LLEN", "sq"]).await, 100_000, "each is back");
    slow(&bed).await
}
