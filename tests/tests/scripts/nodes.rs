//! Nodes as schedulers see them: declared dead, drained, cordoned, and guests. Invariants 2, 3 and 4.

use std::time::Duration;

use common::ids::NodeName;
use common::lifecycle::Phase;
use common::node::{NodeKind, NodeState};
use common::payload::Payload;
use common::store::{DeclareOutcome, DrainOutcome, GuestBeat, GuestSign};
use kubeleet_tests::Bed;
use kubeleet_tests::bed::{DEAD_AFTER, Placed, node, pushed};

use crate::{changing_nothing, checks};

async fn declare(bed: &Bed, name: &str, gap: Duration) -> DeclareOutcome {
    let seen = bed.store.node(&node(name)).await.unwrap().unwrap();
    bed.store.declare_dead(&seen, DEAD_AFTER, Duration::ZERO, gap).await.unwrap()
}

#[tokio::test]
async fn only_a_silent_node_is_declared_dead_and_once() {
    let bed = Bed::new().await;
    bed.node("w1").await;
    let alive = declare(&bed, "w1", Duration::ZERO);
    assert_eq!(changing_nothing(&bed, alive).await, DeclareOutcome::Alive);
    bed.silence("w1").await;
    assert_eq!(declare(&bed, "w1", Duration::ZERO).await, DeclareOutcome::Declared);
    let again = declare(&bed, "w1", Duration::ZERO);
    assert_eq!(changing_nothing(&bed, again).await, DeclareOutcome::Already);
    let seen = bed.store.node(&node("w1")).await.unwrap().unwrap();
    assert_eq!(seen.state, NodeState::Dead);
    assert_eq!(bed.store.living_nodes().await.unwrap(), 0);
}

#[tokio::test]
async fn a_node_that_lives_again_is_not_declared_dead_for_its_old_life() {
    let bed = Bed::new().await;
    bed.node("w1").await;
    let seen = bed.store.node(&node("w1")).await.unwrap().unwrap();
    bed.node("w1").await;
    bed.silence("w1").await;
    let declare = bed.store.declare_dead(&seen, DEAD_AFTER, Duration::ZERO, Duration::ZERO);
    assert_eq!(changing_nothing(&bed, declare).await.unwrap(), DeclareOutcome::Alive);
}

#[tokio::test]
async fn deaths_keep_their_distance_and_wait_after_a_change_of_master() {
    let bed = Bed::new().await;
    for name in ["w1", "w2"] {
        bed.node(name).await;
        bed.silence(name).await;
    }
    let gap = Duration::from_secs(2);
    assert_eq!(declare(&bed, "w1", gap).await, DeclareOutcome::Declared);
    let DeclareOutcome::Wait(left) = declare(&bed, "w2", gap).await else { panic!("too soon") };
    assert!(left <= gap && left > gap / 2, "{left:?}");
    let () = bed.redis.cli(&["HSET", "meta", "run_id", "another"]).await;
    let seen = bed.store.node(&node("w2")).await.unwrap().unwrap();
    let pause = Duration::from_secs(30);
    let outcome = bed.store.declare_dead(&seen, DEAD_AFTER, pause, Duration::ZERO).await.unwrap();
    let DeclareOutcome::Wait(left) = outcome else { panic!("the master has just changed") };
    assert!(left <= pause && left > pause / 2, "{left:?}");
}

#[tokio::test]
async fn a_dead_nodes_pods_go_back_to_the_queue_each_as_its_phase_wants() {
    for (phase, after, queued) in [
        (Phase::Assigned, Phase::Pending, 1),
        (Phase::Running, Phase::Pending, 1),
        (Phase::Stopping, Phase::Stopped, 0),
    ] {
        let bed = Bed::new().await;
        let Placed { record, .. } = bed.pod_in(phase, "web", "w1").await;
        bed.kill_node("w1").await;
        bed.drain("w1").await;
        let moved = bed.record(&record.id).await;
        assert_eq!((moved.phase, bed.redis.cli::<usize>(&["LLEN", "sq"]).await), (after, queued), "{phase}");
        if after == Phase::Pending {
            assert_eq!((moved.node, moved.assignment, moved.reason.as_str()), (None, None, "NodeDied"));
        }
        assert_eq!(bed.violations().await, Vec::<String>::new(), "{phase}");
        assert_eq!(bed.keyspace().await.field("node:w1", "used_pods"), "0", "{phase}");
    }
}

