//! Payloads never change (invariant 2), and no clock of a worker is stored (invariant 6).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kubeleet_tests::Fixture;
use kubeleet_tests::invariants::payloads_of;
use model::ids::PodId;

use crate::operations::{cases, ready};

/// White space, an unusual order, escapes, a number that no float can hold, unknown fields.
const AWKWARD: &str = "{ \"replica\":0,\t\"uuid\":\"djkf\u{2026}\",\"name\":\"test\", \
                       \"big\":12345678901234567890123, \
                       \"image\":\"i\",\"e\":\"\\u00e9\u{e9}\\/\", \"nested\":{\"a\":[1.0,1e2]} }";

#[tokio::test]
async fn a_payload_keeps_its_bytes_for_the_whole_life_of_its_pod() {
    let fixture = Fixture::new().await;
    let (first, second) = (fixture.node("w1").await, fixture.node("w2").await);
    fixture.service("web", 1).await;
    let () = fixture.redis.cli(&["LPUSH", "sq", AWKWARD]).await;
    let service_pod = fixture.pods(&"web".parse().unwrap()).await.remove(0).id;
    let pods = [PodId::new("djkf\u{2026}").unwrap(), service_pod];
    let start = fixture.keyspace().await;
    let original = pods.clone().map(|pod| payloads_of(&start, pod.as_str())[0].to_vec());
    assert_eq!(original[0], AWKWARD.as_bytes());
    let same = async |place: &str| {
        let keyspace = fixture.keyspace().await;
        for (pod, original) in pods.iter().zip(&original) {
            assert_eq!(payloads_of(&keyspace, pod.as_str()), [&original[..]], "{pod} in {place}");
            let found = keyspace.elements(place);
            assert!(found.contains(&&original[..]), "{pod} is not in {place}");
        }
    };
    same("sq").await;
    let fq = format!("fq:{}", fixture.scheduler);
    fixture.store.take(&fixture.scheduler, 10).await.unwrap();
    same(&fq).await;
    fixture.assign_all(&first).await;
    same("pq:w1").await;
    first.pop_more(10).await.unwrap();
    same("rq:w1").await;
    fixture.run_all(&first).await;
    same("cs:w1").await;
    fixture.kill_node("w1").await;
    fixture.drain("w1").await;
    same("sq").await;
    fixture.assign_all(&second).await;
    fixture.run_all(&second).await;
    same("cs:w2").await;
}

#[tokio::test]
async fn no_operation_sends_a_local_time_to_a_script() {
    for case in cases() {
        let script = case.name;
        let fixture = Fixture::recorded().await;
        let operation = ready(&fixture, case).await;
        (operation.call)().await.unwrap();
        let sent = fixture.proxy.as_ref().unwrap().sent();
        let text = String::from_utf8_lossy(&sent);
        assert!(text.contains("EVALSHA"), "{script}: the proxy saw nothing");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        for word in text.split("\r\n").filter(|word| word.bytes().all(|b| b.is_ascii_digit())) {
            let Ok(number) = word.parse::<u64>() else { continue };
            for (unit, now) in
                [("s", now.as_secs()), ("ms", now.as_millis() as u64), ("us", now.as_micros() as u64)]
            {
                // A day in seconds, and the same fraction of the other units.
                let day = now / 20_000;
                assert!(
                    now.abs_diff(number) > day,
                    "{script} sends {word}, which is a current time in {unit}"
                );
            }
        }
    }
}

#[tokio::test]
async fn stored_times_are_the_time_of_redis() {
    let fixture = Fixture::new().await;
    let before = fixture.store.redis_now().await.unwrap();
    let session = fixture.node("w1").await;
    fixture.service("web", 1).await;
    fixture.assign_all(&session).await;
    fixture.run_all(&session).await;
    let after = fixture.store.redis_now().await.unwrap();
    let record = fixture.pods(&"web".parse().unwrap()).await.remove(0);
    let node = fixture.store.node(session.node()).await.unwrap().unwrap();
    let heartbeat: u64 = fixture.redis.cli(&["GET", "hb:w1"]).await;
    let times = [record.created_at, record.since, node.beat, node.registered_at, heartbeat];
    for time in times {
        assert!((before..=after).contains(&time), "{before} <= {time} <= {after}");
    }
    assert!(after - before < Duration::from_secs(60).as_millis() as u64);
}
