//! Health checks of pods, from the probe to the record.

use std::time::Duration;

use engine::ContainerState;
use model::pod::lifecycle::Phase;

use super::rig::*;

fn service(more: &str) -> String {
    format!(r#"{{"name":"web","image":"i","replicas":1,{more}}}"#)
}

const CHECK: &str = r#"{"command":["check"],"interval":"100ms","timeout":"2s","retries":3}"#;

#[tokio::test]
async fn an_unhealthy_container_is_not_ready_is_started_again_and_is_ready_when_its_check_passes() {
    let Some(rig) = Rig::new("health_restart") else { return };
    let _worker = rig.worker().until_registered(&rig).await;
    let pod = rig.assign_service(&service(&format!(r#""healthcheck":{CHECK}"#))).await[0].clone();
    rig.until(pod.as_str(), Phase::Running).await;
    rig.until_reason(pod.as_str(), "").await;
    let ready_since = rig.record(pod.as_str()).await.unwrap().ready_since;
    assert!(ready_since.is_some());
    let before = rig.containers(pod.as_str()).await;
    rig.engine.set_exec_exit_code(&pod, Some(1));
    rig.until_reason(pod.as_str(), "CrashLoopBackOff").await;
    let record = rig.record(pod.as_str()).await.unwrap();
    assert!(record.message.starts_with("unhealthy, so it was stopped: "), "{}", record.message);
    assert!(record.message.contains("it wrote at last: simulated start 1"), "{}", record.message);
    assert_eq!(record.ready_since, None);
    rig.engine.set_exec_exit_code(&pod, Some(0));
    rig.until_reason(pod.as_str(), "").await;
    let record = rig.record(pod.as_str()).await.unwrap();
    assert_eq!((record.restarts, record.runs.len(), record.exit_code), (1, 1, Some(143)));
    assert!(record.ready_since > ready_since);
    assert_eq!(rig.containers(pod.as_str()).await, before, "the same container, started again");
}

#[tokio::test]
async fn a_status_that_a_new_master_does_not_have_is_reported_again() {
    let Some(rig) = Rig::new("health_lost_report") else { return };
    let _worker = rig.worker().until_registered(&rig).await;
    let pod = rig.assign_service(&service(&format!(r#""healthcheck":{CHECK}"#))).await[0].clone();
    rig.until(pod.as_str(), Phase::Running).await;
    rig.until_reason(pod.as_str(), "").await;
    let key = format!("pod:{pod}");
    let () = rig
        .redis
        .cli(&["HSET", &key, "reason", "Starting", "message", "waiting for its health check to pass"])
        .await;
    let () = rig.redis.cli(&["HSET", "meta", "run_id", "another"]).await;
    rig.until_reason(pod.as_str(), "").await;
}

#[tokio::test]
async fn a_container_that_has_ended_is_not_called_unhealthy() {
    let Some(rig) = Rig::new("health_ended") else { return };
    let _worker = rig.worker().until_registered(&rig).await;
    let pod = rig.assign_service(&service(&format!(r#""healthcheck":{CHECK}"#))).await[0].clone();
    rig.until(pod.as_str(), Phase::Running).await;
    rig.until_reason(pod.as_str(), "").await;
    assert!(rig.engine.exit(&pod, 3));
    rig.until_reason(pod.as_str(), "CrashLoopBackOff").await;
    let record = rig.record(pod.as_str()).await.unwrap();
    assert!(record.message.starts_with("exited with code 3"), "{}", record.message);
}

#[tokio::test]
async fn a_container_that_is_not_ready_is_left_alone() {
    let Some(rig) = Rig::new("health_ready") else { return };
    let _worker = rig.worker().until_registered(&rig).await;
    let pod = rig.assign_service(&service(&format!(r#""readiness":{CHECK}"#))).await[0].clone();
    rig.until(pod.as_str(), Phase::Running).await;
    rig.until_reason(pod.as_str(), "").await;
    rig.engine.set_exec_exit_code(&pod, Some(1));
    rig.until_reason(pod.as_str(), "NotReady").await;
    rig.engine.set_exec_exit_code(&pod, Some(0));
    rig.until_reason(pod.as_str(), "").await;
    assert_eq!(rig.record(pod.as_str()).await.unwrap().restarts, 0);
}

#[tokio::test]
async fn a_pod_whose_probes_say_nothing_says_so() {
    let Some(rig) = Rig::new("health_inconclusive") else { return };
    let _worker = rig.worker().until_registered(&rig).await;
    let check = r#"{"tcp":{"port":1},"interval":"100ms","retries":3}"#;
    let pods = rig.assign_service(&service(&format!(r#""readiness":{check}"#))).await;
    let pod = pods[0].as_str();
    rig.until(pod, Phase::Running).await;
    let expected = "waiting for its health check to pass: the last 3 probes of its readiness check had no \
        result, so its health stays as it was: the container has no address that this node can reach; see ";
    eventually("its message says so", || async {
        let record = rig.record(pod).await.unwrap();
        record.reason == "Starting" && record.message.starts_with(expected)
    })
    .await;
}

#[tokio::test]
async fn a_remark_about_a_check_ends_with_the_worker_that_made_it() {
    let Some(rig) = Rig::new("health_remark") else { return };
    let worker = rig.worker().until_registered(&rig).await;
    let pods = rig.assign_service(&service(&format!(r#""healthcheck":{CHECK}"#))).await;
    let pod = pods[0].as_str();
    rig.until(pod, Phase::Running).await;
    rig.until_reason(pod, "").await;
    drop(worker);
    let () = rig.redis.cli(&["HSET", &format!("pod:{pod}"), "message", "its probes had no result"]).await;
    let _worker = rig.worker();
    eventually("it is taken back", || async { rig.record(pod).await.unwrap().message.is_empty() }).await;
    assert!(rig.record(pod).await.unwrap().is_ready());
}

#[tokio::test]
async fn a_pod_is_not_ready_before_its_checks_have_passed() {
    let Some(rig) = Rig::new("health_starting") else { return };
    let _worker = rig.worker().until_registered(&rig).await;
    let pods = rig
        .assign_service(
            r#"{"name":"web","image":"unhealthy","replicas":1,"restart":"no",
        "healthcheck":{"command":["check"],"interval":"100ms","retries":3}}"#,
        )
        .await;
    let pod = pods[0].as_str();
    rig.until(pod, Phase::Running).await;
    assert!(!rig.record(pod).await.unwrap().is_ready());
    rig.until_reason(pod, "Unhealthy").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let containers = rig.containers(pod).await;
    assert_eq!(containers[0].state, ContainerState::Running);
}

#[tokio::test]
async fn a_pod_stays_ready_while_its_worker_is_restarted() {
    let Some(rig) = Rig::new("health_recovered") else { return };
    let worker = rig.worker().until_registered(&rig).await;
    let pod = rig.assign_service(&service(&format!(r#""healthcheck":{CHECK}"#))).await[0].clone();
    rig.until(pod.as_str(), Phase::Running).await;
    rig.until_reason(pod.as_str(), "").await;
    let before = rig.record(pod.as_str()).await.unwrap();
    drop(worker);
    let _worker = rig.worker();
    let probed = rig.engine.exec_count(&pod);
    eventually("it is probed again", || async { rig.engine.exec_count(&pod) > probed + 10 }).await;
    assert_eq!(rig.record(pod.as_str()).await.unwrap(), before);
    rig.engine.set_exec_exit_code(&pod, Some(1));
    rig.until_reason(pod.as_str(), "CrashLoopBackOff").await;
}

#[tokio::test]
async fn a_container_waits_for_another_one_to_be_healthy() {
    let Some(rig) = Rig::new("health_depends") else { return };
    let _worker = rig.worker().until_registered(&rig).await;
    let pods = rig
        .assign_service(&format!(
            r#"{{"name":"web","replicas":1,"containers":[
            {{"name":"db","image":"i","healthcheck":{CHECK}}},
            {{"name":"web","image":"i","depends_on":{{"db":"service_healthy"}}}}]}}"#
        ))
        .await;
    let pod = pods[0].as_str();
    rig.until_containers(pod, 3).await;
    rig.until_reason(pod, "").await;
}