#[tokio::test]
async fn an_empty_or_living_node_is_not_drained() {
    let bed = Bed::new().await;
    bed.pod_in(Phase::Running, "web", "w1").await;
    let alive = bed.store.node(&node("w1")).await.unwrap().unwrap();
    assert_eq!(changing_nothing(&bed, bed.store.drain_step(&alive)).await.unwrap(), DrainOutcome::Alive);
    bed.kill_node("w1").await;
    bed.drain("w1").await;
    let dead = bed.store.node(&node("w1")).await.unwrap().unwrap();
    assert_eq!(changing_nothing(&bed, bed.store.drain_step(&dead)).await.unwrap(), DrainOutcome::Empty);
}

#[tokio::test]
async fn what_is_pushed_to_a_dead_node_later_is_drained_too_and_bad_bytes_with_it() {
    let bed = Bed::new().await;
    bed.node("w1").await;
    bed.kill_node("w1").await;
    let good = pushed("test", "mine");
    for raw in [&good.raw[..], b"\xff\xfe not a pod"] {
        let () = bed.redis.cli(&[&b"LPUSH"[..], b"pq:w1", raw]).await;
    }
    bed.drain("w1").await;
    let mut taken = bed.store.take(&bed.scheduler, 10).await.unwrap();
    taken.sort_unstable();
    assert_eq!(taken, [&good.raw[..], b"\xff\xfe not a pod"], "byte for byte");
}

