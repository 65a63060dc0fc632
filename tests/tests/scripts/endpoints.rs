//! The endpoints of a followed service match the records, whichever script changes these.

use std::time::Duration;

use kubeleet_tests::endpoints::read_endpoints;
use kubeleet_tests::fixture::Placed;
use kubeleet_tests::{Ablation, Fixture, Keyspace, invariants};
use model::ids::{PodId, ServiceName};
use model::network::endpoint::{Endpoint, EndpointState};
use model::pod::lifecycle::Phase;
use proxy::endpoint_set::{Applied, EndpointSet};
use store::{
    EndpointChange, EndpointReading, EndpointVersion, FollowedEndpoints, ReadingStep, StatusReport,
    Subscription, channel,
};
use testkit::eventually::{check, eventually};

use crate::operations::{cases, ready};

fn web() -> ServiceName {
    ServiceName::new("web").unwrap()
}

async fn follow(fixture: &Fixture) -> (EndpointVersion, Vec<Endpoint>) {
    let read = read_endpoints(&fixture.store, &web(), None).await.unwrap();
    let (version, mut endpoints) = read.expect("nothing was known");
    endpoints.sort_by_key(|endpoint| endpoint.replica);
    (version, endpoints)
}

async fn next(messages: &mut Subscription) -> EndpointChange {
    let wait = async {
        loop {
            if let Some(change) = EndpointChange::parse(&messages.next().await) {
                return change;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), wait).await.expect("a change is published")
}

async fn subscribe(fixture: &Fixture) -> Subscription {
    let messages = fixture.store.subscribe(&channel::endpoints(&web()));
    eventually("the subscription takes effect", || async {
        let count: (String, u64) = fixture.redis.cli(&["PUBSUB", "NUMSUB", "ep:web"]).await;
        check(count.1 == 1, || "not yet".to_owned())
    })
    .await;
    messages
}

fn lines(keyspace: &Keyspace) -> Vec<(String, String)> {
    let fields = keyspace.fields("ep:web");
    fields.into_iter().filter(|(field, _)| !["v", "m", "s"].contains(&field.as_str())).collect()
}

/// Also returns the scripts that changed endpoints.
async fn every_script(fixture: impl AsyncFn() -> Fixture) -> (Vec<&'static str>, Vec<String>) {
    let (mut moving, mut wrong) = (Vec::new(), Vec::new());
    for case in cases() {
        let fixture = fixture().await;
        let operation = ready(&fixture, case).await;
        let (followed, _) = follow(&fixture).await;
        let before = fixture.keyspace().await;
        (operation.call)().await.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let after = fixture.keyspace().await;
        wrong.extend(invariants::wrong_endpoints(&after).iter().map(|line| format!("{}: {line}", case.name)));
        let has_changed = lines(&before) != lines(&after);
        let version: u64 = after.field("ep:web", "v").parse().unwrap_or_default();
        if has_changed && version != followed.version + 1 {
            wrong.push(format!("{}: the version is {version} after {}", case.name, followed.version));
        }
        if has_changed {
            moving.push(case.name);
        }
    }
    (moving, wrong)
}

#[tokio::test]
async fn the_endpoints_of_a_followed_service_are_what_the_records_say_after_every_script() {
    let (moving, wrong) = every_script(Fixture::new).await;
    assert_eq!(wrong, Vec::<String>::new());
    for script in ["ack", "drain", "external_ack", "finish", "lost", "pods_stop", "report"] {
        assert!(moving.contains(&script), "{script} moves no endpoint: {moving:?}");
    }
}

#[tokio::test]
async fn a_drain_that_forgets_the_endpoints_is_noticed() {
    let ablation = Ablation { file: "drain", from: "endpoint(ep_key, pod_key, uuid)", to: "" };
    let (_, wrong) = every_script(async || Fixture::ablated(ablation).await).await;
    assert!(wrong.iter().any(|line| line.starts_with("drain")), "{wrong:?}");
}

#[tokio::test]
async fn a_service_that_no_proxy_follows_has_no_endpoints() {
    let fixture = Fixture::new().await;
    fixture.pod_in(Phase::Running, "web", "w1").await;
    assert_eq!(fixture.keyspace().await.get("ep:web"), None);
}

#[tokio::test]
async fn pods_that_change_in_one_call_are_one_message() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    fixture.service("web", 3).await;
    fixture.assign_all(&session).await;
    let (version, endpoints) = follow(&fixture).await;
    assert_eq!(endpoints, [], "an assigned pod is none");
    let mut messages = subscribe(&fixture).await;
    fixture.run_all(&session).await;
    let change = next(&mut messages).await;
    assert_eq!(change.version, EndpointVersion { version: version.version + 1, ..version.clone() });
    let states: Vec<_> = change.changes.iter().map(|(_, one)| one.as_ref().map(|one| one.state)).collect();
    assert_eq!(states, [Some(EndpointState::Ready); 3]);

    let record = fixture.pods(&web()).await.remove(0);
    fixture.stop(&record).await;
    let leaving = next(&mut messages).await.changes.remove(0);
    assert_eq!(leaving.1.unwrap().state, EndpointState::Leaving);
    fixture.finish_stopped(&session, &record).await;
    let gone = next(&mut messages).await;
    assert_eq!(gone.changes, [(record.id.clone(), None)]);
    assert_eq!(gone.version.version, version.version + 3);
    let same = read_endpoints(&fixture.store, &web(), Some(&gone.version)).await.unwrap();
    assert_eq!(same, None);
}

