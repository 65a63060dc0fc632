//! Nodes as schedulers see them: declared dead, drained, cordoned, and external workers. Invariants 2, 3, 4,
//! 16 and 18.

use std::time::Duration;

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::{DEAD_AFTER, MACHINE, Placed, facts, node, pushed};
use model::ids::NodeName;
use model::node::timing::Timing;
use model::node::{Node, NodeKind, NodeState};
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use model::pod::slot::Slot;
use model::spec::HostPorts;
use store::{
    Claimant, DeclareOutcome, DrainOutcome, ExternalBeat, ExternalSign, RemoveNodeOutcome, RequeueOutcome,
    RestoreOutcome, SilenceProof,
};
use testkit::fixtures;

use crate::{changing_nothing, checks};

async fn declare(fixture: &Fixture, name: &str, gap: Duration) -> DeclareOutcome {
    let seen = fixture.store.node(&node(name)).await.unwrap().unwrap();
    fixture.store.declare_dead(&seen, DEAD_AFTER, Duration::ZERO, gap, fixtures::long_proof()).await.unwrap()
}

#[tokio::test]
async fn only_a_silent_node_is_declared_dead_and_only_once() {
    let fixture = Fixture::new().await;
    fixture.node("w1").await;
    let alive = declare(&fixture, "w1", Duration::ZERO);
    assert_eq!(changing_nothing(&fixture, alive).await, DeclareOutcome::Alive);
    fixture.silence("w1").await;
    assert_eq!(declare(&fixture, "w1", Duration::ZERO).await, DeclareOutcome::Declared);
    let again = declare(&fixture, "w1", Duration::ZERO);
    assert_eq!(changing_nothing(&fixture, again).await, DeclareOutcome::Already);
    let seen = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    assert_eq!(seen.state, NodeState::Dead);
    assert_eq!(fixture.store.live_nodes().await.unwrap(), 0);
}

#[tokio::test]
async fn a_node_that_registered_again_is_not_declared_dead_for_its_earlier_session() {
    let fixture = Fixture::new().await;
    fixture.node("w1").await;
    let seen = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    fixture.node("w1").await;
    fixture.silence("w1").await;
    let declare =
        fixture.store.declare_dead(&seen, DEAD_AFTER, Duration::ZERO, Duration::ZERO, fixtures::long_proof());
    assert_eq!(changing_nothing(&fixture, declare).await.unwrap(), DeclareOutcome::Alive);
}

#[tokio::test]
async fn declarations_of_death_are_spaced_and_pause_after_a_change_of_master() {
    let fixture = Fixture::new().await;
    for name in ["w1", "w2"] {
        fixture.node(name).await;
        fixture.silence(name).await;
    }
    let gap = Duration::from_secs(2);
    assert_eq!(declare(&fixture, "w1", gap).await, DeclareOutcome::Declared);
    let DeclareOutcome::Wait(left) = declare(&fixture, "w2", gap).await else { panic!("too soon") };
    assert!(left <= gap && left > gap / 2, "{left:?}");
    let () = fixture.redis.cli(&["HSET", "meta", "run_id", "another"]).await;
    let seen = fixture.store.node(&node("w2")).await.unwrap().unwrap();
    let pause = Duration::from_secs(30);
    let outcome = fixture
        .store
        .declare_dead(&seen, DEAD_AFTER, pause, Duration::ZERO, fixtures::long_proof())
        .await
        .unwrap();
    let DeclareOutcome::Wait(left) = outcome else { panic!("the master has just changed") };
    assert!(left <= pause && left > pause / 2, "{left:?}");
}

/// In seconds. Returns the record after the silence.
async fn silent_with_times(fixture: &Fixture, (fence, dead): (u64, u64), silence: Duration) -> Node {
    let timing = Timing {
        fence_after: Duration::from_secs(fence),
        dead_after: Duration::from_secs(dead),
        ..Timing::default()
    };
    let claimant = Claimant { timing, ..fixtures::claimant() };
    fixture.store.register(&node("w1"), &facts(MACHINE), claimant, None).await.unwrap();
    let beat = fixture.store.redis_now().await.unwrap() - silence.as_millis() as u64;
    let () = fixture.redis.cli(&["HSET", "node:w1", "beat", &beat.to_string()]).await;
    fixture.store.node(&node("w1")).await.unwrap().unwrap()
}

