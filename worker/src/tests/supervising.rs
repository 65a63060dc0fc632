//! Containers that end, vanish, or are wanted no more.

use common::lifecycle::Phase;

use super::rig::{Rig, eventually, id, payload, payload_with};

#[tokio::test]
async fn a_stop_ends_a_pod() {
    let Some(rig) = Rig::new("a_stop_ends_a_pod") else { return };
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
    assert_eq!(rig.redis.cli(["EXISTS", "stop:w"]), "0");
    // A late copy starts nothing.
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
    rig.until_says("c", "CrashLoopBackOff").await;
    let record = rig.record("c").await.unwrap();
    assert_eq!((record.phase, record.exit_code), (Phase::Running, Some(1)));
    assert!(record.message.contains("exited with 1; next start in"), "{}", record.message);
    eventually("restarts are counted", || async { rig.record("c").await.unwrap().restarts >= 2 }).await;
    assert_eq!(rig.containers("c").await.len(), 1, "the same container is started again");
    rig.stop("c").await;
    rig.until("c", Phase::Stopped).await;

    rig.push(&payload("once", "alpine"));
    rig.until("once", Phase::Running).await;
    assert!(rig.engine.exit(&id("once"), 3));
    eventually("it was started again and is well", || async {
        rig.record("once").await.is_some_and(|pod| pod.restarts == 1 && pod.reason.is_empty())
    })
    .await;
    assert_eq!(rig.engine.running(), 1);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_pod_that_may_rest_ends_as_it_ended() {
    let Some(rig) = Rig::new("a_pod_that_may_rest_ends_as_it_ended") else { return };
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
async fn a_container_that_vanished_is_made_again() {
    let Some(rig) = Rig::new("a_container_that_vanished_is_made_again") else { return };
    let worker = rig.worker();
    rig.push(&payload("p", "alpine"));
    rig.until("p", Phase::Running).await;
    let before = rig.record("p").await.unwrap().assignment;
    assert!(rig.engine.lose(&id("p")));
    eventually("it runs as another assignment", || async {
        let record = rig.record("p").await.unwrap();
        record.phase == Phase::Running && record.assignment != before
    })
    .await;
    rig.until_settled(1).await;
    assert_eq!(rig.engine.running(), 1);
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_stop_of_a_pod_that_is_nowhere_is_dealt_with() {
    let Some(rig) = Rig::new("a_stop_of_a_pod_that_is_nowhere_is_dealt_with") else { return };
    let worker = rig.worker();
    rig.push(&payload("p", "alpine"));
    rig.until("p", Phase::Running).await;
    rig.redis.cli(["SADD", "stop:w", "never-was"]);
    eventually("the void wish is withdrawn", || async { rig.redis.cli(["EXISTS", "stop:w"]) == "0" }).await;
    worker.end().await.unwrap();

    // Its payload is lost while nobody is there: its record is enough to stop it.
    rig.redis.cli(["SREM", "cs:w", &payload("p", "alpine")]);
    rig.stop("p").await;
    let worker = rig.worker();
    rig.until("p", Phase::Stopped).await;
    rig.until_containers("p", 0).await;
    worker.end().await.unwrap();
}
