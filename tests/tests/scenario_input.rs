//! Scenarios of bad input: it is reported, and blocks nobody (invariant 7).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use kubeleet_tests::exclusive::exclusive;
use kubeleet_tests::wait::that;
use kubeleet_tests::{Cluster, Timing, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);

/// Something that is no pod; each time something else.
fn malformed(number: usize) -> Vec<u8> {
    match number % 8 {
        0 => format!("not JSON {number}").into_bytes(),
        1 => format!(r#"{{"name":"x","uuid":"u{number}","image":"i"}}"#).into_bytes(),
        2 => format!(r#"{{"name":"x","uuid":"u{number}","image":"i","replica":"three"}}"#).into_bytes(),
        3 => [b"\xff\xfe".as_slice(), number.to_string().as_bytes()].concat(),
        4 => format!(r#"{{"name":"../etc","uuid":"u{number}","image":"i","replica":0}}"#).into_bytes(),
        5 => format!(r#"{{"name":"x","uuid":"u{number}","image":"i","replica":0"#).into_bytes(),
        6 => format!(r#"{{"name":"x","uuid":"u{number}","image":"i","replica":0,"privileged":true}}"#)
            .into_bytes(),
        _ => format!("[{number}]").into_bytes(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_bad_payloads_among_a_hundred_good_ones_hold_up_nobody() {
    let _alone = exclusive("heavy").await;
    let cluster = Cluster::new(Timing::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _worker = cluster.worker("w1", "process");
    let http = api.http();
    http.post(
        "/service",
        &json!({"name": "before", "image": "none", "command": ["sleep", "86400"], "replicas": 5}),
    )
    .await;
    http.runs(SOON, "before", 5).await;
    let mut before = cluster.processes.leaders();
    let queue = format!("pq:{}", cluster.node("w1"));
    let mut sent = Vec::new();
    for number in 0..1000 {
        let bad = malformed(number);
        // Half to the worker, half to the scheduler.
        let key = if number % 2 == 0 { queue.as_str() } else { "sq" };
        let () = cluster.redis.cli(&[b"LPUSH", key.as_bytes(), &bad]).await;
        sent.push(bad);
        if number % 10 == 0 {
            let good = json!({"name": "good", "uuid": format!("g{number}"), "image": "none", "replica": number / 10,
                "command": ["sleep", "86400"]});
            let () = cluster.redis.cli(&["LPUSH", key, &good.to_string()]).await;
        }
    }
    eventually(Duration::from_secs(60), "a thousand letters and all pods", || async {
        let letters: usize = cluster.redis.cli(&["LLEN", "dq"]).await;
        let running: usize = cluster.redis.cli(&["SCARD", &format!("cs:{}", cluster.node("w1"))]).await;
        that((letters, running) == (1000, 105), || format!("{letters} letters, {running} pods"))
    })
    .await;
    cluster.comes_to_rest(SOON, &["w1"], || async { cluster.processes.running() }).await;
    let letters: Vec<String> = cluster.redis.cli(&["LRANGE", "dq", "0", "-1"]).await;
    let mut kept = Vec::new();
    for letter in letters {
        let letter: Value = serde_json::from_str(&letter).unwrap();
        assert!(letter["reason"].as_str().unwrap().len() > 10 && letter["at"].is_u64(), "{letter}");
        let payload = letter["payload"].as_str().unwrap();
        // The only ones that are not text are the two bytes and a number.
        kept.push(match letter["encoding"].as_str() {
            None => payload.as_bytes().to_vec(),
            Some("base64") => sent.iter().find(|raw| base64(raw) == payload).unwrap().clone(),
            Some(other) => panic!("{other}"),
        });
    }
    kept.sort_unstable();
    sent.sort_unstable();
    assert_eq!(kept, sent, "byte for byte");
    let mut after = cluster.processes.leaders();
    after.retain(|(pod, _)| before.iter().any(|(other, _)| other == pod));
    before.sort_unstable();
    after.sort_unstable();
    assert_eq!(before, after, "what ran before runs on as the same processes");
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place)) as usize & 63] as char;
            text.push(if place <= chunk.len() { digit } else { '=' });
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_type_is_reported_and_recovered_from() {
    let _alone = exclusive("heavy").await;
    let cluster = Cluster::new(Timing::Short).await;
    let (api, scheduler) = (cluster.api().await, cluster.scheduler());
    let worker = cluster.worker("w1", "process");
    let http = api.http();
    let service =
        |name: &str| json!({"name": name, "image": "none", "command": ["sleep", "86400"], "replicas": 2});
    http.post("/service", &service("before")).await;
    http.runs(SOON, "before", 2).await;
    for (key, name) in [(format!("pq:{}", cluster.node("w1")), "worker"), ("sq".to_owned(), "scheduler")] {
        let () = cluster.redis.cli(&["DEL", &key]).await;
        let () = cluster.redis.cli(&["SET", &key, "somebody's own"]).await;
        let whose = if name == "worker" { &worker } else { &scheduler };
        eventually(SOON, "it says so", || async {
            let log = whose.whole_log();
            that(log.contains("wrong type"), || format!("{name}:\n{log}"))
        })
        .await;
        let (lines, used) = (whose.whole_log().lines().count(), used_commands(&cluster).await);
        tokio::time::sleep(Duration::from_secs(3)).await;
        let more = whose.whole_log().lines().count() - lines;
        assert!(more < 10, "{name}: {more} more lines in 3 s: a change is said once\n{}", whose.log());
        let used = used_commands(&cluster).await - used;
        assert!(used < 1500, "{name}: {used} commands in 3 s: it backs off");
        let value: String = cluster.redis.cli(&["GET", &key]).await;
        assert_eq!(value, "somebody's own", "it is not kubeleet's to delete");
        let () = cluster.redis.cli(&["DEL", &key]).await;
        http.post("/service", &service(name)).await;
        http.runs(SOON, name, 2).await;
    }
    assert!(worker.ended().is_none() && scheduler.ended().is_none(), "nobody gave up");
    cluster.comes_to_rest(SOON, &["w1"], || async { cluster.processes.running() }).await;
}

async fn used_commands(cluster: &Cluster) -> u64 {
    let stats: String = cluster.redis.cli(&["INFO", "stats"]).await;
    let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    line.unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_nobody_can_place_says_why_and_runs_when_it_can() {
    let _alone = exclusive("heavy").await;
    let cluster = Cluster::new(Timing::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _small = cluster.worker_with("w1", "process", &[("KUBELEET_MEMORY", "64MiB")]);
    let http = api.http();
    let big = json!({"name": "big", "image": "none", "command": ["sleep", "86400"], "memory": "1GiB"});
    http.post("/service", &big).await;
    eventually(SOON, "it says why", || async {
        let pods = http.pods("service=big").await;
        let Some(uuid) = pods.first().and_then(|pod| pod["uuid"].as_str()) else {
            return Err("no pod".to_owned());
        };
        let pod = http.get(&format!("/pod/{uuid}")).await;
        let told = pod["reason"] == "Unschedulable" && pod["refusals"][0]["reason"] == "InsufficientMemory";
        that(told, || pod.to_string())
    })
    .await;
    let _large = cluster.worker_with("w2", "process", &[("KUBELEET_MEMORY", "4GiB")]);
    http.runs(Duration::from_secs(10), "big", 1).await;
}