/// Invariant 18. Returns violations.
pub(crate) async fn a_scheduler_has_shorter_times_than_a_node(fixture: &Fixture) -> Vec<String> {
    let mut wrong = Vec::new();
    for (silence, expected) in [(60, DeclareOutcome::Alive), (91, DeclareOutcome::Declared)] {
        let seen = silent_with_times(fixture, (60, 90), Duration::from_secs(silence)).await;
        let (dead_after, zero, proof) = (Duration::from_secs(6), Duration::ZERO, fixtures::long_proof());
        let outcome = fixture.store.declare_dead(&seen, dead_after, zero, zero, proof).await.unwrap();
        if outcome != expected {
            wrong.push(format!("{outcome:?} after {silence} s, and the node's own time is 90 s"));
        }
    }
    wrong
}

#[tokio::test]
async fn no_node_is_declared_dead_before_its_own_time_whatever_the_scheduler_has() {
    let fixture = Fixture::new().await;
    assert_eq!(a_scheduler_has_shorter_times_than_a_node(&fixture).await, Vec::<String>::new());
    let seen = silent_with_times(&fixture, (2, 3), Duration::from_secs(10)).await;
    assert_eq!(seen.timing.map(|times| times.dead_after), Some(Duration::from_secs(3)));
    assert_eq!(declare(&fixture, "w1", Duration::ZERO).await, DeclareOutcome::Alive);
}

#[tokio::test]
async fn times_that_a_hand_or_an_earlier_session_left_do_not_keep_a_dead_node_alive() {
    let fixture = Fixture::new().await;
    for (times, silence, expected) in [
        ("1 2 999999999999999999999 SESSION", 3_599, DeclareOutcome::Alive),
        ("1 2 999999999999999999999 SESSION", 3_601, DeclareOutcome::Declared),
        ("1 2 -1 SESSION", 21, DeclareOutcome::Declared),
        ("1 2 1e300 SESSION", 21, DeclareOutcome::Declared),
        ("5000 60000 90000 another.session", 21, DeclareOutcome::Declared),
        ("", 21, DeclareOutcome::Declared),
        ("soon", 21, DeclareOutcome::Declared),
    ] {
        let seen = silent_with_times(&fixture, (15, 20), Duration::from_secs(silence)).await;
        let times = times.replace("SESSION", seen.incarnation.unwrap().as_str());
        let () = fixture.redis.cli(&["HSET", "node:w1", "times", &times]).await;
        assert_eq!(declare(&fixture, "w1", Duration::ZERO).await, expected, "{times:?} after {silence} s");
    }
}

/// Invariant 16. Returns violations.
pub(crate) async fn schedulers_that_prove_too_little_declare(fixture: &Fixture) -> Vec<String> {
    let mut wrong = Vec::new();
    fixture.node("w1").await;
    fixture.silence("w1").await;
    let (seen, zero) = (fixture.store.node(&node("w1")).await.unwrap().unwrap(), Duration::ZERO);
    let beat = seen.beat;
    for (proof, case) in [
        (SilenceProof::default(), "proves nothing"),
        (SilenceProof { writable: DEAD_AFTER, ..fixtures::long_proof() }, "could write for 20 s"),
        (SilenceProof { calm: DEAD_AFTER, ..fixtures::long_proof() }, "had a mass loss 20 s ago"),
        (
            SilenceProof { until: beat + 20_000, ..fixtures::long_proof() },
            "wrote last 20 s after the heartbeat",
        ),
    ] {
        let outcome = fixture.store.declare_dead(&seen, DEAD_AFTER, zero, zero, proof).await.unwrap();
        if outcome != DeclareOutcome::Alive {
            wrong.push(format!("{outcome:?} by a scheduler that {case}"));
            fixture.node("w1").await;
            fixture.silence("w1").await;
        }
    }
    wrong
}