#[tokio::test]
async fn a_pod_is_ready_while_nothing_is_reported_about_it() {
    let fixture = Fixture::new().await;
    let Placed { session, record, .. } = fixture.pod_in(Phase::Running, "web", "w1").await;
    let placed = fixture.record(&record.id).await;
    let state = async || follow(&fixture).await.1[0].state;
    assert_eq!(state().await, EndpointState::Ready);
    let (service, assignment) = (web(), placed.assignment.unwrap());
    for (reason, expected) in [("Unhealthy", EndpointState::Running), ("", EndpointState::Ready)] {
        let status = StatusReport { service: Some(&service), reason, ..StatusReport::default() };
        let pod = store::PodRef { id: &record.id, assignment: &assignment };
        session.report(pod, &status).await.unwrap().unwrap();
        assert_eq!(state().await, expected, "{reason:?}");
    }
}

/// While the set is made in pieces it has no version, and it contains all changes made meanwhile.
#[tokio::test]
async fn a_pod_that_starts_while_the_set_is_made_is_in_it() {
    let fixture = Fixture::new().await;
    let (version, _) = follow(&fixture).await;
    let _: u64 = fixture.redis.cli(&["HDEL", "ep:web", "v"]).await;
    let Placed { record, .. } = fixture.pod_in(Phase::Running, "web", "w1").await;
    let keyspace = fixture.keyspace().await;
    assert_eq!(lines(&keyspace).len(), 1);
    assert_eq!(keyspace.field("ep:web", "v"), "", "nothing is published before it is complete");
    let (later, endpoints) = follow(&fixture).await;
    assert_eq!(endpoints[0].pod, record.id);
    assert!(later.version > version.version, "{later:?} after {version:?}");
}

async fn add_pods(fixture: &Fixture, count: usize) {
    let script = "for i = 1, ARGV[1] do redis.call('HSET', 'slots:web', i, 'p' .. i) \
                  redis.call('HSET', 'pod:p' .. i, 'service', 'web', 'phase', 'running', 'node', 'w1', 'assignment', 'a', \
                  'replica', i, 'reason', '') end return 1";
    let _: u64 = fixture.redis.cli(&["EVAL", script, "0", &count.to_string()]).await;
}

