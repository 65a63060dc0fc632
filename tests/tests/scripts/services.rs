//! What is wanted: storing, scaling and deleting services, making and stopping their pods.

use std::sync::LazyLock;

use common::ids::{PodId, ServiceName};
use common::lifecycle::Phase;
use common::service::ServiceState;
use common::spec::{DesiredService, ServiceInput};
use common::store::{CreateOutcome, Durability, PutMode, PutOutcome, ScaleOutcome, StopOutcome};
use kubeleet_tests::Bed;
use kubeleet_tests::bed::node;

use crate::changing_nothing;

fn desired(image: &str, replicas: u32) -> DesiredService {
    let input = serde_json::json!({"name": "web", "image": image, "replicas": replicas});
    serde_json::from_value::<ServiceInput>(input).unwrap().normalize().unwrap()
}

static WEB: LazyLock<ServiceName> = LazyLock::new(|| ServiceName::new("web").unwrap());

async fn put(bed: &Bed, desired: DesiredService, mode: PutMode, expected: Option<u64>) -> PutOutcome {
    let (outcome, written) = bed.store.put_service(&desired, mode, expected).await.unwrap();
    assert_eq!(written.durability, Durability::SingleMachine);
    outcome
}

#[tokio::test]
async fn a_service_is_created_replaced_scaled_and_left_as_it_is() {
    let bed = Bed::new().await;
    let (one, more, other) = (desired("nginx", 1), desired("nginx", 3), desired("httpd", 3));
    let created = put(&bed, one.clone(), PutMode::Create, None).await;
    let stored = bed.store.service(&WEB).await.unwrap().unwrap();
    assert_eq!(created, PutOutcome::Created(Box::new(stored)), "what it says is what is there");
    assert_eq!(
        put(&bed, more.clone(), PutMode::Replace, Some(1)).await,
        PutOutcome::Scaled { generation: 1 }
    );
    assert_eq!(
        put(&bed, other.clone(), PutMode::Upsert, Some(1)).await,
        PutOutcome::Replaced { generation: 2 }
    );
    let unchanged = changing_nothing(&bed, put(&bed, other.clone(), PutMode::Upsert, None)).await;
    assert_eq!(unchanged, PutOutcome::Unchanged { generation: 2 });
    let service = bed.store.service(&WEB).await.unwrap().unwrap();
    assert_eq!((service.generation, service.replicas, service.pod.image()), (2, 3, "httpd"));
    let spec = bed.store.pod_spec(&service.spec_id).await.unwrap().unwrap();
    assert_eq!(*spec, service.pod);
    assert_eq!(bed.store.service_names().await.unwrap(), std::slice::from_ref(&*WEB));
}

