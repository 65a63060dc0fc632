//! Restarts, declared deaths, the lease and the fence.

use std::time::Duration;

use engine::sim::SimOptions;
use model::pod::lifecycle::Phase;
use store::StopOutcome;

use super::rig::{Rig, eventually, id, payload, payload_with};
use crate::WorkerError;

const STOP: &str = r#""on_disconnect":"stop""#;

#[tokio::test]
async fn a_worker_restarted_during_a_start_manages_the_same_container() {
    let options = SimOptions { image_delay: Duration::from_millis(300), ..SimOptions::default() };
    let Some(rig) = Rig::with_engine("a_worker_restarted_during_a_start_manages_the_same_container", options)
    else {
        return;
    };
    let worker = rig.worker();
    rig.push(&payload("p", "alpine"));
    eventually("it is being started", || async { rig.length("rq:w") == 1 }).await;
    drop(worker);
    let worker = rig.worker();
    rig.until("p", Phase::Running).await;
    rig.until_settled(1).await;
    assert_eq!(rig.engine.running(), 1);

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
    assert!(
        rig.containers("p").await.is_empty(),
        "the next worker knew the container that it had not started"
    );
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_worker_declared_dead_stops_everything_and_registers_again() {
    let Some(rig) = Rig::new("a_worker_declared_dead_stops_everything_and_registers_again") else { return };
    let worker = rig.worker();
    for pod in ["a", "b"] {
        rig.push(&payload(pod, "alpine"));
        rig.until(pod, Phase::Running).await;
    }
    rig.declare_dead().await;
    assert_eq!(rig.length("sq"), 2);
    eventually("all containers are gone", || async { rig.engine.running() == 0 }).await;
    rig.push(&payload("c", "alpine"));
    rig.until("c", Phase::Running).await;
    assert_eq!(rig.engine.running(), 1);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_worker_declared_dead_while_down_removes_its_former_pods() {
    let Some(rig) = Rig::new("a_worker_declared_dead_while_down_removes_its_former_pods") else { return };
    let worker = rig.worker();
    for pod in ["a", "b"] {
        rig.push(&payload(pod, "alpine"));
        rig.until(pod, Phase::Running).await;
    }
    drop(worker);
    rig.declare_dead().await;
    assert_eq!(rig.engine.running(), 2);
    let worker = rig.worker();
    eventually("all containers are gone", || async { rig.engine.running() == 0 }).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn two_workers_cannot_share_a_name() {
    let Some(rig) = Rig::new("two_workers_cannot_share_a_name") else { return };
    let first = rig.worker();
    rig.push(&payload("p", "alpine"));
    rig.until("p", Phase::Running).await;
    let before = rig.incarnation().await;
    let error = rig.worker_elsewhere().ends().await.unwrap_err();
    assert!(matches!(error, WorkerError::NameTaken { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("another worker has been node w since 20"), "{text}");
    assert!(text.contains("two workers cannot share a name") && text.contains("KUBELEET_NODE"), "{text}");
    assert_eq!((rig.incarnation().await, rig.engine.running()), (before, 1), "the first was not disturbed");
    rig.push(&payload("q", "alpine"));
    rig.until("q", Phase::Running).await;
    first.end().await.unwrap();
}

#[tokio::test]
async fn of_two_workers_that_are_started_at_once_one_gets_the_name() {
    let Some(rig) = Rig::new("of_two_workers_that_are_started_at_once_one_gets_the_name") else { return };
    let (mut one, mut other) = (rig.worker_elsewhere(), rig.worker_elsewhere());
    let (refused, winner) = tokio::select! {
        ended = one.wait() => (ended, other),
        ended = other.wait() => (ended, one),
    };
    assert!(matches!(refused, Err(WorkerError::NameTaken { .. })), "{refused:?}");
    rig.push(&payload("p", "alpine"));
    rig.until("p", Phase::Running).await;
    winner.end().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_died_loses_its_name_to_another_machine_before_it_is_declared_dead() {
    let Some(rig) = Rig::new("a_worker_that_died_loses_its_name_to_another_machine") else { return };
    let first = rig.worker();
    rig.push(&payload("p", "alpine"));
    rig.until("p", Phase::Running).await;
    let (before, died) = (rig.incarnation().await, tokio::time::Instant::now());
    drop(first);
    let second = rig.worker_elsewhere();
    eventually("the second has the name", || async { rig.incarnation().await != before }).await;
    assert!(died.elapsed() > rig.config.timing.fence_after - rig.config.timing.heartbeat);
    rig.push(&payload("q", "alpine"));
    rig.until("q", Phase::Running).await;
    second.end().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_another_process_replaces_twice_ends() {
    let Some(rig) = Rig::new("a_worker_that_another_process_replaces_twice_ends") else { return };
    let worker = rig.worker().until_registered(&rig).await;
    for number in 1..=2 {
        let before = rig.incarnation().await;
        let of_another = format!("0000-{number}");
        let () = rig.redis.cli(&["HSET", "node:w", "incarnation", &of_another]).await;
        if number == 1 {
            let is_own = |now: &String| *now != before && *now != of_another;
            eventually("it registers again", || async { is_own(&rig.incarnation().await) }).await;
        }
    }
    let error = worker.ends().await.unwrap_err();
    assert!(matches!(error, WorkerError::Replaced { .. }), "{error}");
}

#[tokio::test]
async fn a_worker_whose_registration_a_failover_loses_registers_again_each_time() {
    let Some(rig) = Rig::new("a_worker_whose_registration_a_failover_loses") else { return };
    let worker = rig.worker().until_registered(&rig).await;
    let first = rig.incarnation().await;
    let mut seen = vec![first.clone()];
    for is_forgotten in [false, true, false, true] {
        let () = match is_forgotten {
            false if seen.len() > 1 => rig.redis.cli(&["HSET", "node:w", "incarnation", &first]).await,
            _ => rig.redis.cli(&["HDEL", "node:w", "incarnation"]).await,
        };
        let is_new = |now: &String| !now.is_empty() && !seen.contains(now);
        eventually("it registers again", || async { is_new(&rig.incarnation().await) }).await;
        seen.push(rig.incarnation().await);
    }
    rig.push(&payload("p", "alpine"));
    rig.until("p", Phase::Running).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn without_redis_the_fence_stops_pods_that_must_not_run_twice() {
    let Some(rig) = Rig::new("without_redis_the_fence_stops_pods_that_must_not_run_twice") else { return };
    let worker = rig.worker();
    rig.push(&payload("keep", "alpine"));
    rig.push(&payload_with("stop", "alpine", STOP));
    for pod in ["keep", "stop"] {
        rig.until(pod, Phase::Running).await;
    }
    rig.redis.freeze();
    rig.until_containers("stop", 0).await;
    assert_eq!(rig.containers("keep").await.len(), 1);
    assert!(rig.engine.exit(&id("keep"), 1));
    eventually("`keep` is restarted", || async { rig.engine.running() == 1 }).await;
    rig.redis.thaw();
    rig.until_containers("stop", 1).await;
    rig.until("stop", Phase::Running).await;
    rig.until_settled(2).await;
    assert_eq!((rig.containers("keep").await.len(), rig.engine.running()), (1, 2));
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_pod_that_the_fence_stopped_before_its_acknowledgement_is_started_again() {
    let options = SimOptions { start_delay: Duration::from_millis(400), ..SimOptions::default() };
    let Some(rig) =
        Rig::with_engine("a_pod_that_the_fence_stopped_before_its_acknowledgement_is_started_again", options)
    else {
        return;
    };
    let worker = rig.worker();
    rig.push(&payload_with("stop", "alpine", STOP));
    rig.until("stop", Phase::Assigned).await;
    rig.redis.freeze();
    rig.until_containers("stop", 1).await;
    rig.until_containers("stop", 0).await;
    rig.redis.thaw();
    rig.until("stop", Phase::Running).await;
    rig.until_containers("stop", 1).await;
    rig.until_settled(1).await;
    assert_eq!(rig.engine.running(), 1);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn after_an_expired_lease_leftovers_are_stopped_before_anything_else() {
    let Some(rig) = Rig::new("after_an_expired_lease_leftovers_are_stopped_before_anything_else") else {
        return;
    };
    let worker = rig.worker();
    rig.push(&payload("keep", "alpine"));
    rig.push(&payload_with("stop", "alpine", STOP));
    for pod in ["keep", "stop"] {
        rig.until(pod, Phase::Running).await;
    }
    drop(worker);
    rig.redis.freeze();
    let worker = rig.worker();
    // The lease from the file has expired, or expires now.
    rig.until_containers("stop", 0).await;
    assert_eq!(rig.containers("keep").await.len(), 1);
    rig.redis.thaw();
    rig.until_containers("stop", 1).await;
    rig.until_settled(2).await;
    assert_eq!(rig.engine.running(), 2);
    worker.end().await.unwrap();

    std::fs::remove_file(rig.config.state_dir.join("w.lease")).unwrap();
    rig.redis.freeze();
    let worker = rig.worker();
    rig.until_containers("stop", 0).await;
    assert_eq!(rig.containers("keep").await.len(), 1, "a missing file counts as an expired lease");
    rig.redis.thaw();
    rig.until_containers("stop", 1).await;
    rig.until_settled(2).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_state_directory_that_cannot_be_written_is_an_error_at_start() {
    let Some(mut rig) = Rig::new("a_state_directory_that_cannot_be_written_is_an_error_at_start") else {
        return;
    };
    rig.config.state_dir = "/proc/nowhere".into();
    rig.config.guard = false;
    let (config, engine) = (std::sync::Arc::new(rig.config.clone()), std::sync::Arc::new(rig.engine.clone()));
    let token = tokio_util::sync::CancellationToken::new();
    let error = crate::run_with(config, rig.store.clone(), engine, token).await.unwrap_err();
    assert!(error.to_string().contains("KUBELEET_STATE_DIR"), "{error}");
}

#[tokio::test]
async fn a_stop_requested_during_a_start_is_not_lost() {
    let options = SimOptions { start_delay: Duration::from_millis(500), ..SimOptions::default() };
    let Some(rig) = Rig::with_engine("a_stop_requested_during_a_start_is_not_lost", options) else { return };
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
    rig.config.runtime = daemon::config::RuntimeKind::Sim;
    rig.config.sim_workers = 200;
    rig.config.timing = model::node::timing::Timing::default();
    let shutdown = tokio_util::sync::CancellationToken::new();
    let workers = tokio::spawn(crate::run(std::sync::Arc::new(rig.config.clone()), shutdown.clone()));
    eventually("all have registered", || async { rig.store.live_nodes().await.unwrap() == 200 }).await;
    for n in 1..=20 {
        rig.redis
            .cli::<()>(&["LPUSH".to_owned(), format!("pq:w-{n}"), payload(&format!("p{n}"), "alpine")])
            .await;
    }
    for n in 1..=20 {
        rig.until(&format!("p{n}"), Phase::Running).await;
    }
    shutdown.cancel();
    workers.await.unwrap().unwrap();
}

#[tokio::test]
async fn health_is_read_from_the_lease_file() {
    let Some(rig) = Rig::new("health_is_read_from_the_lease_file") else { return };
    assert!(crate::health(&rig.config).unwrap_err().contains("no lease"));
    let worker = rig.worker();
    eventually("healthy", || async { crate::health(&rig.config).is_ok() }).await;
    drop(worker);
    eventually("unhealthy", || async {
        crate::health(&rig.config).is_err_and(|why| why.contains("ran out"))
    })
    .await;
}

#[tokio::test]
async fn however_often_the_worker_crashes_each_pod_is_one_container() {
    let options = SimOptions { start_delay: Duration::from_millis(30), ..SimOptions::default() };
    let Some(rig) = Rig::with_engine("however_often_the_worker_crashes_each_pod_is_one_container", options)
    else {
        return;
    };
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
        assert!(rig.has_phase(&format!("p{n}"), Phase::Running).await);
    }
    worker.end().await.unwrap();
}