fn reading(followed: FollowedEndpoints) -> EndpointReading {
    match followed {
        FollowedEndpoints::Changed(reading) => reading,
        FollowedEndpoints::Same => panic!("nothing was known"),
        FollowedEndpoints::BeingMade => panic!("another one makes it"),
    }
}

#[tokio::test]
async fn thousands_of_pods_are_made_and_read_in_pages() {
    let fixture = Fixture::new().await;
    fixture.pod_in(Phase::Running, "web", "w1").await;
    add_pods(&fixture, 2500).await;
    let _: u64 = fixture.redis.cli(&["HSET", "slots:web", "9999", "lost"]).await;
    let mut reading = reading(fixture.store.follow_endpoints(&web(), None).await.unwrap());
    let mut steps = Vec::new();
    let endpoints = loop {
        match reading.step().await.unwrap() {
            ReadingStep::Done(_, endpoints) => break endpoints,
            step => steps.push(step),
        }
    };
    assert_eq!(endpoints.len(), 2501, "one without a record is no endpoint");
    let count = |wanted: &ReadingStep| steps.iter().filter(|step| *step == wanted).count();
    assert!(count(&ReadingStep::Made) >= 4 && count(&ReadingStep::Read) >= 4, "{steps:?}");
}

#[tokio::test]
async fn one_makes_the_set_and_another_waits_until_it_is_made_or_the_first_one_is_gone() {
    let fixture = Fixture::new().await;
    add_pods(&fixture, 3).await;
    let mut first = reading(fixture.store.follow_endpoints(&web(), None).await.unwrap());
    let second = fixture.store.follow_endpoints(&web(), None).await.unwrap();
    assert!(matches!(second, FollowedEndpoints::BeingMade));
    for time in ["1700000000000", "99999999999999"] {
        let _: u64 = fixture.redis.cli(&["HSET", "ep:web", "making", time]).await;
        reading(fixture.store.follow_endpoints(&web(), None).await.unwrap());
    }
    let (version, endpoints) = {
        assert_eq!(first.step().await.unwrap(), ReadingStep::Made, "it goes on for all that");
        follow(&fixture).await
    };
    assert_eq!(endpoints.len(), 3);
    let keyspace = fixture.keyspace().await;
    assert_eq!(keyspace.field("ep:web", "making"), "");
    assert_eq!(keyspace.field("ep:web", "v"), version.version.to_string());
}

#[tokio::test]
async fn changes_while_pages_are_read_are_applied_to_what_was_read() {
    let fixture = Fixture::new().await;
    let Placed { record, .. } = fixture.pod_in(Phase::Running, "web", "w1").await;
    add_pods(&fixture, 2000).await;
    follow(&fixture).await;
    let mut messages = subscribe(&fixture).await;
    let mut reading = reading(fixture.store.follow_endpoints(&web(), None).await.unwrap());
    assert_eq!(reading.step().await.unwrap(), ReadingStep::Read);
    fixture.stop(&fixture.record(&record.id).await).await;
    let (version, endpoints) = loop {
        if let ReadingStep::Done(version, endpoints) = reading.step().await.unwrap() {
            break (version, endpoints);
        }
    };
    let mut set = EndpointSet::default();
    set.take_read(None, version, endpoints);
    assert_eq!(set.apply(next(&mut messages).await), Applied::Changed);
    let mut read = EndpointSet::default();
    let (version, endpoints) = follow(&fixture).await;
    read.take_read(None, version, endpoints);
    assert!(set == read, "they are the same set");
}

#[tokio::test]
async fn a_set_that_a_new_master_makes_anew_while_it_is_read_is_read_again() {
    let fixture = Fixture::new().await;
    add_pods(&fixture, 2000).await;
    follow(&fixture).await;
    let mut reading = reading(fixture.store.follow_endpoints(&web(), None).await.unwrap());
    assert_eq!(reading.step().await.unwrap(), ReadingStep::Read);
    let _: u64 = fixture.redis.cli(&["HSET", "ep:web", "m", "1"]).await;
    assert_eq!(reading.step().await.unwrap(), ReadingStep::Again);
}

