//! The proxy's rows about pods. Pure.

use std::collections::HashMap;

use model::ids::AssignmentId;
use model::network::handover::{FromWorker, LocalPod, MAX_PODS};
use model::pod::ContainerProgress;

use crate::running::step::DesiredState;
use crate::running::table::ManagedPod;

pub(super) type Rows = HashMap<AssignmentId, LocalPod>;

/// `None` if the address is unknown.
pub(super) fn row(managed: &ManagedPod, uses_host_network: bool, is_closing: bool) -> Option<LocalPod> {
    let address = managed.address(uses_host_network)?;
    let ordinary = || managed.containers().filter(|(spec, _)| !spec.sidecar).map(|(_, container)| container);
    let is_down = ordinary().any(|container| {
        let has_ended = container.progress == ContainerProgress::Ended;
        container.was_unhealthy || (has_ended && container.restart_at.is_some())
    });
    Some(LocalPod {
        pod: managed.payload.id.clone(),
        assignment: managed.assignment.clone(),
        start: ordinary().map(|container| u64::from(container.restarts)).sum(),
        service: managed.service.clone(),
        replica: managed.payload.replica,
        address,
        open: managed.desired == DesiredState::Run && !is_closing && !is_down,
        ready: managed.is_ready(),
        ended: managed.containers().all(|(_, container)| container.progress != ContainerProgress::Running),
    })
}

pub(super) fn messages(sent: Option<&Rows>, now: &Rows) -> Vec<FromWorker> {
    let Some(sent) = sent else { return all(now) };
    let gone = sent.values().filter(|row| !now.contains_key(&row.assignment));
    let gone =
        gone.map(|row| FromWorker::Remove { pod: row.pod.clone(), assignment: row.assignment.clone() });
    let changed = now.values().filter(|row| sent.get(&row.assignment) != Some(row));
    gone.chain(changed.map(|row| FromWorker::Set { pod: row.clone() })).collect()
}

