//! From a service and who holds its slots to what is to be done. Pure; the same facts give the same plan.
//!
//! A *slot* is a replica index of a service; its *holder* is the pod in it. A slot is *in service* when its holder runs
//! well, or has ended well. *Old* are holders made from an earlier generation of the service.
//!
//! Replacing goes in steps: old pods that are not in service go at once, since nobody misses them; those that are, only
//! as long as at most a quarter of all slots (and at least one) are out of service. So a new generation that does not
//! come up leaves three quarters of the old one standing.

use common::ids::{NodeName, PodId};
use common::lifecycle::Phase;
use common::pod::PodRecord;
use common::service::{Service, ServiceState};

use super::suspicion::{Facts, is_suspicious};

/// Who holds a slot.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Holder {
    /// This pod.
    Pod(Box<PodRecord>),
    /// A pod without a record.
    Gone,
    /// A pod whose record can not be read. A person has to look; nothing is done.
    Unreadable,
}

/// A slot that is taken.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Slot {
    pub(crate) replica: u32,
    pub(crate) id: PodId,
    pub(crate) holder: Holder,
}

/// Why a pod is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The service is being deleted.
    Deleted,
    /// There are fewer replicas now.
    ScaledDown,
    /// A new generation takes its place.
    Replaced,
    /// It was asked to stop before: this makes sure.
    AlreadyStopping,
}

/// A pod to be stopped.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stop {
    pub(crate) replica: u32,
    pub(crate) id: PodId,
    /// Where it was seen.
    pub(crate) node: Option<NodeName>,
    pub(crate) why: Why,
}

/// What is to be done, in this order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Plan {
    /// Slots whose pod has no record.
    pub(crate) free: Vec<(u32, PodId)>,
    /// Pods to stop. On scaling down, higher slots before lower ones.
    pub(crate) stop: Vec<Stop>,
    /// Slots nobody holds.
    pub(crate) create: Vec<u32>,
    /// Pods that may have lost their payload.
    pub(crate) requeue: Vec<PodRecord>,
    /// Whether the service can be forgotten.
    pub(crate) forget: bool,
}

impl Plan {
    /// Whether there is anything to do to the service itself.
    pub(crate) fn changes_nothing(&self) -> bool {
        self.free.is_empty() && self.stop.is_empty() && self.create.is_empty() && !self.forget
    }
}

/// Plans. `slots` are sorted by replica, each at most once.
pub(crate) fn plan(service: &Service, slots: &[Slot], facts: &Facts) -> Plan {
    let wanted = match service.state {
        ServiceState::Active => service.replicas,
        ServiceState::Deleting => 0,
    };
    Plan {
        free: slots.iter().filter(|s| s.holder == Holder::Gone).map(|s| (s.replica, s.id.clone())).collect(),
        stop: surplus(service, slots, wanted, facts)
            .chain(replaced(service, slots, wanted))
            .chain(again(slots, wanted, facts))
            .collect(),
        create: missing(slots, wanted),
        requeue: pods(slots).filter(|(_, pod)| is_suspicious(pod, facts)).map(|(_, p)| p.clone()).collect(),
        forget: service.state == ServiceState::Deleting && slots.is_empty(),
    }
}

fn pods(slots: &[Slot]) -> impl DoubleEndedIterator<Item = (&Slot, &PodRecord)> {
    slots.iter().filter_map(|slot| match &slot.holder {
        Holder::Pod(pod) => Some((slot, &**pod)),
        Holder::Gone | Holder::Unreadable => None,
    })
}

fn missing(slots: &[Slot], wanted: u32) -> Vec<u32> {
    let mut taken = slots.iter().map(|slot| slot.replica).peekable();
    (0..wanted).filter(|replica| taken.next_if_eq(replica).is_none()).collect()
}

/// Pods beyond the number wanted, the highest first.
fn surplus<'a>(
    service: &Service,
    slots: &'a [Slot],
    wanted: u32,
    facts: &'a Facts,
) -> impl Iterator<Item = Stop> + 'a {
    let why = match service.state {
        ServiceState::Deleting => Why::Deleted,
        ServiceState::Active => Why::ScaledDown,
    };
    let beyond = pods(slots).rev().filter(move |(slot, _)| slot.replica >= wanted);
    beyond.filter(|(_, pod)| pod.phase != Phase::Stopping || facts.is_settled(pod)).map(move |(slot, pod)| {
        stop(slot, pod, if pod.phase == Phase::Stopping { Why::AlreadyStopping } else { why })
    })
}

