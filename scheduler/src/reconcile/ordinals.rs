//! The order in which the ordinals of a stateful service start and stop. Pure.
//!
//! One above all taken ones starts when all lower ones are ready; one below is healed at once. The highest
//! surplus one stops, and the next when its slot is free. A deleted service stops at once: else a node that
//! does not answer would keep all lower ones running.

use model::service::{Service, ServiceState};

use super::slots::{ReplicaSlot, is_in_service, pods};

/// The missing replicas that may start now.
pub(super) fn startable(service: &Service, slots: &[ReplicaSlot], mut missing: Vec<u32>) -> Vec<u32> {
    if !service.pod.stateful.as_ref().is_some_and(|stateful| stateful.starts_in_order()) {
        return missing;
    }
    let above = slots.last().map_or(0, |slot| slot.slot.replica + 1);
    let next = missing.iter().copied().find(|replica| *replica >= above);
    let next = next.filter(|next| are_ready(slots, *next));
    missing.retain(|replica| *replica < above || Some(*replica) == next);
    missing
}

/// All below `count`.
fn are_ready(slots: &[ReplicaSlot], count: u32) -> bool {
    let mut ready: Vec<u32> = pods(slots)
        .filter(|(slot, pod)| slot.slot.replica < count && is_in_service(pod))
        .map(|(slot, _)| slot.slot.replica)
        .collect();
    ready.dedup();
    ready.len() == count as usize
}

/// The lowest replica that may be stopped now, of those beyond `desired`.
pub(super) fn stopped_from(service: &Service, slots: &[ReplicaSlot], desired: u32) -> u32 {
    let in_order = service.pod.stateful.is_some() && service.state == ServiceState::Active;
    let highest = pods(slots).next_back().filter(|_| in_order);
    highest.map_or(desired, |(slot, _)| slot.slot.replica.max(desired))
}