fn all(now: &Rows) -> Vec<FromWorker> {
    let mut rows: Vec<LocalPod> = now.values().cloned().collect();
    let mut messages = Vec::new();
    while rows.len() > MAX_PODS {
        let pods = rows.split_off(rows.len() - MAX_PODS);
        messages.push(FromWorker::Pods { pods, more: true });
    }
    messages.push(FromWorker::Pods { pods: rows, more: false });
    messages
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use daemon::clock::BootInstant;
    use model::pod::payload::Payload;
    use model::spec::PodSpec;

    use super::*;

    fn managed(spec: &str) -> ManagedPod {
        let payload = r#"{"name":"web","uuid":"p","image":"i","replica":3}"#;
        let payload = Payload::parse(payload.as_bytes().to_vec().into()).unwrap();
        let spec: PodSpec = serde_json::from_str(spec).unwrap();
        let mut managed = ManagedPod::new(payload, None, AssignmentId::new("a").unwrap(), Arc::new(spec));
        managed.network.address = "10.0.0.2".to_owned();
        managed
    }

    fn pod_of_two() -> ManagedPod {
        managed(r#"{"containers":[{"image":"i","name":"web"},{"image":"i","name":"log","sidecar":true}]}"#)
    }

    fn end(managed: &mut ManagedPod, index: usize) {
        managed.containers[index].progress = ContainerProgress::Ended;
        managed.containers[index].restart_at = Some(BootInstant { millis: 1 });
    }

    #[test]
    fn a_pod_is_reached_at_its_own_address_or_at_that_of_its_host() {
        let mut one = pod_of_two();
        assert_eq!(row(&one, false, false).unwrap().address, IpAddr::from([10, 0, 0, 2]));
        one.network.address.clear();
        assert_eq!(row(&one, false, false), None);
        assert_eq!(row(&one, true, false).unwrap().address, IpAddr::from([127, 0, 0, 1]));
    }

    #[test]
    fn a_pod_is_open_while_it_is_to_run_and_its_containers_do() {
        let is_open = |one: &ManagedPod, is_closing| row(one, false, is_closing).unwrap().open;
        let one = pod_of_two();
        assert!(is_open(&one, false) && !is_open(&one, true));
        for desired in [DesiredState::Stop, DesiredState::Discard] {
            assert!(!is_open(&ManagedPod { desired, ..pod_of_two() }, false), "{desired:?}");
        }
        let (mut with_ended, mut with_ended_sidecar) = (pod_of_two(), pod_of_two());
        end(&mut with_ended, 0);
        end(&mut with_ended_sidecar, 1);
        assert!(!is_open(&with_ended, false) && is_open(&with_ended_sidecar, false));
        let mut unhealthy = pod_of_two();
        unhealthy.containers[0].was_unhealthy = true;
        assert!(!is_open(&unhealthy, false));
    }

    #[test]
    fn a_pod_is_ready_when_all_its_containers_run_and_nothing_is_to_be_reported() {
        let is_ready = |one: &ManagedPod| row(one, false, false).unwrap().ready;
        let mut one = pod_of_two();
        assert!(!is_ready(&one), "nothing was started");
        one.containers.iter_mut().for_each(|container| container.progress = ContainerProgress::Running);
        assert!(is_ready(&one) && one.status().reason.is_empty());
        one.containers[1].reason = "CrashLoopBackOff";
        assert!(!is_ready(&one));
        one.containers[1].reason = "";
        one.waits_for = Some("waits for db".to_owned());
        assert!(!is_ready(&one));
    }

    #[test]
    fn a_pod_has_its_address_while_a_container_of_it_runs() {
        let has_ended = |one: &ManagedPod| row(one, false, false).unwrap().ended;
        let mut one = pod_of_two();
        assert!(has_ended(&one), "nothing was started");
        one.containers.iter_mut().for_each(|container| container.progress = ContainerProgress::Running);
        end(&mut one, 0);
        assert!(!has_ended(&one), "its sidecar runs");
        // It still resolves names and connects.
        assert!(!row(&one, false, true).unwrap().ended);
        end(&mut one, 1);
        assert!(has_ended(&one));
    }

    #[test]
    fn a_restarted_container_is_another_start_and_a_sidecar_none() {
        let mut one = pod_of_two();
        one.containers[0].restarts = 2;
        one.containers[1].restarts = 5;
        assert_eq!(row(&one, false, false).unwrap().start, 2);
    }

    #[test]
    fn all_rows_are_sent_first_and_then_what_differs() {
        let one = row(&pod_of_two(), false, false).unwrap();
        let closed = LocalPod { open: false, ..one.clone() };
        let rows = |row: &LocalPod| Rows::from([(row.assignment.clone(), row.clone())]);
        let (none, open, shut) = (Rows::new(), rows(&one), rows(&closed));
        assert_eq!(messages(None, &none), [FromWorker::Pods { pods: Vec::new(), more: false }]);
        assert_eq!(messages(None, &open), [FromWorker::Pods { pods: vec![one.clone()], more: false }]);
        assert_eq!(messages(Some(&open), &open), []);
        assert_eq!(messages(Some(&open), &shut), [FromWorker::Set { pod: closed }]);
        let remove = FromWorker::Remove { pod: one.pod.clone(), assignment: one.assignment.clone() };
        assert_eq!(messages(Some(&open), &none), [remove]);
        let many = (0..MAX_PODS * 2 + 1).map(|index| {
            let assignment = AssignmentId::new(format!("a{index}")).unwrap();
            (assignment.clone(), LocalPod { assignment, ..one.clone() })
        });
        let parts: Vec<(usize, bool)> = messages(None, &many.collect())
            .into_iter()
            .map(|message| match message {
                FromWorker::Pods { pods, more } => (pods.len(), more),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(parts, [(MAX_PODS, true), (MAX_PODS, true), (1, false)]);
    }
}