#[tokio::test]
async fn only_silence_that_the_scheduler_can_prove_counts() {
    let fixture = Fixture::new().await;
    assert_eq!(schedulers_that_prove_too_little_declare(&fixture).await, Vec::<String>::new());
    let longer = DEAD_AFTER + Duration::from_millis(1);
    let proof = SilenceProof { writable: longer, calm: longer, ..fixtures::long_proof() };
    let seen = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    let outcome = fixture.store.declare_dead(&seen, DEAD_AFTER, Duration::ZERO, Duration::ZERO, proof).await;
    assert_eq!(outcome.unwrap(), DeclareOutcome::Declared);
}

#[tokio::test]
async fn a_dead_nodes_pods_are_requeued_or_end_according_to_their_phase() {
    for (phase, after, queued) in [
        (Phase::Assigned, Phase::Pending, 1),
        (Phase::Running, Phase::Pending, 1),
        (Phase::Stopping, Phase::Stopped, 0),
    ] {
        let fixture = Fixture::new().await;
        let Placed { record, .. } = fixture.pod_in(phase, "web", "w1").await;
        fixture.kill_node("w1").await;
        fixture.drain("w1").await;
        let moved = fixture.record(&record.id).await;
        assert_eq!(
            (moved.phase, fixture.redis.cli::<usize>(&["LLEN", "sq"]).await),
            (after, queued),
            "{phase}"
        );
        if after == Phase::Pending {
            assert_eq!((moved.node, moved.assignment, moved.reason.as_str()), (None, None, "NodeDied"));
        }
        assert_eq!(fixture.violations().await, Vec::<String>::new(), "{phase}");
        assert_eq!(fixture.keyspace().await.field("node:w1", "used_pods"), "0", "{phase}");
    }
}

#[tokio::test]
async fn an_empty_or_live_node_is_not_drained() {
    let fixture = Fixture::new().await;
    fixture.pod_in(Phase::Running, "web", "w1").await;
    let alive = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    assert_eq!(
        changing_nothing(&fixture, fixture.store.drain_step(&alive)).await.unwrap(),
        DrainOutcome::Alive
    );
    fixture.kill_node("w1").await;
    fixture.drain("w1").await;
    let dead = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    assert_eq!(
        changing_nothing(&fixture, fixture.store.drain_step(&dead)).await.unwrap(),
        DrainOutcome::Empty
    );
}

#[tokio::test]
async fn payloads_pushed_to_a_dead_node_are_drained_even_if_unreadable() {
    let fixture = Fixture::new().await;
    fixture.node("w1").await;
    fixture.kill_node("w1").await;
    let good = pushed("test", "mine");
    for raw in [&good.raw[..], b"\xff\xfe not a pod"] {
        fixture.push("pq:w1", raw).await;
    }
    fixture.drain("w1").await;
    let mut taken = fixture.store.take(&fixture.scheduler, 10).await.unwrap();
    taken.sort_unstable();
    assert_eq!(taken, [&good.raw[..], b"\xff\xfe not a pod"], "byte for byte");
}

#[tokio::test]
async fn a_drained_payload_of_a_pod_on_another_node_is_dropped() {
    let fixture = Fixture::new().await;
    let Placed { record, payload, .. } = fixture.pod_in(Phase::Running, "web", "w2").await;
    fixture.node("w1").await;
    fixture.push("pq:w1", &payload.raw).await;
    fixture.kill_node("w1").await;
    fixture.drain("w1").await;
    assert_eq!(fixture.record(&record.id).await, record, "it runs on w2 as before");
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn four_schedulers_drain_a_node_once() {
    assert_eq!(checks::many_drain_one_node(&Fixture::new().await).await, Vec::<String>::new());
}

#[tokio::test]
async fn concurrent_callers_create_each_pod_once() {
    assert_eq!(checks::many_create_the_same_pods(&Fixture::new().await).await, Vec::<String>::new());
}

#[tokio::test]
async fn beats_list_live_and_silent_nodes() {
    let fixture = Fixture::new().await;
    fixture.node("w1").await;
    fixture.node("w2").await;
    fixture.silence("w1").await;
    let now = fixture.store.redis_now().await.unwrap();
    let silent = fixture.store.beats_before(now - 20_000).await.unwrap();
    assert_eq!(silent, [(node("w1"), 1000)]);
    let fresh = fixture.store.beats_since(now - 20_000).await.unwrap();
    assert_eq!(fresh.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), [node("w2")]);
    assert_eq!(fixture.store.live_nodes().await.unwrap(), 2);
}

