//! Ids of named resources: a pod gets those of its record, and only while no other container has them.

use engine::testing::identity;
use engine::{ContainerRequest, Identity, Runtime};
use model::ids::PodId;
use model::node::ResourceIds;
use model::pod::lifecycle::Phase;
use model::spec::ContainerSpec;

use super::rig::{Rig, eventually, id};

const TWO: &str = r#"{"name":"train","image":"alpine","replicas":2,"resources":{"gpu":1}}"#;

async fn ids_of(rig: &Rig, pod: &PodId) -> String {
    let containers = rig.containers(pod.as_str()).await;
    containers.iter().map(|container| container.resources.to_string()).collect::<Vec<_>>().join(",")
}

#[tokio::test]
async fn each_pod_gets_the_ids_of_its_record_also_after_a_restart_of_the_worker() {
    let Some(mut rig) = Rig::new("each_pod_gets_the_ids_of_its_record") else { return };
    rig.config.resources = "gpu=7,9 slots=2".parse().unwrap();
    let worker = rig.worker().until_registered(&rig).await;
    let pods = rig.assign_service(TWO).await;
    let mut found = Vec::new();
    for pod in &pods {
        rig.until(pod.as_str(), Phase::Running).await;
        let record = rig.record(pod.as_str()).await.unwrap().resource_ids.to_string();
        assert_eq!(ids_of(&rig, pod).await, record);
        found.push(record);
    }
    found.sort();
    assert_eq!(found, ["gpu/7", "gpu/9"]);
    worker.end().await.unwrap();
    let before = rig.record(pods[0].as_str()).await.unwrap();
    let worker = rig.worker().until_registered(&rig).await;
    assert!(rig.engine.lose(&pods[0]));
    eventually("another container runs", || async {
        let record = rig.record(pods[0].as_str()).await.unwrap();
        record.phase == Phase::Running && record.assignment != before.assignment
    })
    .await;
    assert_eq!(ids_of(&rig, &pods[0]).await, before.resource_ids.to_string());
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_pod_with_ids_that_its_node_offers_no_more_goes_back_to_the_schedulers() {
    let Some(mut rig) = Rig::new("a_pod_with_ids_that_its_node_offers_no_more") else { return };
    rig.config.resources = "gpu=2".parse().unwrap();
    let worker = rig.worker().until_registered(&rig).await;
    worker.end().await.unwrap();
    let pods = rig.assign_service(TWO).await;
    rig.config.resources = "gpu=1".parse().unwrap();
    let worker = rig.worker().until_registered(&rig).await;
    let mut kept = 0;
    for pod in &pods {
        let pod = pod.as_str();
        eventually("it runs or was given back", || async {
            rig.has_phase(pod, Phase::Running).await || rig.has_phase(pod, Phase::Pending).await
        })
        .await;
        let record = rig.record(pod).await.unwrap();
        if record.phase == Phase::Running {
            kept += 1;
            assert_eq!(record.resource_ids.to_string(), "gpu/0");
        } else {
            assert_eq!((record.reason.as_str(), record.resource_ids.is_empty()), ("ResourceLost", true));
            assert!(record.message.contains("w does not declare gpu/1"), "{}", record.message);
        }
    }
    assert_eq!(kept, 1);
    let node = rig.store.node(&rig.node()).await.unwrap().unwrap();
    assert_eq!(node.given_ids.keys().collect::<Vec<_>>(), ["gpu/0"], "the other one is free again");
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_pod_does_not_start_while_a_container_that_redis_does_not_know_has_its_id() {
    let Some(mut rig) = Rig::new("a_pod_does_not_start_while_a_container_has_its_id") else { return };
    rig.config.resources = "gpu=2".parse().unwrap();
    let worker = rig.worker().until_registered(&rig).await;
    let first = rig.assign_service(TWO).await;
    for pod in &first {
        rig.until(pod.as_str(), Phase::Running).await;
    }
    // Held, because most of what runs here has lost its record.
    for pod in &first {
        rig.redis.blocking_cli::<u64>(&["DEL", &format!("pod:{pod}")]);
    }
    rig.redis.blocking_cli::<u64>(&["DEL", "cs:w"]);
    eventually("they are held", || async {
        rig.store.held_nodes().await.unwrap().first().is_some_and(|held| held.containers == 2)
    })
    .await;
    rig.redis.blocking_cli::<u64>(&["HDEL", "node:w", "id:gpu/0", "id:gpu/1"]);
    let other = TWO.replace("train", "other").replace("\"replicas\":2", "\"replicas\":1");
    let second = rig.assign_service(&other).await.remove(0);
    rig.until_reason(second.as_str(), "ResourceBusy").await;
    assert!(rig.containers(second.as_str()).await.is_empty());
    for pod in &first {
        assert_eq!(rig.containers(pod.as_str()).await.len(), 1, "they run on");
    }
    worker.end().await.unwrap();
}

#[tokio::test]
async fn a_pod_starts_once_the_stale_container_with_its_id_is_gone() {
    let Some(mut rig) = Rig::new("a_pod_starts_once_the_stale_container_is_gone") else { return };
    rig.config.resources = "gpu=1".parse().unwrap();
    let worker = rig.worker().until_registered(&rig).await;
    let cluster = rig.store.cluster_id().await.unwrap();
    let resources = ResourceIds::from_text("gpu/0");
    let identity = Identity { cluster, resources, ..identity("w", "stale", "a") };
    // Its record says that it runs nowhere: the next heartbeat ends it.
    rig.redis.blocking_cli::<u64>(&[
        "HSET",
        "pod:stale",
        "phase",
        "stopped",
        "name",
        "stale",
        "replica",
        "0",
    ]);
    rig.engine.run(&ContainerRequest::new(identity, ContainerSpec::from_image("alpine"))).await.unwrap();
    let one = TWO.replace("\"replicas\":2", "\"replicas\":1");
    let pod = rig.assign_service(&one).await.remove(0);
    rig.until(pod.as_str(), Phase::Running).await;
    rig.until_containers("stale", 0).await;
    assert_eq!(ids_of(&rig, &id(pod.as_str())).await, "gpu/0");
    worker.end().await.unwrap();
}
