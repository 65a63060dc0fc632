//! Plans the stepwise replacement of old pods, and of those that move to another node. Pure.
//!
//! Those not in service go at once. The others are replaced in one of two ways. Either a pod is stopped
//! first: at most `max_unavailable` replicas are out of service, and [`super::preparing`] has to agree. Or
//! its successor starts first, in the second slot: at most `max_surge` replicas have two pods. Without room
//! for two, a service that does not require this order falls back to the first one, pod by pod.

use model::RedisMillis;
use model::node::Resource;
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::service::Service;
use model::spec::{OnFailure, UpdatePolicy};
use store::ReplacedPod;

use super::desired::DesiredSlots;
use super::moving::Moving;
use super::rollout::{self, RolloutVerdict, is_past_delay};
use super::slots::{PodStop, ReplicaSlot, StopReason, is_ending, is_in_service, is_old, pods};
use crate::apply::only_lacks_room;

/// How long a successor beside the old pod waits for room, in milliseconds.
const ROOM_WAIT: RedisMillis = 10_000;

#[derive(Debug, Default, PartialEq)]
pub(super) struct Replacing {
    /// Not in service.
    pub(super) stop: Vec<PodStop>,
    pub(super) replace: Vec<ReplacedPod>,
    pub(super) successors: Vec<u32>,
}

/// At most two.
type ReplicaPods<'a> = Vec<(&'a ReplicaSlot, &'a PodRecord)>;

#[derive(Clone, Copy)]
pub(super) struct Basis<'a> {
    pub(super) service: &'a Service,
    pub(super) policy: &'a UpdatePolicy,
    pub(super) moving: &'a Moving,
    /// Old pods. The others of a paused rollout still move.
    pub(super) may_replace: bool,
    /// There are old pods.
    pub(super) is_update: bool,
    pub(super) now: RedisMillis,
}

impl Basis<'_> {
    /// While a rollout is paused, the successor of an old pod would be a new one. That of a pod of a global
    /// service would find its node cordoned.
    fn must_go(self, pod: &PodRecord) -> bool {
        let may_replace = self.may_replace && !self.service.members.is_closed(pod.replica);
        if is_old(self.service, pod) { may_replace } else { self.moving.has(pod) }
    }

    fn reason(self, pod: &PodRecord) -> StopReason {
        if is_old(self.service, pod) { StopReason::Replaced } else { StopReason::Moved }
    }
}

struct StepBudget {
    unavailable: usize,
    /// Of pods that move: they leave `min_available` replicas in service.
    moved: usize,
    surge: usize,
    canary: usize,
}

impl StepBudget {
    fn of(basis: Basis<'_>, replicas: &[ReplicaPods<'_>], desired: DesiredSlots<'_>) -> Self {
        let Basis { service, policy, .. } = basis;
        let count = |is_counted: &dyn Fn(&ReplicaPods<'_>) -> bool| {
            replicas.iter().filter(|replica| is_counted(replica)).count()
        };
        let desired = desired.count();
        let in_service = count(&|replica| replica.iter().any(|(_, pod)| allows_next(basis, pod)));
        let with_two = count(&|replica| replica.iter().any(|(slot, _)| slot.slot.is_second));
        let with_new = count(&|replica| replica.iter().any(|(_, pod)| !is_old(service, pod)));
        let least = service.fields.min_available.map_or(0, |least| least.of(desired));
        Self {
            moved: in_service.saturating_sub(least),
            unavailable: policy.max_unavailable(desired).saturating_sub(desired - in_service),
            surge: policy.max_surge(desired).saturating_sub(with_two),
            canary: rollout::canary(service).map_or(usize::MAX, |canary| canary.saturating_sub(with_new)),
        }
    }

    /// Returns false if the pod may not be stopped before its successor serves.
    fn take_out(&mut self, is_moved: bool) -> bool {
        let may = self.unavailable > 0 && (!is_moved || self.moved > 0);
        if may {
            self.unavailable -= 1;
            self.moved = self.moved.saturating_sub(1);
        }
        may
    }
}