#[tokio::test]
async fn a_new_service_and_its_pods_are_made_in_one_breath_and_one_that_exists_is_left_alone() {
    let bed = Bed::new().await;
    let (outcome, made, _) = bed.store.create_service(&desired("nginx", 3)).await.unwrap();
    let service = bed.store.service(&WEB).await.unwrap().unwrap();
    assert_eq!(outcome, PutOutcome::Created(Box::new(service.clone())));
    assert_eq!(made, 3);
    let pods = bed.pods(&WEB).await;
    assert_eq!(pods.iter().map(|pod| pod.replica).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(pods.iter().all(|pod| (pod.phase, pod.generation) == (Phase::Pending, 1)), "{pods:?}");
    let again = bed.store.create_pods(&service, &service.all_replicas()).await.unwrap();
    assert_eq!(again, CreateOutcome::Created(0), "all were made");
    let more = desired("httpd", 5);
    let (outcome, made, _) = changing_nothing(&bed, bed.store.create_service(&more)).await.unwrap();
    assert_eq!((outcome, made), (PutOutcome::Exists, 0));
    assert_eq!(bed.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_service_is_stored_although_its_pods_can_not_be_made_yet() {
    let bed = Bed::new().await;
    let () = bed.redis.cli(&["SET", "sq", "not a list"]).await;
    let (outcome, made, _) = bed.store.create_service(&desired("nginx", 3)).await.unwrap();
    assert!(matches!(outcome, PutOutcome::Created(_)), "{outcome:?}");
    assert_eq!(made, 0, "reconcile makes them when somebody has mended the queue");
    assert!(bed.store.slots(&WEB).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_can_not_be_stored_is_refused_and_changes_nothing() {
    let bed = Bed::new().await;
    let refused = put(&bed, desired("nginx", 1), PutMode::Replace, None);
    assert_eq!(changing_nothing(&bed, refused).await, PutOutcome::Missing);
    put(&bed, desired("nginx", 1), PutMode::Create, None).await;
    let refused = put(&bed, desired("httpd", 1), PutMode::Create, None);
    assert_eq!(changing_nothing(&bed, refused).await, PutOutcome::Exists);
    let refused = put(&bed, desired("httpd", 1), PutMode::Upsert, Some(7));
    assert_eq!(changing_nothing(&bed, refused).await, PutOutcome::Conflict { generation: 1 });
    bed.store.delete_service(&WEB).await.unwrap();
    for mode in [PutMode::Create, PutMode::Replace, PutMode::Upsert] {
        let refused = put(&bed, desired("httpd", 1), mode, None);
        assert_eq!(changing_nothing(&bed, refused).await, PutOutcome::Deleting, "{mode:?}");
    }
}

#[tokio::test]
async fn scaling_says_what_was_before() {
    let bed = Bed::new().await;
    let missing = bed.store.scale_service(&WEB, 2);
    assert_eq!(changing_nothing(&bed, missing).await.unwrap().0, ScaleOutcome::Missing);
    bed.service("web", 1).await;
    assert_eq!(bed.store.scale_service(&WEB, 5).await.unwrap().0, ScaleOutcome::Scaled { before: 1 });
    let same = bed.store.scale_service(&WEB, 5);
    assert_eq!(changing_nothing(&bed, same).await.unwrap().0, ScaleOutcome::Scaled { before: 5 });
    bed.store.delete_service(&WEB).await.unwrap();
    let deleting = bed.store.scale_service(&WEB, 1);
    assert_eq!(changing_nothing(&bed, deleting).await.unwrap().0, ScaleOutcome::Deleting);
}

#[tokio::test]
async fn a_service_is_forgotten_after_its_last_pod_and_not_before() {
    let bed = Bed::new().await;
    assert!(!changing_nothing(&bed, bed.store.delete_service(&WEB)).await.unwrap().0);
    let service = bed.service("web", 1).await;
    assert!(!changing_nothing(&bed, bed.store.forget_service(&service)).await.unwrap(), "it is wanted");
    assert!(bed.store.delete_service(&WEB).await.unwrap().0);
    assert!(changing_nothing(&bed, bed.store.delete_service(&WEB)).await.unwrap().0, "as good as done");
    assert_eq!(bed.store.service(&WEB).await.unwrap().unwrap().state, ServiceState::Deleting);
    assert!(!changing_nothing(&bed, bed.store.forget_service(&service)).await.unwrap(), "a pod is left");
    let pod = bed.pods(&WEB).await.remove(0);
    assert_eq!(bed.stop(&pod).await, StopOutcome::Stopped);
    assert!(bed.store.forget_service(&service).await.unwrap());
    assert_eq!(bed.store.service(&WEB).await.unwrap(), None);
    assert!(matches!(put(&bed, desired("nginx", 1), PutMode::Create, None).await, PutOutcome::Created(_)));
}

#[tokio::test]
async fn each_slot_is_taken_once_whoever_makes_its_pod() {
    let bed = Bed::new().await;
    let service = bed.service("web", 3).await;
    let again = changing_nothing(&bed, bed.store.create_pods(&service, &[0, 1, 2])).await.unwrap();
    assert_eq!(again, CreateOutcome::Created(0));
    let beyond = changing_nothing(&bed, bed.store.create_pods(&service, &[3, 99])).await.unwrap();
    assert_eq!(beyond, CreateOutcome::Created(0), "no more than wanted");
    let bed = std::sync::Arc::new(bed);
    bed.store.scale_service(&WEB, 200).await.unwrap();
    let all: Vec<u32> = (0..200).collect();
    let mut made = 3;
    let makers = (0..4).map(|_| {
        let (bed, service, all) = (bed.clone(), service.clone(), all.clone());
        tokio::spawn(async move { bed.store.create_pods(&service, &all).await.unwrap() })
    });
    for maker in makers.collect::<Vec<_>>() {
        let CreateOutcome::Created(count) = maker.await.unwrap() else { panic!("it did not change") };
        made += count;
    }
    assert_eq!((made, bed.pods(&WEB).await.len()), (200, 200));
    assert_eq!(bed.redis.cli::<usize>(&["LLEN", "sq"]).await, 200);
    assert_eq!(bed.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn pods_of_a_service_that_is_another_by_now_are_not_made() {
    let bed = Bed::new().await;
    put(&bed, desired("nginx", 2), PutMode::Create, None).await;
    let old = bed.store.service(&WEB).await.unwrap().unwrap();
    put(&bed, desired("httpd", 2), PutMode::Upsert, None).await;
    let create = changing_nothing(&bed, bed.store.create_pods(&old, &[0, 1])).await.unwrap();
    assert_eq!(create, CreateOutcome::Changed);
    let new = bed.store.service(&WEB).await.unwrap().unwrap();
    bed.store.delete_service(&WEB).await.unwrap();
    let create = changing_nothing(&bed, bed.store.create_pods(&new, &[0, 1])).await.unwrap();
    assert_eq!(create, CreateOutcome::Changed);
}

#[tokio::test]
async fn a_pod_is_stopped_where_it_is() {
    for (phase, outcome, after) in [
        (Phase::Pending, StopOutcome::Stopped, Phase::Stopped),
        (Phase::Assigned, StopOutcome::Stopping, Phase::Stopping),
        (Phase::Running, StopOutcome::Stopping, Phase::Stopping),
        (Phase::Stopping, StopOutcome::Stopping, Phase::Stopping),
        (Phase::Succeeded, StopOutcome::Stopped, Phase::Stopped),
        (Phase::Failed, StopOutcome::Stopped, Phase::Stopped),
        (Phase::Stopped, StopOutcome::Gone, Phase::Stopped),
    ] {
        let bed = Bed::new().await;
        let placed = bed.pod_in(phase, "web", "w1").await;
        assert_eq!(bed.stop(&placed.record).await, outcome, "{phase}");
        let record = bed.record(&placed.record.id).await;
        assert_eq!(record.phase, after, "{phase}");
        let keyspace = bed.keyspace().await;
        let told = keyspace.elements("stop:w1") == [placed.record.id.as_str().as_bytes()];
        assert_eq!(told, after == Phase::Stopping, "{phase}: its worker is told");
        let freed = keyspace.get("slots:web").is_none();
        assert_eq!(freed, after == Phase::Stopped, "{phase}: its slot is free");
        assert_eq!(bed.violations().await, Vec::<String>::new(), "{phase}");
    }
}

#[tokio::test]
async fn a_stop_for_a_node_the_pod_has_left_is_refused() {
    let bed = Bed::new().await;
    let placed = bed.pod_in(Phase::Running, "web", "w1").await;
    let seen = [(placed.record.id.clone(), Some(node("w2"))), (PodId::random(), None)];
    let stop = bed.store.stop_pods(Some(&WEB), &seen, "Surplus", "");
    assert_eq!(changing_nothing(&bed, stop).await.unwrap(), [StopOutcome::Moved, StopOutcome::Gone]);
}

#[tokio::test]
async fn a_stopped_pod_frees_its_slot_only_where_it_holds_it() {
    let bed = Bed::new().await;
    let service = bed.service("web", 1).await;
    let first = bed.pods(&WEB).await.remove(0);
    bed.stop(&first).await;
    bed.store.create_pods(&service, &[0]).await.unwrap();
    let second = bed.pods(&WEB).await.remove(0);
    assert_ne!(first.id, second.id);
    assert_eq!(changing_nothing(&bed, bed.stop(&first)).await, StopOutcome::Gone);
    assert_eq!(bed.pods(&WEB).await[0].id, second.id);
}
