//! The desired state: storing, scaling and deleting services, making and stopping their pods.

use std::sync::LazyLock;

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::node;
use model::ids::{AssignmentId, PodId, ServiceName};
use model::pod::image::ImageContent;
use model::pod::lifecycle::Phase;
use model::service::ServiceState;
use model::spec::{DesiredService, ServiceInput};
use store::{
    CreateOutcome, Durability, GenerationOutcome, MarkOutcome, PodRef, PutMode, PutOutcome, RestartOutcome,
    RolloutMark, ScaleOutcome, StopOutcome,
};

use crate::changing_nothing;

fn desired(image: &str, replicas: u32) -> DesiredService {
    let input = serde_json::json!({"name": "web", "image": image, "replicas": replicas});
    ServiceInput::from_value(&input).unwrap().normalize().unwrap()
}

static WEB: LazyLock<ServiceName> = LazyLock::new(|| ServiceName::new("web").unwrap());

async fn put(fixture: &Fixture, desired: DesiredService, mode: PutMode, expected: Option<u64>) -> PutOutcome {
    let (outcome, written) = fixture.store.put_service(&desired, mode, expected).await.unwrap();
    assert_eq!(written.durability, Durability::SingleMachine);
    outcome
}

#[tokio::test]
async fn a_service_is_created_replaced_scaled_or_unchanged() {
    let fixture = Fixture::new().await;
    let (one, more, other) = (desired("nginx", 1), desired("nginx", 3), desired("httpd", 3));
    let created = put(&fixture, one.clone(), PutMode::Create, None).await;
    let stored = fixture.store.service(&WEB).await.unwrap().unwrap();
    assert_eq!(created, PutOutcome::Created(Box::new(stored)), "what it says is what is there");
    assert_eq!(
        put(&fixture, more.clone(), PutMode::Replace, Some(1)).await,
        PutOutcome::Scaled { generation: 1 }
    );
    assert_eq!(
        put(&fixture, other.clone(), PutMode::Upsert, Some(2)).await,
        PutOutcome::Replaced { generation: 2 }
    );
    let unchanged = changing_nothing(&fixture, put(&fixture, other.clone(), PutMode::Upsert, None)).await;
    assert_eq!(unchanged, PutOutcome::Unchanged { generation: 2 });
    let service = fixture.store.service(&WEB).await.unwrap().unwrap();
    assert_eq!((service.generation, service.replicas, service.pod.image()), (2, 3, "httpd"));
    let spec = fixture.store.pod_spec(&service.spec_id).await.unwrap().unwrap();
    assert_eq!(*spec, service.pod);
    assert_eq!(fixture.store.service_names().await.unwrap(), std::slice::from_ref(&*WEB));
}

#[tokio::test]
async fn a_service_joins_and_leaves_an_app_without_a_new_generation() {
    let fixture = Fixture::new().await;
    let of_app = |app: Option<&str>| {
        let input = serde_json::json!({"name": "shop-web", "image": "nginx", "app": app});
        ServiceInput::from_value(&input).unwrap().normalize().unwrap()
    };
    let name = ServiceName::new("shop-web").unwrap();
    let stored =
        async || fixture.store.service(&name).await.unwrap().unwrap().fields.app.map(|app| app.to_string());
    let (outcome, _, _) = fixture.store.create_service(&of_app(Some("shop"))).await.unwrap();
    let service = fixture.store.service(&name).await.unwrap().unwrap();
    assert_eq!(outcome, PutOutcome::Created(Box::new(service)));
    assert_eq!(stored().await.as_deref(), Some("shop"));
    let again = changing_nothing(&fixture, put(&fixture, of_app(Some("shop")), PutMode::Upsert, None)).await;
    assert_eq!(again, PutOutcome::Unchanged { generation: 1 });
    let left = put(&fixture, of_app(None), PutMode::Upsert, None).await;
    assert_eq!((left, stored().await), (PutOutcome::Scaled { generation: 1 }, None));
    let has_field: bool = fixture.redis.cli(&["HEXISTS", "service:shop-web", "app"]).await;
    assert!(!has_field, "a service without an app is stored as earlier versions store it");
    let back = put(&fixture, of_app(Some("shop")), PutMode::Upsert, None).await;
    assert_eq!((back, stored().await.as_deref()), (PutOutcome::Scaled { generation: 1 }, Some("shop")));
}

