//! The payload never changes (invariant 2), and no worker's clock is stored (invariant 6).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::ids::PodId;
use kubeleet_tests::Bed;
use kubeleet_tests::invariants::payloads_of;

use crate::verbs::{cases, ready};

/// Awkward on purpose: white space, an order of our choosing, escapes, a number no float keeps, fields nobody knows.
const AWKWARD: &str = "{ \"replica\":0,\t\"uuid\":\"djkf\u{2026}\",\"name\":\"test\", \"big\":12345678901234567890123, \
                       \"image\":\"i\",\"e\":\"\\u00e9\u{e9}\\/\", \"nested\":{\"a\":[1.0,1e2]} }";

#[tokio::test]
async fn the_same_bytes_travel_for_the_pods_whole_life() {
    let bed = Bed::new().await;
    let (first, second) = (bed.node("w1").await, bed.node("w2").await);
    bed.service("web", 1).await;
    let () = bed.redis.cli(&["LPUSH", "sq", AWKWARD]).await;
    let service_pod = bed.pods(&"web".parse().unwrap()).await.remove(0).id;
    let pods = [PodId::new("djkf\u{2026}").unwrap(), service_pod];
    let start = bed.keyspace().await;
    let original = pods.clone().map(|pod| payloads_of(&start, pod.as_str())[0].to_vec());
    assert_eq!(original[0], AWKWARD.as_bytes());
    let same = async |place: &str| {
        let keyspace = bed.keyspace().await;
        for (pod, original) in pods.iter().zip(&original) {
            assert_eq!(payloads_of(&keyspace, pod.as_str()), [&original[..]], "{pod} in {place}");
            let found = keyspace.elements(place);
            assert!(found.contains(&&original[..]), "{pod} is not in {place}");
        }
    };
    same("sq").await;
    let fq = format!("fq:{}", bed.scheduler);
    bed.store.take(&bed.scheduler, 10).await.unwrap();
    same(&fq).await;
    bed.assign_all(&first).await;
    same("pq:w1").await;
    first.take_more(10).await.unwrap();
    same("rq:w1").await;
    bed.run_all(&first).await;
    same("cs:w1").await;
    bed.kill_node("w1").await;
    bed.drain("w1").await;
    same("sq").await;
    bed.assign_all(&second).await;
    bed.run_all(&second).await;
    same("cs:w2").await;
}

#[tokio::test]
async fn no_verb_sends_a_time_of_its_own_to_a_script() {
    for script in cases() {
        let bed = Bed::recorded().await;
        let verb = ready(&bed, script).await;
        (verb.call)().await.unwrap();
        let sent = bed.proxy.as_ref().unwrap().sent();
        let text = String::from_utf8_lossy(&sent);
        assert!(text.contains("EVALSHA"), "{script}: the proxy saw nothing");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        for word in text.split("\r\n").filter(|word| word.bytes().all(|b| b.is_ascii_digit())) {
            let Ok(number) = word.parse::<u64>() else { continue };
            for (unit, now) in
                [("s", now.as_secs()), ("ms", now.as_millis() as u64), ("us", now.as_micros() as u64)]
            {
                // A day in seconds, and as large a part of the others.
                let day = now / 20_000;
                assert!(
                    now.abs_diff(number) > day,
                    "{script} sends {word}, which is a time of day in {unit}"
                );
            }
        }
    }
}

#[tokio::test]
async fn what_is_stored_is_the_time_of_redis() {
    let bed = Bed::new().await;
    let before = bed.store.redis_now().await.unwrap();
    let session = bed.node("w1").await;
    bed.service("web", 1).await;
    bed.assign_all(&session).await;
    bed.run_all(&session).await;
    let after = bed.store.redis_now().await.unwrap();
    let record = bed.pods(&"web".parse().unwrap()).await.remove(0);
    let node = bed.store.node(session.node()).await.unwrap().unwrap();
    let heartbeat: u64 = bed.redis.cli(&["GET", "hb:w1"]).await;
    let times = [record.created_at, record.since, node.beat, node.registered_at, heartbeat];
    for time in times {
        assert!((before..=after).contains(&time), "{before} <= {time} <= {after}");
    }
    assert!(after - before < Duration::from_secs(60).as_millis() as u64);
}
