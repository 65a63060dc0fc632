//! Plans the actions on a service and its slots. Pure.
//!
//! A *slot* is a place for a pod of a replica, its *holder*. A replica has a second slot while a successor
//! starts beside its pod. It is *in service* if one of its pods runs without problems or has succeeded. A pod
//! is *old* if it is of an earlier generation, unless its specification is the current one.
//!
//! [`super::replacing`] replaces old pods step by step, while [`super::rollout`] allows it.

use model::ids::PodId;
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::pod::slot::Slot;
use model::service::moves::Moves;
use model::service::{Service, ServiceState};
use store::ReplacedPod;

use super::desired::DesiredSlots;
use super::lost_payload::{ObservedState, suspects};
use super::moving::Moving;
use super::ordinals;
use super::replacing::{self, Basis, Replacing};
use super::rollout::{self, Judgement, RolloutStep, is_judged};
use super::slots::{PodStop, ReplicaSlot, SlotHolder, StopReason, is_ending, is_old, pods};

/// The actions, in this order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ReconcilePlan {
    /// No record, or a second pod takes an empty slot.
    pub(crate) free: Vec<(Slot, Option<PodId>)>,
    /// Their specification is the current one.
    pub(crate) keep: Vec<(PodId, u64)>,
    pub(crate) stop: Vec<PodStop>,
    pub(crate) create: Vec<u32>,
    pub(crate) replace: Vec<ReplacedPod>,
    pub(crate) successors: Vec<u32>,
    /// Those that are left, if some are over.
    pub(crate) moves: Option<Moves>,
    pub(crate) requeue: Vec<PodRecord>,
    pub(crate) rollout: Option<RolloutStep>,
    /// The rollout has not failed.
    pub(crate) held: Option<String>,
    pub(crate) forget: bool,
}

impl ReconcilePlan {
    /// Except requeueing.
    pub(crate) fn is_complete(&self) -> bool {
        let Self {
            free,
            keep,
            stop,
            create,
            replace,
            successors,
            moves,
            requeue: _,
            rollout,
            held: _,
            forget,
        } = self;
        let has_pods_to_change =
            !(free.is_empty() && keep.is_empty() && stop.is_empty() && create.is_empty());
        let is_replacing = !(replace.is_empty() && successors.is_empty());
        !has_pods_to_change && !is_replacing && moves.is_none() && rollout.is_none() && !forget
    }
}

/// `slots` must be sorted, without duplicates.
pub(crate) fn plan(service: &Service, slots: &[ReplicaSlot], observed: &ObservedState) -> ReconcilePlan {
    let desired = DesiredSlots::of(service);
    let policy = service.replacing_policy(has_machine_ports(slots, observed));
    let Judgement { step: rollout, held } =
        rollout::judge(service, &policy, new_pods(service, slots, desired), observed.now);
    let has_failed = matches!(rollout, Some(RolloutStep::Pause(_) | RolloutStep::RollBack(_)));
    let may_replace = !has_failed && service.rollout.paused.is_none();
    let moving = Moving::of(service, slots, observed);
    let is_update = pods(slots).any(|(slot, pod)| desired.has(slot) && is_old(service, pod));
    let (policy, moving) = (&policy, &moving);
    let basis = Basis { service, policy, moving, may_replace, is_update, now: observed.now };
    let Replacing { stop, replace, successors } = replacing::plan(basis, slots, desired);
    ReconcilePlan {
        free: free(slots),
        keep: kept(service, slots, desired),
        stop: surplus(service, slots, desired, observed)
            .chain(replacing::second_of_equals(basis, slots, desired))
            .chain(stop)
            .chain(stopped_again(slots, desired, observed))
            .collect(),
        create: startable(service, slots, desired),
        replace,
        successors,
        moves: moving.left(service, slots, desired),
        requeue: suspects(slots, observed),
        rollout,
        held: held.or_else(|| waits_for_uncordon(service, slots)),
        forget: service.state == ServiceState::Deleting && slots.is_empty(),
    }
}

fn has_machine_ports(slots: &[ReplicaSlot], observed: &ObservedState) -> bool {
    observed.with_machine_ports.as_ref().is_some_and(|nodes| {
        pods(slots).filter_map(|(_, pod)| pod.node.as_ref()).any(|node| nodes.contains(node))
    })
}

