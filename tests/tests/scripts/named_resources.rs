//! Ids of named resources: each belongs to one pod of a node, and is free again when the pod leaves.

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::{DEAD_AFTER, node};
use kubeleet_tests::invariants::resource_id_mismatches;
use model::ids::{SchedulerId, ServiceName};
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use store::recovery::{KnownState, plan};
use store::{AssignOutcome, HolderCorrection};

use crate::host_ports::count_assigned;
use crate::recovery::{carry_out, save};

async fn service(fixture: &Fixture, name: &str, replicas: u32, resources: serde_json::Value) {
    let service =
        serde_json::json!({"name": name, "image": "nginx", "replicas": replicas, "resources": resources});
    fixture.service_of(service).await;
}

async fn wrong(fixture: &Fixture) -> Vec<String> {
    let keyspace = fixture.keyspace().await;
    let mut wrong = resource_id_mismatches(&keyspace);
    wrong.extend(kubeleet_tests::invariants::violations(&keyspace));
    wrong
}

async fn given(fixture: &Fixture) -> Vec<(String, String)> {
    let node = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    node.given_ids.into_iter().collect()
}

fn pairs(given: &[(&str, &str)]) -> Vec<(String, String)> {
    given.iter().map(|(id, pod)| ((*id).to_owned(), (*pod).to_owned())).collect()
}

/// Invariant 9. Both have a snapshot of a node with two free ids.
pub(crate) async fn two_schedulers_want_two_ids(fixture: &Fixture) -> Vec<String> {
    let session = fixture.node_offering("w1", "gpu=2").await;
    service(fixture, "train", 8, serde_json::json!({"gpu": 1})).await;
    let mut schedulers = Vec::new();
    for _ in 0..2 {
        let me = SchedulerId::random();
        let mut assignments = Vec::new();
        for raw in fixture.store.take(&me, 4).await.unwrap() {
            assignments.push(fixture.assignment(&session, Payload::parse(raw).unwrap()).await);
        }
        let store = fixture.store.clone();
        schedulers.push(tokio::spawn(async move { store.assign(&me, DEAD_AFTER, &assignments).await }));
    }
    let assigned = count_assigned(schedulers).await;
    let mut wrong = wrong(fixture).await;
    if assigned != 2 {
        wrong.push(format!("{assigned} pods were assigned to two ids"));
    }
    wrong
}

pub(crate) async fn many_drain_one_node_with_ids(fixture: &Fixture) -> Vec<String> {
    let session = fixture.node_offering("w1", "gpu=2 slots=4").await;
    service(fixture, "train", 2, serde_json::json!({"gpu": 1})).await;
    service(fixture, "batch", 1, serde_json::json!({"slots": 3})).await;
    fixture.assign_all(&session).await;
    fixture.run_all(&session).await;
    fixture.kill_node("w1").await;
    fixture.drain("w1").await;
    wrong(fixture).await
}