/// The highest replicas go first.
pub(super) fn plan(basis: Basis<'_>, slots: &[ReplicaSlot], desired: DesiredSlots<'_>) -> Replacing {
    let replicas = by_replica(slots, desired);
    let mut budget = StepBudget::of(basis, &replicas, desired);
    let mut plan = Replacing::default();
    for replica in replicas.iter().rev() {
        let other = |slot: &ReplicaSlot| replica.iter().find(|(other, _)| other.slot != slot.slot);
        for (slot, pod) in replica.iter().filter(|(_, pod)| basis.must_go(pod) && !is_ending(pod)) {
            match other(slot) {
                None => replace_only_pod(basis, (slot, pod), &mut budget, &mut plan),
                Some((_, other)) => replace_one_of_two(basis, (slot, pod), other, &mut plan),
            }
        }
    }
    plan
}

fn replace_only_pod(
    basis: Basis<'_>,
    (slot, pod): (&ReplicaSlot, &PodRecord),
    budget: &mut StepBudget,
    plan: &mut Replacing,
) {
    if is_old(basis.service, pod) {
        if budget.canary == 0 {
            return;
        }
        budget.canary -= 1;
    }
    if !is_in_service(pod) || pod.phase.is_terminal() {
        plan.stop.push(PodStop::new(slot, pod, basis.reason(pod)));
    } else if budget.take_out(!is_old(basis.service, pod)) {
        plan.replace.extend(replaced(slot, pod, None));
    } else if budget.surge > 0 {
        budget.surge -= 1;
        plan.successors.push(slot.slot.replica);
    }
}

/// If the other one is good, or it does not serve.
fn replace_one_of_two(
    basis: Basis<'_>,
    (slot, pod): (&ReplicaSlot, &PodRecord),
    other: &PodRecord,
    plan: &mut Replacing,
) {
    let is_replaced = allows_next(basis, other) && !is_ending(other);
    if !is_in_service(pod) || pod.phase.is_terminal() {
        plan.stop.push(PodStop::new(slot, pod, basis.reason(pod)));
    } else if basis.must_go(other) {
        // After two changes in a row the first successor goes.
        if is_in_service(other) && slot.slot.is_second {
            plan.replace.extend(replaced(slot, pod, Some(other)));
        }
    } else if is_replaced {
        plan.replace.extend(replaced(slot, pod, Some(other)));
    } else if is_old(basis.service, pod) && lacks_room_beside(basis, pod, other) {
        plan.replace.extend(replaced(slot, pod, None));
    }
}

/// Only the old pod has its room; a move frees none that counts. A required `start-first` waits.
fn lacks_room_beside(basis: Basis<'_>, pod: &PodRecord, successor: &PodRecord) -> bool {
    let is_asked_for = basis.service.fields.update.as_ref().is_some_and(|policy| policy.order.is_some());
    let waits = successor.phase == Phase::Pending && successor.reason == "Unschedulable";
    let has_waited = basis.now.saturating_sub(successor.since) >= ROOM_WAIT;
    let takes_no_more = Resource::ALL
        .into_iter()
        .all(|resource| successor.request.get(resource) <= pod.request.get(resource));
    !is_asked_for && waits && has_waited && takes_no_more && only_lacks_room(&successor.message)
}

fn replaced(slot: &ReplicaSlot, pod: &PodRecord, successor: Option<&PodRecord>) -> Option<ReplacedPod> {
    let successor = successor.map(|successor| successor.id.clone());
    Some(ReplacedPod { id: slot.id.clone(), node: pod.node.clone()?, successor })
}

/// The one in the second slot, unless only that one serves.
pub(super) fn second_of_equals(
    basis: Basis<'_>,
    slots: &[ReplicaSlot],
    desired: DesiredSlots<'_>,
) -> impl Iterator<Item = PodStop> {
    let surplus = |replica: ReplicaPods<'_>| {
        let [first, second] = replica[..] else { return None };
        let stays = |pod| !is_old(basis.service, pod) && !basis.moving.has(pod) && !is_ending(pod);
        let are_equals = [first, second].iter().all(|(_, pod)| stays(pod));
        let only_second_serves = is_in_service(second.1) && !is_in_service(first.1);
        let (slot, pod) = if only_second_serves { first } else { second };
        are_equals.then(|| PodStop::new(slot, pod, StopReason::Surplus))
    };
    let found: Vec<PodStop> = by_replica(slots, desired).into_iter().filter_map(surplus).collect();
    found.into_iter()
}

