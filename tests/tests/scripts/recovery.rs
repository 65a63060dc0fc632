//! Saved state is written again: everything into an emptied Redis, and missing parts into another one.

use std::collections::BTreeMap;

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::node;
use kubeleet_tests::keyspace::KeyEntry;
use model::ids::{ClusterId, NodeName};
use model::pod::lifecycle::Phase;
use store::recovery::{KnownState, RecoveryPlan, plan};
use store::saved_state::{SavedHeader, SavedPod, SavedSpec, SavedState};
use store::{PutMode, Registration, Store};
use testkit::fixtures;

const PUSHED: &str = r#"{"name":"test","uuid":"mine","image":"i","replica":3,"cpus":"0.1","memory":"64MiB"}"#;

pub(crate) async fn save(fixture: &Fixture) -> SavedState {
    let store = &fixture.store;
    let mut saved = SavedState::default();
    let names = store.service_names().await.unwrap();
    for service in store.saved_services(&names).await.unwrap() {
        saved.add_spec(service.spec().unwrap());
        saved.add_service(service);
    }
    let keyspace = fixture.keyspace().await;
    let ids: Vec<_> = keyspace.below("pod:").map(|(id, _)| id.parse().unwrap()).collect();
    for record in store.pods(&ids).await.unwrap().into_iter().filter_map(Result::unwrap) {
        if let (Some(spec), Some(service)) = (&record.spec, &record.service)
            && let Some(text) = store.spec_texts([spec]).await.unwrap().remove(spec)
        {
            let generation = saved.services[service].generation().min(record.generation);
            saved.add_spec(SavedSpec { id: spec.clone(), generation, text });
        }
        let payload = store.payload_of(&record).await.unwrap().unwrap();
        saved.pods.push(SavedPod {
            payload: String::from_utf8(payload.raw.to_vec()).unwrap(),
            service: record.service,
            phase: record.phase,
            node: record.node,
            assignment: record.assignment,
            generation: 0,
            restarts: record.restarts,
            address: record.address,
            published_ports: record.published_ports,
            resource_ids: record.resource_ids,
            created_at: 0,
            since: 0,
            runs: record.runs,
        });
    }
    saved
}

async fn missing(store: &Store, saved: &SavedState) -> RecoveryPlan {
    plan(&store.known_state(saved).await.unwrap(), saved)
}

pub(crate) async fn carry_out(store: &Store, plan: &RecoveryPlan) {
    for service in &plan.services {
        store.recover_service(service, true).await.unwrap();
    }
    store.recover_pods(None, &plan.pushed).await.unwrap();
}

/// Without times and fields of one write.
async fn lasting(fixture: &Fixture) -> BTreeMap<String, KeyEntry> {
    let volatile = ["since", "created_at", "write", "reason", "message"];
    let keyspace = fixture.keyspace().await;
    let families = ["pod:", "service:", "slots:", "spec:", "cs:"];
    let is_lasting = |key: &str| {
        families.iter().any(|family| key.starts_with(family)) || ["services", "pushed"].contains(&key)
    };
    let entries = keyspace.entries().filter(|(key, _)| is_lasting(key));
    let without_times = |entry: &KeyEntry| match entry {
        KeyEntry::Hash(fields) => {
            let mut fields = fields.clone();
            fields.retain(|field, value| !volatile.contains(&field.as_str()) && !value.is_empty());
            KeyEntry::Hash(fields)
        }
        other => other.clone(),
    };
    entries.map(|(key, entry)| (key.to_owned(), without_times(entry))).collect()
}

fn differences(before: &BTreeMap<String, KeyEntry>, after: &BTreeMap<String, KeyEntry>) -> Vec<String> {
    let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differ = keys.into_iter().filter(|key| before.get(*key) != after.get(*key));
    differ.map(|key| format!("{key}: {:?} -> {:?}", before.get(key), after.get(key))).collect()
}

async fn two_nodes(fixture: &Fixture) {
    let (w1, w2) = (fixture.node("w1").await, fixture.node("w2").await);
    fixture.service("web", 12).await;
    fixture.assign_all(&w1).await;
    fixture.run_all(&w1).await;
    fixture.service("db", 8).await;
    let () = fixture.redis.cli(&["LPUSH", "sq", PUSHED]).await;
    fixture.assign_all(&w2).await;
    fixture.run_all(&w2).await;
    let input = serde_json::json!({"name": "db", "image": "other", "replicas": 8});
    let desired = model::spec::ServiceInput::from_value(&input).unwrap().normalize().unwrap();
    fixture.store.put_service(&desired, PutMode::Replace, None).await.unwrap();
}

