//! Property tests: plans are applied to a randomly changing model of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::ids::PodId;
use model::node::drain::Drain;
use model::node::{Node, Resources};
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::pod::slot::Slot;
use model::service::moves::{Move, Moves};
use model::service::{Service, ServiceState};
use model::spec::{MinAvailable, ServiceFields, UpdatePolicy};
use proptest::prelude::*;
use testkit::fixtures;

use super::lost_payload::ObservedState;
use super::plan::testing::{at, checked, record, service};
use super::plan::{ReconcilePlan, plan};
use super::rollout::RolloutStep;
use super::slots::{ReplicaSlot, SlotHolder, StopReason, is_ending};
use super::violations::SeenNodes;

/// `None`: no record.
pub(super) type Slots = BTreeMap<Slot, Option<PodRecord>>;

pub(super) fn read(slots: &Slots) -> Vec<ReplicaSlot> {
    let slot = |(slot, pod): (&Slot, &Option<PodRecord>)| match pod {
        Some(pod) => at(*slot, pod.clone()),
        None => ReplicaSlot { slot: *slot, id: PodId::random(), holder: SlotHolder::NoRecord },
    };
    slots.iter().map(slot).collect()
}

fn plan_for(service: &Service, slots: &Slots) -> ReconcilePlan {
    plan(service, &read(slots), &ObservedState::default())
}

pub(super) fn vacate(slot: Slot, slots: &mut Slots) {
    slots.remove(&slot);
    if !slot.is_second
        && let Some(second) = slots.remove(&Slot::second(slot.replica))
    {
        slots.insert(slot, second);
    }
}

fn slot_of(id: &PodId, slots: &Slots) -> Option<Slot> {
    slots.iter().find(|(_, pod)| pod.as_ref().is_some_and(|pod| pod.id == *id)).map(|(slot, _)| *slot)
}

pub(super) fn apply(service: &Service, plan: &ReconcilePlan, slots: &mut Slots) {
    // Backwards: a pod that takes a first slot would not be found.
    plan.free.iter().rev().for_each(|(slot, _)| vacate(*slot, slots));
    for pod in
        slots.values_mut().flatten().filter(|pod| plan.keep.contains(&(pod.id.clone(), pod.generation)))
    {
        pod.generation = service.generation;
    }
    let stopped = plan.stop.iter().map(|stop| &stop.id).chain(plan.replace.iter().map(|pod| &pod.id));
    for id in stopped {
        let Some(slot) = slot_of(id, slots) else { continue };
        let Some(Some(pod)) = slots.get_mut(&slot) else { continue };
        match pod.phase {
            Phase::Assigned | Phase::Running | Phase::Stopping => pod.phase = Phase::Stopping,
            Phase::Pending | Phase::Succeeded | Phase::Failed | Phase::Stopped => vacate(slot, slots),
        }
    }
    let successors = plan.successors.iter().copied().map(Slot::second);
    for slot in plan.create.iter().copied().map(Slot::first).chain(successors) {
        let created = record("web", slot.replica, service.generation, Phase::Pending);
        let created = PodRecord { spec: Some(service.spec_id.clone()), ..created };
        assert!(slots.insert(slot, Some(created)).is_none(), "slot {slot} is taken");
    }
}

fn advance(slot: Slot, slots: &mut Slots) {
    let Some(Some(pod)) = slots.get_mut(&slot) else { return };
    pod.phase = match pod.phase {
        Phase::Pending => {
            pod.node = record("web", 0, 1, Phase::Assigned).node;
            Phase::Assigned
        }
        Phase::Assigned => Phase::Running,
        Phase::Stopping => return vacate(slot, slots),
        unchanged => unchanged,
    };
}

fn out_of_service(desired: u32, slots: &Slots) -> usize {
    let serves = |slot: Slot| match slots.get(&slot) {
        Some(Some(pod)) => pod.phase == Phase::Running || pod.phase == Phase::Succeeded,
        _ => false,
    };
    let is_in_service = |replica: &u32| serves(Slot::first(*replica)) || serves(Slot::second(*replica));
    (0..desired).filter(|replica| !is_in_service(replica)).count()
}

fn with_two_pods(slots: &Slots) -> usize {
    slots.keys().filter(|slot| slot.is_second).count()
}

