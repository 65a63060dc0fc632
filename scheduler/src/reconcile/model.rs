//! Property tests: plans are applied to a model of the cluster, which changes at random in between.

use std::collections::BTreeMap;

use common::ids::PodId;
use common::lifecycle::Phase;
use common::pod::PodRecord;
use common::service::{Service, ServiceState};
use proptest::prelude::*;

use super::lost_payload::ObservedState;
use super::plan::testing::{record, service};
use super::plan::{ReconcilePlan, ReplicaSlot, SlotHolder, StopReason, plan};

/// The slots of the model by replica; the pod of a `None` has no record.
type Slots = BTreeMap<u32, Option<PodRecord>>;

/// Returns the slots as the planner reads them.
fn read(slots: &Slots) -> Vec<ReplicaSlot> {
    let slot = |(replica, pod): (&u32, &Option<PodRecord>)| match pod {
        Some(pod) => {
            let holder = SlotHolder::Pod(Box::new(pod.clone()));
            ReplicaSlot { replica: *replica, id: pod.id.clone(), holder }
        }
        None => ReplicaSlot { replica: *replica, id: PodId::random(), holder: SlotHolder::NoRecord },
    };
    slots.iter().map(slot).collect()
}

fn plan_for(service: &Service, slots: &Slots) -> ReconcilePlan {
    plan(service, &read(slots), &ObservedState::default())
}

/// Changes the model as the scripts would.
fn apply(service: &Service, plan: &ReconcilePlan, slots: &mut Slots) {
    plan.free.iter().for_each(|(replica, _)| drop(slots.remove(replica)));
    for pod in
        slots.values_mut().flatten().filter(|pod| plan.keep.contains(&(pod.id.clone(), pod.generation)))
    {
        pod.generation = service.generation;
    }
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
        let created = record("web", *replica, service.generation, Phase::Pending);
        let created = PodRecord { spec: Some(service.spec_id.clone()), ..created };
        assert!(slots.insert(*replica, Some(created)).is_none(), "slot {replica} is taken");
    }
}

/// Changes one slot as workers and schedulers would.
fn advance(replica: u32, slots: &mut Slots) {
    let Some(Some(pod)) = slots.get_mut(&replica) else { return };
    pod.phase = match pod.phase {
        Phase::Pending => Phase::Assigned,
        Phase::Assigned => Phase::Running,
        Phase::Stopping => {
            slots.remove(&replica);
            return;
        }
        unchanged => unchanged,
    };
}

/// Returns how many of the desired slots are out of service.
fn out_of_service(desired: u32, slots: &Slots) -> usize {
    let is_in_service = |replica: &u32| match slots.get(replica) {
        Some(Some(pod)) => pod.phase == Phase::Running || pod.phase == Phase::Succeeded,
        _ => false,
    };
    (0..desired).filter(|replica| !is_in_service(replica)).count()
}

/// Returns the desired pods with the current specification that are not on their way out.
fn ids_with(service: &Service, slots: &Slots) -> Vec<PodId> {
    let desired = if service.state == ServiceState::Active { service.replicas } else { 0 };
    let pods = slots.range(..desired).filter_map(|(_, pod)| pod.as_ref());
    pods.filter(|pod| pod.spec.as_ref() == Some(&service.spec_id))
        .filter(|pod| !matches!(pod.phase, Phase::Stopping | Phase::Stopped))
        .map(|pod| pod.id.clone())
        .collect()
}

fn any_phase() -> impl Strategy<Value = Phase> {
    // A new pod that has failed stays, and by design stops the replacement. The unit tests of the plan cover
    // it.
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
    fn plans_converge_and_then_change_nothing(
        mut slots in any_slots(),
        replicas in 0..20u32,
        deleting: bool,
        is_first_again: bool,
    ) {
        let state = if deleting { ServiceState::Deleting } else { ServiceState::Active };
        let spec = if is_first_again { 1 } else { 3 };
        let service = Service { generation: 3, ..service(replicas, spec, state) };
        let first: Vec<PodId> = ids_with(&service, &slots);
        let desired = if deleting { 0 } else { replicas };
        let mut rounds = 0;
        loop {
            let plan = plan_for(&service, &slots);
            let is_moving = slots.values().flatten()
                .any(|p| matches!(p.phase, Phase::Pending | Phase::Assigned | Phase::Stopping));
            if (plan.is_complete() || plan.forget) && !is_moving {
                prop_assert_eq!(plan.forget, deleting);
                break;
            }
            apply(&service, &plan, &mut slots);
            let all: Vec<u32> = slots.keys().copied().collect();
            all.into_iter().for_each(|replica| advance(replica, &mut slots));
            rounds += 1;
            prop_assert!(rounds < 100, "no convergence: {:?}", plan);
        }
        let taken: Vec<u32> = slots.keys().copied().collect();
        prop_assert_eq!(taken, (0..desired).collect::<Vec<_>>());
        for pod in slots.values() {
            let pod = pod.as_ref().expect("no slot without a record is left");
            prop_assert_eq!(pod.generation, 3);
        }
        let kept: Vec<PodId> = slots.values().flatten().map(|pod| pod.id.clone()).collect();
        prop_assert!(first.iter().all(|id| kept.contains(id)), "a pod with the right specification is gone");
        let again = plan_for(&service, &slots);
        prop_assert!(again.is_complete() || again.forget);
        prop_assert!(again.requeue.is_empty());
    }

    #[test]
    fn equal_arguments_give_equal_plans(slots in any_slots(), replicas in 0..20u32) {
        let (service, slots) = (service(replicas, 3, ServiceState::Active), read(&slots));
        let observed = ObservedState::default();
        prop_assert_eq!(plan(&service, &slots, &observed), plan(&service, &slots, &observed));
    }

    #[test]
    fn scaling_down_stops_the_highest_replicas_first(slots in any_slots(), replicas in 0..20u32) {
        let plan = plan_for(&service(replicas, 3, ServiceState::Active), &slots);
        let scaled_down = plan.stop.iter().filter(|stop| stop.reason == StopReason::ScaledDown);
        let gone: Vec<u32> = scaled_down.map(|stop| stop.replica).collect();
        prop_assert!(gone.windows(2).all(|pair| pair[0] > pair[1]), "{:?}", gone);
        prop_assert!(gone.iter().all(|replica| *replica >= replicas));
    }

    /// Replacing never takes more out of service than allowed, in any order in which pods start and stop.
    #[test]
    fn replacing_keeps_three_quarters_in_service(
        replicas in 1..20u32,
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..400),
    ) {
        let mut slots: Slots =
            (0..replicas).map(|i| (i, Some(record("web", i, 2, Phase::Running)))).collect();
        let service = service(replicas, 3, ServiceState::Active);
        let max_out_of_service = (replicas as usize / 4).max(1);
        for one in order {
            let plan = plan_for(&service, &slots);
            apply(&service, &plan, &mut slots);
            prop_assert!(out_of_service(replicas, &slots) <= max_out_of_service);
            let moving: Vec<u32> = slots.iter()
                .filter(|(_, p)| p.as_ref().is_some_and(|p| p.phase != Phase::Running))
                .map(|(replica, _)| *replica)
                .collect();
            if !moving.is_empty() {
                advance(moving[one.index(moving.len())], &mut slots);
            }
        }
    }
}