/// A failover may have lost changes that followers know, so earlier versions are void.
#[tokio::test]
async fn a_new_master_makes_the_set_again_under_a_version_that_was_never_used() {
    let fixture = Fixture::new().await;
    fixture.pod_in(Phase::Running, "web", "w1").await;
    let (before, endpoints) = follow(&fixture).await;
    let () = fixture.redis.cli(&["HSET", "meta", "run_id", "another"]).await;
    // No master takes over in the millisecond with which the last version began.
    while fixture.store.redis_now().await.unwrap() <= before.version {}
    let read = read_endpoints(&fixture.store, &web(), Some(&before)).await.unwrap();
    let (version, again) = read.expect("another master has others");
    assert_ne!(version.master, before.master);
    assert!(version.version > before.version);
    assert_eq!(again, endpoints);
}

#[tokio::test]
async fn a_key_of_another_program_in_its_place_stops_no_pod_and_is_moved_away() {
    let fixture = Fixture::new().await;
    let () = fixture.redis.cli(&["SET", "ep:web", "another program's"]).await;
    let Placed { record, .. } = fixture.pod_in(Phase::Running, "web", "w1").await;
    assert_eq!(follow(&fixture).await.1[0].pod, record.id);
    let kept: String = fixture.redis.cli(&["GET", "broken:ep:web"]).await;
    assert_eq!(kept, "another program's");
}

#[tokio::test]
async fn a_version_that_was_overwritten_by_hand_makes_the_set_again() {
    let fixture = Fixture::new().await;
    let Placed { record, .. } = fixture.pod_in(Phase::Running, "web", "w1").await;
    follow(&fixture).await;
    let () = fixture.redis.cli(&["HSET", "ep:web", "v", "many"]).await;
    fixture.stop(&fixture.record(&record.id).await).await;
    let (_, endpoints) = follow(&fixture).await;
    let states: Vec<(PodId, EndpointState)> =
        endpoints.into_iter().map(|endpoint| (endpoint.pod, endpoint.state)).collect();
    assert_eq!(states, [(record.id, EndpointState::Leaving)]);
}

#[tokio::test]
async fn a_set_that_no_proxy_asks_for_expires() {
    let fixture = Fixture::new().await;
    follow(&fixture).await;
    let lasts: i64 = fixture.redis.cli(&["TTL", "ep:web"]).await;
    assert!((3500..=3600).contains(&lasts), "{lasts} s");
}

#[tokio::test]
async fn the_endpoints_of_a_service_are_never_pods_of_another_one() {
    let fixture = Fixture::new().await;
    let own = fixture.pod_in(Phase::Running, "web", "w1").await.record;
    let other = fixture.pod_in(Phase::Running, "db", "w1").await.record;
    let pods = |endpoints: Vec<Endpoint>| endpoints.into_iter().map(|one| one.pod).collect::<Vec<_>>();
    assert_eq!(pods(follow(&fixture).await.1), std::slice::from_ref(&own.id));
    let db = ServiceName::new("db").unwrap();
    fixture.store.follow_endpoints(&db, None).await.unwrap();
    let _: u64 = fixture.redis.cli(&["COPY", "ep:db", "ep:web", "REPLACE"]).await;
    assert_eq!(fixture.store.endpoint_versions(&[web()]).await.unwrap(), [None], "it is to be followed anew");
    assert_eq!(pods(follow(&fixture).await.1), std::slice::from_ref(&own.id));
    let _: u64 = fixture.redis.cli(&["DEL", "ep:web"]).await;
    let _: u64 = fixture.redis.cli(&["HSET", "slots:web", "1", other.id.as_str()]).await;
    assert_eq!(pods(follow(&fixture).await.1), [own.id]);
    fixture.stop(&other).await;
    assert_eq!(lines(&fixture.keyspace().await).len(), 1);
}