#[tokio::test]
async fn an_emptied_redis_gets_back_the_services_pods_and_ids_that_the_workers_saved() {
    let fixture = Fixture::new().await;
    two_nodes(&fixture).await;
    let before = lasting(&fixture).await;
    let saved = save(&fixture).await;
    let usage = fixture.keyspace().await.field("node:w1", "used_memory");
    let () = fixture.redis.cli(&["FLUSHALL"]).await;
    let planned = missing(&fixture.store, &saved).await;
    assert_eq!((planned.pod_count(), planned.problems.len()), (21, 0), "{planned:?}");
    carry_out(&fixture.store, &planned).await;
    assert_eq!(differences(&before, &lasting(&fixture).await), Vec::<String>::new());
    assert_eq!(fixture.keyspace().await.field("node:w1", "used_memory"), usage);
    assert!(missing(&fixture.store, &saved).await.is_empty());
    fixture.node("w1").await;
    fixture.node("w2").await;
    assert_eq!(fixture.violations().await, Vec::<String>::new());
    assert_eq!(fixture.keyspace().await.field("node:w1", "used_memory"), usage);
}

#[tokio::test]
async fn a_recovery_that_ended_early_is_completed_and_creates_no_pod_meanwhile() {
    let fixture = Fixture::new().await;
    two_nodes(&fixture).await;
    let (before, saved) = (lasting(&fixture).await, save(&fixture).await);
    let () = fixture.redis.cli(&["FLUSHALL"]).await;
    let planned = missing(&fixture.store, &saved).await;
    let first = &planned.services[0];
    fixture.store.recover_pods(Some(&first.name), &first.pods[..3]).await.unwrap();
    assert_eq!(fixture.store.service_names().await.unwrap(), [], "there is nothing to reconcile yet");
    carry_out(&fixture.store, &missing(&fixture.store, &saved).await).await;
    assert_eq!(differences(&before, &lasting(&fixture).await), Vec::<String>::new());
    let () = fixture.redis.cli(&["FLUSHALL"]).await;
    tokio::join!(carry_out(&fixture.store, &planned), carry_out(&fixture.store, &planned));
    assert_eq!(differences(&before, &lasting(&fixture).await), Vec::<String>::new());
}

#[tokio::test]
async fn an_older_state_gets_back_what_is_newer_and_keeps_what_it_has() {
    let fixture = Fixture::new().await;
    let w1 = fixture.node("w1").await;
    fixture.service("web", 4).await;
    fixture.assign_all(&w1).await;
    fixture.run_all(&w1).await;
    let yesterday = kubeleet_tests::Checkpoint::take(&fixture.redis).await;
    fixture.service("web", 10).await;
    fixture.service("new", 3).await;
    fixture.assign_all(&w1).await;
    fixture.run_all(&w1).await;
    let (before, saved) = (lasting(&fixture).await, save(&fixture).await);
    yesterday.restore(&fixture.redis).await;
    let planned = missing(&fixture.store, &saved).await;
    assert_eq!((planned.pod_count(), planned.present), (9, 4), "{planned:?}");
    carry_out(&fixture.store, &planned).await;
    assert_eq!(differences(&before, &lasting(&fixture).await), Vec::<String>::new());
    assert!(missing(&fixture.store, &saved).await.is_empty());
}

#[tokio::test]
async fn a_pod_of_a_dead_or_unknown_node_waits_for_another_one() {
    let fixture = Fixture::new().await;
    two_nodes(&fixture).await;
    let saved = save(&fixture).await;
    let () = fixture.redis.cli(&["FLUSHALL"]).await;
    fixture.node("w1").await;
    fixture.kill_node("w1").await;
    let mut known = fixture.store.known_state(&saved).await.unwrap();
    known.nodes = Some([node("w1")].into());
    carry_out(&fixture.store, &plan(&known, &saved)).await;
    let waiting: usize = fixture.redis.cli(&["LLEN", "sq"]).await;
    assert_eq!(waiting, 21);
    for pod in fixture.pods(&"web".parse().unwrap()).await {
        assert_eq!((pod.phase, pod.node), (Phase::Pending, None::<NodeName>));
    }
}

#[tokio::test]
async fn the_id_comes_back_only_where_no_other_cluster_is() {
    let fixture = Fixture::new().await;
    let (ours, other) = (ClusterId::random(), ClusterId::random());
    let store = &fixture.store;
    assert!(store.recover_cluster(&ours, None).await.unwrap());
    assert!(store.recover_cluster(&ours, None).await.unwrap(), "again is the same");
    assert!(!store.recover_cluster(&other, None).await.unwrap());
    assert!(store.recover_cluster(&other, Some(&ours)).await.unwrap(), "it has no services");
    fixture.service("web", 1).await;
    assert!(!store.recover_cluster(&ours, Some(&other)).await.unwrap());
    assert_eq!(store.cluster_id().await.unwrap(), Some(other));
}

