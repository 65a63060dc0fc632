//! Plans how the pods of an earlier generation are replaced, step by step. Pure.
//!
//! Old pods that are not in service go at once, because nothing depends on them. Those in service are
//! replaced in one of two ways, as far as the `update` policy of the service allows. Either a pod is stopped,
//! and its successor is created in its slot: only while at most `max_unavailable` replicas are out of
//! service. Or its successor is created in the second slot of its replica, and the pod is stopped when the
//! successor is good: only while at most `max_surge` replicas have two pods. Without a policy a quarter of
//! the replicas may be out of service, at least one, and none has two pods: if the new generation does not
//! come up, three quarters of the old one keep running.

use common::RedisMillis;
use common::pod::PodRecord;
use common::service::Service;
use common::spec::OnFailure;
use common::store::ReplacedPod;

use super::plan::{PodStop, ReplicaSlot, StopReason, is_ending, is_in_service, is_old, pods};
use super::rollout::{self, RolloutVerdict, is_past_delay};

/// The next step.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Replacing {
    /// Old pods to stop of which nothing depends on.
    pub(super) stop: Vec<PodStop>,
    /// Old pods in service to stop.
    pub(super) replace: Vec<ReplacedPod>,
    /// Replicas that get a second pod.
    pub(super) successors: Vec<u32>,
}

/// The pods of one replica whose records can be read, at most two.
type ReplicaPods<'a> = Vec<(&'a ReplicaSlot, &'a PodRecord)>;

/// What may still be done in this step.
struct StepBudget {
    /// How many replicas may be taken out of service.
    unavailable: usize,
    /// How many replicas may get a second pod.
    surge: usize,
    /// How many replicas may get a pod of the new generation.
    canary: usize,
}

impl StepBudget {
    fn of(service: &Service, replicas: &[ReplicaPods<'_>], desired: u32, now: RedisMillis) -> Self {
        let count = |is_counted: &dyn Fn(&ReplicaPods<'_>) -> bool| {
            replicas.iter().filter(|replica| is_counted(replica)).count()
        };
        let desired = desired as usize;
        let in_service = count(&|replica| replica.iter().any(|(_, pod)| allows_next(service, pod, now)));
        let with_two = count(&|replica| replica.iter().any(|(slot, _)| slot.slot.is_second));
        let with_new = count(&|replica| replica.iter().any(|(_, pod)| !is_old(service, pod)));
        let policy = service.replacing_policy();
        let unavailable =
            policy.as_ref().map_or((desired / 4).max(1), |policy| policy.max_unavailable(desired));
        let surge = policy.as_ref().map_or(0, |policy| policy.max_surge(desired));
        Self {
            unavailable: unavailable.saturating_sub(desired - in_service),
            surge: surge.saturating_sub(with_two),
            canary: rollout::canary(service).map_or(usize::MAX, |canary| canary.saturating_sub(with_new)),
        }
    }
}

/// Plans the next step. The highest replicas go first.
pub(super) fn plan(service: &Service, slots: &[ReplicaSlot], desired: u32, now: RedisMillis) -> Replacing {
    let replicas = by_replica(slots, desired);
    let mut budget = StepBudget::of(service, &replicas, desired, now);
    let mut plan = Replacing::default();
    for replica in replicas.iter().rev() {
        let other = |slot: &ReplicaSlot| replica.iter().find(|(other, _)| other.slot != slot.slot);
        for (slot, pod) in replica.iter().filter(|(_, pod)| is_old(service, pod) && !is_ending(pod)) {
            match other(slot) {
                None => replace_only_pod(slot, pod, &mut budget, &mut plan),
                Some((_, other)) => replace_one_of_two(service, (slot, pod), other, now, &mut plan),
            }
        }
    }
    plan
}

fn replace_only_pod(slot: &ReplicaSlot, pod: &PodRecord, budget: &mut StepBudget, plan: &mut Replacing) {
    if budget.canary == 0 {
        return;
    }
    budget.canary -= 1;
    if !is_in_service(pod) || pod.phase.is_terminal() {
        plan.stop.push(PodStop::new(slot, pod, StopReason::Replaced));
    } else if budget.unavailable > 0 {
        budget.unavailable -= 1;
        plan.replace.extend(replaced(slot, pod, None));
    } else if budget.surge > 0 {
        budget.surge -= 1;
        plan.successors.push(slot.slot.replica);
    }
}

/// Stops an old pod if the other one of its replica is good, or if it does not serve itself.
fn replace_one_of_two(
    service: &Service,
    (slot, pod): (&ReplicaSlot, &PodRecord),
    other: &PodRecord,
    now: RedisMillis,
    plan: &mut Replacing,
) {
    let is_replaced = allows_next(service, other, now) && !is_ending(other);
    if !is_in_service(pod) || pod.phase.is_terminal() {
        plan.stop.push(PodStop::new(slot, pod, StopReason::Replaced));
    } else if is_old(service, other) {
        // Two changes after each other: the successor of the first one goes, and the pod that serves stays.
        if is_in_service(other) && slot.slot.is_second {
            plan.replace.extend(replaced(slot, pod, Some(other)));
        }
    } else if is_replaced {
        plan.replace.extend(replaced(slot, pod, Some(other)));
    }
}

fn replaced(slot: &ReplicaSlot, pod: &PodRecord, successor: Option<&PodRecord>) -> Option<ReplacedPod> {
    let successor = successor.map(|successor| successor.id.clone());
    Some(ReplacedPod { id: slot.id.clone(), node: pod.node.clone()?, successor })
}

/// Stops one of two pods of the current generation of a replica: the one in the second slot, unless only that
/// one serves.
pub(super) fn second_of_equals(
    service: &Service,
    slots: &[ReplicaSlot],
    desired: u32,
) -> impl Iterator<Item = PodStop> {
    let surplus = |replica: ReplicaPods<'_>| {
        let [first, second] = replica[..] else { return None };
        let are_equals = [first, second].iter().all(|(_, pod)| !is_old(service, pod) && !is_ending(pod));
        let only_second_serves = is_in_service(second.1) && !is_in_service(first.1);
        let (slot, pod) = if only_second_serves { first } else { second };
        are_equals.then(|| PodStop::new(slot, pod, StopReason::Surplus))
    };
    let found: Vec<PodStop> = by_replica(slots, desired).into_iter().filter_map(surplus).collect();
    found.into_iter()
}