#[tokio::test]
async fn a_payload_of_a_pod_that_has_moved_on_is_dropped() {
    let bed = Bed::new().await;
    let Placed { record, payload, .. } = bed.pod_in(Phase::Running, "web", "w2").await;
    bed.node("w1").await;
    let () = bed.redis.cli(&[&b"LPUSH"[..], b"pq:w1", &payload.raw]).await;
    bed.kill_node("w1").await;
    bed.drain("w1").await;
    assert_eq!(bed.record(&record.id).await, record, "it runs on w2 as before");
    assert_eq!(bed.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn four_schedulers_drain_a_node_once() {
    assert_eq!(checks::many_drain_one_node(&Bed::new().await).await, Vec::<String>::new());
}

#[tokio::test]
async fn many_makers_make_each_pod_once() {
    assert_eq!(checks::many_make_the_same_pods(&Bed::new().await).await, Vec::<String>::new());
}

#[tokio::test]
async fn beats_tell_who_lives_and_who_is_silent() {
    let bed = Bed::new().await;
    bed.node("w1").await;
    bed.node("w2").await;
    bed.silence("w1").await;
    let now = bed.store.redis_now().await.unwrap();
    let silent = bed.store.beats_before(now - 20_000).await.unwrap();
    assert_eq!(silent, [(node("w1"), 1000)]);
    let fresh = bed.store.beats_since(now - 20_000).await.unwrap();
    assert_eq!(fresh.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), [node("w2")]);
    assert_eq!(bed.store.living_nodes().await.unwrap(), 2);
}

#[tokio::test]
async fn cordoning_is_said_once_and_outlives_a_restart_of_the_worker() {
    let bed = Bed::new().await;
    assert!(!changing_nothing(&bed, bed.store.cordon(&node("w1"), true)).await.unwrap());
    bed.node("w1").await;
    assert!(bed.store.cordon(&node("w1"), true).await.unwrap());
    assert!(changing_nothing(&bed, bed.store.cordon(&node("w1"), true)).await.unwrap());
    bed.node("w1").await;
    assert!(bed.store.node(&node("w1")).await.unwrap().unwrap().cordoned);
    assert!(bed.store.cordon(&node("w1"), false).await.unwrap());
    assert!(!bed.store.node(&node("w1")).await.unwrap().unwrap().cordoned);
}

async fn beat(bed: &Bed, name: &NodeName, value: &str) -> GuestBeat {
    let () = bed.redis.cli(&["SET", &format!("hb:{name}"), value]).await;
    bed.store.guest_beat(name, 10).await.unwrap()
}

#[tokio::test]
async fn each_change_of_a_guests_value_is_a_beat_whatever_the_value_says() {
    let bed = Bed::new().await;
    let guest = node("old-one");
    let silent = changing_nothing(&bed, bed.store.guest_beat(&guest, 10)).await.unwrap();
    assert_eq!(silent, GuestBeat::Silent, "nothing there");
    assert_eq!(beat(&bed, &guest, "1999-12-31T23:59:59").await, GuestBeat::Joined);
    let same = changing_nothing(&bed, bed.store.guest_beat(&guest, 10)).await.unwrap();
    assert_eq!(same, GuestBeat::Silent);
    assert_eq!(beat(&bed, &guest, "1970-01-01").await, GuestBeat::Beat, "compared with no clock");
    let seen = bed.store.node(&guest).await.unwrap().unwrap();
    let now = bed.store.redis_now().await.unwrap();
    assert!(seen.kind == NodeKind::Guest && now - seen.beat < 10_000, "{seen:?}");
    bed.node("w1").await;
    assert_eq!(beat(&bed, &node("w1"), "1").await, GuestBeat::Ours);
}

#[tokio::test]
async fn a_guest_that_comes_back_waits_for_its_drain() {
    let bed = Bed::new().await;
    let guest = node("old-one");
    beat(&bed, &guest, "1").await;
    let payload = pushed("test", "mine");
    let () = bed.redis.cli(&[&b"SADD"[..], b"cs:old-one", &payload.raw]).await;
    assert_eq!(bed.store.guest_ack(&guest, std::slice::from_ref(&payload)).await.unwrap(), 1);
    bed.kill_node("old-one").await;
    assert_eq!(beat(&bed, &guest, "2").await, GuestBeat::Draining);
    bed.drain("old-one").await;
    assert_eq!(beat(&bed, &guest, "3").await, GuestBeat::Joined);
    assert_eq!(bed.record(&payload.id).await.phase, Phase::Pending, "its pod moves like any other's");
    assert_eq!(bed.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_guests_container_set_is_believed_and_nobody_elses() {
    let bed = Bed::new().await;
    let guest = node("old-one");
    beat(&bed, &guest, "1").await;
    bed.service("web", 1).await;
    let taken = bed.store.take(&bed.scheduler, 1).await.unwrap().remove(0);
    let given = Payload::parse(taken).unwrap();
    let seen = bed.store.node(&guest).await.unwrap().unwrap();
    let request = kubeleet_tests::bed::REQUEST;
    let request = common::node::Resources { cpu_millis: 0, memory_bytes: 0, ..request };
    let assignment = common::store::Assignment {
        payload: given.clone(),
        node: guest.clone(),
        incarnation: seen.incarnation,
        request,
    };
    bed.store.assign(&bed.scheduler, DEAD_AFTER, &[assignment]).await.unwrap();
    // The guest starts it the old way.
    let () = bed.redis.cli(&["RPOPLPUSH", "pq:old-one", "rq:old-one"]).await;
    let own = pushed("own", "its-own");
    for raw in [&given.raw, &own.raw] {
        let () = bed.redis.cli(&[&b"SADD"[..], b"cs:old-one", raw]).await;
    }
    let () = bed.redis.cli(&[&b"LREM"[..], b"rq:old-one", b"1", &given.raw]).await;
    let running = [given.clone(), own.clone(), pushed("not", "there")];
    assert_eq!(bed.store.guest_ack(&guest, &running).await.unwrap(), 2);
    assert_eq!(changing_nothing(&bed, bed.store.guest_ack(&guest, &running)).await.unwrap(), 0);
    assert_eq!(bed.record(&given.id).await.phase, Phase::Running);
    assert_eq!(bed.store.pushed_pods().await.unwrap(), [own.id]);
    assert_eq!(bed.violations().await, Vec::<String>::new());
    bed.node("w1").await;
    let ours = changing_nothing(&bed, bed.store.guest_ack(&node("w1"), &running)).await.unwrap();
    assert_eq!(ours, 0, "our own workers say it themselves");
}

#[tokio::test]
async fn a_walk_over_the_keys_finds_guests() {
    let bed = Bed::new().await;
    let () = bed.redis.cli(&["SET", "hb:old-one", "1"]).await;
    let () = bed.redis.cli(&["LPUSH", "pq:nobody", "x"]).await;
    let () = bed.redis.cli(&["SET", "pb:neither", "x"]).await;
    let (mut cursor, mut found) = (0, Vec::new());
    loop {
        let (next, page) = bed.store.scan_for_guests(cursor, 10).await.unwrap();
        found.extend(page);
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    assert!(found.contains(&GuestSign::Heartbeat(node("old-one"))), "{found:?}");
    assert!(found.contains(&GuestSign::Queue(node("nobody"))), "{found:?}");
    assert_eq!(found.len(), 2);
}
