//! Host ports: each belongs to one pod of a node, and is free again when the pod leaves.

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::{DEAD_AFTER, REQUEST, node};
use kubeleet_tests::invariants::host_port_mismatches;
use model::ids::{AssignmentId, SchedulerId, ServiceName};
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use model::spec::HostPorts;
use store::{AssignOutcome, Assignment, Claim, HolderCorrection, PodRef, StoreError, WriteOutcome};
use tokio::task::JoinHandle;

use crate::changing_nothing;

async fn service_with_port(fixture: &Fixture, name: &str, replicas: u32, port: &str) {
    let service = serde_json::json!({"name": name, "image": "nginx", "replicas": replicas, "ports": [port]});
    fixture.service_of(service).await;
}

async fn wrong(fixture: &Fixture) -> Vec<String> {
    let keyspace = fixture.keyspace().await;
    let mut wrong = host_port_mismatches(&keyspace);
    wrong.extend(kubeleet_tests::invariants::violations(&keyspace));
    wrong
}

/// Invariant 9. Both have a snapshot of an empty node.
pub(crate) async fn two_schedulers_want_one_host_port(fixture: &Fixture) -> Vec<String> {
    let session = fixture.node("w1").await;
    service_with_port(fixture, "web", 8, "8080:80").await;
    let incarnation = fixture.store.node(session.node()).await.unwrap().unwrap().incarnation;
    let mut schedulers = Vec::new();
    for _ in 0..2 {
        let me = SchedulerId::random();
        let taken = fixture.store.take(&me, 4).await.unwrap();
        let assignment = |raw| Assignment {
            payload: Payload::parse(raw).unwrap(),
            node: node("w1"),
            incarnation: incarnation.clone(),
            request: REQUEST,
            host_ports: HostPorts::from_text("8080/tcp".to_owned()),
            named: None,
            volumes: Vec::new(),
            seen_labels: None,
            counted: None,
        };
        let assignments: Vec<_> = taken.into_iter().map(assignment).collect();
        let store = fixture.store.clone();
        schedulers.push(tokio::spawn(async move { store.assign(&me, DEAD_AFTER, &assignments).await }));
    }
    let assigned = count_assigned(schedulers).await;
    let mut wrong = wrong(fixture).await;
    if assigned != 1 {
        wrong.push(format!("{assigned} pods were assigned to one port"));
    }
    wrong
}

/// Returns how many pods the schedulers assigned together.
pub(crate) async fn count_assigned(
    schedulers: Vec<JoinHandle<Result<Vec<AssignOutcome>, StoreError>>>,
) -> usize {
    let mut assigned = 0;
    for scheduler in schedulers {
        let outcomes = scheduler.await.unwrap().unwrap();
        assigned += outcomes.iter().filter(|outcome| **outcome == AssignOutcome::Assigned).count();
    }
    assigned
}

pub(crate) async fn many_drain_one_node_with_host_ports(fixture: &Fixture) -> Vec<String> {
    let session = fixture.node("w1").await;
    service_with_port(fixture, "web", 1, "8080:80").await;
    service_with_port(fixture, "dns", 1, "53:53/udp").await;
    fixture.assign_all(&session).await;
    fixture.run_all(&session).await;
    fixture.kill_node("w1").await;
    fixture.drain("w1").await;
    wrong(fixture).await
}

