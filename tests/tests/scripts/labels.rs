//! Labels of nodes: those that a worker registers, and over them those of an operator.

use std::collections::BTreeMap;

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::{MACHINE, facts, node};
use model::node::NodeInfo;
use model::node::labels::{Labels, MAX_LABELS, OwnLabels};
use store::{KnownCluster, LabelNodeOutcome, Registration};
use testkit::fixtures;

use crate::changing_nothing;

fn own(changes: &[(&str, Option<&str>)]) -> OwnLabels {
    changes.iter().map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned))).collect()
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

async fn label(fixture: &Fixture, changes: &[(&str, Option<&str>)]) -> LabelNodeOutcome {
    fixture.store.label_node(&node("w1"), &own(changes)).await.unwrap()
}

/// As the worker of `w1` does, with these labels.
async fn register(fixture: &Fixture, pairs: &[(&str, &str)], known: Option<KnownCluster<'_>>) {
    let facts = NodeInfo { labels: labels(pairs), ..facts(MACHINE) };
    let registered = fixture.store.register(&node("w1"), &facts, fixtures::claimant(), known).await.unwrap();
    assert!(matches!(registered, Registration::Registered { .. }));
}

/// The labels that count, and their revision.
async fn read(fixture: &Fixture) -> (Labels, u64) {
    let node = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    (node.facts.labels, node.labels_revision)
}

#[tokio::test]
async fn an_operators_labels_count_before_those_of_the_worker_and_each_change_raises_the_revision() {
    let fixture = Fixture::new().await;
    let unknown = changing_nothing(&fixture, label(&fixture, &[("zone", Some("b"))])).await;
    assert_eq!(unknown, LabelNodeOutcome::Missing);
    register(&fixture, &[("zone", "a"), ("disk", "ssd")], None).await;
    assert_eq!(read(&fixture).await, (labels(&[("zone", "a"), ("disk", "ssd")]), 1));

    let changes = [("zone", Some("b")), ("disk", None), ("rack", Some("7"))];
    assert_eq!(label(&fixture, &changes).await, LabelNodeOutcome::Relabelled);
    assert_eq!(read(&fixture).await, (labels(&[("zone", "b"), ("rack", "7")]), 2));
    let event = fixture.store.last_events(1).await.unwrap().remove(0);
    assert_eq!((event.reason.as_str(), event.object.as_str()), ("NodeRelabelled", "w1"));
    assert_eq!(event.message, "an operator changed its labels: disk removed, rack=7, zone=b");
    let again = changing_nothing(&fixture, label(&fixture, &changes)).await;
    assert_eq!(again, LabelNodeOutcome::Same);

    register(&fixture, &[("zone", "a"), ("disk", "ssd")], None).await;
    assert_eq!(read(&fixture).await, (labels(&[("zone", "b"), ("rack", "7")]), 2), "a restart");
    register(&fixture, &[("zone", "c"), ("gpu", "2")], None).await;
    assert_eq!(read(&fixture).await, (labels(&[("zone", "b"), ("rack", "7"), ("gpu", "2")]), 3));
}

#[tokio::test]
async fn a_node_with_64_labels_gets_no_more_and_loses_some() {
    let fixture = Fixture::new().await;
    let many: Vec<String> = (0..MAX_LABELS).map(|number| format!("k{number}")).collect();
    let pairs: Vec<(&str, &str)> = many.iter().map(|key| (key.as_str(), "")).collect();
    register(&fixture, &pairs, None).await;
    let full = changing_nothing(&fixture, label(&fixture, &[("zone", Some("b"))])).await;
    assert_eq!(full, LabelNodeOutcome::Full);
    assert_eq!(label(&fixture, &[("k1", None)]).await, LabelNodeOutcome::Relabelled);
    assert_eq!(label(&fixture, &[("zone", Some("b"))]).await, LabelNodeOutcome::Relabelled);
    assert_eq!(read(&fixture).await.0.len(), MAX_LABELS);
}

#[tokio::test]
async fn concurrent_changes_of_labels_are_all_kept() {
    let fixture = Fixture::new().await;
    register(&fixture, &[], None).await;
    let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    let changes = keys.iter().map(|key| {
        let (store, changes) = (&fixture.store, own(&[(key, Some("x"))]));
        async move { store.label_node(&node("w1"), &changes).await.unwrap() }
    });
    let outcomes = futures_util::future::join_all(changes).await;
    assert!(outcomes.iter().all(|outcome| *outcome == LabelNodeOutcome::Relabelled), "{outcomes:?}");
    let expected: BTreeMap<_, _> = keys.into_iter().map(|key| (key, "x".to_owned())).collect();
    assert_eq!(read(&fixture).await, (expected, 21));
}

#[tokio::test]
async fn an_operators_labels_that_a_worker_has_saved_count_only_if_redis_has_none() {
    let fixture = Fixture::new().await;
    register(&fixture, &[("zone", "a")], None).await;
    let id = fixture.store.cluster_id().await.unwrap().unwrap();
    let saved = own(&[("zone", Some("saved"))]);
    let known = Some(KnownCluster { id: &id, containers: 0, own_labels: Some(&saved) });
    register(&fixture, &[("zone", "a")], known).await;
    assert_eq!(read(&fixture).await, (labels(&[("zone", "saved")]), 2));

    assert_eq!(label(&fixture, &[("rack", Some("7")), ("zone", None)]).await, LabelNodeOutcome::Relabelled);
    register(&fixture, &[("zone", "a")], known).await;
    assert_eq!(read(&fixture).await, (labels(&[("rack", "7")]), 3), "those of Redis are newer");
    assert_eq!(label(&fixture, &[("rack", None)]).await, LabelNodeOutcome::Relabelled);
    register(&fixture, &[], known).await;
    assert_eq!(read(&fixture).await, (Labels::new(), 5), "none is an answer as well");
}