fn ids_with(service: &Service, slots: &Slots) -> BTreeMap<u32, Vec<PodId>> {
    let desired = if service.state == ServiceState::Active { service.replicas } else { 0 };
    let pods = slots.range(..Slot::first(desired)).filter_map(|(slot, pod)| Some((slot, pod.as_ref()?)));
    let mut ids: BTreeMap<u32, Vec<PodId>> = BTreeMap::new();
    for (slot, pod) in pods {
        if pod.spec.as_ref() == Some(&service.spec_id) && !is_ending(pod) {
            ids.entry(slot.replica).or_default().push(pod.id.clone());
        }
    }
    ids
}

fn advance_one(one: prop::sample::Index, slots: &mut Slots) {
    let is_moving = |pod: &Option<PodRecord>| pod.as_ref().is_some_and(|pod| pod.phase != Phase::Running);
    let moving: Vec<Slot> = slots.iter().filter(|(_, pod)| is_moving(pod)).map(|(slot, _)| *slot).collect();
    if !moving.is_empty() {
        advance(moving[one.index(moving.len())], slots);
    }
}

fn any_phase() -> impl Strategy<Value = Phase> {
    // A failed one stops the replacement; the plan's unit tests cover it.
    prop::sample::select(Phase::ALL.iter().copied().filter(|p| *p != Phase::Failed).collect::<Vec<_>>())
}

fn any_slots() -> impl Strategy<Value = Slots> {
    let holder = prop_oneof![
        8 => (1..4u64, any_phase()).prop_map(Some),
        1 => Just(None),
    ];
    let slot =
        (0..24u32, prop::bool::weighted(0.2)).prop_map(|(replica, is_second)| Slot { replica, is_second });
    prop::collection::btree_map(slot, holder, 0..24).prop_map(|slots| {
        let pod = |(slot, holder): (Slot, Option<(u64, Phase)>)| {
            (slot, holder.map(|(generation, phase)| record("web", slot.replica, generation, phase)))
        };
        slots.into_iter().map(pod).collect()
    })
}

