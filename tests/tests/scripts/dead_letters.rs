//! Bad input never blocks a queue (invariant 7), and a lost payload is put back: reject, requeue.

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::{Placed, pushed};
use model::ids::PodId;
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use store::{DeadLetterRequeue, EditedPayload, RejectedPod, RequeueOutcome, WriteOutcome};

use crate::{changing_nothing, checks};

#[tokio::test]
async fn any_bytes_go_to_the_dead_letters_unchanged_with_a_reason() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    let junk: [&[u8]; 7] =
        [b"\xff\xfe\x00\x01", b"", b"{", "\"…\\u0000\"".as_bytes(), b"null", b"\r\n", &[b'x'; 300_000]];
    for raw in junk {
        fixture.push("pq:w1", raw).await;
    }
    for raw in session.pop_more(10).await.unwrap() {
        let reason = Payload::parse(raw.clone()).unwrap_err().to_string();
        assert_eq!(session.reject(&raw, None, &reason).await.unwrap(), Ok(WriteOutcome::Done));
        let dead_letter = fixture.store.dead_letters(0, 1).await.unwrap().remove(0);
        assert_eq!((dead_letter.payload.as_slice(), dead_letter.reason), (&raw[..], reason));
        assert_eq!(dead_letter.queue, "pq:w1");
        let again = changing_nothing(&fixture, session.reject(&raw, None, "again")).await.unwrap();
        assert_eq!(again, Ok(WriteOutcome::Stale), "it was rejected already");
    }
    assert_eq!(fixture.redis.cli::<usize>(&["LLEN", "rq:w1"]).await, 0);
    assert_eq!(fixture.store.dead_letters(0, 10).await.unwrap().len(), junk.len());
    let entries: Vec<Vec<u8>> = fixture.redis.cli(&["LRANGE", "dq", "0", "-1"]).await;
    for entry in entries {
        let entry: serde_json::Value = serde_json::from_slice(&entry).unwrap();
        for field in ["queue", "payload", "reason"] {
            assert!(entry[field].is_string(), "{field} in {entry}");
        }
        assert!(entry["at"].is_u64());
    }
}

#[tokio::test]
async fn a_rejected_pod_fails_and_is_pending_again_after_a_requeue() {
    for phase in [Phase::Pending, Phase::Assigned] {
        let fixture = Fixture::new().await;
        let Placed { session, record, payload } = fixture.pod_in(phase, "web", "w1").await;
        if phase == Phase::Pending {
            fixture.store.take(&fixture.scheduler, 1).await.unwrap();
            assert!(
                fixture
                    .store
                    .reject_in_flight(&fixture.scheduler, &payload.raw, Some(&record.id), "no")
                    .await
                    .unwrap()
            );
        } else {
            session.pop_more(1).await.unwrap();
            session.reject(&payload.raw, Some(&record.id), "no").await.unwrap().unwrap();
        }
        let failed = fixture.record(&record.id).await;
        assert_eq!((failed.phase, failed.reason.as_str()), (Phase::Failed, "DeadLettered"), "{phase}");
        assert_eq!(fixture.violations().await, Vec::<String>::new(), "{phase}");
        let dead_letter = fixture.store.dead_letters(0, 1).await.unwrap().remove(0);
        let requeue = || fixture.store.requeue_dead_letter(&dead_letter, None);
        assert_eq!(requeue().await.unwrap(), DeadLetterRequeue::Queued);
        assert_eq!(changing_nothing(&fixture, requeue()).await.unwrap(), DeadLetterRequeue::Gone);
        assert_eq!(fixture.record(&record.id).await.phase, Phase::Pending, "{phase}");
        assert_eq!(fixture.redis.cli::<usize>(&["LLEN", "sq"]).await, 1, "{phase}");
        assert_eq!(fixture.violations().await, Vec::<String>::new(), "{phase}");
    }
}

/// Returns the faults.
pub(crate) async fn a_pod_is_recovered_before_it_is_rejected(fixture: &Fixture) -> Vec<String> {
    let Placed { record, payload, .. } = fixture.pod_in(Phase::Pending, "web", "w1").await;
    fixture.store.take(&fixture.scheduler, 1).await.unwrap();
    let pod = RejectedPod::WithoutRecord(&record.id);
    let is_rejected =
        fixture.store.reject_in_flight(&fixture.scheduler, &payload.raw, pod, "unknown").await.unwrap();
    is_rejected.then(|| "a pod with a record is rejected".to_owned()).into_iter().collect()
}

