//! Plans applied to a model of the cluster, in which anything happens in between.

use std::collections::BTreeMap;

use common::lifecycle::Phase;
use common::pod::PodRecord;
use common::service::{Service, ServiceState};
use proptest::prelude::*;

use super::plan::testing::{record, service};
use super::plan::{Holder, Plan, Slot, Why, plan};
use super::suspicion::Facts;

/// A slot of the model; `None` is a slot whose pod has no record.
type Slots = BTreeMap<u32, Option<PodRecord>>;

fn seen(slots: &Slots) -> Vec<Slot> {
    let slot = |(replica, pod): (&u32, &Option<PodRecord>)| match pod {
        Some(pod) => {
            Slot { replica: *replica, id: pod.id.clone(), holder: Holder::Pod(Box::new(pod.clone())) }
        }
        None => Slot { replica: *replica, id: common::ids::PodId::random(), holder: Holder::Gone },
    };
    slots.iter().map(slot).collect()
}

fn plan_for(service: &Service, slots: &Slots) -> Plan {
    plan(service, &seen(slots), &Facts::default())
}

/// What the scripts would do.
fn apply(service: &Service, plan: &Plan, slots: &mut Slots) {
    plan.free.iter().for_each(|(replica, _)| drop(slots.remove(replica)));
    for stop in &plan.stop {
        let Some(Some(pod)) = slots.get_mut(&stop.replica) else { continue };
        match pod.phase {
            Phase::Assigned | Phase::Running | Phase::Stopping => pod.phase = Phase::Stopping,
            Phase::Pending | Phase::Succeeded | Phase::Failed | Phase::Stopped => {
                slots.remove(&stop.replica);
            }
        }
    }
    for replica in &plan.create {
        let made = record("web", *replica, service.generation, Phase::Pending);
        assert!(slots.insert(*replica, Some(made)).is_none(), "slot {replica} is taken");
    }
}

/// What workers and schedulers would do to one slot.
fn pass_time(replica: u32, slots: &mut Slots) {
    let Some(Some(pod)) = slots.get_mut(&replica) else { return };
    pod.phase = match pod.phase {
        Phase::Pending => Phase::Assigned,
        Phase::Assigned => Phase::Running,
        Phase::Stopping => {
            slots.remove(&replica);
            return;
        }
        rests => rests,
    };
}

/// Slots out of service among those wanted.
fn out_of_service(wanted: u32, slots: &Slots) -> usize {
    let well = |replica: &u32| match slots.get(replica) {
        Some(Some(pod)) => pod.phase == Phase::Running || pod.phase == Phase::Succeeded,
        _ => false,
    };
    (0..wanted).filter(|replica| !well(replica)).count()
}

fn any_phase() -> impl Strategy<Value = Phase> {
    // A new pod that failed rests, and holds up a replacement: that is meant, and another test's matter.
    prop::sample::select(Phase::ALL.iter().copied().filter(|p| *p != Phase::Failed).collect::<Vec<_>>())
}

fn any_slots() -> impl Strategy<Value = Slots> {
    let holder = prop_oneof![
        8 => (1..4u64, any_phase()).prop_map(Some),
        1 => Just(None),
    ];
    prop::collection::btree_map(0..24u32, holder, 0..24).prop_map(|slots| {
        let pod = |(replica, holder): (u32, Option<(u64, Phase)>)| {
            (replica, holder.map(|(generation, phase)| record("web", replica, generation, phase)))
        };
        slots.into_iter().map(pod).collect()
    })
}

proptest! {
    #[test]
    fn it_converges_and_then_rests(mut slots in any_slots(), replicas in 0..20u32, deleting: bool) {
        let state = if deleting { ServiceState::Deleting } else { ServiceState::Active };
        let service = service(replicas, 3, state);
        let wanted = if deleting { 0 } else { replicas };
        let mut rounds = 0;
        loop {
            let plan = plan_for(&service, &slots);
            let moving = slots.values().flatten()
                .any(|p| matches!(p.phase, Phase::Pending | Phase::Assigned | Phase::Stopping));
            if (plan.changes_nothing() || plan.forget) && !moving {
                prop_assert_eq!(plan.forget, deleting);
                break;
            }
            apply(&service, &plan, &mut slots);
            let all: Vec<u32> = slots.keys().copied().collect();
            all.into_iter().for_each(|replica| pass_time(replica, &mut slots));
            rounds += 1;
            prop_assert!(rounds < 100, "still at it: {:?}", plan);
        }
        let held: Vec<u32> = slots.keys().copied().collect();
        prop_assert_eq!(held, (0..wanted).collect::<Vec<_>>());
        for pod in slots.values() {
            let pod = pod.as_ref().expect("no slot without a record is left");
            prop_assert_eq!(pod.generation, 3);
        }
        let again = plan_for(&service, &slots);
        prop_assert!(again.changes_nothing() || again.forget);
        prop_assert!(again.requeue.is_empty());
    }

    #[test]
    fn the_same_facts_give_the_same_plan(slots in any_slots(), replicas in 0..20u32) {
        let (service, slots) = (service(replicas, 3, ServiceState::Active), seen(&slots));
        prop_assert_eq!(plan(&service, &slots, &Facts::default()), plan(&service, &slots, &Facts::default()));
    }

    #[test]
    fn scaling_down_takes_the_highest_first(slots in any_slots(), replicas in 0..20u32) {
        let plan = plan_for(&service(replicas, 3, ServiceState::Active), &slots);
        let gone: Vec<u32> =
            plan.stop.iter().filter(|s| s.why == Why::ScaledDown).map(|s| s.replica).collect();
        prop_assert!(gone.windows(2).all(|pair| pair[0] > pair[1]), "{:?}", gone);
        prop_assert!(gone.iter().all(|replica| *replica >= replicas));
    }

    /// In whatever order pods come up and go: replacing never takes more out of service than it may.
    #[test]
    fn replacing_keeps_three_quarters(replicas in 1..20u32, order in prop::collection::vec(any::<prop::sample::Index>(), 0..400)) {
        let mut slots: Slots =
            (0..replicas).map(|i| (i, Some(record("web", i, 2, Phase::Running)))).collect();
        let service = service(replicas, 3, ServiceState::Active);
        let may_be_out = (replicas as usize / 4).max(1);
        for one in order {
            let plan = plan_for(&service, &slots);
            apply(&service, &plan, &mut slots);
            prop_assert!(out_of_service(replicas, &slots) <= may_be_out);
            let moving: Vec<u32> = slots.iter()
                .filter(|(_, p)| p.as_ref().is_some_and(|p| p.phase != Phase::Running))
                .map(|(replica, _)| *replica)
                .collect();
            if !moving.is_empty() {
                pass_time(moving[one.index(moving.len())], &mut slots);
            }
        }
    }
}
