//! The order to drain a node, and the moves of the pods of a service.

use std::collections::BTreeMap;
use std::time::Duration;

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::{MACHINE, facts, node};
use model::ids::PodId;
use model::node::drain::Drain;
use model::pod::lifecycle::Phase;
use model::service::moves::{Move, Moves};
use store::DrainNews;
use testkit::fixtures;

use crate::changing_nothing;

async fn drain_of(fixture: &Fixture) -> Option<Drain> {
    let read = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    assert_eq!(read.drain.is_some(), read.cordoned);
    let listed = fixture.store.drains().await.unwrap();
    assert_eq!(listed, read.drain.clone().map(|drain| (node("w1"), drain)).into_iter().collect::<Vec<_>>());
    read.drain
}

#[tokio::test]
async fn an_order_to_drain_cordons_the_node_and_uncordoning_ends_it() {
    let fixture = Fixture::new().await;
    let (store, w1) = (&fixture.store, node("w1"));
    let unknown = changing_nothing(&fixture, store.drain_node(&w1, None, false)).await;
    assert!(!unknown.unwrap());
    fixture.node("w1").await;
    assert_eq!(drain_of(&fixture).await, None);

    assert!(store.drain_node(&w1, None, false).await.unwrap());
    let first = drain_of(&fixture).await.unwrap();
    assert_eq!((first.deadline, first.stop_bound), (None, false));
    let again = changing_nothing(&fixture, store.drain_node(&w1, None, false)).await;
    assert!(again.unwrap(), "the same order");

    assert!(store.drain_node(&w1, Some(Duration::from_secs(60)), true).await.unwrap());
    let second = drain_of(&fixture).await.unwrap();
    assert_eq!((second.deadline, second.stop_bound), (Some(second.at + 60_000), true));
    assert_ne!(first.id, second.id);

    store.register(&w1, &facts(MACHINE), fixtures::claimant(), None).await.unwrap();
    assert_eq!(drain_of(&fixture).await, Some(second), "a restart of the worker");
    assert!(store.cordon(&w1, true).await.unwrap());
    let kept = store.node(&w1).await.unwrap().unwrap();
    assert_eq!((kept.cordoned, kept.drain), (true, None), "its pods stay, and it gets no new ones");
    assert!(store.drain_node(&w1, None, false).await.unwrap());
    assert!(store.cordon(&w1, false).await.unwrap());
    assert_eq!(drain_of(&fixture).await, None);
}

#[tokio::test]
async fn the_end_of_a_drain_is_said_once() {
    let fixture = Fixture::new().await;
    let (store, w1) = (&fixture.store, node("w1"));
    fixture.node("w1").await;
    store.drain_node(&w1, None, false).await.unwrap();
    let first = drain_of(&fixture).await.unwrap();
    assert!(store.note_drain(&w1, &first, DrainNews::Drained).await.unwrap());
    let event = store.last_events(1).await.unwrap().remove(0);
    assert_eq!((event.reason.as_str(), event.message.as_str()), ("NodeDrained", "no pod is left on it"));
    let again = changing_nothing(&fixture, store.note_drain(&w1, &first, DrainNews::Drained)).await;
    assert!(!again.unwrap());
    store.drain_node(&w1, Some(Duration::from_secs(1)), false).await.unwrap();
    let former = changing_nothing(&fixture, store.note_drain(&w1, &first, DrainNews::Drained)).await;
    assert!(!former.unwrap(), "another order");
}

#[tokio::test]
async fn moves_are_stored_only_over_those_that_were_seen() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    let (name, id) = (placed.record.service.clone().unwrap(), placed.record.id.clone());
    let seen = store.service(&name).await.unwrap().unwrap();
    let moves = |pod: &PodId| {
        Moves::of(BTreeMap::from([(0, Move { pod: pod.clone(), to: node("w2"), until: None })]))
    };
    assert!(store.put_moves(&seen, &moves(&id), Some("web-0 to w2")).await.unwrap());
    let event = store.last_events(1).await.unwrap().remove(0);
    assert_eq!((event.reason.as_str(), event.message.as_str()), ("PodsMoving", "web-0 to w2"));
    let late = changing_nothing(&fixture, store.put_moves(&seen, &Moves::default(), None)).await;
    assert!(!late.unwrap());

    store.scale_service(&name, 2).await.unwrap();
    let current = store.service(&name).await.unwrap().unwrap();
    assert_eq!(current.moves, moves(&id), "a change of the service keeps them");
    let placed =
        store.placed_services(&[(name.clone(), 1.into())].into()).await.unwrap().remove(&name).unwrap();
    assert_eq!(placed.moves, moves(&id));
    assert!(placed.siblings.unwrap().iter().all(|sibling| sibling.is_leaving), "it is about to go");

    store.delete_service(&name).await.unwrap();
    let deleted = changing_nothing(&fixture, store.put_moves(&current, &Moves::default(), None)).await;
    assert!(!deleted.unwrap());
}