fn by_replica(slots: &[ReplicaSlot], desired: u32) -> Vec<ReplicaPods<'_>> {
    let wanted: ReplicaPods<'_> = pods(slots).filter(|(slot, _)| slot.slot.replica < desired).collect();
    wanted.chunk_by(|(a, _), (b, _)| a.slot.replica == b.slot.replica).map(<[_]>::to_vec).collect()
}

/// Returns whether a pod holds up no other one: it serves, and a new one has shown that it is good.
fn allows_next(service: &Service, pod: &PodRecord, now: RedisMillis) -> bool {
    let Some(policy) = service.replacing_policy().filter(|_| !is_old(service, pod)) else {
        return is_in_service(pod);
    };
    match rollout::verdict(service, &policy, pod, now) {
        RolloutVerdict::Good => is_past_delay(&policy, pod, now),
        // Where bad ones are accepted, there is nothing to wait for.
        RolloutVerdict::Bad(_) => policy.on_failure == OnFailure::Continue || service.rollout.is_resumed,
        RolloutVerdict::Young => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use common::lifecycle::Phase::{self, Assigned, Pending, Running, Stopping};
    use common::service::{RolloutMarks, ServiceState};
    use common::spec::ServiceFields;

    use super::super::plan::testing::{record, second_slot, service, slot};
    use super::*;

    const NOW: RedisMillis = 1_000_000;

    /// A pod of this generation, which is as it is for ten seconds. A running one is ready unless it has a
    /// reason.
    type Holder = (u64, Phase, &'static str);
    const OLD: Holder = (1, Running, "");
    const NEW: Holder = (2, Running, "");

    /// Returns slots with these pods: of each replica the first one, and perhaps a second one.
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

    /// Returns what is planned as text: the slots whose pods are stopped at once, those whose pods are
    /// replaced, and the replicas that get a second pod.
    fn planned(service: &Service, slots: &[ReplicaSlot]) -> String {
        let found = plan(service, slots, service.replicas, NOW);
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
        let canary = r#"{"canary": 1, "parallelism": 2}"#;
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
        // Two of three pods were never replaced: none would be, if a canary counted.
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
    fn of_two_pods_that_are_both_right_one_goes() {
        for (first, second, expected) in [
            (NEW, NEW, Some(true)),
            ((2, Pending, ""), NEW, Some(false)),
            ((2, Pending, ""), (2, Pending, ""), Some(true)),
            (NEW, (2, Stopping, ""), None),
            (OLD, NEW, None),
        ] {
            let (service, slots) = (service(1, 2, ServiceState::Active), slots(&[(first, Some(second))]));
            let found: Vec<PodStop> = second_of_equals(&service, &slots, 1).collect();
            let stopped = found.first().map(|stop| stop.id == slots[1].id);
            assert_eq!(stopped, expected, "{first:?} {second:?}");
        }
    }
}