#[tokio::test]
async fn two_schedulers_cannot_give_two_pods_of_a_node_one_id() {
    for _ in 0..20 {
        assert_eq!(two_schedulers_want_two_ids(&Fixture::new().await).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn ids_are_given_in_their_order_and_are_free_again_when_the_pod_leaves_the_node() {
    assert_eq!(many_drain_one_node_with_ids(&Fixture::new().await).await, Vec::<String>::new());
    let fixture = Fixture::new().await;
    let session = fixture.node_offering("w1", "gpu=7,3,5 slots=2").await;
    service(&fixture, "train", 1, serde_json::json!({"gpu": 2, "slots": 1})).await;
    assert_eq!(fixture.assign_all(&session).await, [AssignOutcome::Assigned]);
    fixture.run_all(&session).await;
    assert_eq!(given(&fixture).await, pairs(&[("gpu/3", "train"), ("gpu/7", "train"), ("slots/0", "train")]));
    let pod = fixture.pods(&ServiceName::new("train").unwrap()).await.remove(0);
    assert_eq!(pod.resource_ids.to_string(), "gpu/7 gpu/3 slots/0");
    service(&fixture, "other", 1, serde_json::json!({"gpu": 2})).await;
    assert_eq!(fixture.assign_all(&session).await, [AssignOutcome::Refused]);
    service(&fixture, "third", 1, serde_json::json!({"fpga": 1})).await;
    assert_eq!(fixture.assign_all(&session).await, [AssignOutcome::Refused; 2], "the node offers none");
    fixture.stop(&pod).await;
    assert_eq!(fixture.assign_all(&session).await, [AssignOutcome::Refused; 2], "it has not ended");
    fixture.finish_stopped(&session, &pod).await;
    assert_eq!(fixture.assign_all(&session).await, [AssignOutcome::Assigned, AssignOutcome::Refused]);
    assert_eq!(given(&fixture).await, pairs(&[("gpu/3", "other"), ("gpu/7", "other")]));
    assert_eq!(wrong(&fixture).await, Vec::<String>::new());
}

#[tokio::test]
async fn ids_that_a_node_offers_no_more_stay_with_their_pods_and_are_given_to_no_other() {
    let fixture = Fixture::new().await;
    let session = fixture.node_offering("w1", "gpu=2").await;
    service(&fixture, "train", 2, serde_json::json!({"gpu": 1})).await;
    assert_eq!(fixture.assign_all(&session).await, [AssignOutcome::Assigned; 2]);
    fixture.run_all(&session).await;
    let session = fixture.node_offering("w1", "gpu=1,2").await;
    service(&fixture, "other", 2, serde_json::json!({"gpu": 1})).await;
    let outcomes = fixture.assign_all(&session).await;
    assert_eq!(outcomes, [AssignOutcome::Assigned, AssignOutcome::Refused]);
    let expected = pairs(&[("gpu/0", "train"), ("gpu/1", "train"), ("gpu/2", "other")]);
    assert_eq!(given(&fixture).await, expected);
    assert_eq!(wrong(&fixture).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_decision_of_before_a_nodes_registration_gives_no_id() {
    let fixture = Fixture::new().await;
    let session = fixture.node_offering("w1", "gpu=2").await;
    service(&fixture, "train", 1, serde_json::json!({"gpu": 1})).await;
    let payload = fixture.take_all().await.remove(0);
    let assignment = fixture.assignment(&session, payload).await;
    fixture.node_offering("w1", "slots=1").await;
    let outcomes = fixture.store.assign(&fixture.scheduler, DEAD_AFTER, &[assignment]).await.unwrap();
    assert_eq!(outcomes, [AssignOutcome::Refused]);
}

#[tokio::test]
async fn the_full_pass_writes_again_whose_an_id_is_and_frees_those_of_nobody() {
    let fixture = Fixture::new().await;
    let session = fixture.node_offering("w1", "gpu=2").await;
    service(&fixture, "train", 1, serde_json::json!({"gpu": 1})).await;
    fixture.assign_all(&session).await;
    fixture.run_all(&session).await;
    let holder = fixture.keyspace().await.field("node:w1", "id:gpu/0").to_owned();
    let () = fixture.redis.cli(&["HDEL", "node:w1", "id:gpu/0"]).await;
    let () = fixture.redis.cli(&["HSET", "node:w1", "id:gpu/1", "gone old"]).await;
    let usage = fixture.store.node_usage(&[node("w1")]).await.unwrap().remove(0);
    assert_eq!(usage.held, [("id:gpu/1".to_owned(), "gone old".to_owned())].into());
    let correction = |field: &str, seen: &str, actual: &str| HolderCorrection {
        field: field.to_owned(),
        seen: seen.to_owned(),
        actual: actual.to_owned(),
    };
    let corrections = [correction("id:gpu/0", "", &holder), correction("id:gpu/1", "gone old", "")];
    let actual = kubeleet_tests::fixture::REQUEST;
    assert!(fixture.store.correct_usage(&usage, &actual, &corrections).await.unwrap());
    assert_eq!(given(&fixture).await, pairs(&[("gpu/0", "train")]));
    assert!(
        !fixture.store.correct_usage(&usage, &actual, &corrections).await.unwrap(),
        "it has changed since"
    );
    assert_eq!(wrong(&fixture).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_pod_that_goes_back_to_the_queue_has_no_id_any_more() {
    let fixture = Fixture::new().await;
    let session = fixture.node_offering("w1", "gpu=1").await;
    service(&fixture, "train", 1, serde_json::json!({"gpu": 1})).await;
    fixture.assign_all(&session).await;
    fixture.run_all(&session).await;
    fixture.kill_node("w1").await;
    fixture.drain("w1").await;
    let pod = fixture.pods(&ServiceName::new("train").unwrap()).await.remove(0);
    assert_eq!((pod.phase, pod.resource_ids.is_empty()), (Phase::Pending, true));
    let session = fixture.node_offering("w1", "gpu=1").await;
    assert_eq!(fixture.assign_all(&session).await, [AssignOutcome::Assigned]);
    assert_eq!(wrong(&fixture).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_pushed_pod_that_asks_for_ids_is_a_dead_letter() {
    let raw = br#"{"name":"t","uuid":"u","image":"i","replica":0,"resources":{"gpu":1}}"#;
    let refused = Payload::parse(raw.to_vec().into()).unwrap().inline_spec().unwrap_err();
    assert!(refused.to_string().contains("`resources` (gpu=1) needs a service"), "{refused}");
}

/// As after FLUSHALL: the worker has saved its pods.
#[tokio::test]
async fn recovered_pods_have_their_ids_again_and_no_other_pod_gets_them() {
    let fixture = Fixture::new().await;
    let session = fixture.node_offering("w1", "gpu=3").await;
    service(&fixture, "train", 2, serde_json::json!({"gpu": 1})).await;
    fixture.assign_all(&session).await;
    fixture.run_all(&session).await;
    let (before, saved) = (given(&fixture).await, save(&fixture).await);
    assert_eq!(before.len(), 2);
    let () = fixture.redis.cli(&["FLUSHALL"]).await;
    carry_out(&fixture.store, &plan(&KnownState::default(), &saved)).await;
    let session = fixture.node_offering("w1", "gpu=3").await;
    assert_eq!(given(&fixture).await, before);
    service(&fixture, "other", 2, serde_json::json!({"gpu": 1})).await;
    let outcomes = fixture.assign_all(&session).await;
    assert_eq!(outcomes, [AssignOutcome::Assigned, AssignOutcome::Refused]);
    assert_eq!(wrong(&fixture).await, Vec::<String>::new());
}
