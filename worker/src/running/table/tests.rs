//! The table of managed pods.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use std::sync::Arc;

use model::pod::ContainerProgress;
use model::pod::health::Health;
use model::spec::{ContainerSpec, HealthCheck, PodSpec};

use super::*;
use health::{CheckChange, CheckKind};

fn payload(uuid: &str) -> Payload {
    Payload::parse(format!(r#"{{"name":"a","uuid":"{uuid}","image":"a","replica":0}}"#).into()).unwrap()
}

fn managed(uuid: &str, assignment: &str) -> ManagedPod {
    let spec = PodSpec {
        containers: vec![ContainerSpec::from_image("a")],
        on_disconnect: OnDisconnect::Stop,
        ..PodSpec::default()
    };
    ManagedPod::new(payload(uuid), None, AssignmentId::new(assignment).unwrap(), Arc::new(spec))
}

#[test]
fn a_start_and_an_action_on_a_managed_pod_never_overlap() {
    let table = PodTable::default();
    let (first, second) = (AssignmentId::new("first").unwrap(), AssignmentId::new("second").unwrap());
    let pod = payload("p").id;
    assert_eq!(table.can_start(&pod, &first), StartCheck::Free);
    table.insert_recovered(managed("p", "first"));
    let seen = table.get(&pod).unwrap();

    assert!(table.mark_busy(&seen));
    assert_eq!(
        table.can_start(&pod, &first),
        StartCheck::Busy,
        "it may be reported lost, and start again under another assignment"
    );
    table.update(&pod, &first, |managed| managed.busy = false);

    let seen = table.get(&pod).unwrap();
    assert_eq!(table.can_start(&pod, &first), StartCheck::Free);
    assert!(!table.mark_busy(&seen), "an observation from before the start is not acted on");
    assert!(!table.contains(&pod));

    table.insert_recovered(managed("p", "first"));
    assert_eq!(table.can_start(&pod, &second), StartCheck::Occupied);
    assert_eq!(table.get(&pod).unwrap().desired, DesiredState::Discard);
    table.remove(&pod, &first);
    assert!(table.begin_removal("container", &pod));
    assert_eq!(table.can_start(&pod, &second), StartCheck::Occupied);
    table.end_removal("container");
    assert_eq!(table.can_start(&pod, &second), StartCheck::Free);
}

#[test]
fn hints_caused_by_our_own_starts_and_stops_are_no_news() {
    let table = PodTable::default();
    let pod = payload("p").id;
    let news = |table: &PodTable| (table.is_news(&pod, true), table.is_news(&pod, false));
    assert_eq!(news(&table), (true, false), "an unknown container: only its start matters");
    table.admit(&payload("p"));
    assert_eq!(news(&table), (false, true), "it may end before it is managed");
    table.release_start(&pod);
    table.insert_recovered(managed("p", "first"));
    assert_eq!(news(&table), (true, true));
    assert!(table.mark_busy(&table.get(&pod).unwrap()));
    assert_eq!(news(&table), (true, false), "the action under way looks again at its end");
}

#[test]
fn heartbeats_check_all_assignments_in_turn_and_none_twice() {
    let table = PodTable::default();
    for n in 0..150 {
        let payload = payload(&format!("{n:03}"));
        table.admit(&payload);
        table.set_start_assignment(&payload.id, &AssignmentId::new("a").unwrap());
    }
    let mut after = None;
    let firsts: Vec<String> = (0..3)
        .map(|_| {
            let checked = table.assignments_after(after.as_ref(), 64);
            assert_eq!(checked.len(), 64);
            after = checked.last().map(|(pod, _)| pod.clone());
            checked[0].0.to_string()
        })
        .collect();
    assert_eq!(firsts, ["000", "064", "128"]);
    assert_eq!(after.as_ref().unwrap().as_str(), "041", "it goes on from the beginning");
    assert_eq!(table.assignments_after(after.as_ref(), 1_000).len(), 150);
    assert!(PodTable::default().assignments_after(None, 64).is_empty());
}

/// Otherwise a pod that became due during a list would wait for the next hint.
#[test]
fn what_became_due_since_the_last_look_is_due_once() {
    let table = PodTable::default();
    let at = |millis| BootInstant { millis };
    let assignment = AssignmentId::new("first").unwrap();
    table.insert_recovered(managed("p", "first"));
    let pod = payload("p").id;
    table.update(&pod, &assignment, |managed| managed.containers[0].restart_at = Some(at(100)));
    let next = |looked_at| table.next_due(at(looked_at), Duration::MAX);
    let due = |looked_at, now| !table.due((at(looked_at), at(now)), Duration::MAX).is_empty();
    assert_eq!((next(50), due(50, 99)), (Some(at(100)), false));
    assert_eq!((next(50), due(50, 120)), (Some(at(100)), true), "the look began before it was due");
    assert_eq!((next(100), due(100, 120)), (None, false), "it was left for a reason");
    table.update(&pod, &assignment, |managed| managed.busy = true);
    assert_eq!((next(50), due(50, 120)), (None, false), "an action on it is under way");
}

#[test]
fn a_pod_says_that_its_check_is_inconclusive_whatever_its_health() {
    use CheckChange::{Conclusive, Failing, Health as Verdict, Inconclusive};
    use Health::{Healthy, Starting, Unhealthy};

    let starting = "waiting for its health check to pass";
    for (changes, reason, message) in [
        (vec![], "Starting", starting.to_owned()),
        (vec![(Inconclusive, Starting, "no address")], "Starting", format!("{starting}: no address")),
        (
            vec![(Failing, Starting, "GET :80/ answers 500 (4 times)")],
            "Starting",
            format!("{starting}: GET :80/ answers 500 (4 times)"),
        ),
        (vec![(Failing, Starting, "no"), (Verdict, Healthy, "")], "", String::new()),
        (vec![(Verdict, Healthy, "")], "", String::new()),
        (vec![(Verdict, Healthy, ""), (Inconclusive, Healthy, "no engine")], "", "no engine".to_owned()),
        (
            vec![(Verdict, Unhealthy, "refused"), (Inconclusive, Unhealthy, "no engine")],
            "Unhealthy",
            "refused; no engine".to_owned(),
        ),
        (
            vec![(Inconclusive, Starting, "no engine"), (Conclusive, Starting, "")],
            "Starting",
            starting.into(),
        ),
        (vec![(Inconclusive, Starting, "no engine"), (Verdict, Healthy, "")], "", String::new()),
    ] {
        let mut pod = managed("p", "first");
        let check: HealthCheck = serde_json::from_str(r#"{"command":["true"]}"#).unwrap();
        let started = BootInstant { millis: 1 };
        let container = &mut pod.containers[0];
        container.checks = ContainerChecks::of(&pod.spec.containers[0], Some(&check));
        container.handle = Some("c".to_owned());
        container.progress = ContainerProgress::Running;
        container.set_started(started);
        let table = PodTable::default();
        table.insert_recovered(pod);
        for (change, health, message) in changes {
            let (handle, message) = ("c".to_owned(), message.to_owned());
            let kind = CheckKind::Healthcheck;
            let change = HealthChange { handle, kind, started, change, health, message, at: started };
            assert!(table.note_health(&change).is_some());
        }
        let pod = table.get(&payload("p").id).unwrap();
        let status = pod.status();
        assert_eq!((status.reason, status.message), (reason, message));
        assert_eq!(pod.is_ready(), reason.is_empty());
    }
}
