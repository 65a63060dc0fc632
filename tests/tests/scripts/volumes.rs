//! Persistent volumes: each has its data on one node, and no data is removed unasked.

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::{DEAD_AFTER, REQUEST, node, report_copies, report_volumes};
use model::ids::{SchedulerId, ServiceName, VolumeName};
use model::node::SharedVolumesState;
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use model::service::volume::{
    EngineCopy, FormerCopy, LocalExcess, Volume, VolumeClaim, VolumeScope, VolumeSize, VolumeState,
    VolumeVerdict,
};
use serde_json::json;
use store::saved_state::SavedVolume;
use store::{
    AssignOutcome, Assignment, BindVolumeOutcome, Registration, RemoveNodeOutcome, RemoveVolumeOutcome,
    RequeueOutcome, Session, SharedDirectoryReport, VolumeReport,
};

use crate::changing_nothing;

async fn service(fixture: &Fixture, replicas: u32) {
    fixture
        .service_of(json!({"name": "db", "image": "nginx", "replicas": replicas, "volumes": ["data:/d"]}))
        .await;
}

fn name(replica: u32) -> VolumeName {
    VolumeName::new(format!("db_data_{replica}")).unwrap()
}

fn copies(claims: &[VolumeClaim]) -> Vec<EngineCopy> {
    claims.iter().cloned().map(EngineCopy::from).collect()
}

async fn volume(fixture: &Fixture, replica: u32) -> Volume {
    fixture.store.volume(&name(replica)).await.unwrap().unwrap()
}

#[tokio::test]
async fn the_first_assignment_binds_a_volume_and_later_ones_have_to_follow_it() {
    let fixture = Fixture::new().await;
    let (w1, w2) = (fixture.node("w1").await, fixture.node("w2").await);
    service(&fixture, 2).await;
    assert_eq!(fixture.assign_all(&w1).await, [AssignOutcome::Assigned; 2]);
    for replica in 0..2 {
        let volume = volume(&fixture, replica).await;
        assert_eq!(
            (volume.node, volume.state, volume.claim.scope),
            (Some(node("w1")), VolumeState::Bound, VolumeScope::Replica(replica))
        );
    }
    fixture.run_all(&w1).await;
    fixture.kill_node("w1").await;
    fixture.drain("w1").await;
    let payloads = fixture.take_all().await;
    let refused = changing_nothing(&fixture, fixture.assign(&w2, payloads.clone())).await;
    assert_eq!(refused, [AssignOutcome::Refused; 2], "their data is on w1");
    let w1 = fixture.node("w1").await;
    assert_eq!(fixture.assign(&w1, payloads).await, [AssignOutcome::Assigned; 2]);
    let all = fixture.store.volume_names().await.unwrap();
    assert_eq!(all, [name(0), name(1)]);
}