/// Pods of an earlier generation that may go now.
fn replaced<'a>(service: &Service, slots: &'a [Slot], wanted: u32) -> impl Iterator<Item = Stop> + 'a {
    let generation = service.generation;
    let kept = move |slot: &Slot| slot.replica < wanted;
    let in_service = pods(slots).filter(|(slot, pod)| kept(slot) && is_in_service(pod)).count();
    let may_be_out = (wanted as usize / 4).max(1);
    let mut allowed = may_be_out.saturating_sub(wanted as usize - in_service);
    let old = pods(slots).rev().filter(move |(slot, pod)| kept(slot) && pod.generation < generation);
    old.filter(move |(_, pod)| match pod.phase {
        Phase::Stopping | Phase::Stopped => false,
        _ if is_missed_by_nobody(pod) => true,
        _ => {
            let goes = allowed > 0;
            allowed = allowed.saturating_sub(1);
            goes
        }
    })
    .map(|(slot, pod)| stop(slot, pod, Why::Replaced))
}

/// Stopped pods that still hold a slot, and those that take long to stop: the request may have been lost.
fn again<'a>(slots: &'a [Slot], wanted: u32, facts: &'a Facts) -> impl Iterator<Item = Stop> + 'a {
    pods(slots)
        .filter(move |(slot, pod)| {
            slot.replica < wanted
                && (pod.phase == Phase::Stopped || (pod.phase == Phase::Stopping && facts.is_settled(pod)))
        })
        .map(|(slot, pod)| stop(slot, pod, Why::AlreadyStopping))
}

/// Whether the slot does what it is there for.
fn is_in_service(pod: &PodRecord) -> bool {
    match pod.phase {
        Phase::Running => pod.reason.is_empty(),
        Phase::Succeeded => true,
        _ => false,
    }
}

/// Whether stopping it takes nothing out of service.
fn is_missed_by_nobody(pod: &PodRecord) -> bool {
    pod.phase.is_terminal() || !is_in_service(pod)
}

fn stop(slot: &Slot, pod: &PodRecord, why: Why) -> Stop {
    Stop { replica: slot.replica, id: slot.id.clone(), node: pod.node.clone(), why }
}

/// Services and pods for tests.
#[cfg(test)]
pub(crate) mod testing {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeMap;

    use common::ids::{PodName, ServiceName, SpecId};
    use common::spec::{ContainerSpec, OnDisconnect, PodSpec};

    use super::*;

    pub(crate) fn service(replicas: u32, generation: u64, state: ServiceState) -> Service {
        Service {
            name: ServiceName::new("web").unwrap(),
            state,
            generation,
            spec_id: SpecId::new("spec").unwrap(),
            replicas,
            labels: BTreeMap::new(),
            created_at: 0,
            updated_at: 0,
            pod: PodSpec {
                containers: vec![ContainerSpec::of_image("nginx")],
                on_disconnect: OnDisconnect::default(),
                stop_grace_period: common::spec::Seconds::default(),
            },
        }
    }

    pub(crate) fn record(service: &str, replica: u32, generation: u64, phase: Phase) -> PodRecord {
        let node = matches!(phase, Phase::Assigned | Phase::Running | Phase::Stopping);
        PodRecord {
            id: PodId::random(),
            name: PodName::new(service).unwrap(),
            phase,
            replica,
            image: "nginx".into(),
            service: Some(ServiceName::new(service).unwrap()),
            spec: Some(SpecId::new("spec").unwrap()),
            generation,
            node: node.then(|| NodeName::new("n1").unwrap()),
            assignment: None,
            attempts: 0,
            restarts: 0,
            cpu_millis: 0,
            memory_bytes: 0,
            created_at: 0,
            since: 0,
            reason: String::new(),
            message: String::new(),
            exit_code: None,
            address: String::new(),
        }
    }

    pub(crate) fn slot(pod: PodRecord) -> Slot {
        Slot { replica: pod.replica, id: pod.id.clone(), holder: Holder::Pod(Box::new(pod)) }
    }