#[tokio::test]
async fn a_new_service_and_its_pods_are_created_in_one_round_trip() {
    let fixture = Fixture::new().await;
    let (outcome, made, _) = fixture.store.create_service(&desired("nginx", 3)).await.unwrap();
    let service = fixture.store.service(&WEB).await.unwrap().unwrap();
    assert_eq!(outcome, PutOutcome::Created(Box::new(service.clone())));
    assert_eq!(made, 3);
    let pods = fixture.pods(&WEB).await;
    assert_eq!(pods.iter().map(|pod| pod.replica).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(pods.iter().all(|pod| (pod.phase, pod.generation) == (Phase::Pending, 1)), "{pods:?}");
    let again = fixture.store.create_pods(&service, &service.first_replicas()).await.unwrap();
    assert_eq!(again, CreateOutcome::Created(0), "all were made");
    let more = desired("httpd", 5);
    let (outcome, made, _) = changing_nothing(&fixture, fixture.store.create_service(&more)).await.unwrap();
    assert_eq!((outcome, made), (PutOutcome::Exists, 0));
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_stateful_service_is_created_with_its_first_pod() {
    for (stateful, expected) in [(serde_json::json!(true), 1), (serde_json::json!({"start": "parallel"}), 3)]
    {
        let fixture = Fixture::new().await;
        let mut ordered = desired("nginx", 3);
        ordered.pod.stateful = Some(serde_json::from_value(stateful).unwrap());
        let (_, made, _) = fixture.store.create_service(&ordered).await.unwrap();
        assert_eq!((made, fixture.pods(&WEB).await.len()), (expected, expected));
    }
}

#[tokio::test]
async fn a_service_is_stored_although_its_pods_cannot_be_created_yet() {
    let fixture = Fixture::new().await;
    let () = fixture.redis.cli(&["SET", "sq", "not a list"]).await;
    let (outcome, made, _) = fixture.store.create_service(&desired("nginx", 3)).await.unwrap();
    assert!(matches!(outcome, PutOutcome::Created(_)), "{outcome:?}");
    assert_eq!(made, 0, "reconcile creates them when the queue is repaired");
    assert!(fixture.store.slots(&WEB).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_refused_write_of_a_service_changes_nothing() {
    let fixture = Fixture::new().await;
    let refused = put(&fixture, desired("nginx", 1), PutMode::Replace, None);
    assert_eq!(changing_nothing(&fixture, refused).await, PutOutcome::Missing);
    put(&fixture, desired("nginx", 1), PutMode::Create, None).await;
    let refused = put(&fixture, desired("httpd", 1), PutMode::Create, None);
    assert_eq!(changing_nothing(&fixture, refused).await, PutOutcome::Exists);
    let refused = put(&fixture, desired("httpd", 1), PutMode::Upsert, Some(7));
    assert_eq!(changing_nothing(&fixture, refused).await, PutOutcome::Conflict { revision: 1 });
    fixture.store.delete_service(&WEB).await.unwrap();
    for mode in [PutMode::Create, PutMode::Replace, PutMode::Upsert] {
        let refused = put(&fixture, desired("httpd", 1), mode, None);
        assert_eq!(changing_nothing(&fixture, refused).await, PutOutcome::Deleting, "{mode:?}");
    }
}

#[tokio::test]
async fn scaling_returns_the_replicas_before() {
    let fixture = Fixture::new().await;
    let missing = fixture.store.scale_service(&WEB, 2);
    assert_eq!(changing_nothing(&fixture, missing).await.unwrap().0, ScaleOutcome::Missing);
    fixture.service("web", 1).await;
    assert_eq!(fixture.store.scale_service(&WEB, 5).await.unwrap().0, ScaleOutcome::Scaled { before: 1 });
    let same = fixture.store.scale_service(&WEB, 5);
    assert_eq!(changing_nothing(&fixture, same).await.unwrap().0, ScaleOutcome::Scaled { before: 5 });
    fixture.store.delete_service(&WEB).await.unwrap();
    let deleting = fixture.store.scale_service(&WEB, 1);
    assert_eq!(changing_nothing(&fixture, deleting).await.unwrap().0, ScaleOutcome::Deleting);
}

#[tokio::test]
async fn a_service_is_forgotten_only_after_its_last_pod() {
    let fixture = Fixture::new().await;
    assert!(!changing_nothing(&fixture, fixture.store.delete_service(&WEB)).await.unwrap().0);
    let service = fixture.service("web", 1).await;
    assert!(
        !changing_nothing(&fixture, fixture.store.forget_service(&service)).await.unwrap(),
        "it is wanted"
    );
    assert!(fixture.store.delete_service(&WEB).await.unwrap().0);
    assert!(
        changing_nothing(&fixture, fixture.store.delete_service(&WEB)).await.unwrap().0,
        "as good as done"
    );
    assert_eq!(fixture.store.service(&WEB).await.unwrap().unwrap().state, ServiceState::Deleting);
    assert!(
        !changing_nothing(&fixture, fixture.store.forget_service(&service)).await.unwrap(),
        "a pod is left"
    );
    let pod = fixture.pods(&WEB).await.remove(0);
    assert_eq!(fixture.stop(&pod).await, StopOutcome::Stopped);
    assert!(fixture.store.forget_service(&service).await.unwrap());
    assert_eq!(fixture.store.service(&WEB).await.unwrap(), None);
    assert!(matches!(
        put(&fixture, desired("nginx", 1), PutMode::Create, None).await,
        PutOutcome::Created(_)
    ));
}

#[tokio::test]
async fn a_slot_is_taken_once_however_many_create_its_pod() {
    let fixture = Fixture::new().await;
    let service = fixture.service("web", 3).await;
    let again = changing_nothing(&fixture, fixture.store.create_pods(&service, &[0, 1, 2])).await.unwrap();
    assert_eq!(again, CreateOutcome::Created(0));
    let beyond = changing_nothing(&fixture, fixture.store.create_pods(&service, &[3, 99])).await.unwrap();
    assert_eq!(beyond, CreateOutcome::Changed, "no more than wanted");
    let fixture = std::sync::Arc::new(fixture);
    fixture.store.scale_service(&WEB, 200).await.unwrap();
    let all: Vec<u32> = (0..200).collect();
    let mut made = 3;
    let makers = (0..4).map(|_| {
        let (fixture, service, all) = (fixture.clone(), service.clone(), all.clone());
        tokio::spawn(async move { fixture.store.create_pods(&service, &all).await.unwrap() })
    });
    for maker in makers.collect::<Vec<_>>() {
        let CreateOutcome::Created(count) = maker.await.unwrap() else { panic!("it did not change") };
        made += count;
    }
    assert_eq!((made, fixture.pods(&WEB).await.len()), (200, 200));
    assert_eq!(fixture.redis.cli::<usize>(&["LLEN", "sq"]).await, 200);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn pods_of_a_service_that_has_changed_are_not_created() {
    let fixture = Fixture::new().await;
    put(&fixture, desired("nginx", 2), PutMode::Create, None).await;
    let old = fixture.store.service(&WEB).await.unwrap().unwrap();
    put(&fixture, desired("httpd", 2), PutMode::Upsert, None).await;
    let create = changing_nothing(&fixture, fixture.store.create_pods(&old, &[0, 1])).await.unwrap();
    assert_eq!(create, CreateOutcome::Changed);
    let new = fixture.store.service(&WEB).await.unwrap().unwrap();
    fixture.store.delete_service(&WEB).await.unwrap();
    let create = changing_nothing(&fixture, fixture.store.create_pods(&new, &[0, 1])).await.unwrap();
    assert_eq!(create, CreateOutcome::Changed);
}

#[tokio::test]
async fn a_pod_is_stopped_according_to_its_phase() {
    for (phase, outcome, after) in [
        (Phase::Pending, StopOutcome::Stopped, Phase::Stopped),
        (Phase::Assigned, StopOutcome::Stopping, Phase::Stopping),
        (Phase::Running, StopOutcome::Stopping, Phase::Stopping),
        (Phase::Stopping, StopOutcome::Stopping, Phase::Stopping),
        (Phase::Succeeded, StopOutcome::Stopped, Phase::Stopped),
        (Phase::Failed, StopOutcome::Stopped, Phase::Stopped),
        (Phase::Stopped, StopOutcome::Gone, Phase::Stopped),
    ] {
        let fixture = Fixture::new().await;
        let placed = fixture.pod_in(phase, "web", "w1").await;
        assert_eq!(fixture.stop(&placed.record).await, outcome, "{phase}");
        let record = fixture.record(&placed.record.id).await;
        assert_eq!(record.phase, after, "{phase}");
        let keyspace = fixture.keyspace().await;
        let told = keyspace.elements("stop:w1") == [placed.record.id.as_str().as_bytes()];
        assert_eq!(told, after == Phase::Stopping, "{phase}: its worker is told");
        let freed = keyspace.get("slots:web").is_none();
        assert_eq!(freed, after == Phase::Stopped, "{phase}: its slot is free");
        assert_eq!(fixture.violations().await, Vec::<String>::new(), "{phase}");
    }
}

#[tokio::test]
async fn a_stop_with_an_outdated_node_is_refused() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    let seen = [(placed.record.id.clone(), Some(node("w2"))), (PodId::random(), None)];
    let stop = fixture.store.stop_pods(Some(&WEB), &seen, "Surplus", "");
    assert_eq!(changing_nothing(&fixture, stop).await.unwrap(), [StopOutcome::Moved, StopOutcome::Gone]);
}

#[tokio::test]
async fn a_pod_that_is_ready_by_now_is_spared_where_only_others_are_to_be_stopped() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    let seen = [(placed.record.id.clone(), Some(node("w1")))];
    let stop = || fixture.store.stop_unready_pods(Some(&WEB), &seen, "Replaced", "");
    assert_eq!(changing_nothing(&fixture, stop()).await.unwrap(), [StopOutcome::Moved]);
    let key = format!("pod:{}", placed.record.id);
    let () = fixture.redis.cli(&["HSET", &key, "reason", "Starting"]).await;
    assert_eq!(stop().await.unwrap(), [StopOutcome::Stopping]);
}

#[tokio::test]
async fn a_stopped_pod_frees_only_its_own_slot() {
    let fixture = Fixture::new().await;
    let service = fixture.service("web", 1).await;
    let first = fixture.pods(&WEB).await.remove(0);
    fixture.stop(&first).await;
    fixture.store.create_pods(&service, &[0]).await.unwrap();
    let second = fixture.pods(&WEB).await.remove(0);
    assert_ne!(first.id, second.id);
    assert_eq!(changing_nothing(&fixture, fixture.stop(&first)).await, StopOutcome::Gone);
    assert_eq!(fixture.pods(&WEB).await[0].id, second.id);
}

/// The next version may write the same specification in other words.
#[tokio::test]
async fn the_same_specification_in_other_words_replaces_no_pods() {
    let fixture = Fixture::new().await;
    put(&fixture, desired("nginx", 1), PutMode::Create, None).await;
    let service = fixture.store.service(&WEB).await.unwrap().unwrap();
    let words = r#"{"pod":{"hooks":[],"containers":[{"image":"nginx"}]},"service":"web"}"#;
    let () = fixture.redis.cli(&["HSET", "service:web", "spec_text", words]).await;
    let unchanged = put(&fixture, desired("nginx", 1), PutMode::Replace, None).await;
    assert_eq!(unchanged, PutOutcome::Unchanged { generation: 1 });
    // As a version without fingerprints leaves it.
    let () = fixture.redis.cli(&["HSET", "service:web", "spec", "other", "generation", "2"]).await;
    let replaced = put(&fixture, desired("nginx", 1), PutMode::Replace, None).await;
    assert_eq!(replaced, PutOutcome::Replaced { generation: 3 });
    let again = fixture.store.service(&WEB).await.unwrap().unwrap();
    assert_eq!(again.spec_id, service.spec_id, "what it had before the other version replaced it");
}

#[tokio::test]
async fn a_specification_that_is_stored_again_has_its_id_again_and_keeps_its_pods() {
    let fixture = Fixture::new().await;
    fixture.store.create_service(&desired("nginx", 2)).await.unwrap();
    let first = fixture.store.service(&WEB).await.unwrap().unwrap();
    let pods = fixture.pods(&WEB).await;
    put(&fixture, desired("httpd", 3), PutMode::Upsert, None).await;
    let second = fixture.store.service(&WEB).await.unwrap().unwrap();
    fixture.store.create_pods(&second, &[2]).await.unwrap();
    let former = fixture.store.former_specs().await.unwrap();
    assert_eq!(former.ids, std::slice::from_ref(&first.spec_id));
    put(&fixture, desired("nginx", 3), PutMode::Upsert, None).await;
    let again = fixture.store.service(&WEB).await.unwrap().unwrap();
    assert_eq!((again.generation, &again.spec_id), (3, &first.spec_id));
    assert_eq!(fixture.store.former_specs().await.unwrap().ids, [second.spec_id]);

    put(&fixture, desired("redis", 3), PutMode::Upsert, None).await;
    assert_eq!(fixture.store.expire_specs(&former, &former.ids).await.unwrap(), 0);
    assert_eq!(fixture.redis.cli::<i64>(&["TTL", &format!("spec:{}", first.spec_id)]).await, -1);
    let read_now = fixture.store.former_specs().await.unwrap();
    assert_eq!(fixture.store.expire_specs(&read_now, &former.ids).await.unwrap(), 1);
    put(&fixture, desired("nginx", 3), PutMode::Upsert, None).await;
    assert_eq!(fixture.redis.cli::<i64>(&["TTL", &format!("spec:{}", first.spec_id)]).await, -1);

    let seen: Vec<_> = fixture.pods(&WEB).await.into_iter().map(|pod| (pod.id, pod.generation)).collect();
    let moved = [(seen[0].0.clone(), 4)];
    assert_eq!(fixture.store.keep_pods(&WEB, &moved).await.unwrap(), 0, "it has changed since it was read");
    assert_eq!(fixture.store.keep_pods(&WEB, &seen).await.unwrap(), 2);
    assert_eq!(fixture.store.keep_pods(&WEB, &seen).await.unwrap(), 0);
    let generations: Vec<u64> = fixture.pods(&WEB).await.iter().map(|pod| pod.generation).collect();
    let ids: Vec<PodId> = seen.into_iter().map(|(id, _)| id).collect();
    assert_eq!(
        (generations, ids[..2].to_vec()),
        (vec![5, 5, 2], pods.into_iter().map(|pod| pod.id).collect())
    );
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_restart_is_a_new_generation_of_the_same_specification() {
    let fixture = Fixture::new().await;
    let restart = |expected| fixture.store.restart_service(&WEB, expected);
    assert_eq!(changing_nothing(&fixture, restart(None)).await.unwrap().0, RestartOutcome::Missing);
    fixture.store.create_service(&desired("nginx", 2)).await.unwrap();
    let first = fixture.store.service(&WEB).await.unwrap().unwrap();
    let refused = changing_nothing(&fixture, restart(Some(7))).await.unwrap().0;
    assert_eq!(refused, RestartOutcome::Conflict { revision: 1 });
    assert_eq!(restart(Some(1)).await.unwrap().0, RestartOutcome::Restarted { generation: 2 });
    let second = fixture.store.service(&WEB).await.unwrap().unwrap();
    assert_eq!((second.generation, second.revision, &second.pod), (2, 2, &first.pod));
    assert_ne!(second.spec_id, first.spec_id, "the pods that have it are replaced");
    assert_eq!(*fixture.store.pod_spec(&second.spec_id).await.unwrap().unwrap(), first.pod);
    assert_eq!(fixture.store.former_specs().await.unwrap().ids, [first.spec_id]);

    let again = put(&fixture, desired("nginx", 2), PutMode::Upsert, None).await;
    assert_eq!(again, PutOutcome::Unchanged { generation: 2 }, "a PUT of the same replaces nothing");
    fixture.store.delete_service(&WEB).await.unwrap();
    assert_eq!(changing_nothing(&fixture, restart(None)).await.unwrap().0, RestartOutcome::Deleting);
}

/// Reconcile creates them, because it looks on the nodes first.
#[tokio::test]
async fn a_refused_create_of_the_same_service_creates_no_pods() {
    let fixture = Fixture::new().await;
    fixture.store.create_service(&desired("nginx", 3)).await.unwrap();
    let () = fixture.redis.cli(&["DEL", "slots:web"]).await;
    let again = desired("nginx", 3);
    let (outcome, made, _) = changing_nothing(&fixture, fixture.store.create_service(&again)).await.unwrap();
    assert_eq!((outcome, made), (PutOutcome::Exists, 0));
}

async fn note_images(fixture: &Fixture, name: &str, images: &[ImageContent]) -> Vec<ImageContent> {
    let session = fixture.node(name).await;
    let service = fixture.store.service(&WEB).await.unwrap().unwrap();
    let pod = PodId::random();
    let record = format!("pod:{pod}");
    let () = fixture
        .redis
        .cli(&["HMSET", &record, "phase", "assigned", "node", name, "assignment", "a1", "name", "web"])
        .await;
    let assignment = AssignmentId::new("a1").unwrap();
    let pod = PodRef { id: &pod, assignment: &assignment };
    let owner = (Some(&*WEB), Some(&service.spec_id));
    let pinned = session.note_images(pod, owner, images, "").await.unwrap().unwrap().unwrap();
    assert_eq!(fixture.store.pinned_images(&WEB, &service.spec_id).await.unwrap(), pinned);
    pinned
}

fn content(id: &str) -> Vec<ImageContent> {
    vec![ImageContent { image: "a".to_owned(), digest: Some(format!("sha256:{id}")), id: id.to_owned() }]
}

#[tokio::test]
async fn the_first_pod_of_a_generation_pins_its_images_and_an_undo_goes_back_to_them() {
    let fixture = Fixture::new().await;
    let read = async || fixture.store.service(&WEB).await.unwrap().unwrap();
    let mark = async |mark| fixture.store.mark_rollout(&read().await, mark).await.unwrap();
    put(&fixture, desired("a", 1), PutMode::Create, None).await;
    assert_eq!(note_images(&fixture, "w1", &content("1")).await, content("1"));
    assert_eq!(note_images(&fixture, "w2", &content("2")).await, content("1"), "those of the first");
    mark(RolloutMark::Settled).await;
    let first = read().await;

    fixture.store.restart_service(&WEB, None).await.unwrap();
    assert_eq!(read().await.images, [], "the tag is resolved anew");
    assert_eq!(note_images(&fixture, "w1", &content("2")).await, content("2"));
    mark(RolloutMark::Paused("web-0: exit code 1")).await;
    let former = fixture.store.former_generations(&WEB).await.unwrap().remove(0);
    assert_eq!((former.generation, &former.outcome), (1, &GenerationOutcome::Good));
    assert_eq!((former.spec.as_ref(), &former.images), (Some(&first.spec_id), &content("1")));
    assert!(former.differs_from(&read().await), "by its images");
    let undone = fixture.store.undo_service(&read().await, &former, None).await.unwrap().0;
    assert_eq!(undone, PutOutcome::Replaced { generation: 3 });
    let back = read().await;
    assert_eq!((back.images, back.spec_id), (content("1"), first.spec_id), "its pods need not be replaced");
    let former = fixture.store.former_generations(&WEB).await.unwrap();
    let failed = GenerationOutcome::Failed("web-0: exit code 1".to_owned());
    assert_eq!(former.iter().map(|one| (one.generation, &one.outcome)).collect::<Vec<_>>(), [(2, &failed)]);

    put(&fixture, desired("b", 1), PutMode::Replace, None).await;
    let ids = fixture.store.former_specs().await.unwrap();
    fixture.store.expire_specs(&ids, &ids.ids).await.unwrap();
    put(&fixture, desired("a", 1), PutMode::Replace, None).await;
    assert_eq!(read().await.images, []);
    for number in 0..12 {
        put(&fixture, desired(&format!("x{number}"), 1), PutMode::Replace, None).await;
        note_images(&fixture, "w1", &content("x")).await;
        let ids = fixture.store.former_specs().await.unwrap();
        fixture.store.expire_specs(&ids, &ids.ids).await.unwrap();
    }
    let fields: Vec<String> = fixture.redis.cli(&["HKEYS", "service:web"]).await;
    let kept = |prefix: &str| fields.iter().filter(|field| field.starts_with(prefix)).count();
    assert_eq!((kept("images:"), kept("former_spec:")), (11, 10), "those of the history and the current one");
}

#[tokio::test]
async fn only_the_pod_that_a_worker_is_to_start_has_its_images() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Assigned, "web", "w1").await;
    let session = fixture.node("w2").await;
    let assignment = placed.record.assignment.clone().unwrap();
    let pod = PodRef { id: &placed.record.id, assignment: &assignment };
    let owner = (placed.record.service.as_ref(), placed.record.spec.as_ref());
    let images = content("1");
    let noted = session.note_images(pod, owner, &images, "differs");
    assert_eq!(changing_nothing(&fixture, noted).await.unwrap().unwrap(), None);
}

async fn history(fixture: &Fixture) -> Vec<(u64, String)> {
    let former = fixture.store.former_generations(&WEB).await.unwrap();
    former.into_iter().map(|one| (one.generation, one.pod.image().to_owned())).collect()
}

fn former(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
    expected.iter().map(|(generation, image)| (*generation, (*image).to_owned())).collect()
}

#[tokio::test]
async fn a_service_remembers_its_last_ten_specifications_each_once() {
    let fixture = Fixture::new().await;
    let change = async |image: &str| put(&fixture, desired(image, 1), PutMode::Upsert, None).await;
    change("a").await;
    assert_eq!(history(&fixture).await, former(&[]), "the current one is in the service");
    change("b").await;
    put(&fixture, desired("b", 3), PutMode::Upsert, None).await;
    fixture.store.restart_service(&WEB, None).await.unwrap();
    assert_eq!(history(&fixture).await, former(&[(1, "a")]), "neither scaling nor a restart is another one");
    change("a").await;
    assert_eq!(history(&fixture).await, former(&[(3, "b")]), "it was undone: what is current is not former");
    change("b").await;
    change("c").await;
    assert_eq!(history(&fixture).await, former(&[(5, "b"), (4, "a")]));
    for number in 0..12 {
        change(&format!("x{number}")).await;
    }
    let kept = history(&fixture).await;
    assert_eq!((kept.len(), kept[0].clone(), kept[9].clone()), (10, (17, "x10".into()), (8, "x1".into())));
    fixture.store.delete_service(&WEB).await.unwrap();
    let service = fixture.store.service(&WEB).await.unwrap().unwrap();
    assert!(fixture.store.forget_service(&service).await.unwrap());
    let exists: bool = fixture.redis.cli(&["EXISTS", "history:web"]).await;
    assert!(!exists, "it goes with the service");
}

#[tokio::test]
async fn a_history_that_was_written_by_hand_stops_no_change() {
    let fixture = Fixture::new().await;
    let change = async |image: &str| put(&fixture, desired(image, 1), PutMode::Upsert, None).await;
    let () = fixture.redis.cli(&["SET", "history:web", "of a service before"]).await;
    change("a").await;
    let () = fixture.redis.cli(&["SET", "history:web", "no hash"]).await;
    assert_eq!(change("b").await, PutOutcome::Replaced { generation: 2 });
    assert_eq!(history(&fixture).await, former(&[(1, "a")]));
    let aside: String = fixture.redis.cli(&["GET", "broken:history:web"]).await;
    assert_eq!(aside, "no hash");
    for (field, value) in
        [("0", "nonsense"), ("x", "1 ab\n{}"), ("99", "1 ab\n{}"), ("-1", "1 ab\n{}"), ("1e300", "")]
    {
        let _new: u64 = fixture.redis.cli(&["HSET", "history:web", field, value]).await;
    }
    assert_eq!(history(&fixture).await, former(&[(1, "a")]), "what cannot be read is left out");
    change("c").await;
    assert_eq!(history(&fixture).await, former(&[(2, "b"), (1, "a")]));
    let fields: u64 = fixture.redis.cli(&["HLEN", "history:web"]).await;
    assert_eq!(fields, 2, "what is none of kubeleet's goes");
}

/// A version without fingerprints leaves the former specification's.
#[tokio::test]
async fn a_specification_that_an_older_version_stored_is_remembered_by_its_text() {
    let fixture = Fixture::new().await;
    let change = async |image: &str| put(&fixture, desired(image, 1), PutMode::Upsert, None).await;
    change("a").await;
    let () = fixture.redis.cli(&["HSET", "service:web", "fingerprint", "other 00"]).await;
    change("b").await;
    change("a").await;
    assert_eq!(history(&fixture).await, former(&[(2, "b")]));
}

#[tokio::test]
async fn marks_are_about_one_generation() {
    let fixture = Fixture::new().await;
    put(&fixture, desired("a", 1), PutMode::Create, None).await;
    let read = async || fixture.store.service(&WEB).await.unwrap().unwrap();
    let first = read().await;
    let mark = async |service, mark| fixture.store.mark_rollout(service, mark).await.unwrap();
    assert_eq!(changing_nothing(&fixture, mark(&first, RolloutMark::Resumed)).await, MarkOutcome::Same);
    assert_eq!(mark(&first, RolloutMark::Paused("by hand")).await, MarkOutcome::Marked);
    let again = changing_nothing(&fixture, mark(&first, RolloutMark::Paused("another reason"))).await;
    assert_eq!((again, read().await.rollout.paused.as_deref()), (MarkOutcome::Same, Some("by hand")));
    assert_eq!(mark(&first, RolloutMark::Resumed).await, MarkOutcome::Marked);
    let marks = read().await.rollout;
    assert_eq!((marks.paused, marks.is_resumed, marks.is_settled), (None, true, false));
    assert_eq!(mark(&first, RolloutMark::Settled).await, MarkOutcome::Marked);
    assert_eq!(changing_nothing(&fixture, mark(&first, RolloutMark::Settled)).await, MarkOutcome::Same);
    assert_eq!(mark(&first, RolloutMark::Paused("by hand")).await, MarkOutcome::Marked);

    put(&fixture, desired("b", 1), PutMode::Replace, None).await;
    let marks = read().await.rollout;
    assert_eq!((marks.paused, marks.is_resumed, marks.is_settled), (None, false, false));
    assert!(marks.settled_fingerprint.is_some(), "where a rollback goes back to");
    let late = changing_nothing(&fixture, mark(&first, RolloutMark::Settled)).await;
    assert_eq!(late, MarkOutcome::Changed, "of a scheduler that has read the generation before");
    fixture.store.delete_service(&WEB).await.unwrap();
    assert_eq!(mark(&read().await, RolloutMark::Settled).await, MarkOutcome::Changed);
}

#[tokio::test]
async fn a_rollback_is_a_generation_that_says_what_it_takes_back() {
    let fixture = Fixture::new().await;
    let read = async || fixture.store.service(&WEB).await.unwrap().unwrap();
    put(&fixture, desired("a", 3), PutMode::Create, None).await;
    fixture.store.mark_rollout(&read().await, RolloutMark::Settled).await.unwrap();
    put(&fixture, desired("b", 3), PutMode::Replace, None).await;
    let (failed, former) = (read().await, fixture.store.former_generations(&WEB).await.unwrap().remove(0));
    assert_eq!(failed.rollout.settled_fingerprint.as_ref(), Some(&former.fingerprint));
    assert!(!failed.rollout.is_known_good, "it is new");
    assert!(fixture.store.roll_back(&failed, &former, "web-0 crashed").await.unwrap());
    let service = read().await;
    assert_eq!((service.generation, service.pod.image()), (3, "a"));
    assert_eq!(service.rollout.rolled_back, Some((2, "web-0 crashed".to_owned())));
    assert!(service.rollout.is_known_good, "no canary holds it up");
    let late = fixture.store.roll_back(&failed, &former, "web-0 crashed");
    assert!(!changing_nothing(&fixture, late).await.unwrap(), "of a second scheduler");
    put(&fixture, desired("a", 5), PutMode::Replace, None).await;
    assert_eq!(read().await.rollout.rolled_back, service.rollout.rolled_back, "scaling tells the same");
    put(&fixture, desired("c", 5), PutMode::Replace, None).await;
    assert_eq!(read().await.rollout.rolled_back, None);
}

async fn outcomes(fixture: &Fixture) -> Vec<(u64, GenerationOutcome)> {
    let former = fixture.store.former_generations(&WEB).await.unwrap();
    former.into_iter().map(|one| (one.generation, one.outcome)).collect()
}

#[tokio::test]
async fn a_former_generation_says_whether_it_was_good() {
    use GenerationOutcome::{Failed, Good, RolledBack, Unknown};
    let fixture = Fixture::new().await;
    let read = async || fixture.store.service(&WEB).await.unwrap().unwrap();
    let mark = async |mark| fixture.store.mark_rollout(&read().await, mark).await.unwrap();
    let change = async |image: &str| put(&fixture, desired(image, 1), PutMode::Upsert, None).await;
    change("a").await;
    mark(RolloutMark::Settled).await;
    change("b").await;
    assert_eq!(outcomes(&fixture).await, [(1, Good)]);
    change("c").await;
    mark(RolloutMark::Held("web-0: ImagePullBackOff")).await;
    change("d").await;
    mark(RolloutMark::Paused("web-0: exit code\n3")).await;
    change("e").await;
    let failed = |why: &str| Failed(why.to_owned());
    let expected =
        [(4, failed("web-0: exit code 3")), (3, failed("web-0: ImagePullBackOff")), (2, Unknown), (1, Good)];
    assert_eq!(outcomes(&fixture).await, expected);
    let a = fixture.store.former_generations(&WEB).await.unwrap().pop().unwrap();
    assert!(fixture.store.roll_back(&read().await, &a, "it crashed").await.unwrap());
    assert_eq!(outcomes(&fixture).await[0], (5, RolledBack("it crashed".to_owned())));
    change("f").await;
    assert_eq!(outcomes(&fixture).await[0], (6, Good), "it had that specification when it was good");
    mark(RolloutMark::Settled).await;
    change("a").await;
    change("g").await;
    assert_eq!(outcomes(&fixture).await[0], (8, Good));
    mark(RolloutMark::PausedByHand).await;
    change("h").await;
    assert_eq!(outcomes(&fixture).await[0], (9, Unknown), "a person paused it: that is no failure");
}

#[tokio::test]
async fn a_pause_by_hand_holds_the_next_change_until_it_is_resumed_or_undone() {
    let fixture = Fixture::new().await;
    let read = async || fixture.store.service(&WEB).await.unwrap().unwrap();
    let mark = async |mark| fixture.store.mark_rollout(&read().await, mark).await.unwrap();
    let change = async |image: &str| put(&fixture, desired(image, 1), PutMode::Upsert, None).await;
    change("a").await;
    assert_eq!(mark(RolloutMark::PausedByHand).await, MarkOutcome::Marked);
    assert_eq!(changing_nothing(&fixture, mark(RolloutMark::PausedByHand)).await, MarkOutcome::Same);
    change("b").await;
    assert_eq!(read().await.rollout.paused.as_deref(), Some("paused by hand"), "the next change");
    assert_eq!(mark(RolloutMark::Resumed).await, MarkOutcome::Marked);
    let marks = read().await.rollout;
    assert_eq!((marks.paused, marks.is_resumed), (None, false), "it is judged as any other");
    mark(RolloutMark::PausedByHand).await;
    let (service, former) = (read().await, fixture.store.former_generations(&WEB).await.unwrap().remove(0));
    let undone = fixture.store.undo_service(&service, &former, Some(service.revision)).await.unwrap();
    assert_eq!(undone.0, PutOutcome::Replaced { generation: 3 });
    let marks = read().await.rollout;
    assert_eq!((marks.paused, marks.undone), (None, Some(2)), "who goes back does not want to wait");
    change("c").await;
    assert_eq!(read().await.rollout.undone, None);
}

#[tokio::test]
async fn a_rollout_is_held_and_says_so_once() {
    let fixture = Fixture::new().await;
    let read = async || fixture.store.service(&WEB).await.unwrap().unwrap();
    let mark = async |mark| fixture.store.mark_rollout(&read().await, mark).await.unwrap();
    put(&fixture, desired("a", 1), PutMode::Create, None).await;
    assert_eq!(changing_nothing(&fixture, mark(RolloutMark::Held(""))).await, MarkOutcome::Same);
    assert_eq!(mark(RolloutMark::Held("no image")).await, MarkOutcome::Marked);
    assert_eq!(changing_nothing(&fixture, mark(RolloutMark::Held("no image"))).await, MarkOutcome::Same);
    assert_eq!(mark(RolloutMark::Held("still none")).await, MarkOutcome::Marked);
    assert_eq!(read().await.rollout.held.as_deref(), Some("still none"));
    let events = fixture.store.last_events(100).await.unwrap();
    assert_eq!(events.iter().filter(|event| event.reason == "RolloutHeld").count(), 1);
    assert_eq!(mark(RolloutMark::Settled).await, MarkOutcome::Marked);
    assert_eq!(read().await.rollout.held, None);
}

#[tokio::test]
async fn a_scale_by_hand_is_noted_until_a_description_changes_the_number() {
    let fixture = Fixture::new().await;
    let scaled_at = async || fixture.store.service(&WEB).await.unwrap().unwrap().scaled_at;
    put(&fixture, desired("a", 4), PutMode::Create, None).await;
    assert_eq!(scaled_at().await, None);
    fixture.store.scale_service(&WEB, 6).await.unwrap();
    assert!(scaled_at().await.is_some());
    put(&fixture, desired("b", 6), PutMode::Replace, None).await;
    assert!(scaled_at().await.is_some(), "another image says nothing about it");
    put(&fixture, desired("b", 4), PutMode::Replace, None).await;
    assert_eq!(scaled_at().await, None);
}

#[tokio::test]
async fn after_a_scale_down_no_pod_is_created_that_was_wanted_before() {
    let fixture = Fixture::new().await;
    put(&fixture, desired("a", 600), PutMode::Create, None).await;
    let before = fixture.store.service(&WEB).await.unwrap().unwrap();
    fixture.store.scale_service(&WEB, 2).await.unwrap();
    let late: Vec<u32> = (2..600).collect();
    let created = changing_nothing(&fixture, fixture.store.create_pods(&before, &late)).await.unwrap();
    assert_eq!(created, CreateOutcome::Changed, "the rest is not even tried");
}