#[tokio::test]
async fn two_schedulers_cannot_bind_a_volume_to_two_nodes() {
    for _ in 0..5 {
        let fixture = Fixture::new().await;
        service(&fixture, 1).await;
        let payload =
            Payload::parse(fixture.store.take(&fixture.scheduler, 1).await.unwrap().remove(0)).unwrap();
        let volumes = fixture.volumes(&payload).await;
        let mut schedulers = Vec::new();
        for name in ["w1", "w2"] {
            let session = fixture.node(name).await;
            let me = SchedulerId::random();
            let json = format!(r#"{{"name":"db","uuid":"{name}","image":"nginx","replica":0}}"#);
            let payload = Payload::parse(json.into()).unwrap();
            let in_flight = format!("fq:{me}");
            fixture.push(&in_flight, &payload.raw).await;
            let incarnation = fixture.store.node(session.node()).await.unwrap().unwrap().incarnation;
            let assignment = Assignment {
                payload,
                node: node(name),
                incarnation,
                request: REQUEST,
                host_ports: Default::default(),
                named: None,
                volumes: volumes.clone(),
                seen_labels: None,
                counted: None,
            };
            let store = fixture.store.clone();
            schedulers.push(tokio::spawn(async move { store.assign(&me, DEAD_AFTER, &[assignment]).await }));
        }
        let mut outcomes = Vec::new();
        for scheduler in schedulers {
            outcomes.extend(scheduler.await.unwrap().unwrap());
        }
        let assigned = outcomes.iter().filter(|outcome| **outcome == AssignOutcome::Assigned).count();
        assert_eq!((assigned, outcomes.len()), (1, 2), "{outcomes:?}");
    }
}

#[tokio::test]
async fn a_volume_is_removed_when_its_service_does_not_want_it_and_its_node_has_removed_the_data() {
    let fixture = Fixture::new().await;
    let w1 = fixture.node("w1").await;
    service(&fixture, 1).await;
    fixture.assign_all(&w1).await;
    fixture.run_all(&w1).await;
    let remove = || async { fixture.store.remove_volume(&name(0)).await };
    assert_eq!(changing_nothing(&fixture, remove()).await.unwrap(), RemoveVolumeOutcome::Used);
    let claim = volume(&fixture, 0).await.claim;
    let present = [claim.clone()];
    let db = ServiceName::new("db").unwrap();
    fixture.store.scale_service(&db, 0).await.unwrap();
    assert_eq!(remove().await.unwrap(), RemoveVolumeOutcome::Used, "its pod still runs");
    let () = fixture.redis.cli(&["DEL", "slots:db"]).await;
    assert_eq!(remove().await.unwrap(), RemoveVolumeOutcome::Removing);
    assert_eq!(volume(&fixture, 0).await.state, VolumeState::Removing);
    let report = w1.report_volumes(&copies(&present), None, DEAD_AFTER).await.unwrap().unwrap();
    assert_eq!((report.remove, report.elsewhere), (vec![name(0)], Vec::new()));
    let report = w1.report_gone_volumes(&present, &[], DEAD_AFTER).await.unwrap().unwrap();
    assert_eq!((report.remove, report.elsewhere), (Vec::new(), Vec::new()));
    assert_eq!(fixture.store.volume(&name(0)).await.unwrap(), None);
    assert_eq!(remove().await.unwrap(), RemoveVolumeOutcome::Missing);
    assert_eq!(fixture.store.volume_names().await.unwrap(), []);
}

#[tokio::test]
async fn no_pod_gets_a_volume_whose_data_is_being_removed() {
    let fixture = Fixture::new().await;
    let w1 = fixture.node("w1").await;
    service(&fixture, 1).await;
    fixture.assign_all(&w1).await;
    let db = ServiceName::new("db").unwrap();
    assert_eq!(fixture.store.remove_volumes_of(&db).await.unwrap(), 1);
    let pod = fixture.pods(&db).await.remove(0);
    assert_eq!(pod.phase, Phase::Assigned);
    fixture.kill_node("w1").await;
    fixture.drain("w1").await;
    let w1 = fixture.node("w1").await;
    assert_eq!(fixture.assign_all(&w1).await, [AssignOutcome::Refused]);
}

#[tokio::test]
async fn a_node_restores_the_record_of_a_volume_that_it_has_and_leaves_that_of_another_alone() {
    let fixture = Fixture::new().await;
    let (w1, w2) = (fixture.node("w1").await, fixture.node("w2").await);
    service(&fixture, 1).await;
    fixture.assign_all(&w1).await;
    let before = volume(&fixture, 0).await;
    let present = [before.claim.clone()];
    let () = fixture.redis.cli(&["DEL", "volume:db_data_0", "volumes"]).await;
    let report = w1.report_volumes(&copies(&present), None, DEAD_AFTER).await.unwrap().unwrap();
    assert_eq!((report.remove, report.elsewhere), (Vec::new(), Vec::new()));
    let after = volume(&fixture, 0).await;
    let expected = Volume { epoch: None, is_found: true, is_recovered: true, ..before.clone() };
    assert_eq!(
        Volume { created_at: before.created_at, ..after },
        expected,
        "the age of the copy is not known"
    );
    w2.report_volumes(&copies(&present), None, DEAD_AFTER).await.unwrap().unwrap();
    let report = changing_nothing(&fixture, w2.report_volumes(&copies(&present), None, DEAD_AFTER))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(report.elsewhere, [name(0)]);
}

#[tokio::test]
async fn a_volume_of_a_node_that_was_removed_is_forgotten_when_it_is_removed() {
    let fixture = Fixture::new().await;
    let w1 = fixture.node("w1").await;
    service(&fixture, 1).await;
    fixture.assign_all(&w1).await;
    let db = ServiceName::new("db").unwrap();
    fixture.store.scale_service(&db, 0).await.unwrap();
    let () = fixture.redis.cli(&["DEL", "slots:db", "node:w1"]).await;
    assert_eq!(fixture.store.remove_volume(&name(0)).await.unwrap(), RemoveVolumeOutcome::Removed);
    assert_eq!(fixture.store.volume(&name(0)).await.unwrap(), None);
}

async fn unreported(fixture: &Fixture) -> Vec<String> {
    let nodes = fixture.store.unreported_nodes().await.unwrap().into_iter();
    nodes.map(|node| format!("{}{}", if node.is_former { "former " } else { "" }, node.name)).collect()
}

fn registered(registration: Registration) -> Session {
    let Registration::Registered { session, .. } = registration else { panic!("it cannot register") };
    session
}

/// Returns violations.
pub(crate) async fn another_machine_has_the_name(fixture: &Fixture) -> Vec<String> {
    let former = registered(fixture.machine("w1", "A").await);
    report_volumes(&former, &[]).await;
    service(fixture, 1).await;
    fixture.assign_all(&former).await;
    fixture.run_all(&former).await;
    let present = [volume(fixture, 0).await.claim];
    report_volumes(&former, &present).await;

    fixture.silence("w1").await;
    if !matches!(fixture.machine("w1", "B").await, Registration::Draining) {
        return vec!["the pods of the former machine are the other one's".to_owned()];
    }
    fixture.drain("w1").await;
    let other = registered(fixture.machine("w1", "B").await);
    assert_eq!(unreported(fixture).await, ["w1"]);
    report_volumes(&other, &[]).await;
    let payloads = fixture.take_all().await;
    let assign = |session| fixture.assign(session, payloads.clone());
    if assign(&other).await != [AssignOutcome::Refused] {
        return vec!["empty on another machine with the name".to_owned()];
    }

    // The former machine is waited for, although its name is in use.
    let () = fixture.redis.cli(&["DEL", "volume:db_data_0"]).await;
    let known: u32 = fixture.redis.cli(&["HEXISTS", "volumes:reports", "w1 A"]).await;
    if known == 0 {
        return vec!["the former machine is forgotten".to_owned()];
    }
    let () = fixture.redis.cli(&["HSET", "volumes:reports", "w1 A", "the run before"]).await;
    assert_eq!(unreported(fixture).await, ["former w1"]);
    if assign(&other).await != [AssignOutcome::Refused] {
        return vec!["empty on another machine, without a record".to_owned()];
    }

    fixture.kill_node("w1").await;
    let former = registered(fixture.machine("w1", "A").await);
    report_volumes(&former, &present).await;
    assert_eq!(unreported(fixture).await, [""; 0]);
    assert_eq!(volume(fixture, 0).await.engine_id.as_deref(), Some("A"));
    assert_eq!(assign(&former).await, [AssignOutcome::Assigned]);
    Vec::new()
}

#[tokio::test]
async fn another_machine_with_the_name_of_a_node_does_not_have_its_data() {
    assert_eq!(another_machine_has_the_name(&Fixture::new().await).await, [""; 0]);
}

/// Returns violations.
pub(crate) async fn a_machine_that_has_data_is_refused(fixture: &Fixture) -> Vec<String> {
    let other = registered(fixture.machine("w1", "B").await);
    report_volumes(&other, &[]).await;
    service(fixture, 1).await;
    let payloads = fixture.take_all().await;
    let refused = fixture.another_machine("w1", "C", false).await;
    assert!(matches!(refused, Registration::Taken(_)));
    assert_eq!(unreported(fixture).await, [""; 0], "C never was of this cluster");
    let refused = fixture.another_machine("w1", "A", true).await;
    assert!(matches!(refused, Registration::Taken(_)));
    if fixture.assign(&other, payloads.clone()).await != [AssignOutcome::Refused] {
        return vec!["empty, while the machine with the data asks for its name".to_owned()];
    }
    assert_eq!(unreported(fixture).await, ["former w1"]);
    fixture.kill_node("w1").await;
    let machine = registered(fixture.another_machine("w1", "A", true).await);
    report_volumes(&machine, &[]).await;
    assert_eq!(unreported(fixture).await, [""; 0]);
    fixture.violations().await
}

#[tokio::test]
async fn a_machine_that_cannot_have_its_name_is_waited_for() {
    assert_eq!(a_machine_that_has_data_is_refused(&Fixture::new().await).await, [""; 0]);
}

/// Returns violations.
pub(crate) async fn a_payload_is_missing_when_a_name_changes(fixture: &Fixture) -> Vec<String> {
    let former = registered(fixture.machine("w1", "A").await);
    report_volumes(&former, &[]).await;
    service(fixture, 1).await;
    fixture.assign_all(&former).await;
    fixture.run_all(&former).await;
    let claim = volume(fixture, 0).await.claim;
    let pod = async || fixture.pods(&claim.service).await.remove(0);
    let requeue = async || fixture.store.requeue_missing(&pod().await, &[]).await.unwrap();
    let () = fixture.redis.cli(&["DEL", "cs:w1"]).await;
    assert_eq!(requeue().await, RequeueOutcome::Queued);
    assert_eq!(former.container_set().await.unwrap().len(), 1, "the machine itself still has the volume");

    let () = fixture.redis.cli(&["DEL", "cs:w1"]).await;
    fixture.silence("w1").await;
    let other = registered(fixture.machine("w1", "B").await);
    report_volumes(&other, &[]).await;
    assert_eq!(requeue().await, RequeueOutcome::Queued);
    if !other.container_set().await.unwrap().is_empty() {
        return vec!["starts on an empty volume of the other machine".to_owned()];
    }
    assert_eq!(pod().await.phase, Phase::Pending);
    let payloads = fixture.take_all().await;
    assert_eq!(fixture.assign(&other, payloads.clone()).await, [AssignOutcome::Refused]);
    fixture.kill_node("w1").await;
    let former = registered(fixture.machine("w1", "A").await);
    report_volumes(&former, std::slice::from_ref(&claim)).await;
    assert_eq!(fixture.assign(&former, payloads).await, [AssignOutcome::Assigned]);
    fixture.violations().await
}

#[tokio::test]
async fn a_missing_payload_is_not_put_back_on_another_machine() {
    assert_eq!(a_payload_is_missing_when_a_name_changes(&Fixture::new().await).await, [""; 0]);
}

#[tokio::test]
async fn an_operator_gives_up_the_data_of_a_machine_whose_name_is_in_use() {
    let fixture = Fixture::new().await;
    let former = registered(fixture.machine("w1", "A").await);
    report_volumes(&former, &[]).await;
    service(&fixture, 1).await;
    fixture.assign_all(&former).await;
    let claim = volume(&fixture, 0).await.claim;
    fixture.kill_node("w1").await;
    fixture.drain("w1").await;
    let other = registered(fixture.machine("w1", "B").await);
    report_volumes(&other, &[]).await;
    let () = fixture.redis.cli(&["DEL", "volume:db_data_0", "volumes"]).await;
    let () = fixture.redis.cli(&["HSET", "volumes:reports", "w1 A", "the run before"]).await;
    assert_eq!(fixture.assign_all(&other).await, [AssignOutcome::Refused]);
    assert_eq!(fixture.store.remove_node(&node("w1"), true).await.unwrap(), RemoveNodeOutcome::Removed);
    assert_eq!(fixture.store.remove_node(&node("w1"), true).await.unwrap(), RemoveNodeOutcome::Missing);
    assert_eq!(fixture.store.remove_node(&node("w1"), false).await.unwrap(), RemoveNodeOutcome::Alive);
    assert_eq!(fixture.assign_all(&other).await, [AssignOutcome::Assigned]);
    assert_eq!(volume(&fixture, 0).await.engine_id.as_deref(), Some("B"));
    // A node's report is true, such as after a disk was moved.
    fixture.kill_node("w1").await;
    fixture.drain("w1").await;
    let moved = registered(fixture.machine("w1", "C").await);
    report_volumes(&moved, &[claim]).await;
    assert_eq!(volume(&fixture, 0).await.engine_id.as_deref(), Some("C"));
}

#[tokio::test]
async fn a_former_machine_without_volumes_is_forgotten_only_if_this_redis_was_told_so() {
    for (run, expected) in [("", &["w1"][..]), ("the run before", &["former w1", "w1"])] {
        let fixture = Fixture::new().await;
        let former = registered(fixture.machine("w1", "A").await);
        report_volumes(&former, &[]).await;
        if !run.is_empty() {
            let () = fixture.redis.cli(&["HSET", "volumes:reports", "w1", run]).await;
        }
        fixture.kill_node("w1").await;
        registered(fixture.machine("w1", "B").await);
        let mut found = unreported(&fixture).await;
        found.sort();
        assert_eq!(found, expected);
    }
}

/// `w1` with the data has yet to come. Returns violations.
pub(crate) async fn records_are_lost(fixture: &Fixture) -> Vec<String> {
    let w1 = fixture.node("w1").await;
    service(fixture, 1).await;
    fixture.assign_all(&w1).await;
    let present = [volume(fixture, 0).await.claim];
    fixture.kill_node("w1").await;
    fixture.drain("w1").await;
    let () = fixture.redis.cli(&["DEL", "volume:db_data_0", "volumes", "volumes:reports"]).await;
    let nodes = ["w1", "w2"].map(node);
    fixture.store.expect_volume_reports(nodes.clone()).await.unwrap();
    assert_eq!(unreported(fixture).await, ["w1", "w2"]);
    let w2 = fixture.node("w2").await;
    assert_eq!(unreported(fixture).await, ["w1"]);
    let payloads = fixture.take_all().await;
    let assign = |session| fixture.assign(session, payloads.clone());
    if assign(&w2).await != [AssignOutcome::Refused] {
        return vec!["empty on w2, before w1 has reported".to_owned()];
    }

    // The engine was asked before this run of Redis was known.
    let w1 = registered(fixture.machine("w1", "").await);
    w1.report_volumes(&[], None, DEAD_AFTER).await.unwrap().unwrap();
    w1.report_volumes(&[], Some("another run"), DEAD_AFTER).await.unwrap().unwrap();
    if assign(&w2).await != [AssignOutcome::Refused] {
        return vec!["empty on w2, after an incomplete report of w1".to_owned()];
    }
    report_volumes(&w1, &present).await;
    assert_eq!(unreported(fixture).await, [""; 0]);
    if assign(&w2).await != [AssignOutcome::Refused] {
        return vec!["empty on w2, although w1 has reported it".to_owned()];
    }
    assert_eq!(assign(&w1).await, [AssignOutcome::Assigned]);
    Vec::new()
}

#[tokio::test]
async fn a_volume_without_a_record_is_bound_only_when_all_nodes_have_said_what_they_have() {
    assert_eq!(records_are_lost(&Fixture::new().await).await, [""; 0]);
}

#[tokio::test]
async fn an_operator_gives_up_the_data_of_a_node_that_does_not_come_back() {
    let fixture = Fixture::new().await;
    fixture.store.expect_volume_reports([node("gone")]).await.unwrap();
    let w2 = fixture.node("w2").await;
    service(&fixture, 1).await;
    assert_eq!(fixture.assign_all(&w2).await, [AssignOutcome::Refused]);
    assert_eq!(fixture.store.remove_node(&node("gone"), false).await.unwrap(), RemoveNodeOutcome::Removed);
    assert_eq!(fixture.assign_all(&w2).await, [AssignOutcome::Assigned]);
}

/// A promoted replica or an older file may have lost data of the former Redis.
#[tokio::test]
async fn another_run_of_redis_waits_for_all_nodes_to_report_again() {
    let fixture = Fixture::new().await;
    let (_w1, w2) = (fixture.node("w1").await, fixture.node("w2").await);
    let () = fixture.redis.cli(&["HSET", "volumes:reports", "w1", "the run before"]).await;
    service(&fixture, 1).await;
    assert_eq!(fixture.assign_all(&w2).await, [AssignOutcome::Refused]);
    assert_eq!(unreported(&fixture).await, ["w1"]);
}

/// A failover may have lost the registration of a node that has the data.
#[tokio::test]
async fn after_a_change_of_the_master_no_volume_is_bound_before_lost_nodes_had_time_to_register_again() {
    let fixture = Fixture::new().await;
    let w2 = fixture.node("w2").await;
    service(&fixture, 1).await;
    let time: (u64, u64) = fixture.redis.cli(&["TIME"]).await;
    let now = time.0 * 1000;
    let long_ago = now - 2 * DEAD_AFTER.as_millis() as u64;
    for (changed_at, expected) in [(now, AssignOutcome::Refused), (long_ago, AssignOutcome::Assigned)] {
        let () = fixture.redis.cli(&["HSET", "meta", "changed_at", &changed_at.to_string()]).await;
        report_volumes(&w2, &[]).await;
        assert_eq!(unreported(&fixture).await, [""; 0]);
        assert_eq!(fixture.assign_all(&w2).await, [expected]);
    }
}

#[tokio::test]
async fn a_restored_record_is_believed_only_when_all_nodes_have_said_what_they_have() {
    let fixture = Fixture::new().await;
    let w1 = fixture.node("w1").await;
    service(&fixture, 2).await;
    fixture.assign_all(&w1).await;
    let saved = fixture.store.backup_volumes().await.unwrap();
    assert_eq!(saved.len(), 2);
    let moved = volume(&fixture, 1).await.claim;
    fixture.kill_node("w1").await;
    fixture.drain("w1").await;
    let () = fixture.redis.cli(&["DEL", "volume:db_data_0", "volume:db_data_1", "volumes"]).await;
    let () = fixture.redis.cli(&["HSET", "volumes:reports", "w1", ""]).await;
    assert_eq!(fixture.store.restore_volumes(&saved).await.unwrap(), 2);
    assert_eq!(changing_nothing(&fixture, fixture.store.restore_volumes(&saved)).await.unwrap(), 0);
    let w2 = fixture.node("w2").await;
    let younger = [EngineCopy { epoch: Some(u64::MAX >> 12), ..EngineCopy::from(moved) }];
    report_copies(&w2, &younger).await;
    for replica in 0..2 {
        let volume = volume(&fixture, replica).await;
        assert_eq!(
            (volume.node, volume.is_restored),
            (Some(node("w1")), true),
            "w1 has not said what it has"
        );
    }
    let taken = fixture.take_all().await;
    let of_replica =
        |replica: u32| taken.iter().filter(|payload| payload.replica == replica).cloned().collect::<Vec<_>>();
    assert_eq!(fixture.assign(&w2, of_replica(1)).await, [AssignOutcome::Refused]);
    assert_eq!(fixture.assign(&w2, of_replica(0)).await, [AssignOutcome::Refused]);
    let w1 = fixture.node("w1").await;
    report_copies(&w2, &younger).await;
    let of_w2 = volume(&fixture, 1).await;
    assert_eq!((of_w2.node, of_w2.is_restored), (Some(node("w2")), false));
    assert_eq!(fixture.assign(&w2, of_replica(1)).await, [AssignOutcome::Assigned]);
    assert_eq!(fixture.assign(&w2, of_replica(0)).await, [AssignOutcome::Refused], "its data is on w1");
    assert_eq!(fixture.assign(&w1, of_replica(0)).await, [AssignOutcome::Assigned]);
}

fn shared(name: &str) -> VolumeName {
    VolumeName::new(name).unwrap()
}

async fn share(session: &Session, id: &str, known: Option<&str>) -> Option<String> {
    let found = match id {
        "" => SharedDirectoryReport::WithoutId,
        id => SharedDirectoryReport::Found(id.to_owned()),
    };
    session.report_shared_directory(&found, known).await.unwrap().unwrap()
}

async fn state_of(fixture: &Fixture, name: &str) -> SharedVolumesState {
    fixture.store.node(&node(name)).await.unwrap().unwrap().shared_volumes.unwrap()
}

#[tokio::test]
async fn a_node_with_another_directory_than_the_cluster_is_refused_also_after_redis_was_emptied() {
    let fixture = Fixture::new().await;
    let (w1, w2) = (fixture.node("w1").await, fixture.node("w2").await);
    assert_eq!(changing_nothing(&fixture, share(&w1, "", None)).await, None, "it is to get an id");
    assert_eq!(share(&w1, "one", None).await.as_deref(), Some("one"));
    assert_eq!(changing_nothing(&fixture, share(&w1, "one", Some("one"))).await.as_deref(), Some("one"));
    assert_eq!(state_of(&fixture, "w1").await, SharedVolumesState::Ready);
    for (id, part) in
        [("two", "has the id two, but that of the cluster is one"), ("", "no file that identifies it")]
    {
        assert_eq!(share(&w2, id, None).await.as_deref(), Some("one"));
        let SharedVolumesState::Refused(why) = state_of(&fixture, "w2").await else { panic!("{id}") };
        assert!(why.contains(part), "{why}");
    }
    let () = fixture.redis.cli(&["HDEL", "meta", "shared_directory"]).await;
    assert_eq!(
        share(&w2, "two", Some("one")).await.as_deref(),
        Some("one"),
        "it knows which was the right one"
    );
    let broken = SharedDirectoryReport::Unusable("it is not mounted".to_owned());
    w1.report_shared_directory(&broken, Some("one")).await.unwrap().unwrap();
    assert_eq!(state_of(&fixture, "w1").await, SharedVolumesState::Refused("it is not mounted".to_owned()));
    assert_eq!(share(&w2, "one", Some("one")).await.as_deref(), Some("one"));
    assert_eq!(state_of(&fixture, "w2").await, SharedVolumesState::Ready);
}

#[tokio::test]
async fn what_is_wrong_with_a_node_is_recorded_and_each_problem_told_once() {
    let fixture = Fixture::new().await;
    let w1 = fixture.node("w1").await;
    let told = async || {
        let events: Vec<(String, Vec<String>)> = fixture.redis.cli(&["XRANGE", "events", "-", "+"]).await;
        let of_kind = |fields: &&(String, Vec<String>)| {
            fields.1.iter().any(|field| field == "NodeProblem" || field == "NodeProblemsEnded")
        };
        events.iter().filter(of_kind).filter_map(|(_, fields)| fields.last().cloned()).collect::<Vec<_>>()
    };
    let steps: [(&[&str], &[&str]); 4] = [
        (&[], &[]),
        (&["the disk\nis full"], &["the disk is full"]),
        (&["no metrics", "the disk is full"], &["the disk is full", "no metrics"]),
        (&[], &["the disk is full", "no metrics", "nothing is wrong with this node any more"]),
    ];
    for (problems, events) in steps {
        let problems: Vec<String> = problems.iter().map(|&problem| problem.to_owned()).collect();
        for _ in 0..2 {
            w1.report_node_problems(&problems).await.unwrap().unwrap();
        }
        let recorded = fixture.store.node(&node("w1")).await.unwrap().unwrap().problems;
        assert_eq!(recorded.len(), problems.len(), "{recorded:?}");
        assert_eq!(told().await, events, "{problems:?}");
    }
}

#[tokio::test]
async fn a_shared_volume_is_on_no_node_and_removed_by_one_that_has_the_directory() {
    let fixture = Fixture::new().await;
    let (w1, w2) = (fixture.node("w1").await, fixture.node("w2").await);
    let up = json!({"source": "up", "target": "/up", "kind": "shared"});
    for (name, app) in [("web", None), ("shop-a", Some("shop")), ("shop-b", Some("shop"))] {
        let input = json!({"name": name, "image": "i", "replicas": 1, "volumes": [up], "app": app});
        fixture.service_of(input).await;
    }
    assert_eq!(fixture.assign_all(&w1).await, [AssignOutcome::Assigned; 3]);
    let (of_web, of_shop) = (shared("web_up_shared"), shared("shop_up_app"));
    assert_eq!(fixture.store.volume_names().await.unwrap(), [of_shop.clone(), of_web.clone()]);
    for (name, scope) in [(&of_web, VolumeScope::Service), (&of_shop, VolumeScope::App)] {
        let volume = fixture.store.volume(name).await.unwrap().unwrap();
        assert_eq!((volume.node, volume.state, volume.claim.scope), (None, VolumeState::Bound, scope));
    }
    assert_eq!(fixture.store.backup_volumes().await.unwrap(), [], "nodes report them");
    let remove = |name: &VolumeName| {
        let (store, name) = (fixture.store.clone(), name.clone());
        async move { store.remove_volume(&name).await.unwrap() }
    };
    assert_eq!(changing_nothing(&fixture, remove(&of_web)).await, RemoveVolumeOutcome::NoNode);
    share(&w2, "one", None).await;
    assert_eq!(changing_nothing(&fixture, remove(&of_shop)).await, RemoveVolumeOutcome::Used);

    for name in ["web", "shop-a"] {
        let name = ServiceName::new(name).unwrap();
        fixture.store.scale_service(&name, 0).await.unwrap();
        let () = fixture.redis.cli(&["DEL", &format!("slots:{name}")]).await;
    }
    assert_eq!(changing_nothing(&fixture, remove(&of_shop)).await, RemoveVolumeOutcome::Used);
    assert_eq!(remove(&of_web).await, RemoveVolumeOutcome::Removing);
    let volume = fixture.store.volume(&of_web).await.unwrap().unwrap();
    assert_eq!((volume.node, volume.state), (Some(node("w2")), VolumeState::Removing));
    let claim = volume.claim;
    let web = ServiceName::new("web").unwrap();
    fixture.store.scale_service(&web, 1).await.unwrap();
    let service = fixture.store.service(&web).await.unwrap().unwrap();
    fixture.store.create_pods(&service, &[0]).await.unwrap();
    assert_eq!(fixture.assign_all(&w2).await, [AssignOutcome::Refused], "it is being removed");

    share(&w1, "one", None).await;
    fixture.kill_node("w2").await;
    let () = fixture.redis.cli(&["DEL", "slots:web"]).await;
    fixture.store.scale_service(&web, 0).await.unwrap();
    assert_eq!(remove(&of_web).await, RemoveVolumeOutcome::Removing);
    let report = w1.report_volumes(&[claim.clone().into()], None, DEAD_AFTER).await.unwrap().unwrap();
    assert_eq!(report.remove, std::slice::from_ref(&of_web));
    assert!(!fixture.store.may_be_mounted(&claim).await.unwrap());
    let asked: bool = fixture.redis.cli(&["SISMEMBER", "rv:w2", of_web.as_str()]).await;
    assert!(!asked, "the former one is not asked any more");
    w1.report_gone_volumes(std::slice::from_ref(&claim), &[], DEAD_AFTER).await.unwrap().unwrap();
    assert_eq!(fixture.store.volume(&of_web).await.unwrap(), None);

    let of_shop = fixture.store.volume(&of_shop).await.unwrap().unwrap();
    assert!(fixture.store.may_be_mounted(&of_shop.claim).await.unwrap());
    let () = fixture.redis.cli(&["DEL", "volume:shop_up_app", "volumes"]).await;
    w1.report_volumes(&[of_shop.claim.clone().into()], None, DEAD_AFTER).await.unwrap().unwrap();
    let again = fixture.store.volume(&of_shop.claim.name).await.unwrap().unwrap();
    assert_eq!(Volume { created_at: of_shop.created_at, ..again }, of_shop);
}

#[tokio::test]
async fn a_volume_that_holds_more_than_its_space_is_noted_once_until_it_does_not() {
    let fixture = Fixture::new().await;
    let w1 = fixture.node("w1").await;
    service(&fixture, 1).await;
    fixture.assign_all(&w1).await;
    let pod = fixture.pods(&ServiceName::new("db").unwrap()).await.remove(0).id;
    let size = |used, over: &str| [VolumeSize { name: name(0), used, over: over.to_owned() }];
    let report = async |sizes: &[VolumeSize], local: &[LocalExcess]| {
        w1.report_volume_sizes(sizes, local).await.unwrap().unwrap();
        let volume = volume(&fixture, 0).await;
        (volume.used, volume.over)
    };
    let events = async || -> u64 { fixture.redis.cli(&["XLEN", "events"]).await };
    assert_eq!(report(&size(5, ""), &[]).await, (Some(5), None));
    let before = events().await;
    assert_eq!(report(&size(20, "too much"), &[]).await, (Some(20), Some("too much".to_owned())));
    assert_eq!(report(&size(21, "even more"), &[]).await, (Some(21), Some("even more".to_owned())));
    assert_eq!(events().await, before + 1);
    assert_eq!(report(&size(6, ""), &[]).await, (Some(6), None));
    assert_eq!(events().await, before + 2);
    let local = [LocalExcess { pod, over: "the cache is too large".to_owned() }];
    report(&[], &local).await;
    assert_eq!(events().await, before + 3);
    let missing = [VolumeSize { name: shared("gone_data_0"), used: 1, over: "x".to_owned() }];
    changing_nothing(&fixture, w1.report_volume_sizes(&missing, &[])).await.unwrap().unwrap();
}

fn copy_of(claim: &VolumeClaim, epoch: impl Into<Option<u64>>, is_mounted: bool) -> Vec<EngineCopy> {
    vec![EngineCopy { claim: claim.clone(), epoch: epoch.into(), is_mounted }]
}

async fn lose_records(fixture: &Fixture, nodes: &[&str]) {
    let () = fixture
        .redis
        .cli(&["DEL", "volume:db_data_0", "volumes", "volumes:copies", "volumes:given_up"])
        .await;
    for name in nodes {
        let () = fixture.redis.cli(&["HSET", "volumes:reports", name, ""]).await;
    }
}

/// `w2` has the current data. Returns violations.
pub(crate) async fn an_old_copy_reports_first(fixture: &Fixture) -> Vec<String> {
    let (w1, w2) = (fixture.node("w1").await, fixture.node("w2").await);
    service(fixture, 1).await;
    let payloads = fixture.take_all().await;
    let claim = fixture.volumes(&payloads[0]).await.remove(0);
    lose_records(fixture, &["w1", "w2"]).await;
    let (old, young) = (copy_of(&claim, 1, false), copy_of(&claim, 2, false));
    report_copies(&w1, &old).await;
    if fixture.assign(&w1, payloads.clone()).await != [AssignOutcome::Refused] {
        return vec!["on the old copy, before w2 has reported".to_owned()];
    }
    report_copies(&w2, &young).await;
    let bound = volume(fixture, 0).await;
    if bound.node != Some(node("w2")) {
        return vec![format!("the old copy has won: {bound:?}")];
    }
    let report = report_copies(&w1, &old).await;
    assert_eq!(report.elsewhere, [name(0)]);
    if fixture.assign(&w1, payloads.clone()).await != [AssignOutcome::Refused] {
        return vec!["on the old copy".to_owned()];
    }
    assert_eq!(fixture.assign(&w2, payloads).await, [AssignOutcome::Assigned]);
    fixture.violations().await
}

/// The machine with the only copy loses its name before all nodes have reported. Returns violations.
pub(crate) async fn a_copy_on_a_former_machine(fixture: &Fixture) -> Vec<String> {
    let former = registered(fixture.machine("w1", "A").await);
    service(fixture, 1).await;
    let payloads = fixture.take_all().await;
    let claim = fixture.volumes(&payloads[0]).await.remove(0);
    lose_records(fixture, &["w1", "w2"]).await;
    report_copies(&former, &copy_of(&claim, 1, false)).await;
    fixture.kill_node("w1").await;
    fixture.drain("w1").await;
    let other = registered(fixture.machine("w1", "B").await);
    let w2 = fixture.node("w2").await;
    report_copies(&w2, &[]).await;
    for _ in 0..2 {
        let report = report_copies(&other, &[]).await;
        other.report_gone_volumes(&[], &missing(&report), DEAD_AFTER).await.unwrap().unwrap();
        if fixture.assign(&other, payloads.clone()).await != [AssignOutcome::Refused] {
            return vec!["empty on the other machine".to_owned()];
        }
    }
    let bound = volume(fixture, 0).await;
    if (bound.node.clone(), bound.engine_id.as_deref()) != (Some(node("w1")), Some("A")) {
        return vec![format!("its copy is not the volume: {bound:?}")];
    }
    if !missing(&report_copies(&other, &[]).await).is_empty() {
        return vec!["asked for without end".to_owned()];
    }
    fixture.kill_node("w1").await;
    fixture.drain("w1").await;
    let former = registered(fixture.machine("w1", "A").await);
    report_copies(&former, &copy_of(&claim, 1, false)).await;
    assert_eq!(fixture.assign(&former, payloads).await, [AssignOutcome::Assigned]);
    fixture.violations().await
}

fn missing(report: &VolumeReport) -> Vec<VolumeClaim> {
    report.missing.iter().filter_map(VolumeClaim::from_name).collect()
}

#[tokio::test]
async fn a_copy_on_a_machine_whose_name_is_taken_stays_the_volume() {
    assert_eq!(a_copy_on_a_former_machine(&Fixture::new().await).await, [""; 0]);
}

#[tokio::test]
async fn an_old_copy_of_a_volume_never_wins_over_a_younger_one() {
    assert_eq!(an_old_copy_reports_first(&Fixture::new().await).await, [""; 0]);
}

#[tokio::test]
async fn of_several_copies_only_one_that_is_the_volume_without_doubt_is_bound() {
    type Copy = Option<(Option<u64>, bool)>;
    type Saved = Option<(&'static str, Option<u64>)>;
    type Case = (&'static str, Copy, Copy, Saved, Option<&'static str>);
    let table: [Case; 10] = [
        ("only one", None, Some((None, false)), None, Some("w2")),
        ("the younger one", Some((Some(9), false)), Some((Some(3), false)), None, Some("w1")),
        ("the younger one is mounted", Some((Some(3), false)), Some((Some(9), true)), None, Some("w2")),
        ("the older one is mounted", Some((Some(3), true)), Some((Some(9), false)), None, None),
        ("of unknown age", Some((None, false)), Some((Some(9), false)), None, None),
        ("of unknown age, and mounted", Some((None, true)), Some((None, false)), None, Some("w1")),
        ("both are mounted", Some((Some(3), true)), Some((Some(9), true)), None, None),
        ("a clone of the disk", Some((Some(9), false)), Some((Some(9), false)), None, None),
        ("a backup says it", Some((None, false)), Some((None, false)), Some(("w2", None)), Some("w2")),
        (
            "younger than the backup",
            Some((Some(9), false)),
            Some((Some(3), false)),
            Some(("w2", Some(3))),
            Some("w1"),
        ),
    ];
    for (case, of_w1, of_w2, backup, expected) in table {
        let fixture = Fixture::new().await;
        let (w1, w2) = (fixture.node("w1").await, fixture.node("w2").await);
        service(&fixture, 1).await;
        let payloads = fixture.take_all().await;
        let claim = fixture.volumes(&payloads[0]).await.remove(0);
        lose_records(&fixture, &["w1", "w2"]).await;
        if let Some((of, epoch)) = backup {
            let saved = SavedVolume {
                service: claim.service.clone(),
                source: claim.source.clone(),
                replica: 0,
                space: None,
                node: node(of),
                engine_id: None,
                epoch,
                found: true,
                given_up_at: None,
            };
            fixture.store.restore_volumes(&[saved]).await.unwrap();
        }
        let of = |copy: Copy| copy.map_or(Vec::new(), |(epoch, mounted)| copy_of(&claim, epoch, mounted));
        for _ in 0..2 {
            report_copies(&w1, &of(of_w1)).await;
            report_copies(&w2, &of(of_w2)).await;
        }
        let bound = volume(&fixture, 0).await;
        assert!(!bound.is_restored, "{case}");
        match expected {
            Some(expected) => {
                assert_eq!((bound.node, bound.conflict), (Some(node(expected)), vec![]), "{case}");
                assert_eq!(fixture.store.volumes_with_problems().await.unwrap(), [], "{case}");
            }
            None => {
                assert_eq!((&bound.node, &bound.conflict), (&None, &vec![node("w1"), node("w2")]), "{case}");
                assert_eq!(fixture.store.volumes_with_problems().await.unwrap(), [bound], "{case}");
                for session in [&w1, &w2] {
                    assert_eq!(
                        fixture.assign(session, payloads.clone()).await,
                        [AssignOutcome::Refused],
                        "{case}"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn an_operator_chooses_between_copies_and_the_others_stay_and_are_listed() {
    let fixture = Fixture::new().await;
    let (w1, w2) = (fixture.node("w1").await, fixture.node("w2").await);
    service(&fixture, 1).await;
    let payloads = fixture.take_all().await;
    let claim = fixture.volumes(&payloads[0]).await.remove(0);
    lose_records(&fixture, &["w1", "w2"]).await;
    let (old, young) = (copy_of(&claim, 3, true), copy_of(&claim, 9, false));
    for _ in 0..2 {
        report_copies(&w1, &old).await;
        report_copies(&w2, &young).await;
    }
    assert_eq!(fixture.store.remove_volume(&name(0)).await.unwrap(), RemoveVolumeOutcome::Conflict);
    let bind = async |of: &str| fixture.store.bind_volume(&claim, &node(of)).await.unwrap();
    assert_eq!(bind("w3").await, BindVolumeOutcome::Missing);
    assert_eq!(bind("w1").await, BindVolumeOutcome::Bound);
    assert_eq!(changing_nothing(&fixture, async { bind("w1").await }).await, BindVolumeOutcome::Bound);
    for _ in 0..2 {
        report_copies(&w2, &young).await;
        report_copies(&w1, &old).await;
    }
    let bound = volume(&fixture, 0).await;
    assert_eq!((bound.node, bound.epoch, bound.conflict), (Some(node("w1")), Some(3), vec![]));
    let former = FormerCopy {
        volume: name(0),
        node: node("w2"),
        epoch: Some(9),
        engine_id: None,
        is_mounted: false,
        is_given_up: true,
    };
    assert_eq!(fixture.store.former_copies().await.unwrap(), [former]);
    assert_eq!(fixture.assign(&w1, payloads).await, [AssignOutcome::Assigned]);

    let saved = fixture.store.backup_volumes().await.unwrap();
    lose_records(&fixture, &["w1", "w2"]).await;
    fixture.store.restore_volumes(&saved).await.unwrap();
    for _ in 0..2 {
        report_copies(&w2, &young).await;
        report_copies(&w1, &copy_of(&claim, 3, false)).await;
    }
    assert_eq!(volume(&fixture, 0).await.node, Some(node("w1")));

    let removal = fixture.store.remove_volume_copy(&claim, &node("w2")).await.unwrap();
    assert_eq!(removal, RemoveVolumeOutcome::Removing);
    assert_eq!(bind("w2").await, BindVolumeOutcome::Removing);
    assert_eq!(report_copies(&w2, &young).await.remove, [name(0)]);
    w2.report_gone_volumes(&[claim], &[], DEAD_AFTER).await.unwrap().unwrap();
    assert_eq!(fixture.store.former_copies().await.unwrap(), []);
    assert_eq!(volume(&fixture, 0).await.node, Some(node("w1")));
}

#[tokio::test]
async fn a_record_that_is_older_than_a_copy_gives_way_or_is_in_conflict() {
    for (is_mounted, expected) in [(false, Some("w2")), (true, None)] {
        let fixture = Fixture::new().await;
        let (w1, w2) = (fixture.node("w1").await, fixture.node("w2").await);
        service(&fixture, 1).await;
        let claim = fixture.volumes(&fixture.take_all().await[0]).await.remove(0);
        report_copies(&w1, &copy_of(&claim, 3, is_mounted)).await;
        assert_eq!(volume(&fixture, 0).await.node, Some(node("w1")));
        report_copies(&w2, &copy_of(&claim, 9, false)).await;
        let bound = volume(&fixture, 0).await;
        match expected {
            Some(of) => assert_eq!((bound.node, bound.conflict), (Some(node(of)), vec![])),
            None => assert_eq!(bound.conflict, [node("w1"), node("w2")]),
        }
        let volumes = [(claim.clone(), copy_of(&claim, 3, is_mounted).pop())];
        let verdict = w1.claim_volumes(&volumes, DEAD_AFTER).await.unwrap().unwrap();
        assert_ne!(verdict, [VolumeVerdict::Use(None)], "no pod is started on the older copy");
    }
}

pub(crate) async fn a_volume_is_lost(fixture: &Fixture) -> Vec<String> {
    let w1 = fixture.node("w1").await;
    service(fixture, 1).await;
    fixture.assign_all(&w1).await;
    let bound = volume(fixture, 0).await;
    let claim = async |copy: Option<EngineCopy>| {
        let volumes = [(bound.claim.clone(), copy)];
        w1.claim_volumes(&volumes, DEAD_AFTER).await.unwrap().unwrap().remove(0)
    };
    let epoch = bound.epoch.unwrap();
    assert_eq!(
        changing_nothing(fixture, claim(None)).await,
        VolumeVerdict::Create(epoch),
        "it was never there"
    );
    let copy = copy_of(&bound.claim, epoch, true);
    assert_eq!(
        claim(Some(copy[0].clone())).await,
        VolumeVerdict::Use(Some(epoch)),
        "a start was interrupted"
    );
    assert_eq!(claim(Some(copy[0].clone())).await, VolumeVerdict::Use(None));
    report_copies(&w1, &copy).await;
    if claim(None).await != (VolumeVerdict::Lost { has_older: false }) {
        return vec!["it starts on an empty volume".to_owned()];
    }
    assert_eq!(changing_nothing(fixture, claim(None)).await, VolumeVerdict::Lost { has_older: false });
    assert!(volume(fixture, 0).await.is_lost);
    report_copies(&w1, &copy).await;
    assert!(!volume(fixture, 0).await.is_lost, "the disk was not mounted for a while");

    let report = report_copies(&w1, &[]).await;
    assert_eq!(report.missing, [name(0)]);
    w1.report_gone_volumes(&[], std::slice::from_ref(&bound.claim), DEAD_AFTER).await.unwrap().unwrap();
    let lost = volume(fixture, 0).await;
    assert!(lost.is_lost);
    assert_eq!(fixture.store.volumes_with_problems().await.unwrap(), [lost]);
    assert_eq!(report_copies(&w1, &[]).await.missing, []);

    assert_eq!(fixture.store.remove_volume(&name(0)).await.unwrap(), RemoveVolumeOutcome::Removed);
    assert_eq!(fixture.store.volumes_with_problems().await.unwrap(), []);
    let VolumeVerdict::Create(anew) = claim(None).await else { return vec!["it stays lost".to_owned()] };
    assert!(anew > epoch);
    report_copies(&w1, &copy_of(&bound.claim, anew, true)).await;
    assert_eq!(claim(Some(copy[0].clone())).await, VolumeVerdict::Lost { has_older: true });
    Vec::new()
}

#[tokio::test]
async fn a_volume_that_its_engine_does_not_have_any_more_is_lost_until_an_operator_says_so() {
    assert_eq!(a_volume_is_lost(&Fixture::new().await).await, [""; 0]);
}

pub(crate) async fn data_that_was_given_up_comes_back(fixture: &Fixture) -> Vec<String> {
    let (w1, w2) = (fixture.node("w1").await, fixture.node("w2").await);
    service(fixture, 1).await;
    fixture.assign_all(&w1).await;
    let first = volume(fixture, 0).await;
    let old = copy_of(&first.claim, first.epoch, false);
    report_copies(&w1, &old).await;
    let db = ServiceName::new("db").unwrap();
    fixture.kill_node("w1").await;
    fixture.drain("w1").await;
    assert_eq!(fixture.store.remove_node(&node("w1"), false).await.unwrap(), RemoveNodeOutcome::Removed);
    fixture.store.scale_service(&db, 0).await.unwrap();
    let slots: Vec<String> = fixture.redis.cli(&["HGETALL", "slots:db"]).await;
    let () = fixture.redis.cli(&["DEL", "slots:db"]).await;
    assert_eq!(fixture.store.remove_volume(&name(0)).await.unwrap(), RemoveVolumeOutcome::Removed);
    let () = fixture.redis.cli(&["HSET", "slots:db", &slots[0], &slots[1]]).await;
    fixture.store.scale_service(&db, 1).await.unwrap();

    let w1 = fixture.node("w1").await;
    let report = report_copies(&w1, &old).await;
    if fixture.store.volume(&name(0)).await.unwrap().is_some() {
        return vec!["it is bound by itself".to_owned()];
    }
    assert_eq!(report.elsewhere, [name(0)]);
    let listed = fixture.store.former_copies().await.unwrap();
    assert_eq!((listed.len(), listed[0].is_given_up), (1, true));
    let payloads = fixture.take_all().await;
    if fixture.assign(&w1, payloads.clone()).await != [AssignOutcome::Refused] {
        return vec!["the new volume would be the old copy".to_owned()];
    }
    assert_eq!(fixture.assign(&w2, payloads).await, [AssignOutcome::Assigned]);
    let second = volume(fixture, 0).await;
    assert!(second.node == Some(node("w2")) && second.epoch > first.epoch);
    report_copies(&w2, &copy_of(&first.claim, second.epoch, false)).await;
    report_copies(&w1, &old).await;
    assert_eq!(volume(fixture, 0).await.node, Some(node("w2")));

    let bind = async || fixture.store.bind_volume(&first.claim, &node("w1")).await.unwrap();
    assert_eq!(bind().await, BindVolumeOutcome::Used, "a pod has the other one");
    let () = fixture.redis.cli(&["DEL", "slots:db"]).await;
    assert_eq!(bind().await, BindVolumeOutcome::Bound);
    report_copies(&w2, &copy_of(&first.claim, second.epoch, false)).await;
    report_copies(&w1, &old).await;
    assert_eq!(volume(fixture, 0).await.node, Some(node("w1")));
    Vec::new()
}

#[tokio::test]
async fn data_that_was_given_up_is_listed_and_bound_only_when_it_is_asked_for() {
    assert_eq!(data_that_was_given_up_comes_back(&Fixture::new().await).await, [""; 0]);
}
