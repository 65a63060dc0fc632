//! A Redis that uses all of its `maxmemory`: operations that keep alive or free continue, others are refused
//! whole.

use kubeleet_tests::{Checkpoint, Fixture};
use model::pod::lifecycle::Phase;
use model::spec::ServiceInput;
use store::{AtMaxmemory, DeclareOutcome, PutMode, SCRIPTS, ScaleOutcome, StoreError};
use testkit::fixtures;

use crate::changing_nothing;
use crate::operations::{NODE, cases, prepare};

/// `0` is no limit.
async fn set_maxmemory(fixture: &Fixture, bytes: &str) {
    let () = fixture.redis.cli(&["CONFIG", "SET", "maxmemory", bytes]).await;
}

/// On a pod in every phase, each call has the same effect as without a limit, or none.
#[tokio::test]
async fn at_maxmemory_a_script_goes_on_or_is_refused_whole_as_the_table_of_scripts_declares() {
    let mut failures = Vec::new();
    for phase in Phase::ALL {
        let fixture = Fixture::new().await;
        let placed = fixture.pod_in(phase, "web", NODE).await;
        let start = Checkpoint::take(&fixture.redis).await;
        for case in cases() {
            start.restore(&fixture.redis).await;
            let operation = prepare(&fixture, case, &placed).await;
            let before = fixture.keyspace().await;
            set_maxmemory(&fixture, "1").await;
            let result = (operation.call)().await;
            set_maxmemory(&fixture, "0").await;
            let script = SCRIPTS.iter().find(|script| script.name == case.script).unwrap();
            let changes = before.changes(&fixture.keyspace().await);
            match (script.at_maxmemory, result) {
                (AtMaxmemory::Allowed, Err(error)) => {
                    failures.push(format!("{}, a {phase} pod: {error}", case.name));
                }
                (AtMaxmemory::Refused | AtMaxmemory::Shrinking, Ok(_)) if !changes.is_empty() => {
                    failures.push(format!("{}, a {phase} pod: not refused: {changes:?}", case.name));
                }
                (AtMaxmemory::Refused | AtMaxmemory::Shrinking, Err(error))
                    if !error.is_out_of_memory() || !changes.is_empty() =>
                {
                    failures.push(format!("{}, a {phase} pod: {error}: {changes:?}", case.name));
                }
                _ => {}
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test]
async fn at_maxmemory_a_service_can_be_scaled_down_and_deleted_but_not_grow() {
    let fixture = Fixture::new().await;
    let service = fixture.service("web", 3).await;
    let put = |replicas: u32, image: &str| {
        let input = serde_json::json!({"name": "web", "image": image, "replicas": replicas, "cpus": "0.1",
            "memory": "64MiB"});
        let desired = ServiceInput::from_value(&input).unwrap().normalize().unwrap();
        let store = fixture.store.clone();
        async move { store.put_service(&desired, PutMode::Upsert, None).await }
    };
    let is_refused = |result: Result<(), StoreError>| result.unwrap_err().is_out_of_memory();
    let store = &fixture.store;
    set_maxmemory(&fixture, "1").await;
    assert!(is_refused(changing_nothing(&fixture, store.scale_service(&service.name, 4)).await.map(drop)));
    assert!(is_refused(changing_nothing(&fixture, put(4, "spaster/alpine-sleep")).await.map(drop)));
    assert!(is_refused(changing_nothing(&fixture, put(2, "other")).await.map(drop)));
    put(2, "spaster/alpine-sleep").await.unwrap();
    let (outcome, _) = store.scale_service(&service.name, 1).await.unwrap();
    assert_eq!(outcome, ScaleOutcome::Scaled { before: 2 });
    assert!(store.delete_service(&service.name).await.unwrap().0);
}

#[tokio::test]
async fn at_maxmemory_the_pods_of_a_dead_node_move_and_a_deleted_service_goes() {
    let fixture = Fixture::new().await;
    let dead = fixture.node("w1").await;
    let service = fixture.service("web", 4).await;
    fixture.assign_all(&dead).await;
    fixture.run_all(&dead).await;
    let other = fixture.node("w2").await;
    fixture.silence("w1").await;
    set_maxmemory(&fixture, "1").await;
    other.heartbeat(None, None, 0, &[]).await.unwrap().unwrap();
    let seen = fixture.store.node(dead.node()).await.unwrap().unwrap();
    let zero = std::time::Duration::ZERO;
    let declared = fixture
        .store
        .declare_dead(&seen, kubeleet_tests::fixture::DEAD_AFTER, zero, zero, fixtures::long_proof())
        .await;
    assert_eq!(declared.unwrap(), DeclareOutcome::Declared);
    fixture.drain("w1").await;
    fixture.assign_all(&other).await;
    assert_eq!(fixture.run_all(&other).await.len(), 4);
    let store = &fixture.store;
    store.delete_service(&service.name).await.unwrap();
    for pod in fixture.pods(&service.name).await {
        fixture.stop(&pod).await;
        fixture.finish_stopped(&other, &pod).await;
    }
    let service = store.service(&service.name).await.unwrap().unwrap();
    assert!(store.forget_service(&service).await.unwrap());
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}
