//! Saved pods of workers, and their answers after Redis lost them.

use std::time::Duration;

use model::ids::{RecoveryId, ServiceName};
use model::node::HeldPod;
use model::node::labels::OwnLabels;
use model::pod::lifecycle::Phase;
use model::spec::ServiceInput;
use store::recovery::plan;
use store::saved_state::{SavedFile, SavedState};
use store::{LabelNodeOutcome, PutMode};

use super::rig::{Rig, eventually, payload, payload_with};

const PODS: [&str; 4] = ["a", "b", "c", "d"];

async fn run_all(rig: &Rig) {
    for pod in PODS {
        rig.push(&payload_with(pod, "alpine", r#""environment":{"PASSWORD":"hunter2"}"#));
    }
    for pod in PODS {
        rig.until(pod, Phase::Running).await;
    }
    until_saved(rig, PODS.len()).await;
}

fn file(rig: &Rig) -> Option<SavedFile> {
    let text = std::fs::read_to_string(rig.config.data_dir.join("w.pods")).ok()?;
    SavedFile::read(text.lines()).ok()
}

async fn until_saved(rig: &Rig, count: usize) {
    eventually(&format!("{count} pods are saved"), || async {
        file(rig).is_some_and(|file| file.state.pods.len() == count)
    })
    .await;
}

async fn ask(rig: &Rig) -> SavedState {
    let id = RecoveryId::random();
    let found = parking_lot::Mutex::new(None);
    eventually("the worker answers", || async {
        rig.store.request_recovery(&id, &[rig.node()]).await.unwrap();
        let answer = rig.store.recovery_answer(&id, &rig.node()).await.unwrap();
        let is_there = answer.is_some();
        *found.lock() = answer;
        is_there
    })
    .await;
    found.into_inner().unwrap().saved.unwrap().state
}

async fn recover(rig: &Rig) -> usize {
    let saved = ask(rig).await;
    let planned = plan(&rig.store.known_state(&saved).await.unwrap(), &saved);
    for service in &planned.services {
        rig.store.recover_service(service, true).await.unwrap();
    }
    rig.store.recover_pods(None, &planned.pushed).await.unwrap();
    let cluster = crate::cluster_of(&rig.config).unwrap();
    assert!(rig.store.recover_cluster(&cluster, None).await.unwrap());
    planned.pod_count()
}

#[tokio::test]
async fn after_flushall_and_a_restart_of_the_worker_its_pods_are_recovered_without_a_restart() {
    let Some(rig) = Rig::new("after_flushall_and_a_restart_of_the_worker_its_pods_are_recovered") else {
        return;
    };
    let worker = rig.worker();
    run_all(&rig).await;
    let handles = handles(&rig).await;
    let _ok: String = rig.redis.blocking_cli(&["FLUSHALL"]);
    drop(worker);
    let worker = rig.worker();
    eventually("it holds", || async { !rig.store.held_nodes().await.unwrap().is_empty() }).await;
    assert_eq!(recover(&rig).await, PODS.len());
    rig.until_settled(PODS.len() as u64).await;
    eventually("it is healthy", || async { crate::health(&rig.config).is_ok() }).await;
    for pod in PODS {
        let record = rig.record(pod).await.unwrap();
        assert_eq!((record.phase, record.node, record.restarts), (Phase::Running, Some(rig.node()), 0));
    }
    rig.stop("a").await;
    rig.until("a", Phase::Stopped).await;
    rig.push(&payload("e", "alpine"));
    rig.until("e", Phase::Running).await;
    let after = self::handles(&rig).await;
    assert!(handles[1..].iter().all(|handle| after.contains(handle)), "{handles:?} {after:?}");
    worker.end().await.unwrap();
}

#[tokio::test]
async fn an_operators_labels_survive_a_restart_of_the_worker_and_an_emptied_redis() {
    let Some(rig) = Rig::new("an_operators_labels_survive_a_restart_of_the_worker_and_an_emptied_redis")
    else {
        return;
    };
    let labels = async || rig.store.node(&rig.node()).await.unwrap().map(|node| node.facts.labels);
    let worker = rig.worker();
    run_all(&rig).await;
    let changes: OwnLabels = [("zone".to_owned(), Some("b".to_owned()))].into();
    assert_eq!(rig.store.label_node(&rig.node(), &changes).await.unwrap(), LabelNodeOutcome::Relabelled);
    let labelled = labels().await;
    assert_eq!(labelled.as_ref().unwrap()["zone"], "b");
    eventually("they are saved", || async {
        file(&rig).is_some_and(|file| file.header.own_labels.as_ref() == Some(&changes))
    })
    .await;
    worker.end().await.unwrap();
    let worker = rig.worker().until_registered(&rig).await;
    assert_eq!(labels().await, labelled);

    let _ok: String = rig.redis.blocking_cli(&["FLUSHALL"]);
    drop(worker);
    let worker = rig.worker();
    eventually("it holds", || async { !rig.store.held_nodes().await.unwrap().is_empty() }).await;
    recover(&rig).await;
    eventually("it has its labels again", || async { labels().await == labelled }).await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn ids_of_named_resources_are_recovered_with_their_pods() {
    let Some(mut rig) = Rig::new("ids_of_named_resources_are_recovered_with_their_pods") else { return };
    rig.config.resources = "gpu=3".parse().unwrap();
    let worker = rig.worker().until_registered(&rig).await;
    let service = r#"{"name":"train","image":"alpine","replicas":2,"resources":{"gpu":1}}"#;
    let pods = rig.assign_service(service).await;
    let mut before = Vec::new();
    for pod in &pods {
        rig.until(pod.as_str(), Phase::Running).await;
        before.push(rig.record(pod.as_str()).await.unwrap().resource_ids);
    }
    until_saved(&rig, 2).await;
    let given = rig.store.node(&rig.node()).await.unwrap().unwrap().given_ids;
    assert_eq!(given.len(), 2);

    let _ok: String = rig.redis.blocking_cli(&["FLUSHALL"]);
    drop(worker);
    let worker = rig.worker();
    eventually("it holds", || async { !rig.store.held_nodes().await.unwrap().is_empty() }).await;
    assert_eq!(recover(&rig).await, 2);
    rig.until_settled(2).await;
    for (pod, before) in pods.iter().zip(before) {
        assert_eq!(rig.record(pod.as_str()).await.unwrap().resource_ids, before);
    }
    eventually("the node has given them", || async {
        rig.store.node(&rig.node()).await.unwrap().is_some_and(|node| node.given_ids == given)
    })
    .await;
    worker.end().await.unwrap();
}

async fn handles(rig: &Rig) -> Vec<String> {
    let mut handles = Vec::new();
    for pod in PODS {
        handles.extend(rig.containers(pod).await.into_iter().map(|container| container.handle));
    }
    handles
}

#[tokio::test]
async fn pods_without_records_are_recovered_in_an_older_state() {
    let Some(rig) = Rig::new("pods_without_records_are_recovered_in_an_older_state") else { return };
    let worker = rig.worker();
    run_all(&rig).await;
    let before = handles(&rig).await;
    for pod in PODS {
        let _deleted: u64 = rig.redis.blocking_cli(&["DEL", &format!("pod:{pod}")]);
    }
    let _deleted: u64 = rig.redis.blocking_cli(&["DEL", "cs:w", "pushed"]);
    eventually("all are held", || async {
        rig.store.held_nodes().await.unwrap().first().is_some_and(|held| held.containers == 4)
    })
    .await;
    drop(worker);
    let worker = rig.worker();
    tokio::time::timeout(Duration::from_secs(20), until_held_again(&rig)).await.unwrap();
    assert_eq!(file(&rig).unwrap().state.pods.len(), PODS.len());
    assert_eq!(recover(&rig).await, PODS.len());
    eventually("none is held", || async { rig.store.held_nodes().await.unwrap().is_empty() }).await;
    assert_eq!(handles(&rig).await, before);
    rig.stop("a").await;
    rig.until("a", Phase::Stopped).await;
    until_saved(&rig, PODS.len() - 1).await;
    worker.end().await.unwrap();
}

async fn until_held_again(rig: &Rig) {
    let _cleared: u64 = rig.redis.blocking_cli(&["DEL", "held"]);
    eventually("all are held", || async {
        rig.store.held_nodes().await.unwrap().first().is_some_and(|held| held.containers == 4)
    })
    .await;
}

#[tokio::test]
async fn the_file_has_the_services_and_specifications_of_what_runs_and_forgets_what_ended() {
    let Some(rig) =
        Rig::new("the_file_has_the_services_and_specifications_of_what_runs_and_forgets_what_ended")
    else {
        return;
    };
    let worker = rig.worker();
    let input = serde_json::json!({"name": "web", "image": "alpine", "replicas": 1});
    let desired = ServiceInput::from_value(&input).unwrap().normalize().unwrap();
    rig.store.put_service(&desired, PutMode::Create, None).await.unwrap();
    let service = rig.store.service(&desired.name).await.unwrap().unwrap();
    rig.store.create_pods(&service, &[0]).await.unwrap();
    let id = rig.store.slots(&service.name).await.unwrap().remove(0).1;
    let _set: u64 = rig.redis.blocking_cli(&[
        "HSET",
        &format!("pod:{id}"),
        "phase",
        "assigned",
        "node",
        "w",
        "assignment",
        "first",
    ]);
    let _moved: Option<String> = rig.redis.blocking_cli(&["RPOPLPUSH", "sq", "pq:w"]);
    rig.until(id.as_str(), Phase::Running).await;
    eventually("the service and its specification are saved", || async {
        let Some(file) = file(&rig) else { return false };
        let saved = file.state.services.get(&service.name);
        saved.is_some_and(|saved| saved.replicas() == 1) && file.state.specs.contains_key(&service.spec_id)
    })
    .await;
    rig.store.scale_service(&service.name, 5).await.unwrap();
    eventually("a change of the service is saved", || async {
        file(&rig).unwrap().state.services[&service.name].replicas() == 5
    })
    .await;
    let pods = [(id.clone(), Some(rig.node()))];
    rig.store.stop_pods(Some(&service.name), &pods, "Test", "stopped by the test").await.unwrap();
    eventually("all of it is forgotten", || async {
        let file = file(&rig).unwrap();
        file.state == SavedState::default()
    })
    .await;
    worker.end().await.unwrap();
}

const DATABASE: &str = r#"{"name":"db","image":"alpine","replicas":1,"on_disconnect":"stop"}"#;

async fn held(rig: &Rig) -> Vec<HeldPod> {
    let nodes = rig.store.nodes(&[rig.node()]).await.unwrap().found();
    nodes.into_iter().flat_map(|node| node.held_pods).collect()
}

#[tokio::test]
async fn what_the_fence_has_stopped_is_recovered_with_its_service_and_runs_again() {
    let Some(rig) = Rig::new("what_the_fence_has_stopped_is_recovered_with_its_service_and_runs_again")
    else {
        return;
    };
    let worker = rig.worker().until_registered(&rig).await;
    let id = rig.assign_service(DATABASE).await.remove(0);
    rig.until(id.as_str(), Phase::Running).await;
    let since = rig.record(id.as_str()).await.unwrap().since;
    eventually("the service is saved, and when the pod was assigned", || async {
        file(&rig).is_some_and(|file| {
            file.state.services.len() == 1 && file.state.pods.iter().all(|pod| pod.since == since)
        })
    })
    .await;
    let record = format!("pod:{id}");
    let _deleted: u64 =
        rig.redis.blocking_cli(&["DEL", &record, "slots:db", "service:db", "services", "cs:w"]);
    rig.until_containers(id.as_str(), 0).await;
    eventually("nothing is held any more", || async {
        rig.store.held_nodes().await.unwrap().is_empty() && held(&rig).await.is_empty()
    })
    .await;
    until_saved(&rig, 1).await;
    assert_eq!(
        ask(&rig).await.pods[0].phase,
        Phase::Assigned,
        "it does not run: one that runs goes before it"
    );
    assert_eq!(recover(&rig).await, 1);
    rig.until(id.as_str(), Phase::Running).await;
    rig.until_containers(id.as_str(), 1).await;
    eventually("what runs again is saved", || async {
        ask(&rig).await.pods.iter().map(|pod| pod.phase).collect::<Vec<_>>() == [Phase::Running]
    })
    .await;
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_worker_says_which_slots_it_holds_until_their_records_are_back() {
    let Some(rig) = Rig::new("a_worker_says_which_slots_it_holds_until_their_records_are_back") else {
        return;
    };
    let worker = rig.worker().until_registered(&rig).await;
    let ids = rig.assign_service(r#"{"name":"web","image":"alpine","replicas":2}"#).await;
    for id in &ids {
        rig.until(id.as_str(), Phase::Running).await;
    }
    until_saved(&rig, 2).await;
    for id in &ids {
        let _deleted: u64 = rig.redis.blocking_cli(&["DEL", &format!("pod:{id}")]);
    }
    let service = ServiceName::new("web").unwrap();
    let slots = rig.store.slots(&service).await.unwrap().into_iter();
    let expected: Vec<HeldPod> =
        slots.map(|(slot, pod)| HeldPod { service: service.clone(), replica: slot.replica, pod }).collect();
    eventually("both are said to be held", || async { held(&rig).await == expected }).await;
    drop(worker);
    let worker = rig.worker();
    let _emptied: u64 = rig.redis.blocking_cli(&["HDEL", "node:w", "held_pods"]);
    eventually("they are said again", || async { held(&rig).await == expected }).await;
    assert_eq!(recover(&rig).await, 2);
    eventually("none is held", || async { held(&rig).await.is_empty() }).await;
    worker.end().await.unwrap();
}
