//! Pods of several containers.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::sim::SimOptions;
use engine::{Container, ContainerState, Runtime};
use model::pod::ContainerProgress;
use model::pod::lifecycle::Phase;

use super::rig::*;

const APPLICATION: &str = r#"{"name":"shop","replicas":1,"containers":[
    {"name":"migrate","image":"i","restart":"on-failure"},
    {"name":"web","image":"i","depends_on":{"migrate":"completed_successfully"}},
    {"name":"log","image":"i","sidecar":true,"depends_on":["web"]}
]}"#;

const JOB: &str = r#"{"name":"job","replicas":1,"containers":[
    {"name":"work","image":"i","restart":"no"},
    {"name":"log","image":"i","sidecar":true}
]}"#;

async fn by_name(rig: &Rig, pod: &str) -> BTreeMap<String, Container> {
    let name =
        |container: &Container| container.name.as_ref().map_or("sandbox", |name| name.as_str()).to_owned();
    rig.containers(pod).await.into_iter().map(|container| (name(&container), container)).collect()
}

async fn until_states(rig: &Rig, pod: &str, expected: &[(&str, ContainerState)]) {
    let expected: BTreeMap<String, ContainerState> =
        expected.iter().map(|(name, state)| ((*name).to_owned(), *state)).collect();
    eventually(&format!("{expected:?}"), || async {
        let found = by_name(rig, pod).await;
        found.into_iter().map(|(name, container)| (name, container.state)).collect::<BTreeMap<_, _>>()
            == expected
    })
    .await;
}

const RUNNING: ContainerState = ContainerState::Running;
const COMPLETED: ContainerState = ContainerState::Exited { code: 0, out_of_memory: false };

async fn start_application(rig: &Rig) -> String {
    let pod = rig.assign_service(APPLICATION).await[0].to_string();
    until_states(rig, &pod, &[("sandbox", RUNNING), ("migrate", RUNNING)]).await;
    assert!(rig.engine.exit_one(&id(&pod), "migrate", 0));
    until_states(
        rig,
        &pod,
        &[("sandbox", RUNNING), ("migrate", COMPLETED), ("web", RUNNING), ("log", RUNNING)],
    )
    .await;
    rig.until_reason(&pod, "").await;
    pod
}

