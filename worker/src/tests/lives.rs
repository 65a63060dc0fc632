//! Restarts, declared deaths, the lease and the fence.

use std::time::Duration;

use common::lifecycle::Phase;
use common::store::StopOutcome;

use super::rig::{Rig, eventually, id, payload, payload_with};
use crate::WorkerError;
use crate::runtime::sim::SimOptions;

const STOP: &str = r#""on_disconnect":"stop""#;

#[tokio::test]
async fn a_restart_in_the_middle_of_a_start_adopts_the_container() {
    let options = SimOptions { image_delay: Duration::from_millis(300), ..SimOptions::default() };
    let Some(rig) = Rig::with_engine("a_restart_in_the_middle_of_a_start", options) else { return };
    let worker = rig.worker();
    rig.push(&payload("p", "alpine"));
    eventually("it is being started", || async { rig.length("rq:w") == 1 }).await;
    drop(worker);
    let worker = rig.worker();
    rig.until("p", Phase::Running).await;
    rig.until_settled(1).await;
    assert_eq!(rig.engine.running(), 1);

    // And one that runs is held by the next worker without being touched.
    let before = (rig.containers("p").await, rig.record("p").await.unwrap().assignment);
    drop(worker);
    let worker = rig.worker();
    eventually("the next worker registered", || async {
        rig.store.last_events(10).await.unwrap().iter().filter(|e| e.reason == "NodeRestarted").count() == 2
    })
    .await;
    rig.stop("p").await;
    rig.until("p", Phase::Stopped).await;
    assert_eq!(before.0.len(), 1);
    assert!(rig.containers("p").await.is_empty(), "it knew the container that it did not start");
    worker.end().await.unwrap();
}