/// At most one for each desired replica.
fn new_pods<'a>(
    service: &'a Service,
    slots: &'a [ReplicaSlot],
    desired: DesiredSlots<'a>,
) -> impl Iterator<Item = &'a PodRecord> {
    let mut last = None;
    let is_new = move |(slot, pod): &(&ReplicaSlot, &PodRecord)| desired.has(slot) && !is_old(service, pod);
    let is_next = move |(slot, _): &(&ReplicaSlot, &PodRecord)| {
        last.replace(slot.slot.replica) != Some(slot.slot.replica)
    };
    pods(slots).filter(is_new).filter(is_next).map(|(_, pod)| pod)
}

pub(super) fn free(slots: &[ReplicaSlot]) -> Vec<(Slot, Option<PodId>)> {
    let without_record = slots.iter().filter(|slot| slot.holder == SlotHolder::NoRecord);
    let is_taken = |slot: Slot| slots.binary_search_by_key(&slot, |taken| taken.slot).is_ok();
    let second = slots.iter().map(|slot| slot.slot).filter(|slot| slot.is_second);
    let inherited = second.map(|slot| Slot::first(slot.replica)).filter(|first| !is_taken(*first));
    without_record
        .map(|slot| (slot.slot, Some(slot.id.clone())))
        .chain(inherited.map(|slot| (slot, None)))
        .collect()
}

/// Replicas without a slot, unless they wait for lower ordinals.
pub(crate) fn startable(service: &Service, slots: &[ReplicaSlot], desired: DesiredSlots<'_>) -> Vec<u32> {
    let mut taken: Vec<u32> = slots.iter().map(|slot| slot.slot.replica).collect();
    taken.dedup();
    let mut taken = taken.into_iter().peekable();
    let missing = |replica: &u32| {
        while taken.next_if(|taken| taken < replica).is_some() {}
        taken.next_if_eq(replica).is_none() && !service.members.is_closed(*replica)
    };
    let missing = desired.replicas().into_iter().filter(missing).collect();
    ordinals::startable(service, slots, missing)
}

/// The highest replica first.
fn surplus<'a>(
    service: &Service,
    slots: &'a [ReplicaSlot],
    desired: DesiredSlots<'a>,
    observed: &'a ObservedState,
) -> impl Iterator<Item = PodStop> + 'a {
    let reason = match (service.state, desired) {
        (ServiceState::Deleting, _) => StopReason::ServiceDeleted,
        (ServiceState::Active, DesiredSlots::First(_)) => StopReason::ScaledDown,
        (ServiceState::Active, DesiredSlots::Members(_)) => StopReason::NodeLeft,
    };
    let wanted = match desired {
        DesiredSlots::First(count) => DesiredSlots::First(ordinals::stopped_from(service, slots, count)),
        DesiredSlots::Members(_) => desired,
    };
    pods(slots)
        .rev()
        .filter(move |(slot, _)| !wanted.has(slot))
        .filter(|(_, pod)| pod.phase != Phase::Stopping || observed.is_settled(pod))
        .map(move |(slot, pod)| {
            let is_stopping = pod.phase == Phase::Stopping;
            PodStop::new(slot, pod, if is_stopping { StopReason::AlreadyStopping } else { reason })
        })
}

/// Or if new pods are still judged: one that gets ready allows the next.
pub(crate) fn is_replacing(service: &Service, slots: &[ReplicaSlot]) -> bool {
    let desired = DesiredSlots::of(service);
    let is_left = |(slot, pod): (&ReplicaSlot, &PodRecord)| desired.has(slot) && is_old(service, pod);
    // Without a policy a full pass finds the first generation good.
    let is_judged = is_judged(service) && (service.fields.update.is_some() || service.generation > 1);
    let is_paused = service.rollout.paused.is_some();
    let is_rolling = !is_paused && (is_judged || pods(slots).any(is_left));
    service.state == ServiceState::Active && (is_rolling || !service.moves.is_empty())
}

/// A pod on a cordoned node has no successor there.
fn waits_for_uncordon(service: &Service, slots: &[ReplicaSlot]) -> Option<String> {
    let is_left =
        |pod: &&PodRecord| is_old(service, pod) && service.members.is_closed(pod.replica) && !is_ending(pod);
    let node = pods(slots).map(|(_, pod)| pod).find(is_left)?.node.as_ref()?;
    Some(format!("{node} is cordoned: its pod is replaced after `kubeleet uncordon {node}`"))
}

