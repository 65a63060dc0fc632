//! Replicas with two pods: the second one starts before the first one is stopped.

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::Placed;
use model::ids::PodId;
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::pod::slot::Slot;
use model::service::Service;
use store::{CreateOutcome, PodRef, ReplacedPod, RestoreOutcome, StatusReport};

use crate::changing_nothing;

/// One pod runs on `w1`; a second one for its replica waits for a node.
async fn with_successor(fixture: &Fixture) -> (Placed, PodRecord) {
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    let service = read(fixture).await;
    let created = fixture.store.create_successors(&service, &[0]).await.unwrap();
    assert_eq!(created, CreateOutcome::Created(1));
    let successor = in_slot(fixture, Slot::second(0)).await.unwrap();
    (placed, fixture.record(&successor).await)
}

async fn read(fixture: &Fixture) -> Service {
    let name = "web".parse().unwrap();
    fixture.store.service(&name).await.unwrap().unwrap()
}

async fn slots(fixture: &Fixture) -> Vec<(Slot, PodId)> {
    fixture.store.slots(&"web".parse().unwrap()).await.unwrap()
}

async fn in_slot(fixture: &Fixture, slot: Slot) -> Option<PodId> {
    slots(fixture).await.into_iter().find(|(taken, _)| *taken == slot).map(|(_, id)| id)
}

fn replaced(pod: &PodRecord, successor: Option<&PodRecord>) -> ReplacedPod {
    let successor = successor.map(|pod| pod.id.clone());
    ReplacedPod { id: pod.id.clone(), node: pod.node.clone().unwrap(), successor }
}

#[tokio::test]
async fn the_successor_takes_the_slot_when_the_pod_before_is_gone() {
    let fixture = Fixture::new().await;
    let (placed, successor) = with_successor(&fixture).await;
    assert_eq!((successor.replica, successor.phase), (0, Phase::Pending));
    assert_eq!(fixture.violations().await, Vec::<String>::new());

    let pods = [replaced(&placed.record, Some(&successor))];
    let service = read(&fixture).await;
    assert!(fixture.store.replace_pods(&service, &pods, "why").await.unwrap(), "the successor is not ready");
    assert_eq!(fixture.record(&placed.record.id).await.phase, Phase::Running);

    fixture.assign_all(&placed.session).await;
    fixture.run_all(&placed.session).await;
    let service = read(&fixture).await;
    assert!(!fixture.store.replace_pods(&service, &pods, "why").await.unwrap());
    let leaving = fixture.record(&placed.record.id).await;
    assert_eq!((leaving.phase, leaving.reason.as_str()), (Phase::Stopping, "Replaced"));
    let again = changing_nothing(&fixture, fixture.store.replace_pods(&service, &pods, "why")).await;
    assert!(again.unwrap(), "another step was taken");

    fixture.finish_stopped(&placed.session, &leaving).await;
    assert_eq!(slots(&fixture).await, [(Slot::first(0), successor.id)]);
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_pod_is_stopped_only_while_its_successor_is_ready() {
    let fixture = Fixture::new().await;
    let (placed, successor) = with_successor(&fixture).await;
    fixture.assign_all(&placed.session).await;
    fixture.run_all(&placed.session).await;
    let successor = fixture.record(&successor.id).await;
    let report =
        StatusReport { service: successor.service.as_ref(), reason: "NotReady", ..StatusReport::default() };
    let pod = PodRef { id: &successor.id, assignment: successor.assignment.as_ref().unwrap() };
    placed.session.report(pod, &report).await.unwrap().unwrap();
    let pods = [replaced(&placed.record, Some(&successor))];
    assert!(fixture.store.replace_pods(&read(&fixture).await, &pods, "why").await.unwrap());
    assert_eq!(fixture.record(&placed.record.id).await.phase, Phase::Running);
}

#[tokio::test]
async fn of_two_schedulers_with_the_same_plan_one_takes_the_step() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    let seen = read(&fixture).await;
    let create = async || fixture.store.create_successors(&seen, &[0]).await.unwrap();
    assert_eq!(create().await, CreateOutcome::Created(1));
    assert_eq!(changing_nothing(&fixture, create()).await, CreateOutcome::Changed);
    let pods = [replaced(&placed.record, None)];
    let stop = changing_nothing(&fixture, fixture.store.replace_pods(&seen, &pods, "why")).await;
    assert!(stop.unwrap(), "look again");
    let now = read(&fixture).await;
    assert_eq!(
        fixture.store.create_successors(&now, &[0]).await.unwrap(),
        CreateOutcome::Created(0),
        "it has two"
    );
    for step in ["", "-1", "1.5", "nan", "1e300", "9007199254740993", "text"] {
        let _: u64 = fixture.redis.cli(&["HSET", "service:web", "step", step]).await;
        let service = read(&fixture).await;
        assert_ne!(
            fixture.store.create_successors(&service, &[0]).await.unwrap(),
            CreateOutcome::Changed,
            "{step}"
        );
    }
}

#[tokio::test]
async fn a_replica_without_a_pod_gets_no_successor() {
    let fixture = Fixture::new().await;
    let placed = fixture.pod_in(Phase::Running, "web", "w1").await;
    let () = fixture.redis.cli(&["DEL", "slots:web"]).await;
    let created = fixture.store.create_successors(&read(&fixture).await, &[0]).await.unwrap();
    assert_eq!((created, slots(&fixture).await), (CreateOutcome::Created(0), vec![]));
    drop(placed);
}

#[tokio::test]
async fn a_second_pod_that_ends_leaves_the_first_one_alone() {
    let fixture = Fixture::new().await;
    let (placed, successor) = with_successor(&fixture).await;
    fixture.stop(&successor).await;
    assert_eq!(slots(&fixture).await, [(Slot::first(0), placed.record.id)]);
}

/// A version without second slots frees only the first one, and a person may do so.
#[tokio::test]
async fn an_empty_first_slot_is_taken_by_the_second_pod() {
    let fixture = Fixture::new().await;
    let (_, successor) = with_successor(&fixture).await;
    let _: u64 = fixture.redis.cli(&["HDEL", "slots:web", "0"]).await;
    let free =
        async |id| fixture.store.free_slots(&"web".parse().unwrap(), &[(Slot::first(0), id)]).await.unwrap();
    assert_eq!(free(None).await, 1);
    assert_eq!(slots(&fixture).await, [(Slot::first(0), successor.id.clone())]);
    assert_eq!(changing_nothing(&fixture, free(None)).await, 0);
    let () = fixture.redis.cli(&["DEL", &format!("pod:{}", successor.id)]).await;
    assert_eq!(free(Some(successor.id)).await, 1, "and freed without a record");
    assert_eq!(slots(&fixture).await, []);
}

#[tokio::test]
async fn both_pods_of_a_replica_are_listed_again() {
    let fixture = Fixture::new().await;
    let (placed, successor) = with_successor(&fixture).await;
    fixture.assign_all(&placed.session).await;
    let ids = [placed.record.id.clone(), successor.id.clone()];
    let service = placed.record.service.clone();
    let restore = async |has_second| {
        let () = fixture.redis.cli(&["DEL", "slots:web"]).await;
        fixture.store.restore_pods(service.as_ref(), has_second, &ids).await.unwrap()
    };
    assert_eq!(restore(false).await, [RestoreOutcome::Restored, RestoreOutcome::Surplus]);
    assert_eq!(restore(true).await, [RestoreOutcome::Restored, RestoreOutcome::Restored]);
    assert_eq!(slots(&fixture).await.len(), 2);
    assert_eq!(fixture.store.check().await.unwrap(), [], "two pods of one replica are no fault");
}