#[tokio::test]
async fn a_cordon_is_idempotent_and_survives_a_restart_of_the_worker() {
    let fixture = Fixture::new().await;
    assert!(!changing_nothing(&fixture, fixture.store.cordon(&node("w1"), true)).await.unwrap());
    fixture.node("w1").await;
    assert!(fixture.store.cordon(&node("w1"), true).await.unwrap());
    assert!(changing_nothing(&fixture, fixture.store.cordon(&node("w1"), true)).await.unwrap());
    fixture.node("w1").await;
    assert!(fixture.store.node(&node("w1")).await.unwrap().unwrap().cordoned);
    assert!(fixture.store.cordon(&node("w1"), false).await.unwrap());
    assert!(!fixture.store.node(&node("w1")).await.unwrap().unwrap().cordoned);
}

async fn beat(fixture: &Fixture, name: &NodeName, value: &str) -> ExternalBeat {
    let () = fixture.redis.cli(&["SET", &format!("hb:{name}"), value]).await;
    fixture.store.external_beat(name, 10, b"before").await.unwrap()
}

#[tokio::test]
async fn every_change_of_an_external_heartbeat_value_is_a_beat() {
    let fixture = Fixture::new().await;
    let external = node("old-one");
    let silent = changing_nothing(&fixture, fixture.store.external_beat(&external, 10, b"0")).await.unwrap();
    assert_eq!(silent, ExternalBeat::Silent, "nothing there");
    // The key may be that of one of kubeleet's own workers, whose record was lost.
    let time = "1999-12-31T23:59:59";
    let () = fixture.redis.cli(&["SET", &format!("hb:{external}"), time]).await;
    assert_eq!(fixture.store.external_beat(&external, 10, b"").await.unwrap(), ExternalBeat::Silent);
    assert_eq!(
        fixture.store.heartbeat_values(std::slice::from_ref(&external)).await.unwrap(),
        [Some(time.into())]
    );
    for (seen, expected) in [(time, ExternalBeat::Silent), ("1999-12-31T23:59:58", ExternalBeat::Joined)] {
        assert_eq!(fixture.store.external_beat(&external, 10, seen.as_bytes()).await.unwrap(), expected);
    }
    assert_eq!(fixture.store.heartbeat_values(std::slice::from_ref(&external)).await.unwrap(), [None]);
    let same = changing_nothing(&fixture, fixture.store.external_beat(&external, 10, b"")).await.unwrap();
    assert_eq!(same, ExternalBeat::Silent);
    assert_eq!(beat(&fixture, &external, "1970-01-01").await, ExternalBeat::Beat, "compared with no clock");
    let seen = fixture.store.node(&external).await.unwrap().unwrap();
    let now = fixture.store.redis_now().await.unwrap();
    assert!(seen.kind == NodeKind::External && now - seen.beat < 10_000, "{seen:?}");
    fixture.node("w1").await;
    assert_eq!(beat(&fixture, &node("w1"), "1").await, ExternalBeat::Ours);
}