#[tokio::test]
async fn two_schedulers_cannot_give_two_pods_of_a_node_one_host_port() {
    assert_eq!(two_schedulers_want_one_host_port(&Fixture::new().await).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_host_port_is_free_again_when_its_pod_leaves_the_node() {
    assert_eq!(many_drain_one_node_with_host_ports(&Fixture::new().await).await, Vec::<String>::new());
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    service_with_port(&fixture, "web", 1, "8080:80").await;
    assert_eq!(fixture.assign_all(&session).await, [AssignOutcome::Assigned]);
    fixture.run_all(&session).await;
    let seen = fixture.store.node(&node("w1")).await.unwrap().unwrap();
    assert_eq!(seen.host_ports, [("8080/tcp".to_owned(), "web".to_owned())].into());
    service_with_port(&fixture, "dns", 1, "8080:53/udp").await;
    assert_eq!(fixture.assign_all(&session).await, [AssignOutcome::Assigned]);
    service_with_port(&fixture, "other", 1, "0.0.0.0:8080:80").await;
    assert_eq!(fixture.assign_all(&session).await, [AssignOutcome::Refused]);
    let pod = fixture.pods(&ServiceName::new("web").unwrap()).await.remove(0);
    fixture.stop(&pod).await;
    fixture.finish_stopped(&session, &pod).await;
    assert_eq!(fixture.assign_all(&session).await, [AssignOutcome::Assigned]);
    assert_eq!(wrong(&fixture).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_pushed_pod_takes_its_host_ports_and_a_second_one_does_not_take_them_away() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    for uuid in ["one", "two"] {
        let raw = format!(r#"{{"name":"t","uuid":"{uuid}","image":"i","replica":0,"ports":["80:80"]}}"#);
        let () = fixture.redis.cli(&["LPUSH", "pq:w1", &raw]).await;
        fixture.run_all(&session).await;
    }
    assert_eq!(fixture.keyspace().await.field("node:w1", "port:80/tcp"), "one t");
    let two = fixture.record(&"two".parse().unwrap()).await;
    fixture.stop(&two).await;
    fixture.finish_stopped(&session, &two).await;
    assert_eq!(fixture.keyspace().await.field("node:w1", "port:80/tcp"), "one t");
    assert_eq!(wrong(&fixture).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_pod_without_host_ports_costs_redis_nothing_more() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    fixture.service("web", 10).await;
    let commands = async || -> Vec<String> {
        let stats: String = fixture.redis.cli(&["INFO", "commandstats"]).await;
        let calls = |line: &str| Some(line.strip_prefix("cmdstat_")?.split(',').next()?.to_owned());
        stats
            .lines()
            .filter_map(calls)
            .filter(|line| {
                line.starts_with("hsetnx") || line.starts_with("hdel") || line.starts_with("hget:")
            })
            .collect()
    };
    let before = commands().await;
    assert_eq!(fixture.assign_all(&session).await, [AssignOutcome::Assigned; 10]);
    fixture.run_all(&session).await;
    assert_eq!(commands().await, before, "no port was looked up, taken or freed");
}

#[tokio::test]
async fn a_pod_whose_port_another_program_has_is_given_back_and_its_node_avoided_until_it_is_corrected() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    service_with_port(&fixture, "web", 1, "8080:80").await;
    fixture.assign_all(&session).await;
    let (payload, claim) = fixture.claim_all(&session).await.remove(0);
    let Claim::Start { assignment, .. } = claim else { panic!("{claim:?}") };
    let taken = fixture.host_ports(&payload).await;
    let pod = PodRef { id: &payload.id, assignment: &assignment };
    let other = AssignmentId::random();
    let stale = PodRef { id: &payload.id, assignment: &other };
    let stale = session.give_back(stale, &payload.raw, &taken, "HostPortTaken", "why");
    assert_eq!(changing_nothing(&fixture, stale).await.unwrap().unwrap(), WriteOutcome::Stale);
    let done = session.give_back(pod, &payload.raw, &taken, "HostPortTaken", "the port is in use").await;
    assert_eq!(done.unwrap().unwrap(), WriteOutcome::Done);
    let record = fixture.record(&payload.id).await;
    assert_eq!((record.phase, record.message.as_str()), (Phase::Pending, "the port is in use"));
    assert_eq!(wrong(&fixture).await, Vec::<String>::new());
    let again = session.give_back(pod, &payload.raw, &taken, "HostPortTaken", "again");
    assert_eq!(changing_nothing(&fixture, again).await.unwrap().unwrap(), WriteOutcome::Stale);

    assert_eq!(fixture.assign_all(&session).await, [AssignOutcome::Refused]);
    let usage = fixture.store.node_usage(&[node("w1")]).await.unwrap().remove(0);
    let seen = "- another program".to_owned();
    assert_eq!(usage.held, [("port:8080/tcp".to_owned(), seen.clone())].into());
    let free = [HolderCorrection { field: "port:8080/tcp".to_owned(), seen, actual: String::new() }];
    assert!(fixture.store.correct_usage(&usage, &Default::default(), &free).await.unwrap());
    assert!(
        !fixture.store.correct_usage(&usage, &Default::default(), &free).await.unwrap(),
        "it has changed"
    );
    assert_eq!(fixture.assign_all(&session).await, [AssignOutcome::Assigned]);
    assert_eq!(wrong(&fixture).await, Vec::<String>::new());
}
