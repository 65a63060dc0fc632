//! Bad input never blocks a queue (invariant 7), and what was lost is healed: reject, requeue.

use common::ids::PodId;
use common::lifecycle::Phase;
use common::payload::Payload;
use common::store::{RequeueOutcome, Write};
use kubeleet_tests::Bed;
use kubeleet_tests::bed::{Placed, pushed};

use crate::{changing_nothing, checks};

async fn push(bed: &Bed, key: &str, raw: &[u8]) {
    let () = bed.redis.cli(&[&b"LPUSH"[..], key.as_bytes(), raw]).await;
}

#[tokio::test]
async fn any_bytes_go_to_the_dead_letters_with_their_reason_and_untouched() {
    let bed = Bed::new().await;
    let session = bed.node("w1").await;
    let junk: [&[u8]; 7] =
        [b"\xff\xfe\x00\x01", b"", b"{", "\"…\\u0000\"".as_bytes(), b"null", b"\r\n", &[b'x'; 300_000]];
    for raw in junk {
        push(&bed, "pq:w1", raw).await;
    }
    for raw in session.take_more(10).await.unwrap() {
        let reason = Payload::parse(raw.clone()).unwrap_err().to_string();
        assert_eq!(session.reject(&raw, None, &reason).await.unwrap(), Ok(Write::Done));
        let letter = bed.store.letters(0, 1).await.unwrap().remove(0);
        assert_eq!((letter.payload.as_slice(), letter.reason), (&raw[..], reason));
        assert_eq!(letter.queue, "pq:w1");
        let again = changing_nothing(&bed, session.reject(&raw, None, "again")).await.unwrap();
        assert_eq!(again, Ok(Write::Stale), "it was moved already");
    }
    assert_eq!(bed.redis.cli::<usize>(&["LLEN", "rq:w1"]).await, 0);
    assert_eq!(bed.store.letters(0, 10).await.unwrap().len(), junk.len());
    let entries: Vec<Vec<u8>> = bed.redis.cli(&["LRANGE", "dq", "0", "-1"]).await;
    for entry in entries {
        let entry: serde_json::Value = serde_json::from_slice(&entry).unwrap();
        for field in ["queue", "payload", "reason"] {
            assert!(entry[field].is_string(), "{field} in {entry}");
        }
        assert!(entry["at"].is_u64());
    }
}

#[tokio::test]
async fn a_rejected_pod_has_failed_and_another_try_makes_it_wait() {
    for phase in [Phase::Pending, Phase::Assigned] {
        let bed = Bed::new().await;
        let Placed { session, record, payload } = bed.pod_in(phase, "web", "w1").await;
        if phase == Phase::Pending {
            bed.store.take(&bed.scheduler, 1).await.unwrap();
            assert!(
                bed.store
                    .reject_in_flight(&bed.scheduler, &payload.raw, Some(&record.id), "no")
                    .await
                    .unwrap()
            );
        } else {
            session.take_more(1).await.unwrap();
            session.reject(&payload.raw, Some(&record.id), "no").await.unwrap().unwrap();
        }
        let failed = bed.record(&record.id).await;
        assert_eq!((failed.phase, failed.reason.as_str()), (Phase::Failed, "DeadLettered"), "{phase}");
        assert_eq!(bed.violations().await, Vec::<String>::new(), "{phase}");
        let letter = bed.store.letters(0, 1).await.unwrap().remove(0);
        assert!(bed.store.requeue_letter(&letter).await.unwrap());
        assert!(!changing_nothing(&bed, bed.store.requeue_letter(&letter)).await.unwrap(), "it is gone");
        assert_eq!(bed.record(&record.id).await.phase, Phase::Pending, "{phase}");
        assert_eq!(bed.redis.cli::<usize>(&["LLEN", "sq"]).await, 1, "{phase}");
        assert_eq!(bed.violations().await, Vec::<String>::new(), "{phase}");
    }
}

#[tokio::test]
async fn a_pod_pushed_to_a_node_goes_back_to_that_node_when_nobody_knew_it() {
    let bed = Bed::new().await;
    let session = bed.node("w1").await;
    let payload = pushed("test", "mine");
    push(&bed, "rq:w1", &payload.raw).await;
    session.reject(&payload.raw, Some(&payload.id), "privileged is denied here").await.unwrap().unwrap();
    let letter = bed.store.letters(0, 1).await.unwrap().remove(0);
    assert!(bed.store.requeue_letter(&letter).await.unwrap());
    let queued: Vec<Vec<u8>> = bed.redis.cli(&["LRANGE", "pq:w1", "0", "-1"]).await;
    assert_eq!(queued, [payload.raw.to_vec()]);
}