#[tokio::test]
async fn a_stop_does_not_wait_for_the_image_of_a_container_that_is_not_started_yet() {
    let Some(rig) = Rig::new("several_pull") else { return };
    let worker = rig.worker().until_registered(&rig).await;
    let pod = rig.assign_service(APPLICATION).await[0].to_string();
    until_states(&rig, &pod, &[("sandbox", RUNNING), ("migrate", RUNNING)]).await;
    rig.until(&pod, Phase::Running).await;
    rig.engine.hang_pulls(true);
    assert!(rig.engine.exit_one(&id(&pod), "migrate", 0));
    eventually("the image of `web` is pulled", || async { rig.engine.hanging_pulls() > 0 }).await;
    rig.stop(&pod).await;
    rig.until(&pod, Phase::Stopped).await;
    rig.until_containers(&pod, 0).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn containers_start_when_what_they_depend_on_is_there_and_the_pod_is_ready_then() {
    let Some(rig) = Rig::new("several_order") else { return };
    let _worker = rig.worker().until_registered(&rig).await;
    let pod = rig.assign_service(APPLICATION).await[0].to_string();
    rig.until(&pod, Phase::Running).await;
    let record = rig.record(&pod).await.unwrap();
    assert_eq!(record.reason, "Starting");
    assert_eq!(record.message, "web waits for migrate; log waits for web");
    assert!(!record.is_ready(), "a pod is not ready before all its containers were started");
    until_states(&rig, &pod, &[("sandbox", RUNNING), ("migrate", RUNNING)]).await;
    assert!(rig.engine.exit_one(&id(&pod), "migrate", 0));
    rig.until_reason(&pod, "").await;
    let record = rig.record(&pod).await.unwrap();
    let states: Vec<_> = record.containers.iter().map(|one| (one.name.as_str(), one.state)).collect();
    use ContainerProgress::{Ended, Running};
    assert_eq!(states, [("migrate", Ended), ("web", Running), ("log", Running)]);
}

#[tokio::test]
async fn a_container_that_crashes_is_restarted_and_the_others_go_on() {
    let Some(rig) = Rig::new("several_crash") else { return };
    let _worker = rig.worker().until_registered(&rig).await;
    let pod = start_application(&rig).await;
    let before = by_name(&rig, &pod).await;
    let assignment = rig.record(&pod).await.unwrap().assignment;
    assert!(rig.engine.exit_one(&id(&pod), "web", 3));
    rig.until_reason(&pod, "CrashLoopBackOff").await;
    let message = rig.record(&pod).await.unwrap().message;
    assert!(message.starts_with("web: exited with code 3; next start in"), "{message}");
    rig.until_reason(&pod, "").await;
    let record = rig.record(&pod).await.unwrap();
    assert_eq!((record.restarts, &record.assignment), (1, &assignment));
    let web = record.containers.iter().find(|one| one.name.as_str() == "web").unwrap();
    assert_eq!((web.restarts, web.exit_code), (1, Some(3)));
    let run = &record.runs[0];
    assert_eq!((run.exit_code, run.container.as_ref().unwrap().as_str(), record.runs.len()), (3, "web", 1));
    assert!(run.ended_at > 0 && run.ran_for_ms.is_some() && run.last_output.contains("simulated"), "{run:?}");
    assert_eq!(by_name(&rig, &pod).await, before, "the same containers");
}

#[tokio::test]
async fn a_pod_ends_with_its_containers_and_stops_its_sidecars_then() {
    let Some(rig) = Rig::new("several_end") else { return };
    let _worker = rig.worker().until_registered(&rig).await;
    let pod = rig.assign_service(JOB).await[0].to_string();
    until_states(&rig, &pod, &[("sandbox", RUNNING), ("work", RUNNING), ("log", RUNNING)]).await;
    rig.until(&pod, Phase::Running).await;
    assert!(rig.engine.exit_one(&id(&pod), "work", 0));
    rig.until(&pod, Phase::Succeeded).await;
    until_states(&rig, &pod, &[("work", COMPLETED)]).await;
}

#[tokio::test]
async fn a_pod_whose_sandbox_is_gone_is_started_anew() {
    let Some(rig) = Rig::new("several_sandbox") else { return };
    let _worker = rig.worker().until_registered(&rig).await;
    let pod = start_application(&rig).await;
    let first = rig.record(&pod).await.unwrap().assignment;
    let sandbox = by_name(&rig, &pod).await["sandbox"].handle.clone();
    rig.engine.stop(&sandbox, Duration::ZERO).await.unwrap();
    eventually("another assignment", || async { rig.record(&pod).await.unwrap().assignment != first }).await;
    until_states(&rig, &pod, &[("sandbox", RUNNING), ("migrate", RUNNING)]).await;
    let second = rig.record(&pod).await.unwrap().assignment;
    assert!(
        by_name(&rig, &pod).await.values().all(|container| Some(&container.assignment) == second.as_ref())
    );
}

#[tokio::test]
async fn a_stop_removes_all_containers() {
    let Some(rig) = Rig::new("several_stop") else { return };
    let _worker = rig.worker().until_registered(&rig).await;
    let pod = start_application(&rig).await;
    rig.stop(&pod).await;
    until_states(&rig, &pod, &[]).await;
    rig.until_settled(0).await;
}

#[tokio::test]
async fn a_pod_that_is_stopped_while_it_starts_ends_after_its_containers() {
    let options = SimOptions { stop_delay: Duration::from_millis(200), ..SimOptions::default() };
    let Some(rig) = Rig::with_engine("several_stop_early", options) else { return };
    let _worker = rig.worker().until_registered(&rig).await;
    let half =
        r#"{"name":"half","containers":[{"name":"db","image":"i"},{"name":"web","image":"no-command"}]}"#;
    let pod = rig.assign_service(half).await[0].to_string();
    rig.until_reason(&pod, "StartFailed").await;
    assert_eq!(by_name(&rig, &pod).await["db"].state, RUNNING);
    rig.stop(&pod).await;
    rig.until(&pod, Phase::Stopped).await;
    let left = by_name(&rig, &pod).await;
    assert!(!left.values().any(|container| container.state.may_run()), "{left:?}");
    until_states(&rig, &pod, &[]).await;
    rig.until_settled(0).await;
}

#[tokio::test]
async fn a_worker_killed_between_two_containers_leaves_none_twice_and_none_out() {
    for moment in [10, 30, 60, 90, 120, 150, 180] {
        let options = SimOptions {
            start_delay: Duration::from_millis(40),
            stop_delay: Duration::from_millis(40),
            ..SimOptions::default()
        };
        let Some(rig) = Rig::with_engine("several_killed", options) else { return };
        let worker = rig.worker().until_registered(&rig).await;
        let pod = rig.assign_service(JOB).await[0].to_string();
        tokio::time::sleep(Duration::from_millis(moment)).await;
        drop(worker);
        let worker = rig.worker();
        until_states(&rig, &pod, &[("sandbox", RUNNING), ("work", RUNNING), ("log", RUNNING)]).await;
        rig.until(&pod, Phase::Running).await;
        rig.until_reason(&pod, "").await;
        rig.stop(&pod).await;
        tokio::time::sleep(Duration::from_millis(moment)).await;
        drop(worker);
        let _worker = rig.worker();
        until_states(&rig, &pod, &[]).await;
        rig.until_settled(0).await;
    }
}