#[tokio::test]
async fn a_pod_that_was_unknown_and_has_a_record_by_now_is_not_rejected() {
    let fixture = Fixture::new().await;
    let Placed { record, payload, .. } = fixture.pod_in(Phase::Pending, "web", "w1").await;
    fixture.store.take(&fixture.scheduler, 1).await.unwrap();
    let pod = RejectedPod::WithoutRecord(&record.id);
    let reject = || fixture.store.reject_in_flight(&fixture.scheduler, &payload.raw, pod, "unknown");
    assert!(!changing_nothing(&fixture, reject()).await.unwrap(), "it stays in flight");
    let () = fixture.redis.cli(&["DEL", &format!("pod:{}", record.id)]).await;
    assert!(reject().await.unwrap());
    assert_eq!(fixture.store.dead_letters(0, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_unknown_pushed_pod_is_requeued_to_its_node() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    let payload = pushed("test", "mine");
    fixture.push("rq:w1", &payload.raw).await;
    session.reject(&payload.raw, Some(&payload.id), "privileged is denied here").await.unwrap().unwrap();
    let dead_letter = fixture.store.dead_letters(0, 1).await.unwrap().remove(0);
    let requeued = fixture.store.requeue_dead_letter(&dead_letter, None).await.unwrap();
    assert_eq!(requeued, DeadLetterRequeue::Queued);
    let queued: Vec<Vec<u8>> = fixture.redis.cli(&["LRANGE", "pq:w1", "0", "-1"]).await;
    assert_eq!(queued, [payload.raw.to_vec()]);
}

/// A day after its end a pushed pod is forgotten, and its record expires an hour later.
#[tokio::test]
async fn a_pod_that_is_requeued_after_it_was_forgotten_is_there_for_good() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    let payload = pushed("test", "mine");
    fixture.push("rq:w1", &payload.raw).await;
    fixture.claim(&session, std::slice::from_ref(&payload)).await;
    session.reject(&payload.raw, Some(&payload.id), "no").await.unwrap().unwrap();
    let pods = [payload.id.clone()];
    assert_eq!(fixture.store.forget_pushed(&pods, std::time::Duration::ZERO).await.unwrap(), 1);
    let dead_letter = fixture.store.dead_letters(0, 1).await.unwrap().remove(0);
    let requeued = fixture.store.requeue_dead_letter(&dead_letter, None).await.unwrap();
    assert_eq!(requeued, DeadLetterRequeue::Queued);
    assert_eq!(fixture.redis.cli::<i64>(&["TTL", "pod:mine"]).await, -1);
    assert_eq!(fixture.store.pushed_pods().await.unwrap(), pods);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_dead_letter_of_a_node_that_is_no_member_any_more_is_requeued_to_sq() {
    let fixture = Fixture::new().await;
    let payload = pushed("test", "mine");
    let entry = serde_json::json!({
        "queue": "pq:gone", "payload": String::from_utf8_lossy(&payload.raw), "reason": "no", "at": 1
    });
    fixture.push("dq", entry.to_string().as_bytes()).await;
    let dead_letter = fixture.store.dead_letters(0, 1).await.unwrap().remove(0);
    let requeued = fixture.store.requeue_dead_letter(&dead_letter, None).await.unwrap();
    assert_eq!(requeued, DeadLetterRequeue::Queued);
    assert_eq!(fixture.redis.cli::<usize>(&["EXISTS", "pq:gone"]).await, 0, "no worker takes from it");
    let queued: Vec<Vec<u8>> = fixture.redis.cli(&["LRANGE", "sq", "0", "-1"]).await;
    assert_eq!(queued, [payload.raw.to_vec()]);
}

fn edited(text: &str) -> EditedPayload {
    EditedPayload::parse(text.as_bytes().to_vec().into()).unwrap()
}

#[tokio::test]
async fn an_edited_payload_replaces_the_one_of_the_dead_letter() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    fixture.push("rq:w1", b"{name:test}").await;
    session.reject(b"{name:test}", None, "no JSON").await.unwrap().unwrap();
    let refused = pushed("test", "refused");
    fixture.push("rq:w1", &refused.raw).await;
    fixture.claim(&session, std::slice::from_ref(&refused)).await;
    session.reject(&refused.raw, Some(&refused.id), "denied here").await.unwrap().unwrap();

    let dead_letters = fixture.store.dead_letters(0, 2).await.unwrap();
    let corrected = r#"{"name":"better","uuid":"refused","image":"other:2","replica":7,"memory":"64m"}"#;
    let requeued = fixture.store.requeue_dead_letter(&dead_letters[0], Some(&edited(corrected))).await;
    assert_eq!(requeued.unwrap(), DeadLetterRequeue::Queued);
    assert_eq!(fixture.redis.cli::<Vec<String>>(&["LRANGE", "sq", "0", "-1"]).await, [corrected]);
    let fields = ["HMGET", "pod:refused", "phase", "payload", "name", "image", "replica", "memory"];
    let stored: Vec<String> = fixture.redis.cli(&fields).await;
    assert_eq!(stored, ["pending", corrected, "better", "other:2", "7", "67108864"]);

    let corrected = r#"{"name":"test","uuid":"new","image":"x","replica":0}"#;
    let requeued = fixture.store.requeue_dead_letter(&dead_letters[1], Some(&edited(corrected))).await;
    assert_eq!(requeued.unwrap(), DeadLetterRequeue::Queued);
    assert_eq!(fixture.redis.cli::<Vec<String>>(&["LRANGE", "pq:w1", "0", "-1"]).await, [corrected]);
    assert_eq!(fixture.redis.cli::<usize>(&["LLEN", "dq"]).await, 0);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_requeue_that_would_come_to_nothing_changes_nothing() {
    for (phase, plain, with_edit) in [
        (Phase::Running, DeadLetterRequeue::Queued, DeadLetterRequeue::PodOfService),
        (Phase::Stopped, DeadLetterRequeue::PodEnded, DeadLetterRequeue::PodEnded),
        (Phase::Succeeded, DeadLetterRequeue::PodEnded, DeadLetterRequeue::PodEnded),
    ] {
        let fixture = Fixture::new().await;
        let Placed { session, record, payload } = fixture.pod_in(phase, "web", "w1").await;
        fixture.push("rq:w1", &payload.raw).await;
        session.reject(&payload.raw, None, "a copy").await.unwrap().unwrap();
        let dead_letter = fixture.store.dead_letters(0, 1).await.unwrap().remove(0);
        let text = format!(r#"{{"name":"x","uuid":"{}","image":"x","replica":0}}"#, record.id);
        let edited = edited(&text);
        let requeue = fixture.store.requeue_dead_letter(&dead_letter, Some(&edited));
        assert_eq!(changing_nothing(&fixture, requeue).await.unwrap(), with_edit, "{phase}");
        let requeue = fixture.store.requeue_dead_letter(&dead_letter, None);
        assert_eq!(requeue.await.unwrap(), plain, "{phase}");
        let kept = usize::from(plain != DeadLetterRequeue::Queued);
        assert_eq!(fixture.redis.cli::<usize>(&["LLEN", "dq"]).await, kept, "{phase}");
    }
}

#[tokio::test]
async fn an_edited_payload_must_not_name_a_pod_that_exists() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    let other = pushed("test", "other");
    fixture.push("rq:w1", &other.raw).await;
    fixture.claim(&session, std::slice::from_ref(&other)).await;
    fixture.push("rq:w1", b"junk").await;
    session.reject(b"junk", None, "no JSON").await.unwrap().unwrap();
    let dead_letter = fixture.store.dead_letters(0, 1).await.unwrap().remove(0);
    let edited = edited(r#"{"name":"x","uuid":"other","image":"x","replica":0}"#);
    let requeue = fixture.store.requeue_dead_letter(&dead_letter, Some(&edited));
    assert_eq!(changing_nothing(&fixture, requeue).await.unwrap(), DeadLetterRequeue::PodExists);
}

#[tokio::test]
async fn only_dead_letters_of_services_whose_pods_are_no_longer_wanted_are_dropped() {
    let fixture = Fixture::new().await;
    let Placed { session, record, payload } = fixture.pod_in(Phase::Assigned, "web", "w1").await;
    session.pop_more(1).await.unwrap();
    session.reject(&payload.raw, Some(&record.id), "no").await.unwrap().unwrap();
    let mine = pushed("test", "mine");
    fixture.push("rq:w1", &mine.raw).await;
    fixture.claim(&session, std::slice::from_ref(&mine)).await;
    session.reject(&mine.raw, Some(&mine.id), "denied").await.unwrap().unwrap();
    fixture.store.stop_pods(None, &[(mine.id.clone(), None)], "Deleted", "deleted").await.unwrap();
    let drop_settled = || fixture.store.discard_obsolete_dead_letters(0, 10);
    let (dropped, next) = changing_nothing(&fixture, drop_settled()).await.unwrap();
    assert_eq!((dropped, next), (vec![], None), "its service still wants it, and the other is the only copy");
    let pods = [(record.id.clone(), None)];
    fixture.store.stop_pods(record.service.as_ref(), &pods, "Deleted", "deleted").await.unwrap();
    let (dropped, _) = drop_settled().await.unwrap();
    assert_eq!(dropped.iter().map(|d| &d.payload[..]).collect::<Vec<_>>(), [&payload.raw[..]]);
    let kept = fixture.store.dead_letters(0, 10).await.unwrap();
    assert_eq!(kept.iter().map(|d| &d.payload[..]).collect::<Vec<_>>(), [&mine.raw[..]]);
}

#[tokio::test]
async fn rejecting_a_copy_of_a_payload_does_not_affect_the_running_pod() {
    let fixture = Fixture::new().await;
    let Placed { session, record, payload } = fixture.pod_in(Phase::Running, "web", "w1").await;
    fixture.push("rq:w1", &payload.raw).await;
    session.reject(&payload.raw, Some(&record.id), "no").await.unwrap().unwrap();
    assert_eq!(fixture.record(&record.id).await, record);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn dead_letters_written_by_hand_are_readable_and_can_be_discarded() {
    let fixture = Fixture::new().await;
    fixture.push("dq", b"not a dead letter \xff").await;
    let dead_letter = fixture.store.dead_letters(0, 1).await.unwrap().remove(0);
    assert!(dead_letter.reason.contains("not written by kubeleet"), "{dead_letter:?}");
    assert!(fixture.store.discard_dead_letter(&dead_letter).await.unwrap());
    assert!(!fixture.store.discard_dead_letter(&dead_letter).await.unwrap());
    assert_eq!(fixture.store.dead_letters(0, 10).await.unwrap(), []);
}

#[tokio::test]
async fn a_missing_payload_is_put_back_where_its_phase_allows_it() {
    let others = [];
    for (phase, lose) in [
        (Phase::Pending, &["DEL", "sq"][..]),
        (Phase::Assigned, &["DEL", "pq:w1"]),
        (Phase::Running, &["DEL", "cs:w1"]),
        (Phase::Stopping, &["DEL", "cs:w1"]),
    ] {
        let fixture = Fixture::new().await;
        let Placed { record, .. } = fixture.pod_in(phase, "web", "w1").await;
        let present = fixture.store.requeue_missing(&record, &others);
        assert_eq!(changing_nothing(&fixture, present).await.unwrap(), RequeueOutcome::Present, "{phase}");
        let () = fixture.redis.cli(lose).await;
        assert_ne!(fixture.violations().await, Vec::<String>::new(), "{phase}: the checker must notice");
        assert_eq!(
            fixture.store.requeue_missing(&record, &others).await.unwrap(),
            RequeueOutcome::Queued,
            "{phase}"
        );
        assert_eq!(fixture.violations().await, Vec::<String>::new(), "{phase}");
        let after = fixture.record(&record.id).await;
        assert_eq!(
            (after.phase, after.assignment),
            (phase, record.assignment),
            "{phase}: nothing else changes"
        );
    }
}

#[tokio::test]
async fn a_payload_in_flight_is_not_missing() {
    let fixture = Fixture::new().await;
    fixture.service("web", 1).await;
    let record = fixture.pods(&"web".parse().unwrap()).await.remove(0);
    fixture.store.take(&fixture.scheduler, 1).await.unwrap();
    let requeue = fixture.store.requeue_missing(&record, std::slice::from_ref(&fixture.scheduler));
    assert_eq!(changing_nothing(&fixture, requeue).await.unwrap(), RequeueOutcome::Present);
}

#[tokio::test]
async fn a_missing_payload_of_a_dead_node_is_queued_or_its_pod_ends() {
    for (phase, after) in [
        (Phase::Assigned, Phase::Pending),
        (Phase::Running, Phase::Pending),
        (Phase::Stopping, Phase::Stopped),
    ] {
        let fixture = Fixture::new().await;
        let Placed { record, .. } = fixture.pod_in(phase, "web", "w1").await;
        fixture.kill_node("w1").await;
        let () = fixture.redis.cli(&["DEL", "pq:w1", "cs:w1"]).await;
        assert_eq!(
            fixture.store.requeue_missing(&record, &[]).await.unwrap(),
            RequeueOutcome::Queued,
            "{phase}"
        );
        assert_eq!(fixture.record(&record.id).await.phase, after, "{phase}");
        assert_eq!(fixture.violations().await, Vec::<String>::new(), "{phase}");
    }
}

#[tokio::test]
async fn a_pod_that_has_moved_since_it_was_read_is_left_alone() {
    let fixture = Fixture::new().await;
    let Placed { session, record, .. } = fixture.pod_in(Phase::Assigned, "web", "w1").await;
    fixture.run_all(&session).await;
    let requeue = fixture.store.requeue_missing(&record, &[]);
    assert_eq!(changing_nothing(&fixture, requeue).await.unwrap(), RequeueOutcome::Changed);
    for phase in [Phase::Stopped, Phase::Succeeded, Phase::Failed] {
        let fixture = Fixture::new().await;
        let Placed { record, .. } = fixture.pod_in(phase, "web", "w1").await;
        let requeue = fixture.store.requeue_missing(&record, &[]);
        assert_eq!(changing_nothing(&fixture, requeue).await.unwrap(), RequeueOutcome::Changed, "{phase}");
    }
}

#[tokio::test]
async fn a_pushed_payload_is_put_back_byte_for_byte() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    let raw =
        "{ \"replica\" : 3, \"extra\":\"é\\u0041\",\"uuid\":\"mine\",\"name\":\"test\" ,\"image\":\"i\"}";
    fixture.push("pq:w1", raw.as_bytes()).await;
    fixture.run_all(&session).await;
    let () = fixture.redis.cli(&["DEL", "cs:w1"]).await;
    let record = fixture.record(&PodId::new("mine").unwrap()).await;
    assert_eq!(fixture.store.requeue_missing(&record, &[]).await.unwrap(), RequeueOutcome::Queued);
    assert_eq!(session.container_set().await.unwrap(), [raw.as_bytes()]);
}

#[tokio::test]
async fn equal_bad_payloads_are_separate_dead_letters() {
    assert_eq!(checks::equal_junk_is_kept_twice(&Fixture::new().await).await, Vec::<String>::new());
}

#[tokio::test]
async fn equal_bad_payloads_of_a_dead_node_are_both_queued() {
    let wrong = checks::equal_junk_of_a_dead_node_is_queued_twice(&Fixture::new().await).await;
    assert_eq!(wrong, Vec::<String>::new());
}

#[tokio::test]
async fn a_claim_reserves_what_a_pushed_pod_requests() {
    assert_eq!(checks::a_pushed_pod_reserves_resources(&Fixture::new().await).await, Vec::<String>::new());
}

#[tokio::test]
async fn dead_letters_are_bounded_in_number_and_bytes_and_the_oldest_go_first() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    let reject = async |raw: &[u8]| {
        fixture.push("rq:w1", raw).await;
        assert_eq!(session.reject(raw, None, "no").await.unwrap(), Ok(WriteOutcome::Done));
    };
    let mut command: Vec<&[u8]> = vec![b"LPUSH", b"dq"];
    command.extend(std::iter::repeat_n(&b"old"[..], 10_000));
    let () = fixture.redis.cli(&command).await;
    reject(b"newest").await;
    let length = async || fixture.redis.cli::<usize>(&["LLEN", "dq"]).await;
    assert_eq!(length().await, 7500);
    assert_eq!(fixture.store.dead_letters(0, 1).await.unwrap()[0].payload, b"newest");

    let large = vec![b'x'; 500_000];
    for _ in 0..160 {
        reject(&large).await;
    }
    assert!((90..135).contains(&length().await), "at most 64 MiB: {}", length().await);
    let page = fixture.store.dead_letters(0, 10_000).await.unwrap();
    assert!((20..40).contains(&page.len()), "at most 16 MiB are read at once: {}", page.len());
    let events = fixture.store.last_events(1000).await.unwrap();
    assert!(events.iter().any(|event| event.reason == "DeadLettersDropped"));
}

#[tokio::test]
async fn a_giant_in_sq_becomes_a_dead_letter_and_the_others_are_taken() {
    let fixture = Fixture::new().await;
    fixture.push("sq", b"first").await;
    fixture.push("sq", &vec![b'g'; 2 << 20]).await;
    fixture.push("sq", b"last").await;
    let taken = fixture.store.take(&fixture.scheduler, 10).await.unwrap();
    assert_eq!(taken, ["first", "last"]);
    let dead_letter = fixture.store.dead_letters(0, 1).await.unwrap().remove(0);
    assert_eq!((dead_letter.queue.as_str(), dead_letter.payload.len()), ("sq", 1024));
    assert!(dead_letter.reason.contains("2097152 bytes"), "{}", dead_letter.reason);
    let requeue = fixture.store.requeue_dead_letter(&dead_letter, None);
    let outcome = changing_nothing(&fixture, requeue).await.unwrap();
    assert_eq!(outcome, DeadLetterRequeue::Truncated);
}