fn by_replica<'a>(slots: &'a [ReplicaSlot], desired: DesiredSlots<'_>) -> Vec<ReplicaPods<'a>> {
    let wanted: ReplicaPods<'_> = pods(slots).filter(|(slot, _)| desired.has(slot)).collect();
    wanted.chunk_by(|(a, _), (b, _)| a.slot.replica == b.slot.replica).map(<[_]>::to_vec).collect()
}

/// It serves, and a new one is good.
fn allows_next(Basis { service, policy, is_update, now, .. }: Basis<'_>, pod: &PodRecord) -> bool {
    // Without an update nothing is judged: a pod that moves waits only until the next one serves.
    if is_old(service, pod) || !is_update {
        return is_in_service(pod);
    }
    match rollout::verdict(service, policy, pod, now) {
        RolloutVerdict::Good => is_past_delay(policy, pod, now),
        // Bad pods are accepted.
        RolloutVerdict::Bad(_) => policy.on_failure == OnFailure::Continue || service.rollout.is_resumed,
        RolloutVerdict::Young => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::node::Resources;
    use model::pod::lifecycle::Phase::{self, Assigned, Pending, Running, Stopping};
    use model::service::{RolloutMarks, ServiceState};
    use model::spec::ServiceFields;

    use super::super::plan::testing::{record, second_slot, service, slot};
    use super::super::slots::SlotHolder;
    use super::*;

    const NOW: RedisMillis = 1_000_000;

    /// For ten seconds.
    type Holder = (u64, Phase, &'static str);
    const OLD: Holder = (1, Running, "");
    const NEW: Holder = (2, Running, "");

    fn slots(replicas: &[(Holder, Option<Holder>)]) -> Vec<ReplicaSlot> {
        let pod = |replica: usize, (generation, phase, reason): Holder| PodRecord {
            reason: reason.to_owned(),
            since: NOW - 10_000,
            created_at: NOW - 10_000,
            ..record("web", replica as u32, generation, phase)
        };
        let each = replicas.iter().enumerate().flat_map(|(replica, (first, second))| {
            let second = second.map(|second| second_slot(pod(replica, second)));
            std::iter::once(slot(pod(replica, *first))).chain(second)
        });
        each.collect()
    }

    fn with_policy(policy: &str, replicas: &[(Holder, Option<Holder>)]) -> Service {
        let update = Some(serde_json::from_str(policy).unwrap());
        Service {
            fields: ServiceFields { update, ..Default::default() },
            ..service(replicas.len() as u32, 2, ServiceState::Active)
        }
    }

    /// During an update, and without moves.
    fn with_basis<T>(service: &Service, look: impl FnOnce(Basis<'_>) -> T) -> T {
        let (policy, moving) = (service.replacing_policy(false), Moving::default());
        let (policy, moving) = (&policy, &moving);
        look(Basis { service, policy, moving, may_replace: true, is_update: true, now: NOW })
    }

    /// Slots stopped, slots replaced, and replicas that get a second pod.
    fn planned(service: &Service, slots: &[ReplicaSlot]) -> String {
        let found = with_basis(service, |basis| plan(basis, slots, DesiredSlots::of(service)));
        let slot_of = |id: &_| slots.iter().find(|slot| slot.id == *id).unwrap().slot.to_string();
        let stop = found.stop.iter().map(|stop| format!("stop {}", slot_of(&stop.id)));
        let replace = found.replace.iter().map(|pod| match &pod.successor {
            Some(successor) => format!("{} by {}", slot_of(&pod.id), slot_of(successor)),
            None => format!("replace {}", slot_of(&pod.id)),
        });
        let create = found.successors.iter().map(|replica| format!("create {replica}+"));
        stop.chain(replace).chain(create).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_successor_starts_first_and_the_pod_goes_when_it_is_good() {
        let two = |second| (OLD, Some(second));
        for (replicas, expected, case) in [
            (&[(OLD, None), (OLD, None)][..], "create 1+", "one at a time, the highest first"),
            (&[(OLD, None), two((2, Pending, ""))], "", "it waits for a node"),
            (&[(OLD, None), two((2, Assigned, ""))], "", "it starts"),
            (&[(OLD, None), two((2, Running, "NotReady"))], "", "it is not ready"),
            (&[(OLD, None), two(NEW)], "1 by 1+", "it is good"),
            (&[(OLD, None), ((1, Stopping, "Replaced"), Some(NEW))], "", "the one before still ends"),
            (&[(OLD, None), (NEW, None)], "create 0+", "the next"),
            (&[(OLD, None), (NEW, Some(OLD))], "1+ by 1", "whichever has which slot"),
            (
                &[((1, Pending, ""), None), (OLD, None)],
                "stop 0, create 1+",
                "one that does not serve goes at once",
            ),
            (
                &[((1, Running, "Unhealthy"), Some((2, Assigned, ""))), (OLD, None)],
                "stop 0",
                "or does no more",
            ),
            (&[(OLD, None), two((1, Pending, ""))], "stop 1+", "a successor of a generation before"),
            (&[(OLD, None), two(OLD)], "1+ by 1", "which serves: it goes only while the other one does"),
            (
                &[(OLD, None), ((1, Running, "NotReady"), Some(OLD))],
                "stop 1",
                "and is the only one that does",
            ),
            (&[(NEW, None), (NEW, None)], "", "nothing is left to do"),
        ] {
            let service = with_policy(r#"{"order": "start-first", "parallelism": 1}"#, replicas);
            assert_eq!(planned(&service, &slots(replicas)), expected, "{case}");
        }
    }

    #[test]
    fn a_policy_limits_pods_out_of_service_and_beyond_the_replicas() {
        let four = [(OLD, None); 4];
        let three_and = |last| [(OLD, None), (OLD, None), (OLD, None), last];
        for (policy, replicas, expected) in [
            (r#"{"order": "start-first"}"#, four, "create 3+"),
            (
                r#"{"order": "start-first", "parallelism": 0}"#,
                four,
                "create 3+, create 2+, create 1+, create 0+",
            ),
            (r#"{"order": "start-first", "max_surge": 2}"#, four, "create 3+, create 2+"),
            (r#"{"order": "start-first", "max_unavailable": 1}"#, four, "replace 3, create 2+"),
            (r#"{"max_surge": 1, "max_unavailable": 2}"#, four, "replace 3, replace 2, create 1+"),
            (r#"{"max_surge": 1, "max_unavailable": 0}"#, three_and((OLD, Some((2, Pending, "")))), ""),
            (r#"{"max_surge": 1, "max_unavailable": 0}"#, three_and(((2, Pending, ""), None)), "create 2+"),
            (r#"{"max_surge": 1}"#, three_and(((2, Pending, ""), None)), "create 2+"),
            (r#"{"monitor": 11, "order": "start-first"}"#, three_and((OLD, Some(NEW))), ""),
            (r#"{"delay": 11, "order": "start-first"}"#, three_and((OLD, Some(NEW))), ""),
        ] {
            assert_eq!(planned(&with_policy(policy, &replicas), &slots(&replicas)), expected, "{policy}");
        }
    }

    #[test]
    fn a_canary_holds_up_the_others_until_it_is_promoted() {
        let canary = r#"{"order": "stop-first", "canary": 1, "parallelism": 2}"#;
        for (replicas, promoted, expected, case) in [
            ([(OLD, None); 3], false, "replace 2", "fewer than the policy allows otherwise"),
            ([(OLD, None), (OLD, None), (NEW, None)], false, "", "it is good"),
            ([((1, Pending, ""), None), (OLD, None), (NEW, None)], false, "", "nor one that does not serve"),
            ([(OLD, None), (OLD, None), (NEW, None)], true, "replace 1, replace 0", "promoted"),
        ] {
            let mut service = with_policy(canary, &replicas);
            service.rollout.is_promoted = promoted;
            assert_eq!(planned(&service, &slots(&replicas)), expected, "{case}");
        }
        // None would be replaced if a canary counted.
        let replicas = [((1, Running, "NotReady"), None), (NEW, None), (NEW, None)];
        let back = |change: fn(&mut RolloutMarks)| {
            let mut service = with_policy(canary, &replicas);
            change(&mut service.rollout);
            planned(&service, &slots(&replicas))
        };
        let forward = back(|_| {});
        assert_eq!(
            back(|marks| marks.is_known_good = true),
            back(|marks| marks.is_promoted = true),
            "an undo"
        );
        assert_eq!(
            back(|marks| marks.rolled_back = Some((1, "it is bad".to_owned()))),
            back(|marks| marks.is_promoted = true),
            "a rollback"
        );
        assert_ne!(forward, back(|marks| marks.is_promoted = true), "the case has something to wait for");
    }

    #[test]
    fn without_room_for_two_the_pod_goes_first_unless_the_user_asked_for_the_order() {
        let lacking = "0/2 nodes are available: 1 InsufficientMemory, 1 TooManyPods";
        let memory = |bytes| Resources { memory_bytes: bytes, ..Resources::default() };
        for (policy, message, request, waited, expected, case) in [
            ("{}", lacking, 64, 10_000, "0 by nothing", "no room"),
            ("{}", lacking, 64, 9_999, "", "not yet"),
            ("{}", lacking, 65, 10_000, "", "it needs more than the pod leaves"),
            ("{}", "0/2 nodes are available: 1 Cordoned, 1 TooManyPods", 64, 10_000, "", "another reason"),
            (r#"{"order": "start-first"}"#, lacking, 64, 10_000, "", "the user asked for it"),
        ] {
            let mut service = with_policy(policy, &[(OLD, None)]);
            if policy == "{}" {
                service.fields.update = None;
            }
            let old = PodRecord { request: memory(64), ..record("web", 0, 1, Running) };
            let successor = PodRecord {
                request: memory(request),
                reason: "Unschedulable".to_owned(),
                message: message.to_owned(),
                since: NOW - waited,
                ..record("web", 0, 2, Pending)
            };
            let slots = [slot(old), second_slot(successor)];
            let found = with_basis(&service, |basis| plan(basis, &slots, DesiredSlots::First(1)));
            assert!(found.stop.is_empty() && found.successors.is_empty(), "{case}");
            let replaced =
                found.replace.iter().filter(|pod| pod.id == slots[0].id && pod.successor.is_none());
            assert_eq!(replaced.count(), usize::from(!expected.is_empty()), "{case}");
        }
    }

    /// A program that crashes after its start is ready for a moment.
    #[test]
    fn without_a_policy_a_successor_shows_first_that_it_does_not_crash() {
        let mut fresh = [(OLD, Some(NEW))];
        let service = Service { fields: ServiceFields::default(), ..with_policy("{}", &fresh) };
        let mut young = slots(&fresh);
        let SlotHolder::Pod(pod) = &mut young[1].holder else { panic!("a pod") };
        pod.since = NOW - 4_999;
        assert_eq!(planned(&service, &young), "", "not known yet");
        assert_eq!(planned(&service, &slots(&fresh)), "0 by 0+", "it did not");
        fresh[0].1 = Some((2, Running, "CrashLoopBackOff"));
        assert_eq!(planned(&service, &slots(&fresh)), "", "it did");
    }

    #[test]
    fn of_two_pods_that_are_both_right_one_goes() {
        for (first, second, expected) in [
            (NEW, NEW, Some(true)),
            ((2, Pending, ""), NEW, Some(false)),
            ((2, Pending, ""), (2, Pending, ""), Some(true)),
            (NEW, (2, Stopping, ""), None),
            (OLD, NEW, None),
        ] {
            let (service, slots) = (service(1, 2, ServiceState::Active), slots(&[(first, Some(second))]));
            let found: Vec<PodStop> = with_basis(&service, |basis| {
                second_of_equals(basis, &slots, DesiredSlots::First(1)).collect()
            });
            let stopped = found.first().map(|stop| stop.id == slots[1].id);
            assert_eq!(stopped, expected, "{first:?} {second:?}");
        }
    }
}