fn kept(service: &Service, slots: &[ReplicaSlot], desired: DesiredSlots<'_>) -> Vec<(PodId, u64)> {
    let is_kept = |(slot, pod): &(&ReplicaSlot, &PodRecord)| {
        desired.has(slot) && pod.generation < service.generation && !is_old(service, pod) && !is_ending(pod)
    };
    pods(slots).filter(is_kept).map(|(slot, pod)| (slot.id.clone(), pod.generation)).collect()
}

/// The requests may be lost.
pub(super) fn stopped_again<'a>(
    slots: &'a [ReplicaSlot],
    desired: DesiredSlots<'a>,
    observed: &'a ObservedState,
) -> impl Iterator<Item = PodStop> + 'a {
    pods(slots)
        .filter(move |(slot, pod)| {
            desired.has(slot)
                && (pod.phase == Phase::Stopped || (pod.phase == Phase::Stopping && observed.is_settled(pod)))
        })
        .map(|(slot, pod)| PodStop::new(slot, pod, StopReason::AlreadyStopping))
}

#[cfg(test)]
pub(crate) mod testing {
    use model::ids::SpecId;
    use model::spec::OnDisconnect;
    use testkit::fixtures;

    use super::*;

    pub(crate) fn service(replicas: u32, generation: u64, state: ServiceState) -> Service {
        Service { state, generation, replicas, spec_id: spec(generation), ..fixtures::service() }
    }

    /// A new pod with a check is good as soon as it is ready.
    pub(crate) fn checked(mut service: Service) -> Service {
        let check = serde_json::from_str(r#"{"http":{"port":80}}"#).unwrap();
        service.pod.containers[0].readiness = Some(check);
        service
    }

    /// Two pods of a replica never run at the same time.
    pub(crate) fn stopped_first(service: Service) -> Service {
        let mut service = checked(service);
        service.pod.on_disconnect = OnDisconnect::Stop;
        service
    }

    pub(crate) fn record(service: &str, replica: u32, generation: u64, phase: Phase) -> PodRecord {
        let spec = Some(spec(generation));
        PodRecord { generation, spec, ..fixtures::pod_record(service, replica, phase) }
    }

    fn spec(generation: u64) -> SpecId {
        SpecId::new(format!("spec{generation}")).unwrap()
    }

    pub(crate) fn slot(pod: PodRecord) -> ReplicaSlot {
        at(Slot::first(pod.replica), pod)
    }

    pub(crate) fn second_slot(pod: PodRecord) -> ReplicaSlot {
        at(Slot::second(pod.replica), pod)
    }

    pub(crate) fn at(slot: Slot, pod: PodRecord) -> ReplicaSlot {
        ReplicaSlot { slot, id: pod.id.clone(), holder: SlotHolder::Pod(Box::new(pod)) }
    }

    pub(crate) fn slots(holders: &[(u64, Phase)]) -> Vec<ReplicaSlot> {
        let each = holders.iter().enumerate();
        each.map(|(i, (generation, phase))| slot(record("web", i as u32, *generation, *phase))).collect()
    }
}

#[cfg(test)]
mod tests {
    use model::RedisMillis;
    use model::network::ingress::IngressRule;
    use model::spec::ServiceFields;

    use super::testing::{record, service, slot, slots, stopped_first};
    use super::*;
    use ServiceState::{Active, Deleting};

    fn stops(plan: &ReconcilePlan) -> Vec<(u32, StopReason)> {
        plan.stop.iter().map(|stop| (stop.replica, stop.reason)).collect()
    }

    fn replaced(plan: &ReconcilePlan, slots: &[ReplicaSlot]) -> Vec<u32> {
        let replica = |id: &PodId| slots.iter().find(|slot| slot.id == *id).unwrap().slot.replica;
        let stopped = plan.stop.iter().filter(|stop| stop.reason == StopReason::Replaced);
        let stopped = stopped.map(|stop| stop.replica);
        let mut all: Vec<u32> = stopped.chain(plan.replace.iter().map(|pod| replica(&pod.id))).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all
    }

    fn plan_now(service: &Service, slots: &[ReplicaSlot]) -> ReconcilePlan {
        plan(service, slots, &ObservedState::default())
    }

    #[test]
    fn missing_pods_are_created() {
        let mut taken = slots(&[(1, Phase::Running); 5]);
        taken.remove(3);
        taken.remove(1);
        assert_eq!(plan_now(&service(6, 1, Active), &taken).create, [1, 3, 5]);
    }

