//! Containers that exit, vanish, or must stop.

use engine::testing::identity;
use engine::{ContainerRequest, Identity, Runtime};
use model::pod::lifecycle::Phase;
use model::spec::ContainerSpec;

use super::rig::{Rig, eventually, id, payload, payload_with};

#[tokio::test]
async fn a_stop_request_ends_a_pod() {
    let Some(rig) = Rig::new("a_stop_request_ends_a_pod") else { return };
    let worker = rig.worker();
    for pod in ["a", "b", "c"] {
        rig.push(&payload(pod, "alpine"));
        rig.until(pod, Phase::Running).await;
    }
    rig.stop("a").await;
    rig.stop("b").await;
    rig.until("a", Phase::Stopped).await;
    rig.until("b", Phase::Stopped).await;
    rig.until_settled(1).await;
    assert_eq!((rig.containers("a").await.len(), rig.engine.running()), (0, 1));
    assert_eq!(rig.redis.cli::<u64>(&["EXISTS", "stop:w"]).await, 0);
    rig.push(&payload("a", "alpine"));
    rig.until_settled(1).await;
    assert_eq!(rig.engine.running(), 1);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_crash_loop_backs_off_and_recovers() {
    let Some(rig) = Rig::new("a_crash_loop_backs_off_and_recovers") else { return };
    let worker = rig.worker();
    rig.push(&payload("c", "crash-loop"));
    rig.until_reason("c", "CrashLoopBackOff").await;
    let record = rig.record("c").await.unwrap();
    assert_eq!((record.phase, record.exit_code), (Phase::Running, Some(1)));
    assert!(record.message.contains("exited with code 1; next start in"), "{}", record.message);
    eventually("restarts are counted", || async { rig.record("c").await.unwrap().restarts >= 2 }).await;
    assert_eq!(rig.containers("c").await.len(), 1, "the same container is restarted");
    rig.stop("c").await;
    rig.until("c", Phase::Stopped).await;

    rig.push(&payload("once", "alpine"));
    rig.until("once", Phase::Running).await;
    assert!(rig.engine.exit(&id("once"), 3));
    eventually("it was restarted and runs", || async {
        rig.record("once").await.is_some_and(|pod| pod.restarts == 1 && pod.reason.is_empty())
    })
    .await;
    assert_eq!(rig.engine.running(), 1);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn without_a_restart_the_exit_code_decides_the_final_phase() {
    let Some(rig) = Rig::new("without_a_restart_the_exit_code_decides_the_final_phase") else { return };
    let worker = rig.worker();
    let table =
        [("never", 0, Phase::Succeeded), ("never", 7, Phase::Failed), ("on-failure", 0, Phase::Succeeded)];
    for (n, (restart, code, phase)) in table.into_iter().enumerate() {
        let pod = format!("p{n}");
        rig.push(&payload_with(&pod, "alpine", &format!(r#""restart":"{restart}""#)));
        rig.until(&pod, Phase::Running).await;
        assert!(rig.engine.exit(&id(&pod), code));
        rig.until(&pod, phase).await;
        assert_eq!(rig.record(&pod).await.unwrap().exit_code, Some(code));
        assert_eq!(rig.containers(&pod).await.len(), 1, "kept for its logs");
    }
    rig.until_settled(0).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn the_containers_of_ended_pods_outlive_a_restart_of_the_worker_for_as_long_as_without_one() {
    let Some(mut rig) = Rig::new("the_containers_of_ended_pods_outlive_a_restart") else { return };
    let worker = rig.worker();
    for (pod, code) in [("ended", 0), ("crashed", 7)] {
        rig.push(&payload_with(pod, "alpine", r#""restart":"never""#));
        rig.until(pod, Phase::Running).await;
        assert!(rig.engine.exit(&id(pod), code));
    }
    rig.until("ended", Phase::Succeeded).await;
    rig.until("crashed", Phase::Failed).await;
    worker.end().await.unwrap();

    let worker = rig.worker().until_registered(&rig).await;
    rig.push(&payload("later", "alpine"));
    rig.until("later", Phase::Running).await;
    let cluster = rig.store.cluster_id().await.unwrap();
    let identity = Identity { cluster, ..identity("w", "stale", "a") };
    let stale = ContainerRequest::new(identity, ContainerSpec::from_image("alpine"));
    rig.engine.run(&stale).await.unwrap();
    rig.until_containers("stale", 0).await;
    for pod in ["ended", "crashed"] {
        assert_eq!(rig.containers(pod).await.len(), 1, "{pod} is kept for its logs");
    }
    worker.end().await.unwrap();

    rig.timings.ended_retention = std::time::Duration::from_secs(1);
    let worker = rig.worker();
    rig.until_containers("ended", 0).await;
    rig.until_containers("crashed", 0).await;
    assert_eq!(rig.containers("later").await.len(), 1);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn the_containers_of_ended_pods_are_removed_when_the_pods_are_deleted() {
    let Some(mut rig) = Rig::new("the_containers_of_ended_pods_are_removed_when_the_pods_are_deleted") else {
        return;
    };
    rig.timings.relist_interval = std::time::Duration::from_secs(3600);
    let worker = rig.worker();
    let pods = ["hinted", "kept", "unhinted"];
    for pod in pods {
        rig.push(&payload_with(pod, "alpine", r#""restart":"never""#));
        rig.until(pod, Phase::Running).await;
        assert!(rig.engine.exit(&id(pod), 0));
        rig.until(pod, Phase::Succeeded).await;
    }
    rig.stop("hinted").await;
    rig.until_containers("hinted", 0).await;
    assert_eq!((rig.containers("kept").await.len(), rig.containers("unhinted").await.len()), (1, 1));
    worker.end().await.unwrap();
    let () = rig.redis.cli(&["HSET", "pod:unhinted", "phase", "stopped"]).await;

    let worker = rig.worker().until_registered(&rig).await;
    rig.until_containers("unhinted", 0).await;
    assert_eq!(rig.containers("kept").await.len(), 1);
    worker.end().await.unwrap();

    rig.timings.relist_interval = std::time::Duration::from_secs(1);
    let worker = rig.worker().until_registered(&rig).await;
    let () = rig.redis.cli(&["HSET", "pod:kept", "phase", "stopped"]).await;
    rig.until_containers("kept", 0).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_pod_whose_container_vanished_is_started_again() {
    let Some(rig) = Rig::new("a_pod_whose_container_vanished_is_started_again") else { return };
    let worker = rig.worker();
    rig.push(&payload("p", "alpine"));
    rig.until("p", Phase::Running).await;
    let before = rig.record("p").await.unwrap().assignment;
    assert!(rig.engine.lose(&id("p")));
    eventually("it runs under another assignment", || async {
        let record = rig.record("p").await.unwrap();
        record.phase == Phase::Running && record.assignment != before
    })
    .await;
    rig.until_settled(1).await;
    assert_eq!(rig.engine.running(), 1);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn stop_requests_for_unknown_pods_are_resolved() {
    let Some(rig) = Rig::new("stop_requests_for_unknown_pods_are_resolved") else { return };
    let worker = rig.worker();
    rig.push(&payload("p", "alpine"));
    rig.until("p", Phase::Running).await;
    rig.redis.cli::<()>(&["SADD", "stop:w", "never-was"]).await;
    eventually("the void stop request is withdrawn", || async {
        rig.redis.cli::<u64>(&["EXISTS", "stop:w"]).await == 0
    })
    .await;
    worker.end().await.unwrap();

    rig.redis.cli::<()>(&["SREM", "cs:w", &payload("p", "alpine")]).await;
    rig.stop("p").await;
    let worker = rig.worker();
    rig.until("p", Phase::Stopped).await;
    rig.until_containers("p", 0).await;
    worker.end().await.unwrap();
}