#[tokio::test]
async fn a_copy_of_a_running_pods_payload_is_rejected_without_harm_to_the_pod() {
    let bed = Bed::new().await;
    let Placed { session, record, payload } = bed.pod_in(Phase::Running, "web", "w1").await;
    push(&bed, "rq:w1", &payload.raw).await;
    session.reject(&payload.raw, Some(&record.id), "no").await.unwrap().unwrap();
    assert_eq!(bed.record(&record.id).await, record);
    assert_eq!(bed.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_letter_can_be_dropped_and_one_put_there_by_hand_can_be_read() {
    let bed = Bed::new().await;
    push(&bed, "dq", b"not a letter \xff").await;
    let letter = bed.store.letters(0, 1).await.unwrap().remove(0);
    assert!(letter.reason.contains("by hand"), "{letter:?}");
    assert!(bed.store.drop_letter(&letter).await.unwrap());
    assert!(!bed.store.drop_letter(&letter).await.unwrap());
    assert_eq!(bed.store.letters(0, 10).await.unwrap(), []);
}

#[tokio::test]
async fn a_missing_payload_is_put_back_where_its_phase_wants_it_and_a_present_one_is_left() {
    let others = [];
    for (phase, lose) in [
        (Phase::Pending, &["DEL", "sq"][..]),
        (Phase::Assigned, &["DEL", "pq:w1"]),
        (Phase::Running, &["DEL", "cs:w1"]),
        (Phase::Stopping, &["DEL", "cs:w1"]),
    ] {
        let bed = Bed::new().await;
        let Placed { record, .. } = bed.pod_in(phase, "web", "w1").await;
        let present = bed.store.requeue_missing(&record, &others);
        assert_eq!(changing_nothing(&bed, present).await.unwrap(), RequeueOutcome::Present, "{phase}");
        let () = bed.redis.cli(lose).await;
        assert_ne!(bed.violations().await, Vec::<String>::new(), "{phase}: the checker notices");
        assert_eq!(
            bed.store.requeue_missing(&record, &others).await.unwrap(),
            RequeueOutcome::Queued,
            "{phase}"
        );
        assert_eq!(bed.violations().await, Vec::<String>::new(), "{phase}");
        let after = bed.record(&record.id).await;
        assert_eq!((after.phase, after.assignment), (phase, record.assignment), "{phase}: nothing else");
    }
}

#[tokio::test]
async fn what_is_in_a_schedulers_hands_or_unschedulable_is_not_missing() {
    let bed = Bed::new().await;
    bed.service("web", 1).await;
    let record = bed.pods(&"web".parse().unwrap()).await.remove(0);
    bed.store.take(&bed.scheduler, 1).await.unwrap();
    let requeue = bed.store.requeue_missing(&record, std::slice::from_ref(&bed.scheduler));
    assert_eq!(changing_nothing(&bed, requeue).await.unwrap(), RequeueOutcome::Present);
}

#[tokio::test]
async fn a_missing_payload_of_a_dead_nodes_pod_is_queued_or_buried() {
    for (phase, after) in [
        (Phase::Assigned, Phase::Pending),
        (Phase::Running, Phase::Pending),
        (Phase::Stopping, Phase::Stopped),
    ] {
        let bed = Bed::new().await;
        let Placed { record, .. } = bed.pod_in(phase, "web", "w1").await;
        bed.kill_node("w1").await;
        let () = bed.redis.cli(&["DEL", "pq:w1", "cs:w1"]).await;
        assert_eq!(bed.store.requeue_missing(&record, &[]).await.unwrap(), RequeueOutcome::Queued, "{phase}");
        assert_eq!(bed.record(&record.id).await.phase, after, "{phase}");
        assert_eq!(bed.violations().await, Vec::<String>::new(), "{phase}");
    }
}

#[tokio::test]
async fn a_pod_that_moved_on_since_it_was_seen_is_left_alone() {
    let bed = Bed::new().await;
    let Placed { session, record, .. } = bed.pod_in(Phase::Assigned, "web", "w1").await;
    bed.run_all(&session).await;
    let requeue = bed.store.requeue_missing(&record, &[]);
    assert_eq!(changing_nothing(&bed, requeue).await.unwrap(), RequeueOutcome::Changed);
    for phase in [Phase::Stopped, Phase::Succeeded, Phase::Failed] {
        let bed = Bed::new().await;
        let Placed { record, .. } = bed.pod_in(phase, "web", "w1").await;
        let requeue = bed.store.requeue_missing(&record, &[]);
        assert_eq!(changing_nothing(&bed, requeue).await.unwrap(), RequeueOutcome::Changed, "{phase}");
    }
}

#[tokio::test]
async fn a_pushed_pods_payload_is_put_back_to_the_byte() {
    let bed = Bed::new().await;
    let session = bed.node("w1").await;
    let raw =
        "{ \"replica\" : 3, \"extra\":\"é\\u0041\",\"uuid\":\"mine\",\"name\":\"test\" ,\"image\":\"i\"}";
    push(&bed, "pq:w1", raw.as_bytes()).await;
    bed.run_all(&session).await;
    let () = bed.redis.cli(&["DEL", "cs:w1"]).await;
    let record = bed.record(&PodId::new("mine").unwrap()).await;
    assert_eq!(bed.store.requeue_missing(&record, &[]).await.unwrap(), RequeueOutcome::Queued);
    assert_eq!(session.container_set().await.unwrap(), [raw.as_bytes()]);
}

#[tokio::test]
async fn equal_bad_payloads_are_as_many_letters() {
    assert_eq!(checks::equal_junk_is_kept_twice(&Bed::new().await).await, Vec::<String>::new());
}

#[tokio::test]
async fn what_a_pushed_pod_asks_for_is_set_aside() {
    assert_eq!(checks::a_pushed_pod_is_accounted_for(&Bed::new().await).await, Vec::<String>::new());
}
