//! Global services: their members, and what of other services does not hold for them.

use std::collections::BTreeMap;

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::node;
use model::ids::ServiceName;
use model::service::Service;
use model::service::members::{Member, Members, Standing};
use model::spec::{DesiredService, Kind, Mode, ServiceInput};
use store::{CreateOutcome, PutMode, PutOutcome, RestartOutcome, ScaleOutcome};

use crate::changing_nothing;

fn desired(fields: serde_json::Value) -> DesiredService {
    let mut input = serde_json::json!({"name": "agent", "image": "a"});
    input.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    ServiceInput::from_value(&input).unwrap().normalize().unwrap()
}

fn global(image: &str) -> DesiredService {
    desired(serde_json::json!({"image": image, "mode": "global"}))
}

fn name() -> ServiceName {
    "agent".parse().unwrap()
}

fn members(of: &[(u32, &str, Standing)]) -> Members {
    let member = |(number, name, standing): &(u32, &str, Standing)| {
        (*number, Member { node: node(name), standing: *standing })
    };
    Members::of(of.iter().map(member).collect())
}

async fn read(fixture: &Fixture) -> Service {
    fixture.store.service(&name()).await.unwrap().unwrap()
}

#[tokio::test]
async fn members_are_stored_only_over_those_that_were_seen() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let (outcome, created, _) = store.create_service(&global("a")).await.unwrap();
    assert!(matches!(outcome, PutOutcome::Created(_)) && created == 0, "schedulers know the nodes");
    let seen = read(&fixture).await;
    assert!(!seen.members.are_known());
    let of = members(&[(0, "w1", Standing::Open), (3, "w2", Standing::Open), (4, "w3", Standing::Out)]);
    assert!(store.put_members(&seen, &of, Some("a pod is wanted on w1, w2")).await.unwrap());
    let event = store.last_events(1).await.unwrap().remove(0);
    assert_eq!(
        (event.reason.as_str(), event.message.as_str()),
        ("NodesChanged", "a pod is wanted on w1, w2")
    );
    let stored = read(&fixture).await;
    assert_eq!((&stored.members, stored.replicas, stored.wanted_pods()), (&of, 5, 2));
    let late = changing_nothing(&fixture, store.put_members(&seen, &Members::default(), None)).await;
    assert!(!late.unwrap());

    let asked = BTreeMap::from([(name(), 1.into())]);
    let placed = store.placed_services(&asked).await.unwrap().remove(&name()).unwrap();
    assert_eq!((&placed.members, placed.siblings), (&of, None));
    assert!(store.put_members(&stored, &members(&[]), None).await.unwrap());
    let again = store.placed_services(&asked).await.unwrap().remove(&name()).unwrap();
    assert_ne!(again.mark, placed.mark, "decisions by the former members are refused");

    let current = read(&fixture).await;
    store.delete_service(&name()).await.unwrap();
    let deleted = changing_nothing(&fixture, store.put_members(&current, &of, None)).await;
    assert!(!deleted.unwrap());
}

#[tokio::test]
async fn a_global_service_keeps_its_members_and_stays_global() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store.create_service(&global("a")).await.unwrap();
    let of = members(&[(0, "w1", Standing::Open), (2, "w2", Standing::Open)]);
    store.put_members(&read(&fixture).await, &of, None).await.unwrap();
    assert_eq!(store.create_pods(&read(&fixture).await, &[0, 2]).await.unwrap(), CreateOutcome::Created(2));

    let put =
        async |desired: DesiredService| store.put_service(&desired, PutMode::Upsert, None).await.unwrap().0;
    assert_eq!(
        put(global("a")).await,
        PutOutcome::Unchanged { generation: 1 },
        "three slots are no replicas"
    );
    assert_eq!(put(global("b")).await, PutOutcome::Replaced { generation: 2 });
    let (restarted, _) = store.restart_service(&name(), None).await.unwrap();
    assert_eq!(restarted, RestartOutcome::Restarted { generation: 3 });
    let current = read(&fixture).await;
    assert_eq!((current.members, current.replicas), (of, 3));

    let replicated = changing_nothing(&fixture, put(desired(serde_json::json!({"replicas": 2})))).await;
    assert_eq!(replicated, PutOutcome::OtherMode { mode: Mode::Global });
    let job = changing_nothing(&fixture, put(desired(serde_json::json!({"kind": "job"})))).await;
    assert_eq!(job, PutOutcome::OtherKind { kind: Kind::Service });
    let (scaled, _) = changing_nothing(&fixture, store.scale_service(&name(), 5)).await.unwrap();
    assert_eq!(scaled, ScaleOutcome::Global);
    assert_eq!(store.creation_progress(&[name()]).await.unwrap(), [None], "its members tell");

    store
        .create_service(&DesiredService { name: "web".parse().unwrap(), ..desired(serde_json::json!({})) })
        .await
        .unwrap();
    let web = DesiredService { name: "web".parse().unwrap(), ..global("a") };
    let other = changing_nothing(&fixture, put(web)).await;
    assert_eq!(other, PutOutcome::OtherMode { mode: Mode::Replicated });
}
