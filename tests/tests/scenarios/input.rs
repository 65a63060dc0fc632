//! Bad input is reported and blocks nothing else (invariant 7).

use std::time::Duration;

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::{Cluster, ClusterTiming};
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::SOON;

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
async fn a_thousand_bad_payloads_do_not_block_a_hundred_good_ones() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
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
        let key = if number % 2 == 0 { queue.as_str() } else { "sq" };
        let () = cluster.redis.cli(&[b"LPUSH", key.as_bytes(), &bad]).await;
        sent.push(bad);
        if number % 10 == 0 {
            let good = json!({
                "name": "good", "uuid": format!("g{number}"), "image": "none", "replica": number / 10,
                "command": ["sleep", "86400"],
            });
            let () = cluster.redis.cli(&["LPUSH", key, &good.to_string()]).await;
        }
    }
    eventually_within(
        Duration::from_secs(60),
        "there are a thousand dead letters, and all pods run",
        || async {
            let dead: usize = cluster.redis.cli(&["LLEN", "dq"]).await;
            let running: usize = cluster.redis.cli(&["SCARD", &format!("cs:{}", cluster.node("w1"))]).await;
            check((dead, running) == (1000, 105), || format!("{dead} dead letters, {running} pods"))
        },
    )
    .await;
    cluster.comes_to_rest(SOON, &["w1"], || async { cluster.processes.running() }).await;
    let dead_letters: Vec<String> = cluster.redis.cli(&["LRANGE", "dq", "0", "-1"]).await;
    let mut kept = Vec::new();
    for text in dead_letters {
        let dead_letter: Value = serde_json::from_str(&text).unwrap();
        assert!(dead_letter["reason"].as_str().unwrap().len() > 10 && dead_letter["at"].is_u64(), "{text}");
        let payload = dead_letter["payload"].as_str().unwrap();
        // Only the payloads of kind 3 are not UTF-8.
        kept.push(match dead_letter["encoding"].as_str() {
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
    assert_eq!(before, after, "the earlier pods are the same processes");
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for index in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * index)) as usize & 63] as char;
            text.push(if index <= chunk.len() { digit } else { '=' });
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_key_of_the_wrong_type_is_moved_out_of_the_way_and_work_goes_on() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, scheduler) = (cluster.api().await, cluster.scheduler());
    let worker = cluster.worker("w1", "process");
    let http = api.http();
    let service =
        |name: &str| json!({"name": name, "image": "none", "command": ["sleep", "86400"], "replicas": 2});
    http.post("/service", &service("before")).await;
    http.runs(SOON, "before", 2).await;
    for (key, name) in [(format!("pq:{}", cluster.node("w1")), "worker"), ("sq".to_owned(), "scheduler")] {
        let used = used_commands(&cluster).await;
        let () = cluster.redis.cli(&["DEL", &key]).await;
        let () = cluster.redis.cli(&["SET", &key, "another program's"]).await;
        http.post("/service", &service(name)).await;
        // One comparison of all keys moves the key away, another finds its waiting payloads.
        http.runs(2 * SOON, name, 2).await;
        let kept: String = cluster.redis.cli(&["GET", &format!("broken:{key}")]).await;
        assert_eq!(kept, "another program's", "kubeleet deletes nothing");
        let line = format!("moved to `broken:{key}`");
        assert_eq!(scheduler.whole_log().matches(&line).count(), 1, "{}", scheduler.whole_log());
        let used = used_commands(&cluster).await - used;
        assert!(used < 20_000, "{name}: {used} commands; it must back off");
    }
    assert!(worker.ended().is_none() && scheduler.ended().is_none(), "no daemon ended");
    cluster.comes_to_rest(SOON, &["w1"], || async { cluster.processes.running() }).await;
}

async fn used_commands(cluster: &Cluster) -> u64 {
    let stats: String = cluster.redis.cli(&["INFO", "stats"]).await;
    let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    line.unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unschedulable_pod_reports_its_refusals_and_runs_once_it_fits() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _small = cluster.worker_with("w1", "process", &[("KUBELEET_MEMORY", "64MiB")]);
    let http = api.http();
    let big = json!({"name": "big", "image": "none", "command": ["sleep", "86400"], "memory": "1GiB"});
    // It may be refused otherwise, once the worker has registered.
    http.post("/service?allow_partial=true", &big).await;
    eventually_within(SOON, "the pod reports why", || async {
        let pods = http.pods("service=big").await;
        let Some(uuid) = pods.first().and_then(|pod| pod["uuid"].as_str()) else {
            return Err("no pod".to_owned());
        };
        let pod = http.get(&format!("/pod/{uuid}")).await;
        let is_reported =
            pod["reason"] == "Unschedulable" && pod["refusals"][0]["reason"] == "InsufficientMemory";
        check(is_reported, || pod.to_string())
    })
    .await;
    let _large = cluster.worker_with("w2", "process", &[("KUBELEET_MEMORY", "4GiB")]);
    http.runs(Duration::from_secs(10), "big", 1).await;
}