    #[test]
    fn surplus_pods_are_stopped_the_highest_replica_first() {
        let taken =
            slots(&[(1, Phase::Running), (1, Phase::Pending), (1, Phase::Failed), (1, Phase::Stopping)]);
        let plan = plan_now(&service(1, 1, Active), &taken);
        assert_eq!(stops(&plan), [(2, StopReason::ScaledDown), (1, StopReason::ScaledDown)]);
        assert!(plan.create.is_empty());
    }

    #[test]
    fn a_deleted_service_is_forgotten_when_its_pods_are_gone() {
        let taken = slots(&[(1, Phase::Running), (1, Phase::Pending)]);
        let plan = plan_now(&service(2, 1, Deleting), &taken);
        assert_eq!(stops(&plan), [(1, StopReason::ServiceDeleted), (0, StopReason::ServiceDeleted)]);
        assert!(!plan.forget && plan.create.is_empty());
        assert!(plan_now(&service(2, 1, Deleting), &[]).forget);
        assert!(!plan_now(&service(0, 1, Active), &[]).forget);
    }

    #[test]
    fn pods_that_ended_are_left_alone() {
        let taken = slots(&[(1, Phase::Failed), (1, Phase::Succeeded)]);
        assert!(plan_now(&service(2, 1, Active), &taken).is_complete());
    }

    #[test]
    fn slots_without_a_record_are_freed_and_unreadable_ones_kept() {
        let mut taken = slots(&[(1, Phase::Running); 3]);
        taken[0].holder = SlotHolder::NoRecord;
        taken[2].holder = SlotHolder::Unreadable;
        let plan = plan_now(&service(3, 1, Active), &taken);
        assert_eq!(plan.free, [(Slot::first(0), Some(taken[0].id.clone()))]);
        assert!(plan.create.is_empty() && plan.stop.is_empty());
    }

    #[test]
    fn a_stopped_pod_that_still_holds_a_slot_is_stopped_again() {
        let plan = plan_now(&service(1, 1, Active), &slots(&[(1, Phase::Stopped)]));
        assert_eq!(stops(&plan), [(0, StopReason::AlreadyStopping)]);
    }

