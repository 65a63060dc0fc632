//! Absurd numbers: no script fails between two writes.

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::{ATTEMPTS, DEAD_AFTER, Placed, node, pushed};
use model::node::Resources;
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use model::spec::HostPorts;
use store::{AssignOutcome, Assignment, Claim, ClaimItem, ClaimReply, PodRef, StoreError};

const HUGE: [u64; 4] = [u64::MAX, i64::MAX as u64, 10_000_000_000_000_000_000, 1 << 50];

async fn push_to_rq(fixture: &Fixture, payload: &Payload) {
    fixture.push("rq:w1", &payload.raw).await;
}

async fn used(fixture: &Fixture) -> (String, String) {
    let keyspace = fixture.keyspace().await;
    (keyspace.field("node:w1", "used_memory"), keyspace.field("node:w1", "used_pods"))
}

/// A worker of a version that does not limit a pushed pod's request.
#[tokio::test]
async fn a_claim_of_any_amount_is_released_again_and_harms_no_later_one() {
    for amount in HUGE {
        let fixture = Fixture::new().await;
        let session = fixture.node("w1").await;
        let request =
            Resources { cpu_millis: amount, memory_bytes: amount, pids: amount, disk_bytes: 0, pods: 1 };
        for id in ["one", "two", "three"] {
            let payload = pushed("test", id);
            push_to_rq(&fixture, &payload).await;
            let items = [ClaimItem { payload: payload.clone(), request, host_ports: HostPorts::default() }];
            let claims = session.claim(&items, ATTEMPTS, std::time::Duration::ZERO).await.unwrap().unwrap();
            let ClaimReply::Claims(claims) = claims else { panic!("{claims:?}") };
            assert!(matches!(claims[0], Claim::Start { .. }), "{amount}: {claims:?}");
        }
        for id in ["one", "two", "three"] {
            let payload = pushed("test", id);
            session.reject(&payload.raw, Some(&payload.id), "why").await.unwrap().unwrap();
            assert_eq!(fixture.record(&payload.id).await.phase, Phase::Failed);
        }
        assert_eq!(used(&fixture).await, ("0".to_owned(), "0".to_owned()), "{amount}");
    }
}

#[tokio::test]
async fn used_amounts_that_are_no_numbers_stop_neither_an_assignment_nor_the_end_of_a_pod() {
    for wrong in ["garbage", "", "1e300", "9223372036854775807", "-9223372036854775808"] {
        let fixture = Fixture::new().await;
        let Placed { session, record, payload } = fixture.pod_in(Phase::Stopping, "web", "w1").await;
        let spoil = async || {
            for field in ["used_memory", "used_cpu", "used_pids", "used_pods"] {
                let () = fixture.redis.cli(&["HSET", "node:w1", field, wrong]).await;
            }
        };
        spoil().await;
        fixture.finish_stopped(&session, &record).await;
        assert_eq!(fixture.record(&record.id).await.phase, Phase::Stopped, "{wrong:?}");
        let pod = PodRef { id: &record.id, assignment: record.assignment.as_ref().unwrap() };
        session.report_lost(pod, &payload.raw).await.unwrap().unwrap();

        spoil().await;
        let payload = pushed("test", "next");
        let in_flight = format!("fq:{}", fixture.scheduler.as_str());
        fixture.push(&in_flight, &payload.raw).await;
        let incarnation: String = fixture.redis.cli(&["HGET", "node:w1", "incarnation"]).await;
        let request = Resources { cpu_millis: 100, memory_bytes: 64 << 20, pids: 1, disk_bytes: 0, pods: 1 };
        let incarnation = Some(model::ids::Incarnation::new(incarnation).unwrap());
        let assignment = Assignment {
            payload,
            node: node("w1"),
            incarnation,
            request,
            host_ports: HostPorts::default(),
            named: None,
            volumes: Vec::new(),
            seen_labels: None,
            counted: None,
        };
        let outcomes = fixture.store.assign(&fixture.scheduler, DEAD_AFTER, &[assignment]).await;
        let outcomes = outcomes.unwrap_or_else(|error: StoreError| panic!("{wrong:?}: {error}"));
        assert!(
            matches!(outcomes[0], AssignOutcome::Assigned | AssignOutcome::Refused),
            "{wrong:?}: {outcomes:?}"
        );
    }
}

#[tokio::test]
async fn a_record_with_huge_amounts_is_released() {
    for wrong in ["99999999999999999999", "1e300", "-5", "inf", "nan", "garbage"] {
        let fixture = Fixture::new().await;
        let Placed { session, record, .. } = fixture.pod_in(Phase::Stopping, "web", "w1").await;
        let () = fixture.redis.cli(&["HSET", &format!("pod:{}", record.id), "memory", wrong]).await;
        fixture.finish_stopped(&session, &record).await;
        assert_eq!(used(&fixture).await.1, "0", "{wrong}");
    }
}