#[tokio::test]
async fn declared_dead_it_stops_everything_and_is_welcome_again() {
    let Some(rig) = Rig::new("declared_dead_it_stops_everything") else { return };
    let worker = rig.worker();
    for pod in ["a", "b"] {
        rig.push(&payload(pod, "alpine"));
        rig.until(pod, Phase::Running).await;
    }
    rig.bury().await;
    assert_eq!(rig.length("sq"), 2);
    eventually("all containers are gone", || async { rig.engine.running() == 0 }).await;
    rig.push(&payload("c", "alpine"));
    rig.until("c", Phase::Running).await;
    assert_eq!(rig.engine.running(), 1);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn declared_dead_while_away_it_removes_what_is_not_its_own_any_more() {
    let Some(rig) = Rig::new("declared_dead_while_away") else { return };
    let worker = rig.worker();
    for pod in ["a", "b"] {
        rig.push(&payload(pod, "alpine"));
        rig.until(pod, Phase::Running).await;
    }
    drop(worker);
    rig.bury().await;
    assert_eq!(rig.engine.running(), 2);
    let worker = rig.worker();
    eventually("all containers are gone", || async { rig.engine.running() == 0 }).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn two_workers_can_not_share_a_name() {
    let Some(rig) = Rig::new("two_workers_can_not_share_a_name") else { return };
    let first = rig.worker();
    rig.push(&payload("p", "alpine"));
    rig.until("p", Phase::Running).await;
    let second = rig.worker();
    let error = first.ends().await.unwrap_err();
    assert!(matches!(error, WorkerError::Replaced { .. }), "{error}");
    assert!(error.to_string().contains("two workers can not share a name"));
    assert_eq!(rig.engine.running(), 1, "its containers are the other's now");
    second.end().await.unwrap();
}

#[tokio::test]
async fn without_redis_the_fence_stops_what_must_not_run_twice() {
    let Some(rig) = Rig::new("without_redis_the_fence_stops_what_must_not_run_twice") else { return };
    let worker = rig.worker();
    rig.push(&payload("keep", "alpine"));
    rig.push(&payload_with("stop", "alpine", STOP));
    for pod in ["keep", "stop"] {
        rig.until(pod, Phase::Running).await;
    }
    rig.redis.pause();
    rig.until_containers("stop", 0).await;
    assert_eq!(rig.containers("keep").await.len(), 1);
    // One that ends meanwhile is started again: it lives on.
    assert!(rig.engine.exit(&id("keep"), 1));
    eventually("`keep` is started again", || async { rig.engine.running() == 1 }).await;
    rig.redis.go_on();
    rig.until_containers("stop", 1).await;
    rig.until("stop", Phase::Running).await;
    rig.until_settled(2).await;
    assert_eq!((rig.containers("keep").await.len(), rig.engine.running()), (1, 2));
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_start_that_the_fence_stopped_while_its_ack_waited_is_healed_at_the_next_look() {
    let options = SimOptions { start_delay: Duration::from_millis(400), ..SimOptions::default() };
    let Some(rig) = Rig::with_engine("a_start_that_the_fence_stopped_is_healed", options) else { return };
    let worker = rig.worker();
    rig.push(&payload_with("stop", "alpine", STOP));
    rig.until("stop", Phase::Assigned).await;
    // Its start is under way, and ends before the lease does; nobody hears of it.
    rig.redis.pause();
    rig.until_containers("stop", 1).await;
    rig.until_containers("stop", 0).await;
    // The acknowledgement that comes now is of a container that is gone.
    rig.redis.go_on();
    rig.until("stop", Phase::Running).await;
    rig.until_containers("stop", 1).await;
    rig.until_settled(1).await;
    assert_eq!(rig.engine.running(), 1);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_lease_that_ran_out_ends_the_leftovers_before_anything_else() {
    let Some(rig) = Rig::new("a_lease_that_ran_out_ends_the_leftovers") else { return };
    let worker = rig.worker();
    rig.push(&payload("keep", "alpine"));
    rig.push(&payload_with("stop", "alpine", STOP));
    for pod in ["keep", "stop"] {
        rig.until(pod, Phase::Running).await;
    }
    drop(worker);
    // Redis is away, so that nothing but the lease file can tell the next worker.
    rig.redis.pause();
    let worker = rig.worker();
    // The lease taken over from the file runs out while Redis is away, or had run out before: the same.
    rig.until_containers("stop", 0).await;
    assert_eq!(rig.containers("keep").await.len(), 1);
    rig.redis.go_on();
    rig.until_containers("stop", 1).await;
    rig.until_settled(2).await;
    assert_eq!(rig.engine.running(), 2);
    worker.end().await.unwrap();

    std::fs::remove_file(rig.config.state_dir.join("w.lease")).unwrap();
    rig.redis.pause();
    let worker = rig.worker();
    rig.until_containers("stop", 0).await;
    assert_eq!(rig.containers("keep").await.len(), 1, "a missing file is a lease that ran out");
    rig.redis.go_on();
    rig.until_containers("stop", 1).await;
    rig.until_settled(2).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_state_directory_that_can_not_be_written_is_said_at_start() {
    let Some(mut rig) = Rig::new("a_state_directory_that_can_not_be_written") else { return };
    rig.config.state_dir = "/proc/nowhere".into();
    let (config, engine) = (std::sync::Arc::new(rig.config.clone()), std::sync::Arc::new(rig.engine.clone()));
    let token = tokio_util::sync::CancellationToken::new();
    let error = crate::run_with(config, rig.store.clone(), engine, token).await.unwrap_err();
    assert!(error.to_string().contains("KUBELEET_STATE_DIR"), "{error}");
}

#[tokio::test]
async fn a_stop_during_a_start_is_not_forgotten() {
    let options = SimOptions { start_delay: Duration::from_millis(500), ..SimOptions::default() };
    let Some(rig) = Rig::with_engine("a_stop_during_a_start_is_not_forgotten", options) else { return };
    let worker = rig.worker();
    rig.push(&payload("p", "alpine"));
    rig.until("p", Phase::Assigned).await;
    let stopped = rig.store.stop_pods(None, &[(id("p"), Some(rig.node()))], "Test", "at once").await.unwrap();
    assert_eq!(stopped, [StopOutcome::Stopping]);
    rig.until("p", Phase::Stopped).await;
    rig.until_containers("p", 0).await;
    rig.until_settled(0).await;
    worker.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_simulated_workers_share_one_process() {
    let Some(mut rig) = Rig::new("many_simulated_workers_share_one_process") else { return };
    rig.config.runtime = common::config::RuntimeKind::Sim;
    rig.config.sim_workers = 200;
    rig.config.timing = common::config::Timing::default();
    let shutdown = tokio_util::sync::CancellationToken::new();
    let workers = tokio::spawn(crate::run(std::sync::Arc::new(rig.config.clone()), shutdown.clone()));
    eventually("all have registered", || async { rig.store.living_nodes().await.unwrap() == 200 }).await;
    for n in 1..=20 {
        rig.redis.cli(["LPUSH".to_owned(), format!("pq:w-{n}"), payload(&format!("p{n}"), "alpine")]);
    }
    for n in 1..=20 {
        rig.until(&format!("p{n}"), Phase::Running).await;
    }
    shutdown.cancel();
    workers.await.unwrap().unwrap();
}

#[tokio::test]
async fn health_is_what_the_lease_file_says() {
    let Some(rig) = Rig::new("health_is_what_the_lease_file_says") else { return };
    assert!(crate::health(&rig.config).unwrap_err().contains("no lease"));
    let worker = rig.worker();
    eventually("healthy", || async { crate::health(&rig.config).is_ok() }).await;
    drop(worker);
    eventually("ill", || async { crate::health(&rig.config).is_err_and(|why| why.contains("ran out")) })
        .await;
}

/// Dropping a worker leaves its starts under way, as a container engine goes on with what a dead client asked for.
#[tokio::test]
async fn however_often_it_crashes_each_pod_is_one_container() {
    let options = SimOptions { start_delay: Duration::from_millis(30), ..SimOptions::default() };
    let Some(rig) = Rig::with_engine("however_often_it_crashes", options) else { return };
    for n in 0..60 {
        rig.push(&payload(&format!("p{n}"), "alpine"));
        if n % 5 == 0 {
            let worker = rig.worker();
            tokio::time::sleep(Duration::from_millis(rand::random_range(10..120))).await;
            drop(worker);
        }
        if n % 7 == 0 {
            rig.push(&payload(&format!("p{n}"), "alpine"));
        }
    }
    let worker = rig.worker();
    rig.until_settled(60).await;
    assert_eq!((rig.engine.running(), rig.length("dq")), (60, 0));
    for n in 0..60 {
        assert_eq!(rig.containers(&format!("p{n}")).await.len(), 1);
        assert!(rig.is(&format!("p{n}"), Phase::Running).await);
    }
    worker.end().await.unwrap();
}