/// The nodes of all pods of [`record`].
fn all_drained() -> ObservedState {
    let name = record("web", 0, 1, Phase::Running).node.expect("it runs");
    let drain = Drain::from_stored(r#"{"id": "d", "at": 0}"#);
    let node = Node { drain, ..fixtures::node(name.as_str(), Resources::default()) };
    ObservedState { nodes: Some(Arc::new(SeenNodes::of(&[node]))), ..ObservedState::default() }
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
        let mut service = checked(Service { generation: 3, ..service(replicas, spec, state) });
        let first = ids_with(&service, &slots);
        let of_generation: BTreeSet<u32> =
            slots.values().flatten().filter(|pod| pod.generation == 3).map(|pod| pod.replica).collect();
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
            if plan.rollout == Some(RolloutStep::Settle) {
                service.rollout.is_settled = true;
            }
            let all: Vec<Slot> = slots.keys().copied().collect();
            all.into_iter().for_each(|slot| advance(slot, &mut slots));
            rounds += 1;
            prop_assert!(rounds < 100, "no convergence: {:?}", plan);
        }
        let taken: Vec<Slot> = slots.keys().copied().collect();
        prop_assert_eq!(taken, (0..desired).map(Slot::first).collect::<Vec<_>>());
        for pod in slots.values() {
            let pod = pod.as_ref().expect("no slot without a record is left");
            prop_assert_eq!(pod.generation, 3);
        }
        // One of two pods goes.
        let kept: Vec<PodId> = slots.values().flatten().map(|pod| pod.id.clone()).collect();
        let is_kept = |(replica, ids): (&u32, &Vec<PodId>)| {
            let left = ids.iter().filter(|id| kept.contains(id)).count();
            *replica >= desired || left == ids.len().min(1) || of_generation.contains(replica)
        };
        prop_assert!(first.iter().all(is_kept), "a pod with the right specification is gone");
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
        prop_assert!(gone.windows(2).all(|pair| pair[0] >= pair[1]), "{:?}", gone);
        prop_assert!(gone.iter().all(|replica| *replica >= replicas));
    }

    #[test]
    fn replacing_keeps_three_quarters_in_service(
        replicas in 1..20u32,
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..400),
    ) {
        let mut slots: Slots =
            (0..replicas).map(|i| (Slot::first(i), Some(record("web", i, 2, Phase::Running)))).collect();
        let update = serde_json::from_str(r#"{"order": "stop-first", "monitor": 0}"#).unwrap();
        let fields = ServiceFields { update: Some(update), ..Default::default() };
        let service = Service { fields, ..service(replicas, 3, ServiceState::Active) };
        let max_out_of_service = (replicas as usize / 4).max(1);
        for one in order {
            let plan = plan_for(&service, &slots);
            apply(&service, &plan, &mut slots);
            prop_assert!(out_of_service(replicas, &slots) <= max_out_of_service);
            advance_one(one, &mut slots);
        }
    }

    #[test]
    fn moving_keeps_min_available_in_service(
        replicas in 1..20u32,
        percent in 0..=100u32,
        parallelism in 0..6u32,
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..400),
    ) {
        let mut slots: Slots =
            (0..replicas).map(|i| (Slot::first(i), Some(record("web", i, 2, Phase::Running)))).collect();
        let moves = slots.iter().filter_map(|(slot, pod)| {
            Some((slot.replica, Move { pod: pod.as_ref()?.id.clone(), to: "elsewhere".parse().ok()?, until: None }))
        });
        let policy = format!(r#"{{"order": "stop-first", "parallelism": {parallelism}, "monitor": 0}}"#);
        let fields = ServiceFields {
            update: Some(serde_json::from_str(&policy).unwrap()),
            min_available: Some(MinAvailable::Percent(percent)),
            ..Default::default()
        };
        let moves = Moves::of(moves.collect());
        let service = Service { fields, moves, ..service(replicas, 2, ServiceState::Active) };
        let least = MinAvailable::Percent(percent).of(replicas as usize);
        let mut left = replicas as usize;
        for one in order {
            let plan = plan(&service, &read(&slots), &all_drained());
            left -= plan.replace.len();
            apply(&service, &plan, &mut slots);
            prop_assert!(out_of_service(replicas, &slots) <= replicas as usize - least);
            advance_one(one, &mut slots);
        }
        prop_assert!(least < replicas as usize || left == replicas as usize);
    }

    /// A pod in service is only stopped once another one of its replica is.
    #[test]
    fn starting_first_takes_nothing_out_of_service(
        replicas in 1..12u32,
        parallelism in 0..4u32,
        changes in prop::collection::vec(0..40usize, 0..4),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
    ) {
        let mut slots: Slots =
            (0..replicas).map(|i| (Slot::first(i), Some(record("web", i, 2, Phase::Running)))).collect();
        let policy = format!(r#"{{"order": "start-first", "parallelism": {parallelism}, "monitor": 0}}"#);
        let policy: UpdatePolicy = serde_json::from_str(&policy).unwrap();
        let max_surge = policy.max_surge(replicas as usize);
        let fields = ServiceFields { update: Some(policy), ..Default::default() };
        let mut service = Service { fields, ..service(replicas, 3, ServiceState::Active) };
        for (number, one) in order.into_iter().enumerate() {
            if changes.contains(&number) {
                service.generation += 1;
                service.spec_id = super::plan::testing::service(1, service.generation, ServiceState::Active).spec_id;
            }
            let plan = plan_for(&service, &slots);
            apply(&service, &plan, &mut slots);
            prop_assert!(with_two_pods(&slots) <= max_surge, "more pods than allowed: {slots:?}");
            prop_assert_eq!(out_of_service(replicas, &slots), 0);
            advance_one(one, &mut slots);
        }
        for _ in 0..(100 * replicas) {
            let plan = plan_for(&service, &slots);
            if plan.is_complete() && slots.keys().all(|slot| !slot.is_second) {
                break;
            }
            apply(&service, &plan, &mut slots);
            if plan.rollout == Some(RolloutStep::Settle) {
                service.rollout.is_settled = true;
            }
            let all: Vec<Slot> = slots.keys().copied().collect();
            all.into_iter().for_each(|slot| advance(slot, &mut slots));
            prop_assert_eq!(out_of_service(replicas, &slots), 0);
        }
        prop_assert!(slots.values().flatten().all(|pod| pod.generation == service.generation), "{slots:?}");
        prop_assert_eq!(slots.len(), replicas as usize);
    }
}