#[tokio::test]
async fn an_answer_counts_when_it_is_complete_and_of_this_request() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    two_nodes(&fixture).await;
    let saved = save(&fixture).await;
    let lines = saved.to_lines(SavedHeader::new(ClusterId::random()), 2);
    let (id, later) = (model::ids::RecoveryId::random(), model::ids::RecoveryId::random());
    let w1 = node("w1");
    assert_eq!(store.recovery_request().await.unwrap(), None);
    store.request_recovery(&id, &[]).await.unwrap();
    assert_eq!(store.recovery_request().await.unwrap().as_ref(), Some(&id));
    store.answer_recovery(&id, &w1, &lines[..lines.len() - 1]).await.unwrap();
    assert_eq!(store.recovery_answer(&id, &w1).await.unwrap(), None, "its end is missing");
    store.answer_recovery(&id, &w1, &lines).await.unwrap();
    let answer = store.recovery_answer(&id, &w1).await.unwrap().unwrap().saved.unwrap();
    assert_eq!((answer.state, answer.end.unsaved), (saved, 2));
    assert_eq!(store.recovery_answer(&later, &w1).await.unwrap(), None);
    let expires: i64 = fixture.redis.cli(&["TTL", "recovery:w1"]).await;
    assert!((1..=120).contains(&expires), "{expires}");
    store.end_recovery(&[w1]).await.unwrap();
    let left: Vec<String> = fixture.redis.cli(&["KEYS", "recovery*"]).await;
    assert_eq!(left, Vec::<String>::new());
}

#[tokio::test]
async fn a_worker_with_the_id_registers_after_a_recovery() {
    let fixture = Fixture::new().await;
    let cluster = ClusterId::random();
    let known = Some(store::KnownCluster { id: &cluster, containers: 1, own_labels: None });
    let info = fixtures::node_info(kubeleet_tests::fixture::REQUEST);
    let w1 = node("w1");
    assert!(matches!(
        fixture.store.register(&w1, &info, fixtures::claimant(), known).await,
        Ok(Registration::Held { .. })
    ));
    fixture.store.recover_cluster(&cluster, None).await.unwrap();
    assert!(matches!(
        fixture.store.register(&w1, &info, fixtures::claimant(), known).await,
        Ok(Registration::Registered { .. })
    ));
}

/// A worker has saved the service until a moment ago, and a backup has it for ever.
#[tokio::test]
async fn a_service_that_was_deleted_comes_back_only_if_it_is_wanted() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    let (saved, service) = (save(&fixture).await, placed.record.service.clone().unwrap());
    fixture.store.delete_service(&service).await.unwrap();
    fixture.stop(&fixture.record(&placed.record.id).await).await;
    fixture.finish_stopped(&placed.session, &fixture.record(&placed.record.id).await).await;
    let record = fixture.store.service(&service).await.unwrap().unwrap();
    assert!(fixture.store.forget_service(&record).await.unwrap());
    let known = fixture.store.known_state(&saved).await.unwrap();
    let planned = plan(&known, &saved);
    assert!(planned.is_empty() && planned.problems[0].contains("service web was deleted at"), "{planned:?}");
    let wanted = plan(&KnownState { with_deleted: true, ..known }, &saved);
    carry_out(&fixture.store, &wanted).await;
    let _: u64 = fixture.redis.cli(&["DEL", "service:web"]).await;
    assert_eq!(missing(&fixture.store, &saved).await.services.len(), 1);
    let remembered: u64 = fixture.redis.cli(&["ZCARD", "services:deleted"]).await;
    assert_eq!(remembered, 0);
}

#[tokio::test]
async fn deletions_are_remembered_for_a_month_and_ten_thousand_of_them() {
    let fixture = Fixture::new().await;
    let old: Vec<String> = ["ZADD", "services:deleted", "1", "old"].map(str::to_owned).into();
    let _: u64 = fixture.redis.cli(&old).await;
    let now: Vec<u64> = fixture.redis.cli(&["TIME"]).await;
    let mut many = vec!["ZADD".to_owned(), "services:deleted".to_owned()];
    many.extend((0..10_005).flat_map(|n| [(now[0] * 1000 - 10_000 + n).to_string(), format!("n{n}")]));
    let _: u64 = fixture.redis.cli(&many).await;
    let service = fixture.service("web", 1).await;
    fixture.store.delete_service(&service.name).await.unwrap();
    let count: u64 = fixture.redis.cli(&["ZCARD", "services:deleted"]).await;
    let is_there =
        async |name: &str| -> Option<f64> { fixture.redis.cli(&["ZSCORE", "services:deleted", name]).await };
    assert!(count == 10_000 && is_there("web").await.is_some() && is_there("old").await.is_none());
    let () = fixture.redis.cli(&["SET", "services:deleted", "text"]).await;
    let other = fixture.service("db", 1).await;
    assert!(fixture.store.delete_service(&other.name).await.unwrap().0);
}