    /// A successor could not listen on the port of its predecessor.
    #[test]
    fn a_pod_on_a_node_with_plain_processes_is_stopped_before_its_successor_starts() {
        let rule: IngressRule = serde_json::from_str(r#"{"host":"a.example","port":80}"#).unwrap();
        let mut with_port = service(1, 2, Active);
        with_port.fields.ingress = vec![rule];
        let without = service(1, 2, Active);
        let taken = slots(&[(1, Phase::Running)]);
        let node = taken[0].pod().and_then(|pod| pod.node.clone()).unwrap();
        let cases = [
            (&with_port, vec![], false),
            (&with_port, vec![node.clone()], true),
            (&without, vec![node], false),
        ];
        for (service, nodes, stopped_first) in cases {
            let with_machine_ports = Some(nodes.into_iter().collect());
            let observed = ObservedState { with_machine_ports, ..ObservedState::default() };
            let plan = plan(service, &taken, &observed);
            assert_eq!(
                (plan.replace.len(), plan.successors.len()),
                if stopped_first { (1, 0) } else { (0, 1) }
            );
        }
    }

    #[test]
    fn a_stop_that_takes_long_is_requested_again() {
        let taken = slots(&[(1, Phase::Stopping), (1, Phase::Stopping)]);
        let settle_time = std::time::Duration::from_secs(30);
        let observed = ObservedState { now: 60_000, settle_time, ..ObservedState::default() };
        let plan = plan(&service(1, 1, Active), &taken, &observed);
        assert_eq!(stops(&plan), [(1, StopReason::AlreadyStopping), (0, StopReason::AlreadyStopping)]);
    }

    #[test]
    fn a_quarter_of_the_pods_is_replaced_at_a_time() {
        use Phase::{Assigned, Failed, Pending, Running, Stopping};
        let all = |phase| [(1, phase); 8];
        for (holders, expected, case) in [
            (&all(Running)[..], &[7, 6][..], "two of eight"),
            (&[(1, Running)], &[0], "the only one"),
            (&[(1, Running), (1, Running), (1, Running)], &[2], "at least one"),
            (&[(1, Running), (1, Running), (1, Running), (1, Stopping)], &[], "one is stopping"),
            (&[(1, Running), (1, Running), (1, Running), (2, Assigned)], &[], "one is starting"),
            (&[(1, Running), (1, Running), (1, Running), (2, Running)], &[2], "the next"),
            (&all(Pending), &[7, 6, 5, 4, 3, 2, 1, 0], "none is in service"),
            (
                &[(1, Running), (1, Failed), (1, Assigned), (1, Running)],
                &[2, 1],
                "two that are not in service",
            ),
            (&[(2, Running), (2, Failed), (2, Pending)], &[], "all are new"),
            (&[(3, Running)], &[], "newer than the service that was read"),
        ] {
            let taken = slots(holders);
            let plan = plan_now(&stopped_first(service(holders.len() as u32, 2, Active)), &taken);
            assert_eq!(replaced(&plan, &taken), expected, "{case}");
            assert!(plan.stop.iter().all(|stop| stop.reason == StopReason::Replaced));
            assert!(plan.replace.iter().all(|pod| pod.successor.is_none()) && plan.successors.is_empty());
        }
    }

    #[test]
    fn a_pod_of_an_earlier_generation_with_the_current_specification_is_kept() {
        use Phase::{Assigned, Failed, Pending, Running, Stopped, Stopping};
        let mut again = stopped_first(Service { generation: 3, ..service(4, 1, Active) });
        again.rollout.is_settled = true;
        for (holders, kept, stopped, case) in [
            (
                &[(1, Running), (1, Running), (1, Running), (1, Running)][..],
                &[0, 1, 2, 3][..],
                &[][..],
                "all",
            ),
            (&[(1, Running), (1, Pending), (2, Running), (2, Pending)], &[0, 1], &[3], "half of them"),
            (&[(1, Running), (1, Stopping), (3, Running), (2, Running)], &[0], &[], "one is stopping"),
            (&[(1, Running), (1, Running), (3, Running), (2, Running)], &[0, 1], &[3], "the last"),
            (&[(1, Failed), (1, Assigned), (1, Running), (2, Failed)], &[0, 1, 2], &[3], "in any phase"),
            (&[(1, Running), (1, Running), (1, Running), (1, Stopped)], &[0, 1, 2], &[3], "one has stopped"),
        ] {
            let taken = slots(holders);
            let plan = plan_now(&again, &taken);
            let ids: Vec<_> = kept.iter().map(|replica: &usize| (taken[*replica].id.clone(), 1)).collect();
            assert_eq!(plan.keep, ids, "{case}");
            let stops = plan.stop.iter().map(|stop| stop.replica);
            let left = replaced(&plan, &taken).into_iter().chain(stops);
            let left: std::collections::BTreeSet<u32> = left.collect();
            assert_eq!(left, stopped.iter().copied().collect(), "{case}");
            assert_eq!(is_replacing(&again, &taken), holders.iter().any(|(made, _)| *made == 2), "{case}");
        }
        let surplus = Service { replicas: 1, ..again };
        assert_eq!(plan_now(&surplus, &slots(&[(1, Running), (1, Running)])).keep.len(), 1);
    }

    /// Manual edits may break the name.
    #[test]
    fn a_pod_of_the_current_generation_is_right_whatever_its_specification_is_called() {
        let mut taken = slots(&[(2, Phase::Running), (2, Phase::Running)]);
        let SlotHolder::Pod(pod) = &mut taken[0].holder else { panic!("a pod") };
        pod.spec = None;
        let renamed = Service { spec_id: service(2, 9, Active).spec_id, ..service(2, 2, Active) };
        assert!(plan_now(&renamed, &taken).is_complete());
    }

    #[test]
    fn a_pod_of_a_deleted_service_of_this_name_is_replaced_whatever_its_generation() {
        let again = stopped_first(Service { created_at: 5_000, ..service(2, 2, Active) });
        let mut taken = slots(&[(2, Phase::Running), (2, Phase::Running)]);
        for (slot, generation) in taken.iter_mut().zip([2, 7]) {
            let SlotHolder::Pod(pod) = &mut slot.holder else { panic!("a pod") };
            (pod.spec, pod.generation, pod.created_at) =
                (Some(service(2, 9, Active).spec_id), generation, 4_999);
        }
        assert_eq!(replaced(&plan_now(&again, &taken), &taken).len(), 1);
        assert!(is_replacing(&again, &taken));
        for slot in &mut taken {
            let SlotHolder::Pod(pod) = &mut slot.holder else { panic!("a pod") };
            (pod.created_at, pod.generation) = (5_000, 2);
        }
        assert_eq!(replaced(&plan_now(&again, &taken), &taken), [0; 0]);
    }

    #[test]
    fn a_new_generation_that_does_not_come_up_keeps_the_old_one_running() {
        let mut taken = slots(&[(1, Phase::Running), (1, Phase::Running), (1, Phase::Running)]);
        let mut looping = record("web", 3, 2, Phase::Running);
        looping.reason = "CrashLoopBackOff".into();
        taken.push(slot(looping));
        for service in [service(4, 2, Active), stopped_first(service(4, 2, Active))] {
            let plan = plan_now(&service, &taken);
            assert!(plan.stop.is_empty() && plan.replace.is_empty());
        }
    }

    #[test]
    fn an_old_pod_with_a_problem_is_replaced_at_once() {
        let mut looping = record("web", 0, 1, Phase::Running);
        looping.reason = "CrashLoopBackOff".into();
        let mut taken = vec![slot(looping)];
        taken.extend(slots(&[(1, Phase::Stopping); 4]).split_off(1));
        assert_eq!(stops(&plan_now(&service(4, 2, Active), &taken)), [(0, StopReason::Replaced)]);
    }

    /// The last ones are of generation 2, ready for these seconds.
    fn partly_replaced(count: u32, new: &[u64], now: RedisMillis) -> Vec<ReplicaSlot> {
        let mut taken = slots(&vec![(1, Phase::Running); count as usize - new.len()]);
        for (index, seconds) in new.iter().enumerate() {
            let replica = count - new.len() as u32 + index as u32;
            let since = now - seconds * 1000;
            taken.push(slot(PodRecord { since, ..record("web", replica, 2, Phase::Running) }));
        }
        taken
    }

    #[test]
    fn a_policy_says_how_many_are_replaced_and_how_fast() {
        let now = 1_000_000;
        let observed = ObservedState { now, ..ObservedState::default() };
        for (policy, new, expected, case) in [
            (r#"{"parallelism": 1}"#, &[][..], &[7][..], "one of eight"),
            (r#"{"parallelism": 0}"#, &[], &[7, 6, 5, 4, 3, 2, 1, 0], "all"),
            (r#"{"monitor": 10}"#, &[], &[7, 6], "a quarter"),
            (r#"{"parallelism": 1, "monitor": 10}"#, &[9], &[], "it is not known yet"),
            (r#"{"parallelism": 1, "monitor": 10}"#, &[10], &[6], "it is good"),
            (r#"{"parallelism": 2, "monitor": 10}"#, &[9, 20], &[5], "one of two is"),
            (r#"{"parallelism": 1, "monitor": 10, "delay": 30}"#, &[29], &[], "not yet"),
            (r#"{"parallelism": 1, "monitor": 10, "delay": 30}"#, &[30], &[6], "now"),
        ] {
            let update = Some(serde_json::from_str(policy).unwrap());
            let fields = ServiceFields { update, ..Default::default() };
            let service = Service { fields, ..stopped_first(service(8, 2, Active)) };
            let taken = partly_replaced(8, new, now);
            let plan = plan(&service, &taken, &observed);
            let replicas = replaced(&plan, &taken);
            assert_eq!((replicas.as_slice(), plan.rollout), (expected, None), "{policy}: {case}");
        }
    }

    #[test]
    fn a_rollout_that_failed_or_is_paused_replaces_no_further_pod() {
        let mut crashed = record("web", 3, 2, Phase::Running);
        crashed.reason = "CrashLoopBackOff".into();
        let mut taken = slots(&[(1, Phase::Running), (1, Phase::Running), (1, Phase::Failed)]);
        taken.push(slot(crashed));
        let update = |on_failure: &str| {
            Some(
                serde_json::from_str(&format!(
                    r#"{{"order": "stop-first", "parallelism": 2, "on_failure": "{on_failure}"}}"#
                ))
                .unwrap(),
            )
        };
        let with = |on_failure| Service {
            fields: ServiceFields { update: update(on_failure), ..Default::default() },
            ..service(4, 2, Active)
        };
        let failed = plan_now(&with("rollback"), &taken);
        assert!(
            matches!(failed.rollout, Some(RolloutStep::RollBack(_))) && replaced(&failed, &taken).is_empty(),
            "{failed:?}"
        );
        let mut paused = with("pause");
        paused.rollout.paused = Some("by hand".to_owned());
        assert!(plan_now(&paused, &taken).is_complete() && !is_replacing(&paused, &taken));
        let mut resumed = with("pause");
        resumed.rollout.is_resumed = true;
        assert_eq!(replaced(&plan_now(&resumed, &taken), &taken).len(), 2, "the bad one is not waited for");
        assert_eq!(replaced(&plan_now(&with("continue"), &taken), &taken).len(), 2);
    }
}
