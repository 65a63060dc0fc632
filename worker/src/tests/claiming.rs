//! The way from the queue to a container, and obstacles that must not block it.

use std::time::Duration;

use engine::sim::SimOptions;
use model::pod::lifecycle::Phase;

use super::rig::{Rig, eventually, payload, payload_with};

#[tokio::test]
async fn a_pod_pushed_twice_is_one_container() {
    let Some(rig) = Rig::new("a_pod_pushed_twice_is_one_container") else { return };
    let worker = rig.worker();
    rig.push(&payload("p", "alpine"));
    rig.push(&payload("p", "alpine"));
    rig.push(&payload_with("p", "alpine", r#""note":"again""#));
    rig.until("p", Phase::Running).await;
    rig.until_settled(1).await;
    assert_eq!(rig.containers("p").await.len(), 1);
    assert_eq!(
        rig.redis.cli::<Vec<String>>(&["SMEMBERS", "cs:w"]).await,
        [payload("p", "alpine")],
        "the very bytes that were pushed"
    );
    assert_eq!(rig.length("dq"), 0);
    worker.end().await.unwrap();
    assert_eq!(rig.containers("p").await.len(), 1, "a shutdown leaves pods running");
}

#[tokio::test]
async fn invalid_payloads_go_to_the_dead_letters_while_valid_ones_run() {
    let Some(rig) = Rig::new("invalid_payloads_go_to_the_dead_letters_while_valid_ones_run") else { return };
    for n in 0..40 {
        rig.push(&format!("nonsense {n}"));
        if n % 4 == 0 {
            rig.push(&payload(&format!("good{n}"), "alpine"));
        }
    }
    rig.push(&payload_with("greedy", "alpine", r#""privileged":true"#));
    rig.push(&payload("refused", "broken-image"));
    rig.push(&payload_with("no-service", "alpine", r#""spec":"0123456789ab""#));
    let worker = rig.worker();
    rig.until_settled(10).await;
    eventually("43 dead letters", || async { rig.length("dq") == 43 }).await;
    let dead_letters = rig.store.dead_letters(0, 100).await.unwrap();
    let reason = |part: &str| {
        let found = dead_letters.iter().find(|dead| String::from_utf8_lossy(&dead.payload).contains(part));
        found.unwrap_or_else(|| panic!("no dead letter with {part}")).reason.clone()
    };
    assert!(reason("nonsense 7").contains("not a pod"));
    assert!(reason("greedy").contains("`privileged`"));
    assert!(reason("broken").contains("cannot run here"), "the engine's own message");
    assert!(reason("no-service").contains("spec"));
    assert_eq!(rig.engine.running(), 10);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_command_that_cannot_be_started_is_retried_and_no_dead_letter() {
    let Some(rig) = Rig::new("a_command_that_cannot_be_started") else { return };
    let worker = rig.worker();
    rig.push(&payload("typo", "no-command"));
    rig.until_reason("typo", "StartFailed").await;
    let message = rig.record("typo").await.unwrap().message;
    assert!(message.contains("the command cannot be started: \"x\": not found; retrying in"), "{message}");
    assert_eq!(rig.length("dq"), 0);
    rig.stop("typo").await;
    rig.until("typo", Phase::Stopped).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn the_policy_of_a_node_holds_for_pushed_pods_and_for_pods_of_services() {
    let name = "the_policy_of_a_node_holds_for_pushed_pods_and_for_pods_of_services";
    let Some(mut rig) = Rig::new(name) else { return };
    rig.config.policy.host.port_addresses = Some(Vec::new());
    let worker = rig.worker().until_registered(&rig).await;
    rig.push(&payload_with("pushed", "alpine", r#""ports":["0.0.0.0:8080:80"]"#));
    let service = r#"{"name":"web","image":"alpine","ports":["0.0.0.0:8081:80"]}"#;
    let of_service = rig.assign_service(service).await.remove(0);
    for pod in ["pushed", of_service.as_str()] {
        rig.until(pod, Phase::Failed).await;
        let message = rig.record(pod).await.unwrap().message;
        assert!(message.contains("`ports`") && message.contains("0.0.0.0"), "{message}");
        assert_eq!(rig.containers(pod).await.len(), 0);
    }
    let events = rig.store.last_events(100).await.unwrap();
    let refusals = events.iter().filter(|event| event.message.contains("policy of this node")).count();
    assert_eq!((refusals, rig.length("dq")), (2, 2), "each was refused once, and says why");
    rig.push(&payload_with("local", "alpine", r#""ports":["8082:80"]"#));
    rig.until("local", Phase::Running).await;
    rig.until_settled(1).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_pod_whose_host_port_is_taken_goes_back_to_the_schedulers() {
    let Some(rig) = Rig::new("a_pod_whose_host_port_is_taken_goes_back_to_the_schedulers") else { return };
    let worker = rig.worker().until_registered(&rig).await;
    let service = r#"{"name":"web","image":"port-taken","ports":["8080:80","9090:90"]}"#;
    let pod = rig.assign_service(service).await.remove(0);
    rig.until(pod.as_str(), Phase::Pending).await;
    let record = rig.record(pod.as_str()).await.unwrap();
    assert_eq!(record.reason, "HostPortTaken");
    assert!(record.message.contains("w could not start it 3 times: simulated: Bind"), "{}", record.message);
    assert_eq!((rig.length("sq"), rig.length("rq:w"), rig.length("dq")), (1, 0, 0));
    let node = rig.store.node(&rig.node()).await.unwrap().unwrap();
    assert_eq!(node.host_ports, [("8080/tcp".to_owned(), "another program".to_owned())].into());
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_missing_image_does_not_block_other_pods() {
    let Some(mut rig) = Rig::new("a_missing_image_does_not_block_other_pods") else { return };
    rig.config.start_concurrency = 1;
    let worker = rig.worker();
    rig.push(&payload("absent", "missing-image"));
    rig.until_reason("absent", "ImagePullBackOff").await;
    let record = rig.record("absent").await.unwrap();
    assert_eq!(record.phase, Phase::Assigned);
    assert!(record.message.contains("missing-image"), "the engine's own message: {}", record.message);
    rig.push(&payload("good", "alpine"));
    rig.until("good", Phase::Running).await;
    rig.stop("absent").await;
    rig.until("absent", Phase::Stopped).await;
    rig.until_settled(1).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_queue_of_the_wrong_type_is_retried_without_spinning() {
    let Some(rig) = Rig::new("a_queue_of_the_wrong_type_is_retried_without_spinning") else { return };
    let worker = rig.worker();
    rig.push(&payload("before", "alpine"));
    rig.until("before", Phase::Running).await;
    rig.redis.cli::<()>(&["SET", "pq:w", "x"]).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_does_not_spin(&rig).await;
    rig.redis.cli::<()>(&["DEL", "pq:w"]).await;
    rig.push(&payload("after", "alpine"));
    rig.until("after", Phase::Running).await;
    assert_eq!(rig.engine.running(), 2);
    worker.end().await.unwrap();
}

/// A spinning loop makes thousands of commands in a second.
async fn assert_does_not_spin(rig: &Rig) {
    let commands = || -> u64 {
        let stats: String = rig.redis.blocking_cli(&["INFO", "stats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
        line.unwrap().trim().parse().unwrap()
    };
    let before = commands();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(commands() - before < 200, "it does not spin: {} commands in a second", commands() - before);
}

#[tokio::test]
async fn a_full_redis_fences_no_pod_and_a_stop_still_reaches_its_node() {
    let Some(rig) = Rig::new("a_full_redis_fences_no_pod_and_a_stop_still_reaches_its_node") else { return };
    let worker = rig.worker();
    for pod in ["keeps", "goes"] {
        rig.push(&payload_with(pod, "alpine", r#""on_disconnect":"stop""#));
        rig.until(pod, Phase::Running).await;
    }
    let maxmemory = async |bytes| rig.redis.cli::<()>(&["CONFIG", "SET", "maxmemory", bytes]).await;
    rig.push(&payload("last", "alpine"));
    maxmemory("1").await;
    rig.until("last", Phase::Running).await;
    rig.stop("goes").await;
    rig.until("goes", Phase::Stopped).await;
    tokio::time::sleep(2 * rig.config.timing.fence_after).await;
    assert_does_not_spin(&rig).await;
    assert!(rig.has_phase("keeps", Phase::Running).await);
    assert_eq!(rig.engine.running(), 2);
    maxmemory("0").await;
    rig.push(&payload("after", "alpine"));
    rig.until("after", Phase::Running).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_broken_record_does_not_block_other_pods() {
    let Some(rig) = Rig::new("a_broken_record_does_not_block_other_pods") else { return };
    rig.redis.cli::<()>(&["SET", "pod:cursed", "x"]).await;
    for n in 0..5 {
        rig.push(&payload(&format!("good{n}"), "alpine"));
    }
    rig.push(&payload("cursed", "alpine"));
    for n in 5..10 {
        rig.push(&payload(&format!("good{n}"), "alpine"));
    }
    let worker = rig.worker();
    rig.until_settled(10).await;
    eventually("a dead letter", || async { rig.length("dq") == 1 }).await;
    let dead_letter = rig.store.dead_letters(0, 1).await.unwrap().remove(0);
    assert_eq!(dead_letter.payload, payload("cursed", "alpine").as_bytes());
    assert!(dead_letter.reason.contains("record"), "{}", dead_letter.reason);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_payload_whose_reply_was_lost_is_swept_up() {
    let Some(rig) = Rig::new("a_payload_whose_reply_was_lost_is_swept_up") else { return };
    let worker = rig.worker();
    rig.push(&payload("a", "alpine"));
    rig.until("a", Phase::Running).await;
    rig.redis.cli::<()>(&["LPUSH", "rq:w", &payload("b", "alpine")]).await;
    rig.until("b", Phase::Running).await;
    rig.until_settled(2).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn an_engine_that_hangs_or_loses_replies_creates_no_second_container() {
    let options = SimOptions { deadline: Duration::from_millis(300), ..SimOptions::default() };
    let test = "an_engine_that_hangs_or_loses_replies_creates_no_second_container";
    let Some(rig) = Rig::with_engine(test, options) else { return };
    let worker = rig.worker();
    rig.push(&payload("first", "alpine"));
    rig.until("first", Phase::Running).await;
    rig.engine.hang(true);
    rig.push(&payload("second", "alpine"));
    let problem = || async { rig.store.node(&rig.node()).await.unwrap().unwrap().engine_problem };
    eventually("the node reports an engine problem", || async { problem().await.is_some() }).await;
    rig.engine.hang(false);
    eventually("the node reports no engine problem", || async { problem().await.is_none() }).await;
    rig.until("second", Phase::Running).await;
    rig.engine.lose_replies(true);
    rig.push(&payload("third", "alpine"));
    rig.until_containers("third", 1).await;
    rig.engine.lose_replies(false);
    rig.until("third", Phase::Running).await;
    rig.until_settled(3).await;
    assert_eq!(rig.engine.running(), 3);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn after_a_failover_no_pod_starts_for_a_fence_period() {
    let Some(mut rig) = Rig::new("after_a_failover_no_pod_starts_for_a_fence_period") else { return };
    rig.config.timing.fence_after = Duration::from_secs(2);
    let worker = rig.worker();
    rig.push(&payload("before", "alpine"));
    rig.push(&payload("waits", "missing-image"));
    rig.until("before", Phase::Running).await;
    rig.until_reason("waits", "ImagePullBackOff").await;
    rig.redis.cli::<()>(&["HSET", "meta", "run_id", "0123456789abcdef"]).await;
    let changed = std::time::Instant::now();
    rig.push(&payload("after", "alpine"));
    rig.until("after", Phase::Running).await;
    assert!(changed.elapsed() >= Duration::from_secs(2), "{:?}", changed.elapsed());
    rig.stop("waits").await;
    rig.until("waits", Phase::Stopped).await;
    rig.until_settled(2).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn payloads_of_any_size_and_bytes_become_bounded_dead_letters_and_hold_up_nothing() {
    let Some(mut rig) = Rig::new("payloads_of_any_size") else { return };
    rig.config.timing.fence_after = Duration::from_secs(10);
    rig.config.timing.dead_after = Duration::from_secs(20);
    let giants = [vec![1; 80 << 20], vec![0xff; 3 << 20], vec![b'"'; 600_000], vec![0; 700_000]];
    let worker = rig.worker();
    rig.push(&payload("before", "alpine"));
    rig.until("before", Phase::Running).await;
    for (giant, list) in giants.iter().zip(["pq:w", "pq:w", "rq:w", "pq:w"]) {
        rig.redis.cli::<()>(&[&b"LPUSH"[..], list.as_bytes(), giant]).await;
        rig.push(&payload(&format!("good{}", giant.len()), "alpine"));
    }
    eventually("all giants are dead letters", || async { rig.length("dq") == 4 }).await;
    rig.until_settled(5).await;
    for dead_letter in rig.store.dead_letters(0, 10).await.unwrap() {
        let payload = &dead_letter.payload;
        let giant = giants.iter().find(|giant| giant[0] == payload[0]).unwrap();
        assert_eq!(payload[..], giant[..1024], "its first KiB");
        let size = format!("{} bytes", giant.len());
        assert!(dead_letter.reason.contains(&size), "{}", dead_letter.reason);
        assert_eq!(dead_letter.queue, "pq:w");
        assert!(dead_letter.at > 0);
    }
    worker.end().await.unwrap();
}

#[tokio::test]
async fn what_a_sweep_cannot_clear_does_not_starve_what_waits_behind_it() {
    let Some(mut rig) = Rig::new("what_a_sweep_cannot_clear") else { return };
    rig.config.start_concurrency = 2;
    let worker = rig.worker();
    rig.push(&payload("absent", "missing-image"));
    rig.until_reason("absent", "ImagePullBackOff").await;
    // As if the replies to pops had been lost.
    for n in 0..8 {
        let twin = payload_with("absent", "missing-image", &format!(r#""n":{n}"#));
        rig.redis.cli::<()>(&["LPUSH", "rq:w", &twin]).await;
    }
    rig.redis.cli::<()>(&["SET", "pod:cursed", "x"]).await;
    let refused = payload_with("cursed", "alpine", r#""privileged":true"#);
    rig.redis.cli::<()>(&["LPUSH", "rq:w", &refused]).await;
    rig.redis.cli::<()>(&["LPUSH", "rq:w", &payload("behind", "alpine")]).await;
    rig.until("behind", Phase::Running).await;
    eventually("the refused one is a dead letter", || async { rig.length("dq") == 1 }).await;
    rig.stop("absent").await;
    rig.until("absent", Phase::Stopped).await;
    worker.end().await.unwrap();
}
