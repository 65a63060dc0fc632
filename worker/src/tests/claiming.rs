//! From the queue to a container, and what must not hold that up.

use std::time::Duration;

use common::lifecycle::Phase;

use super::rig::{Rig, eventually, payload, payload_with};
use crate::runtime::sim::SimOptions;

#[tokio::test]
async fn pushed_twice_it_is_one_container() {
    let Some(rig) = Rig::new("pushed_twice_it_is_one_container") else { return };
    let worker = rig.worker();
    rig.push(&payload("p", "alpine"));
    rig.push(&payload("p", "alpine"));
    // The same pod in other bytes is the same pod.
    rig.push(&payload_with("p", "alpine", r#""note":"again""#));
    rig.until("p", Phase::Running).await;
    rig.until_settled(1).await;
    assert_eq!(rig.containers("p").await.len(), 1);
    assert_eq!(
        rig.redis.cli(["SMEMBERS", "cs:w"]),
        payload("p", "alpine"),
        "the very bytes that were pushed"
    );
    assert_eq!(rig.length("dq"), 0);
    worker.end().await.unwrap();
    assert_eq!(rig.containers("p").await.len(), 1, "a shutdown leaves pods running");
}

#[tokio::test]
async fn what_is_no_pod_goes_to_the_dead_letters_while_good_ones_run() {
    let Some(rig) = Rig::new("what_is_no_pod_goes_to_the_dead_letters") else { return };
    for n in 0..40 {
        rig.push(&format!("nonsense {n}"));
        if n % 4 == 0 {
            rig.push(&payload(&format!("good{n}"), "alpine"));
        }
    }
    rig.push(&payload_with("greedy", "alpine", r#""privileged":true"#));
    rig.push(&payload("refused", "broken-image"));
    rig.push(&payload_with("orphan", "alpine", r#""spec":"0123456789ab""#));
    let worker = rig.worker();
    rig.until_settled(10).await;
    eventually("43 dead letters", || async { rig.length("dq") == 43 }).await;
    let letters = rig.store.letters(0, 100).await.unwrap();
    let reason = |part: &str| {
        let letter = letters.iter().find(|letter| String::from_utf8_lossy(&letter.payload).contains(part));
        letter.unwrap_or_else(|| panic!("no letter with {part}")).reason.clone()
    };
    assert!(reason("nonsense 7").contains("not a pod"));
    assert!(reason("greedy").contains("`privileged`"));
    assert!(reason("broken").contains("can not run here"), "the engine's own words");
    assert!(reason("orphan").contains("spec"));
    assert_eq!(rig.engine.running(), 10);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn an_image_that_can_not_be_had_holds_up_nobody() {
    let Some(mut rig) = Rig::new("an_image_that_can_not_be_had_holds_up_nobody") else { return };
    rig.config.start_concurrency = 1;
    let worker = rig.worker();
    rig.push(&payload("absent", "missing-image"));
    rig.until_says("absent", "ImagePullBackOff").await;
    let record = rig.record("absent").await.unwrap();
    assert_eq!(record.phase, Phase::Assigned);
    assert!(record.message.contains("missing-image"), "the engine's own words: {}", record.message);
    rig.push(&payload("good", "alpine"));
    rig.until("good", Phase::Running).await;
    // A pod that waits can be stopped, and is then gone.
    rig.stop("absent").await;
    rig.until("absent", Phase::Stopped).await;
    rig.until_settled(1).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_queue_of_the_wrong_type_is_waited_out() {
    let Some(rig) = Rig::new("a_queue_of_the_wrong_type_is_waited_out") else { return };
    let worker = rig.worker();
    rig.push(&payload("before", "alpine"));
    rig.until("before", Phase::Running).await;
    rig.redis.cli(["SET", "pq:w", "x"]);
    tokio::time::sleep(Duration::from_millis(700)).await;
    let commands = || -> u64 {
        let stats = rig.redis.cli(["INFO", "stats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
        line.unwrap().trim().parse().unwrap()
    };
    let before = commands();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(commands() - before < 100, "it does not spin: {} commands in a second", commands() - before);
    rig.redis.cli(["DEL", "pq:w"]);
    rig.push(&payload("after", "alpine"));
    rig.until("after", Phase::Running).await;
    assert_eq!(rig.engine.running(), 2);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_broken_record_holds_up_nobody() {
    let Some(rig) = Rig::new("a_broken_record_holds_up_nobody") else { return };
    rig.redis.cli(["SET", "pod:cursed", "x"]);
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
    let letter = rig.store.letters(0, 1).await.unwrap().remove(0);
    assert_eq!(letter.payload, payload("cursed", "alpine").as_bytes());
    assert!(letter.reason.contains("record"), "{}", letter.reason);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_lost_reply_of_the_queue_is_swept_up() {
    let Some(rig) = Rig::new("a_lost_reply_of_the_queue_is_swept_up") else { return };
    let worker = rig.worker();
    rig.push(&payload("a", "alpine"));
    rig.until("a", Phase::Running).await;
    // As if a pop had been carried out and nobody heard of it.
    rig.redis.cli(["LPUSH", "rq:w", &payload("b", "alpine")]);
    rig.until("b", Phase::Running).await;
    rig.until_settled(2).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn an_engine_that_hangs_or_loses_replies_makes_no_second_container() {
    let options = SimOptions { deadline: Duration::from_millis(300), ..SimOptions::default() };
    let test = "an_engine_that_hangs_or_loses_replies_makes_no_second_container";
    let Some(rig) = Rig::with_engine(test, options) else { return };
    let worker = rig.worker();
    rig.push(&payload("first", "alpine"));
    rig.until("first", Phase::Running).await;
    rig.engine.hang(true);
    rig.push(&payload("second", "alpine"));
    let problem = || async { rig.store.node(&rig.node()).await.unwrap().unwrap().engine_problem };
    eventually("the node says that its engine is ill", || async { problem().await.is_some() }).await;
    rig.engine.hang(false);
    eventually("the node says that its engine is well", || async { problem().await.is_none() }).await;
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
async fn after_a_change_of_master_nothing_starts_for_a_fence_period() {
    let Some(mut rig) = Rig::new("after_a_change_of_master_nothing_starts") else { return };
    rig.config.timing.fence_after = Duration::from_secs(2);
    let worker = rig.worker();
    rig.push(&payload("before", "alpine"));
    rig.push(&payload("waits", "missing-image"));
    rig.until("before", Phase::Running).await;
    rig.until_says("waits", "ImagePullBackOff").await;
    // As if another server had written it: the one that answers now took over from it.
    rig.redis.cli(["HSET", "meta", "run_id", "0123456789abcdef"]);
    let changed = std::time::Instant::now();
    rig.push(&payload("after", "alpine"));
    rig.until("after", Phase::Running).await;
    assert!(changed.elapsed() >= Duration::from_secs(2), "{:?}", changed.elapsed());
    rig.stop("waits").await;
    rig.until("waits", Phase::Stopped).await;
    rig.until_settled(2).await;
    worker.end().await.unwrap();
}
