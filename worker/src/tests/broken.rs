//! Broken records and keys: each harms only its own pod.

use model::pod::lifecycle::Phase;

use super::rig::{Rig, eventually, id, payload};

const BROKEN: [&str; 6] = ["b0", "b1", "b2", "b3", "b4", "b5"];

async fn break_records(rig: &Rig) {
    let commands: [&[&str]; 6] = [
        &["HSET", "pod:b0", "phase", "Running"],
        &["SET", "pod:b1", "1"],
        &["HDEL", "pod:b2", "phase"],
        &["HDEL", "pod:b3", "node"],
        &["HSET", "pod:b4", "replica", "many", "restarts", "-1"],
        &["HDEL", "pod:b5", "assignment", "name"],
    ];
    for command in commands {
        rig.redis.cli::<()>(command).await;
    }
    let junk = "SADD cs:w nonsense {} \u{1}".split(' ').collect::<Vec<_>>();
    rig.redis.cli::<()>(&junk).await;
}

async fn heartbeats(rig: &Rig, count: usize) {
    for _ in 0..count {
        let beat = || async { rig.store.node(&rig.node()).await.unwrap().unwrap().beat };
        let before = beat().await;
        eventually("a heartbeat", || async { beat().await != before }).await;
    }
}

fn all_run(rig: &Rig, why: &str) {
    for pod in BROKEN {
        assert!(rig.engine.running_on(&id(pod)).len() == 1, "{pod} {why}");
    }
}

#[tokio::test]
async fn broken_records_leave_their_pods_running_and_harm_no_other_before_and_after_a_restart() {
    let Some(rig) = Rig::new("broken_records") else { return };
    let worker = rig.worker();
    for pod in BROKEN.iter().chain(&["good1", "good2"]) {
        rig.push(&payload(pod, "alpine"));
        rig.until(pod, Phase::Running).await;
    }
    break_records(&rig).await;
    heartbeats(&rig, 8).await;
    all_run(&rig, "after heartbeats");
    rig.push(&payload("before", "alpine"));
    rig.until("before", Phase::Running).await;
    worker.end().await.unwrap();

    let worker = rig.worker();
    rig.push(&payload("after", "alpine"));
    rig.until("after", Phase::Running).await;
    rig.stop("good1").await;
    rig.until("good1", Phase::Stopped).await;
    assert!(rig.engine.exit(&id("good2"), 1));
    eventually("good2 is restarted", || async { rig.record("good2").await.unwrap().restarts == 1 }).await;
    heartbeats(&rig, 8).await;
    all_run(&rig, "after a restart of the worker");
    assert_eq!(rig.length("dq"), 0);

    rig.push(&payload("b1", "alpine"));
    rig.push(&payload("b2", "alpine"));
    eventually("two dead letters", || async { rig.length("dq") == 2 && rig.length("rq:w") == 0 }).await;
    heartbeats(&rig, 3).await;
    all_run(&rig, "after its payload was rejected");

    rig.redis.cli::<()>(&["HSET", "pod:b0", "phase", "running"]).await;
    eventually("b0 is managed again", || async {
        rig.stop("b0").await;
        rig.has_phase("b0", Phase::Stopped).await
    })
    .await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn stop_requests_of_the_wrong_type_do_not_stop_heartbeats() {
    let Some(rig) = Rig::new("stop_requests_of_the_wrong_type") else { return };
    let worker = rig.worker();
    rig.push(&payload("p", "alpine"));
    rig.until("p", Phase::Running).await;
    rig.redis.cli::<()>(&["SET", "stop:w", "x"]).await;
    heartbeats(&rig, 5).await;
    assert_eq!(rig.engine.running(), 1);
    rig.redis.cli::<()>(&["DEL", "stop:w"]).await;
    rig.stop("p").await;
    rig.until("p", Phase::Stopped).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_pod_that_is_neither_in_the_container_set_nor_in_a_slot_is_listed_by_its_worker() {
    let Some(rig) = Rig::new("unlisted_pod") else { return };
    let worker = rig.worker();
    let pod = rig.assign_service(r#"{"name":"web","image":"alpine","replicas":1}"#).await.remove(0);
    rig.until(pod.as_str(), Phase::Running).await;
    rig.until_settled(1).await;
    let set = rig.redis.cli::<Vec<Vec<u8>>>(&["SMEMBERS", "cs:w"]).await;
    rig.redis.cli::<()>(&["HSET", &format!("pod:{pod}"), "replica", ""]).await;
    rig.redis.cli::<()>(&["DEL", "slots:web", "cs:w"]).await;
    eventually("the set is as before", || async {
        rig.redis.cli::<Vec<Vec<u8>>>(&["SMEMBERS", "cs:w"]).await == set
    })
    .await;
    assert_eq!(rig.containers(pod.as_str()).await.len(), 1);
    worker.end().await.unwrap();
}