#[tokio::test]
async fn an_external_worker_that_returns_waits_for_its_drain() {
    let fixture = Fixture::new().await;
    let external = node("old-one");
    beat(&fixture, &external, "1").await;
    let payload = pushed("test", "mine");
    let () = fixture.redis.cli(&[&b"SADD"[..], b"cs:old-one", &payload.raw]).await;
    assert_eq!(fixture.store.external_ack(&external, std::slice::from_ref(&payload)).await.unwrap(), 1);
    fixture.kill_node("old-one").await;
    assert_eq!(beat(&fixture, &external, "2").await, ExternalBeat::Draining);
    fixture.drain("old-one").await;
    assert_eq!(beat(&fixture, &external, "3").await, ExternalBeat::Joined);
    assert_eq!(fixture.record(&payload.id).await.phase, Phase::Pending, "its pod moves like any other's");
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn only_an_external_workers_container_set_is_acknowledged() {
    let fixture = Fixture::new().await;
    let external = node("old-one");
    beat(&fixture, &external, "1").await;
    fixture.service("web", 1).await;
    let taken = fixture.store.take(&fixture.scheduler, 1).await.unwrap().remove(0);
    let given = Payload::parse(taken).unwrap();
    let seen = fixture.store.node(&external).await.unwrap().unwrap();
    let request = kubeleet_tests::fixture::REQUEST;
    let request = model::node::Resources { cpu_millis: 0, memory_bytes: 0, ..request };
    let assignment = store::Assignment {
        payload: given.clone(),
        node: external.clone(),
        incarnation: seen.incarnation,
        request,
        host_ports: HostPorts::default(),
        named: None,
        volumes: Vec::new(),
        seen_labels: None,
        counted: None,
    };
    fixture.store.assign(&fixture.scheduler, DEAD_AFTER, &[assignment]).await.unwrap();
    // As the first kubeleet did.
    let () = fixture.redis.cli(&["RPOPLPUSH", "pq:old-one", "rq:old-one"]).await;
    let own = pushed("own", "its-own");
    for raw in [&given.raw, &own.raw] {
        let () = fixture.redis.cli(&[&b"SADD"[..], b"cs:old-one", raw]).await;
    }
    let () = fixture.redis.cli(&[&b"LREM"[..], b"rq:old-one", b"1", &given.raw]).await;
    let running = [given.clone(), own.clone(), pushed("not", "there")];
    assert_eq!(fixture.store.external_ack(&external, &running).await.unwrap(), 2);
    assert_eq!(changing_nothing(&fixture, fixture.store.external_ack(&external, &running)).await.unwrap(), 0);
    assert_eq!(fixture.record(&given.id).await.phase, Phase::Running);
    assert_eq!(fixture.store.pushed_pods().await.unwrap(), [own.id]);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
    fixture.node("w1").await;
    let ours = changing_nothing(&fixture, fixture.store.external_ack(&node("w1"), &running)).await.unwrap();
    assert_eq!(ours, 0, "kubeleet's own workers acknowledge their pods themselves");
}

#[tokio::test]
async fn a_pod_that_an_external_worker_takes_out_of_its_set_ends_or_is_placed_anew() {
    for (is_stopped, after, waiting) in [(true, Phase::Stopped, 0), (false, Phase::Pending, 1)] {
        let fixture = Fixture::new().await;
        let external = node("old-one");
        beat(&fixture, &external, "1").await;
        let payload = pushed("test", "mine");
        let () = fixture.redis.cli(&[&b"SADD"[..], b"cs:old-one", &payload.raw]).await;
        fixture.store.external_ack(&external, std::slice::from_ref(&payload)).await.unwrap();
        if is_stopped {
            let pods = [(payload.id.clone(), Some(external.clone()))];
            fixture.store.stop_pods(None, &pods, "Test", "stopped by the test").await.unwrap();
        }
        let record = fixture.record(&payload.id).await;
        let requeue = fixture.store.requeue_missing(&record, &[]);
        let present = changing_nothing(&fixture, requeue).await.unwrap();
        assert_eq!(present, RequeueOutcome::Present, "it runs there as long as it is in the set");
        let () = fixture.redis.cli(&[&b"SREM"[..], b"cs:old-one", &payload.raw]).await;
        let outcome = fixture.store.requeue_missing(&record, &[]).await.unwrap();
        assert_eq!((outcome, fixture.record(&payload.id).await.phase), (RequeueOutcome::Queued, after));
        let queued: usize = fixture.redis.cli(&["LLEN", "sq"]).await;
        let left: (usize, usize) = (
            fixture.redis.cli(&["SCARD", "cs:old-one"]).await,
            fixture.redis.cli(&["SCARD", "stop:old-one"]).await,
        );
        assert_eq!((queued, left), (waiting, (0, 0)), "{after}");
        assert_eq!(fixture.violations().await, Vec::<String>::new(), "{after}");
    }
}

#[tokio::test]
async fn a_scan_of_the_keys_finds_external_workers() {
    let fixture = Fixture::new().await;
    let () = fixture.redis.cli(&["SET", "hb:old-one", "1"]).await;
    fixture.push("pq:unregistered", b"x").await;
    let () = fixture.redis.cli(&["SET", "pb:neither", "x"]).await;
    let (mut cursor, mut found) = (0, Vec::new());
    loop {
        let (next, page) = fixture.store.scan_for_external_workers(cursor, 10).await.unwrap();
        found.extend(page);
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    assert!(found.contains(&ExternalSign::Heartbeat(node("old-one"))), "{found:?}");
    assert!(found.contains(&ExternalSign::Queue(node("unregistered"))), "{found:?}");
    assert_eq!(found.len(), 2);
}

#[tokio::test]
async fn only_a_dead_node_without_payloads_is_removed_and_nothing_of_it_is_left() {
    let fixture = Fixture::new().await;
    let name = node("w1");
    let remove = || fixture.store.remove_node(&name, false);
    assert_eq!(changing_nothing(&fixture, remove()).await.unwrap(), RemoveNodeOutcome::Missing);
    fixture.pod_in(Phase::Running, "web", "w1").await;
    assert_eq!(changing_nothing(&fixture, remove()).await.unwrap(), RemoveNodeOutcome::Alive);
    fixture.kill_node("w1").await;
    assert_eq!(changing_nothing(&fixture, remove()).await.unwrap(), RemoveNodeOutcome::Draining);
    fixture.drain("w1").await;
    assert_eq!(remove().await.unwrap(), RemoveNodeOutcome::Removed);
    let left = fixture.keyspace().await;
    let keys: Vec<&str> = left.entries().map(|(key, _)| key).filter(|key| key.ends_with(":w1")).collect();
    assert_eq!(keys, Vec::<&str>::new());
    assert_eq!(fixture.store.node_names().await.unwrap(), []);
    fixture.node("w1").await;
    assert_eq!(fixture.store.live_nodes().await.unwrap(), 1, "a worker of this name can register again");
}

#[tokio::test]
async fn a_node_without_a_record_and_an_external_worker_that_is_dead_can_be_removed() {
    let fixture = Fixture::new().await;
    let () = fixture.redis.cli(&["SADD", "nodes", "gone"]).await;
    assert_eq!(fixture.store.remove_node(&node("gone"), false).await.unwrap(), RemoveNodeOutcome::Removed);
    let () = fixture.redis.cli(&["SET", "hb:external", "1"]).await;
    assert_eq!(fixture.store.external_beat(&node("external"), 10, b"0").await.unwrap(), ExternalBeat::Joined);
    assert_eq!(fixture.store.remove_node(&node("external"), false).await.unwrap(), RemoveNodeOutcome::Alive);
    fixture.kill_node("external").await;
    assert_eq!(
        fixture.store.remove_node(&node("external"), false).await.unwrap(),
        RemoveNodeOutcome::Removed
    );
    assert_eq!(fixture.redis.cli::<usize>(&["EXISTS", "hb:external", "node:external"]).await, 0);
}

#[tokio::test]
async fn what_a_node_uses_is_corrected_only_if_nothing_was_reserved_or_released_since() {
    let fixture = Fixture::new().await;
    let Placed { record, session, .. } = fixture.pod_in(Phase::Running, "web", "w1").await;
    let name = node("w1");
    let used = async || fixture.store.node(&name).await.unwrap().unwrap().used;
    let actual = used().await;
    let () = fixture.redis.cli(&["HINCRBY", "node:w1", "used_pods", "5"]).await;
    let read = async || fixture.store.node_usage(std::slice::from_ref(&name)).await.unwrap().remove(0);
    let seen = read().await;
    assert_eq!(seen.used[0], 6);

    // One was assigned and one released meanwhile: the sum is the same, and yet the answer is unknown.
    fixture.service("other", 1).await;
    fixture.assign_all(&session).await;
    let () = fixture.redis.cli(&["HSET", "node:w1", "used_pods", "6"]).await;
    for (at, field) in [(1, "used_cpu"), (2, "used_memory"), (3, "used_pids")] {
        let () = fixture.redis.cli(&["HSET", "node:w1", field, &seen.used[at].to_string()]).await;
    }
    let racing = fixture.store.correct_usage(&seen, &actual, &[]);
    assert!(!changing_nothing(&fixture, racing).await.unwrap());

    let seen = read().await;
    assert!(fixture.store.correct_usage(&seen, &actual, &[]).await.unwrap());
    assert_eq!(used().await, actual);
    let again = fixture.store.correct_usage(&seen, &actual, &[]);
    assert!(!changing_nothing(&fixture, again).await.unwrap());
    let now = read().await;
    fixture.node("w1").await;
    let former = fixture.store.correct_usage(&now, &actual, &[]);
    assert!(!changing_nothing(&fixture, former).await.unwrap(), "of an earlier session, {}", record.id);
}

#[tokio::test]
async fn a_pod_is_restored_to_its_slot_unless_another_has_it_or_it_is_not_desired() {
    for (spoil, expected) in [
        (&["DEL", "slots:web"][..], RestoreOutcome::Restored),
        (&["PING"], RestoreOutcome::Unchanged),
        (&["HSET", "slots:web", "0", "another"], RestoreOutcome::Surplus),
        (&["HSET", "service:web", "replicas", "0"], RestoreOutcome::Surplus),
        (&["HSET", "service:web", "state", "deleting"], RestoreOutcome::Surplus),
        (&["DEL", "service:web"], RestoreOutcome::UnknownService),
    ] {
        let fixture = Fixture::new().await;
        let Placed { record, .. } = fixture.pod_in(Phase::Running, "web", "w1").await;
        if expected != RestoreOutcome::Unchanged && spoil[0] != "DEL" {
            let () = fixture.redis.cli(&["DEL", "slots:web"]).await;
        }
        let _: redis::Value = fixture.redis.cli(spoil).await;
        let ids = [record.id];
        let outcome = fixture.store.restore_pods(record.service.as_ref(), false, &ids).await.unwrap();
        assert_eq!(outcome, [expected], "{spoil:?}");
    }
}

#[tokio::test]
async fn proxies_show_that_they_live_and_which_key_for_secrets_they_have() {
    let fixture = Fixture::new().await;
    let (store, nodes, lasts) = (&fixture.store, ["w1", "w2", "w3"].map(node), Duration::from_secs(60));
    store.announce_proxy(&nodes, "10.0.0.1:7079 ab").await.unwrap();
    store.proxy_lives(&nodes[..1], Some("k1"), lasts).await.unwrap();
    store.proxy_lives(&nodes[1..2], None, lasts).await.unwrap();
    let mut signs = store.proxy_signs().await.unwrap();
    signs.sort_by(|a, b| a.node.cmp(&b.node));
    let signs: Vec<_> = signs.iter().map(|sign| (sign.is_alive, sign.secret_key.as_deref())).collect();
    assert_eq!(signs, [(true, Some("k1")), (true, None), (false, None)]);
}

#[tokio::test]
async fn a_check_finds_faults_and_after_a_repair_the_cluster_is_clean() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    assert_eq!(fixture.store.check().await.unwrap(), []);
    let payload = pushed("other", "without-a-record");
    let () = fixture.redis.cli(&[&b"SADD"[..], b"cs:w1", &payload.raw]).await;
    for fault in [
        &["SADD", "nodes", "gone"][..],
        &["SADD", "services", "gone"],
        &["SET", "spec:leaked", "{}"],
        &["SET", "pod:broken", "text"],
        &["HSET", "pod:typo", "phase", "Running", "name", "x"],
        &["RPUSH", "uq", "not a hash"],
        &["RPUSH", "sq", "not json", "not json"],
        &["HINCRBY", "node:w1", "used_cpu", "7000"],
        &["SADD", "stop:w1", "gone"],
    ] {
        let _: redis::Value = fixture.redis.cli(fault).await;
    }
    let found = fixture.store.check().await.unwrap();
    let keys: Vec<&str> = found.iter().map(|finding| finding.key.as_str()).collect();
    let expected = ["cs:w1", "nodes", "pod:broken", "pod:typo", "services", "spec:leaked", "stop:w1", "uq"];
    assert_eq!(keys, expected, "while records are unreadable, sums are not judged");
    for finding in &found {
        assert!(fixture.store.repair(finding).await.unwrap(), "{finding:?}");
    }
    let sums = fixture.store.check().await.unwrap();
    assert!(
        matches!(&sums[..], [one] if one.key == "node:w1" && one.problem.contains("used_cpu")),
        "{sums:?}"
    );
    assert!(fixture.store.repair(&sums[0]).await.unwrap() && !fixture.store.repair(&sums[0]).await.unwrap());
    let () = fixture.redis.cli(&["HSET", "node:w1", "used_pods", "", "used_memory", ""]).await;
    let emptied = fixture.store.check().await.unwrap().remove(0);
    assert!(fixture.store.repair(&emptied).await.unwrap(), "an empty text is read as 0: {emptied:?}");
    assert_eq!(fixture.store.check().await.unwrap(), []);
    for finding in &found {
        assert!(!fixture.store.repair(finding).await.unwrap(), "repeated: {finding:?}");
    }
    assert_eq!(fixture.record(&placed.record.id).await, placed.record, "what is right stays as it is");
    let _: u64 = fixture.redis.cli(&["SREM", "services", "web"]).await;
    let unlisted = fixture.store.check().await.unwrap();
    assert!(matches!(&unlisted[..], [one] if one.problem.starts_with("does not list web")), "{unlisted:?}");
    assert!(fixture.store.repair(&unlisted[0]).await.unwrap());
    assert_eq!(fixture.store.check().await.unwrap(), []);
    let _: u64 = fixture.redis.cli(&["SREM", "services", "web"]).await;
    let _: u64 = fixture.redis.cli(&["DEL", "service:web"]).await;
    let vanished = fixture.store.check().await.unwrap();
    assert!(matches!(&vanished[..], [one] if one.key == "slots:web"), "{vanished:?}");
    assert!(vanished[0].repair().contains("cluster recover"), "{vanished:?}");
}

#[tokio::test]
async fn a_repair_of_copied_slots_drops_the_entries_and_no_record() {
    let fixture = Fixture::new().await;
    let web = fixture.pod_in(Phase::Running, "web", "w1").await.record;
    let db = fixture.pod_in(Phase::Running, "db", "w1").await.record;
    let _: u64 = fixture.redis.cli(&["COPY", "slots:web", "slots:db", "REPLACE"]).await;
    let found = fixture.store.check().await.unwrap();
    let lines: Vec<String> =
        found.iter().map(|finding| format!("{}: {}", finding.key, finding.problem)).collect();
    let expected = [
        format!("pod:{}: runs, but is in no slot of service db", db.id),
        format!("slots:db: slot 0 names the pod {}, which is of slot 0 of service web", web.id),
    ];
    assert_eq!(lines, expected);
    assert!(
        fixture.store.repair(&found[1]).await.unwrap() && !fixture.store.repair(&found[1]).await.unwrap()
    );
    let service = db.service.clone();
    let restored =
        fixture.store.restore_pods(service.as_ref(), false, std::slice::from_ref(&db.id)).await.unwrap();
    assert_eq!(restored, [RestoreOutcome::Restored], "the reconcile loop lists it again");
    assert_eq!(fixture.store.check().await.unwrap(), []);
    assert_eq!((fixture.record(&web.id).await, fixture.record(&db.id).await), (web, db));
}

#[tokio::test]
async fn a_void_slot_is_freed_and_its_pod_is_left_alone() {
    let fixture = Fixture::new().await;
    let web = fixture.pod_in(Phase::Running, "web", "w1").await.record;
    let db = fixture.pod_in(Phase::Running, "db", "w1").await.record;
    let free = async |slot: Slot, pod: &PodRecord| {
        let slots = [(slot, Some(pod.id.clone()))];
        fixture.store.free_slots(db.service.as_ref().unwrap(), &slots).await.unwrap()
    };
    for (field, slot, pod) in [
        ("1", Slot::first(1), &web),
        ("0+", Slot::second(0), &web),
        ("0+", Slot::second(0), &db),
        ("2", Slot::first(2), &db),
    ] {
        let _: u64 = fixture.redis.cli(&["HSET", "slots:db", field, pod.id.as_str()]).await;
        assert_eq!(free(slot, pod).await, 1, "{field}");
        assert_eq!(fixture.pods(db.service.as_ref().unwrap()).await, std::slice::from_ref(&db), "{field}");
    }
    assert_eq!(free(Slot::first(0), &db).await, 0, "it is its own");
    assert_eq!(fixture.record(&web.id).await, web);
}