/// Some start or stop only after others, of which no hint tells.
pub(crate) fn are_waiting(service: &Service, slots: &[ReplicaSlot]) -> bool {
    if service.pod.stateful.is_none() || service.state != ServiceState::Active {
        return false;
    }
    let mut taken: Vec<u32> = slots.iter().map(|slot| slot.slot.replica).collect();
    taken.dedup();
    let wanted = taken.iter().filter(|replica| **replica < service.replicas).count();
    wanted < service.replicas as usize || wanted < taken.len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::ids::PodId;
    use model::pod::lifecycle::Phase::{self, Assigned, Failed, Pending, Running, Stopping, Succeeded};
    use serde_json::json;

    use super::super::lost_payload::ObservedState;
    use super::super::plan::testing::{record, service, slot};
    use super::super::plan::{ReconcilePlan, plan};
    use super::super::slots::SlotHolder;
    use super::*;

    fn stateful(replicas: u32, stateful: serde_json::Value) -> Service {
        let mut service = service(replicas, 1, ServiceState::Active);
        service.pod.stateful = Some(serde_json::from_value(stateful).unwrap());
        service
    }

    fn taken(holders: &[(u32, Phase)]) -> Vec<ReplicaSlot> {
        holders.iter().map(|(replica, phase)| slot(record("db", *replica, 1, *phase))).collect()
    }

    fn planned(service: &Service, slots: &[ReplicaSlot]) -> ReconcilePlan {
        plan(service, slots, &ObservedState::default())
    }

    #[test]
    fn a_new_ordinal_starts_when_all_lower_ones_are_ready_and_a_lower_one_at_once() {
        for (holders, expected, case) in [
            (&[][..], &[0][..], "the first"),
            (&[(0, Pending)], &[], "it waits for a node"),
            (&[(0, Assigned)], &[], "it starts"),
            (&[(0, Running)], &[1], "it is ready"),
            (&[(0, Running), (1, Running)], &[2], "the next"),
            (&[(0, Succeeded), (1, Running)], &[2], "one that has ended well"),
            (&[(0, Failed), (1, Running)], &[], "one that has not"),
            (&[(0, Running), (1, Stopping)], &[], "one that is being replaced"),
            (&[(1, Running)], &[0], "a lower one"),
            (&[(3, Pending)], &[0, 1, 2], "all lower ones"),
            (&[(0, Running), (2, Running)], &[1], "before a new one"),
            (&[(0, Running), (1, Running), (2, Running), (3, Running)], &[], "all are there"),
        ] {
            let (service, slots) = (stateful(4, json!(true)), taken(holders));
            assert_eq!(planned(&service, &slots).create, expected, "{case}");
            assert_eq!(are_waiting(&service, &slots), holders.len() < 4, "{case}");
        }
        let parallel = stateful(4, json!({"start": "parallel"}));
        assert_eq!(planned(&parallel, &taken(&[(1, Pending)])).create, [0, 2, 3]);
        let mut not_ready = taken(&[(0, Running)]);
        let SlotHolder::Pod(pod) = &mut not_ready[0].holder else { panic!("a pod") };
        pod.reason = "NotReady".into();
        assert!(planned(&stateful(4, json!(true)), &not_ready).create.is_empty());
    }

    #[test]
    fn the_highest_stops_and_the_next_when_its_slot_is_free() {
        for (holders, expected, case) in [
            (&[(0, Running), (1, Running), (2, Running), (3, Running)][..], &[3][..], "the highest"),
            (&[(0, Running), (1, Running), (2, Running), (3, Stopping)], &[], "it is being stopped"),
            (&[(0, Running), (1, Running), (2, Pending)], &[2], "the next, whatever it does"),
            (&[(0, Running), (1, Running)], &[1], "and the next"),
            (&[(0, Running)], &[], "down to what is wanted"),
        ] {
            for kind in [json!(true), json!({"start": "parallel"})] {
                let (service, slots) = (stateful(1, kind), taken(holders));
                let stops = planned(&service, &slots).stop;
                assert_eq!(stops.iter().map(|stop| stop.replica).collect::<Vec<_>>(), expected, "{case}");
                assert_eq!(are_waiting(&service, &slots), holders.len() > 1, "{case}");
            }
        }
        let mut slots = taken(&[(0, Running), (1, Running), (2, Running)]);
        slots[2].holder = SlotHolder::Unreadable;
        let stops = planned(&stateful(0, json!(true)), &slots).stop;
        assert_eq!(stops[0].replica, 1, "a broken record holds up only its own pod");
        let deleted = Service { state: ServiceState::Deleting, ..stateful(3, json!(true)) };
        assert_eq!(planned(&deleted, &taken(&[(0, Running), (1, Running)])).stop.len(), 2);
        assert!(!are_waiting(&deleted, &slots));
    }

    #[test]
    fn an_update_replaces_the_highest_one_by_one_and_what_does_not_serve_at_once() {
        let mut service = Service { generation: 2, ..stateful(4, json!(true)) };
        service.spec_id = super::super::plan::testing::service(1, 2, ServiceState::Active).spec_id;
        let replaced = |holders: &[(u32, Phase)]| {
            let slots = taken(holders);
            let plan = planned(&service, &slots);
            let replica = |id: &PodId| slots.iter().find(|slot| slot.id == *id).unwrap().slot.replica;
            assert!(plan.successors.is_empty());
            let at_once: Vec<u32> = plan.stop.iter().map(|stop| stop.replica).collect();
            (plan.replace.iter().map(|pod| replica(&pod.id)).collect::<Vec<_>>(), at_once)
        };
        let all = [0, 1, 2, 3].map(|replica| (replica, Running));
        assert_eq!(replaced(&all), (vec![3], vec![]));
        assert_eq!(replaced(&[(0, Running), (1, Failed), (2, Running), (3, Running)]), (vec![], vec![1]));
        assert_eq!(replaced(&all[..3]), (vec![], vec![]), "one is missing");
    }
}