    /// Slots 0, 1, 2 … of these generations and phases.
    pub(crate) fn slots(holders: &[(u64, Phase)]) -> Vec<Slot> {
        let each = holders.iter().enumerate();
        each.map(|(i, (generation, phase))| slot(record("web", i as u32, *generation, *phase))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{record, service, slot, slots};
    use super::*;
    use ServiceState::{Active, Deleting};

    fn stops(plan: &Plan) -> Vec<(u32, Why)> {
        plan.stop.iter().map(|stop| (stop.replica, stop.why)).collect()
    }

    fn now(service: &Service, slots: &[Slot]) -> Plan {
        plan(service, slots, &Facts::default())
    }

    #[test]
    fn missing_ones_are_made() {
        let mut held = slots(&[(1, Phase::Running); 5]);
        held.remove(3);
        held.remove(1);
        assert_eq!(now(&service(6, 1, Active), &held).create, [1, 3, 5]);
    }

    #[test]
    fn surplus_goes_the_highest_first() {
        let held =
            slots(&[(1, Phase::Running), (1, Phase::Pending), (1, Phase::Failed), (1, Phase::Stopping)]);
        let plan = now(&service(1, 1, Active), &held);
        assert_eq!(stops(&plan), [(2, Why::ScaledDown), (1, Why::ScaledDown)]);
        assert!(plan.create.is_empty());
    }

    #[test]
    fn a_deleted_service_ends() {
        let held = slots(&[(1, Phase::Running), (1, Phase::Pending)]);
        let plan = now(&service(2, 1, Deleting), &held);
        assert_eq!(stops(&plan), [(1, Why::Deleted), (0, Why::Deleted)]);
        assert!(!plan.forget && plan.create.is_empty());
        assert!(now(&service(2, 1, Deleting), &[]).forget);
        assert!(!now(&service(0, 1, Active), &[]).forget);
    }

    #[test]
    fn what_rests_is_left_alone() {
        let held = slots(&[(1, Phase::Failed), (1, Phase::Succeeded)]);
        assert!(now(&service(2, 1, Active), &held).changes_nothing());
    }

    #[test]
    fn slots_without_a_record_are_freed_and_unreadable_ones_kept() {
        let mut held = slots(&[(1, Phase::Running); 3]);
        held[0].holder = Holder::Gone;
        held[2].holder = Holder::Unreadable;
        let plan = now(&service(3, 1, Active), &held);
        assert_eq!(plan.free, [(0, held[0].id.clone())]);
        assert!(plan.create.is_empty() && plan.stop.is_empty());
    }

    #[test]
    fn a_stopped_pod_that_holds_a_slot_is_buried() {
        let plan = now(&service(1, 1, Active), &slots(&[(1, Phase::Stopped)]));
        assert_eq!(stops(&plan), [(0, Why::AlreadyStopping)]);
    }

    #[test]
    fn a_stop_that_takes_long_is_asked_for_again() {
        let held = slots(&[(1, Phase::Stopping), (1, Phase::Stopping)]);
        let facts = Facts { now: 60_000, patience: std::time::Duration::from_secs(30), ..Facts::default() };
        let plan = plan(&service(1, 1, Active), &held, &facts);
        assert_eq!(stops(&plan), [(1, Why::AlreadyStopping), (0, Why::AlreadyStopping)]);
    }

    #[test]
    fn replacing_takes_a_quarter_at_a_time() {
        use Phase::{Assigned, Failed, Pending, Running, Stopping};
        let all = |phase| [(1, phase); 8];
        for (holders, expected, why) in [
            (&all(Running)[..], &[7, 6][..], "two of eight"),
            (&[(1, Running)], &[0], "the only one"),
            (&[(1, Running), (1, Running), (1, Running)], &[2], "at least one"),
            (&[(1, Running), (1, Running), (1, Running), (1, Stopping)], &[], "one is going"),
            (&[(1, Running), (1, Running), (1, Running), (2, Assigned)], &[], "one is coming"),
            (&[(1, Running), (1, Running), (1, Running), (2, Running)], &[2], "the next"),
            (&all(Pending), &[7, 6, 5, 4, 3, 2, 1, 0], "nobody misses them"),
            (&[(1, Running), (1, Failed), (1, Assigned), (1, Running)], &[2, 1], "these two, and no third"),
            (&[(2, Running), (2, Failed), (2, Pending)], &[], "all new"),
            (&[(3, Running)], &[], "newer than what was read"),
        ] {
            let held = slots(holders);
            let plan = now(&service(holders.len() as u32, 2, Active), &held);
            let replicas: Vec<u32> = plan.stop.iter().map(|stop| stop.replica).collect();
            assert_eq!(replicas, expected, "{why}");
            assert!(plan.stop.iter().all(|stop| stop.why == Why::Replaced));
        }
    }

    #[test]
    fn a_new_generation_that_does_not_come_up_leaves_the_old_one() {
        let mut held = slots(&[(1, Phase::Running), (1, Phase::Running), (1, Phase::Running)]);
        let mut looping = record("web", 3, 2, Phase::Running);
        looping.reason = "CrashLoopBackOff".into();
        held.push(slot(looping));
        assert!(now(&service(4, 2, Active), &held).stop.is_empty());
    }

    #[test]
    fn an_old_pod_that_is_not_well_goes_at_once() {
        let mut looping = record("web", 0, 1, Phase::Running);
        looping.reason = "CrashLoopBackOff".into();
        let mut held = vec![slot(looping)];
        held.extend(slots(&[(1, Phase::Stopping); 4]).split_off(1));
        assert_eq!(stops(&now(&service(4, 2, Active), &held)), [(0, Why::Replaced)]);
    }
}
