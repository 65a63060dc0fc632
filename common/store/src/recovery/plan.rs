//! Plans which saved objects to restore in Redis. Pure; an executed plan is followed by an empty one.
//! Existing records, taken slots, and services of the same or a newer revision stay.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::recovery::saved_state::{SavedPod, SavedService, SavedSpec, SavedState};
use crate::service::stored_spec::SpecFile;
use model::RedisMillis;
use model::ids::{AssignmentId, NodeName, PodId, ServiceName, SpecId};
use model::network::PublishedPort;
use model::node::{ResourceIds, Resources};
use model::pod::EndedRun;
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use model::pod::slot::Slot;
use model::spec::PodSpec;
use model::time::rfc3339;

const MAX_PROBLEMS: usize = 50;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownState {
    pub services: BTreeMap<ServiceName, KnownService>,
    /// Contains saved pods and those in a slot of the same replica.
    pub records: BTreeSet<PodId>,
    /// `None` if each saved pod is known to run on its node.
    pub nodes: Option<BTreeSet<NodeName>>,
    pub with_deleted: bool,
}

impl KnownState {
    /// Returns the time if it was after the save, and the service is not to be restored.
    pub fn deletion_of(&self, service: &ServiceName, saved: &SavedState) -> Option<RedisMillis> {
        let known =
            self.services.get(service).filter(|known| known.record.is_none() && !self.with_deleted)?;
        // Another service of this name may have been created and saved since.
        let created_at = saved.services.get(service).map_or(0, SavedService::created_at);
        known.deleted_at.filter(|at| *at >= created_at)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownService {
    /// `None` if it has only slots.
    pub record: Option<KnownRecord>,
    pub slots: BTreeMap<Slot, PodId>,
    pub deleted_at: Option<RedisMillis>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KnownRecord {
    pub revision: u64,
    pub generation: u64,
    /// 0 while it is being deleted.
    pub replicas: u32,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecoveryPlan {
    pub services: Vec<ServiceRecovery>,
    pub pushed: Vec<PodRecovery>,
    pub present: usize,
    /// Saved objects that are not written, one sentence each.
    pub problems: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ServiceRecovery {
    pub name: ServiceName,
    pub record: Option<SavedService>,
    pub specs: Vec<SavedSpec>,
    pub pods: Vec<PodRecovery>,
    pub replicas: u32,
    /// Pods without a saved state, which will be created anew.
    pub missing: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PodRecovery {
    pub payload: Payload,
    pub slot: Slot,
    /// `Pending` if its node is unknown.
    pub phase: Phase,
    pub placement: Option<(NodeName, AssignmentId)>,
    pub generation: u64,
    pub restarts: u32,
    pub address: String,
    pub published_ports: Vec<PublishedPort>,
    pub resource_ids: ResourceIds,
    /// 0 if unknown.
    pub created_at: RedisMillis,
    pub runs: Vec<EndedRun>,
    pub request: Resources,
}

impl RecoveryPlan {
    pub fn is_empty(&self) -> bool {
        self.pushed.is_empty() && self.services.iter().all(ServiceRecovery::is_empty)
    }

    pub fn pod_count(&self) -> usize {
        self.pushed.len() + self.services.iter().map(|service| service.pods.len()).sum::<usize>()
    }
}

impl ServiceRecovery {
    pub fn is_empty(&self) -> bool {
        self.record.is_none() && self.pods.is_empty()
    }
}

/// Returns saved pods without a record whose slot is taken or not desired, or whose service was deleted. An
/// older state of a service, as after a restore, does not count.
pub fn unwanted(known: &KnownState, saved: &SavedState) -> BTreeSet<PodId> {
    let is_unwanted = |service: &ServiceName, payload: &Payload| {
        if known.deletion_of(service, saved).is_some() {
            return true;
        }
        let revision = saved.services.get(service).map_or(0, SavedService::revision);
        let Some(found) = known.services.get(service) else { return false };
        let Some(record) = found.record.filter(|record| record.revision >= revision) else { return false };
        let slots =
            [Slot::first(payload.replica), Slot::second(payload.replica)].map(|slot| found.slots.get(&slot));
        let is_replaced = slots[0].is_some_and(|holder| known.records.contains(holder));
        !slots.contains(&Some(&payload.id)) && (is_replaced || payload.replica >= record.replicas)
    };
    let pods = saved.pods.iter().filter_map(|pod| {
        let payload = pod.parsed().ok()?;
        let service = pod.service.as_ref()?;
        (!known.records.contains(&payload.id) && is_unwanted(service, &payload)).then_some(payload.id)
    });
    pods.collect()
}

pub fn plan(known: &KnownState, saved: &SavedState) -> RecoveryPlan {
    let mut planner = Planner { known, saved, plan: RecoveryPlan::default(), pods: BTreeMap::new() };
    planner.place_pods();
    planner.plan_services();
    planner.plan
}

struct Planner<'a> {
    known: &'a KnownState,
    saved: &'a SavedState,
    plan: RecoveryPlan,
    pods: BTreeMap<ServiceName, BTreeMap<Slot, PodRecovery>>,
}

impl<'a> Planner<'a> {
    fn place_pods(&mut self) {
        let mut problems = RecoveryProblems::default();
        for (payload, pod) in self.readable_pods(&mut problems) {
            let id = &payload.id;
            if self.known.records.contains(id) {
                self.plan.present += 1;
                continue;
            }
            match &pod.service {
                None => {
                    let recovery = self.recovery(payload, pod);
                    self.plan.pushed.push(recovery);
                }
                Some(service) if self.known.deletion_of(service, self.saved).is_some() => {}
                Some(service) => {
                    if let Err(problem) = self.place_in_slot(service, payload, pod) {
                        problems.add(problem);
                    }
                }
            }
        }
        self.plan.problems = problems.into_lines();
    }

    /// Drops duplicates. Running pods, newer generations and younger assignments come first.
    fn readable_pods(&self, problems: &mut RecoveryProblems) -> Vec<(Payload, &'a SavedPod)> {
        let mut pods = Vec::with_capacity(self.saved.pods.len());
        for pod in self.saved.pods.iter().filter(|pod| pod.phase != Phase::Stopped) {
            match pod.parsed() {
                Ok(payload) => pods.push((payload, pod)),
                Err(invalid) => problems.add(format!("a saved pod on {} is broken: {invalid}", place(pod))),
            }
        }
        let mut pods = youngest_copies(pods, problems);
        pods.sort_by(|(a, one), (b, other)| {
            let key =
                |pod: &SavedPod| (pod.phase != Phase::Running, Reverse(pod.generation), Reverse(pod.since));
            (key(one), &a.id).cmp(&(key(other), &b.id))
        });
        pods
    }

    fn place_in_slot(
        &mut self,
        service: &ServiceName,
        payload: Payload,
        pod: &SavedPod,
    ) -> Result<(), String> {
        let known = self.known.services.get(service);
        if known.is_none_or(|known| known.record.is_none()) && !self.saved.services.contains_key(service) {
            return Err(format!(
                "pod {} on {} is of service {service}, which was not saved: apply that service, then try again",
                payload.id,
                place(pod)
            ));
        }
        let replica = payload.replica;
        let (first, second) = (Slot::first(replica), Slot::second(replica));
        let planned = |slot: Slot| self.pods.get(service)?.get(&slot).map(|pod| &pod.payload);
        let is_other = |id: &&PodId| **id != payload.id;
        let taken_before = |slot: Slot| known.and_then(|known| known.slots.get(&slot)).filter(is_other);
        let holder = |slot: Slot| taken_before(slot).or_else(|| Some(&planned(slot)?.id));
        // During a replacement the second pod has another specification.
        let is_replaced = planned(first).is_some_and(|other| other.spec != payload.spec);
        let slot = match holder(first) {
            None => first,
            Some(_) if is_replaced && holder(second).is_none() => second,
            Some(holder) => {
                return Err(format!(
                    "pod {} on {} is not recovered: pod {holder} has its slot {service}-{replica}",
                    payload.id,
                    place(pod)
                ));
            }
        };
        let recovery = PodRecovery { slot, ..self.recovery(payload, pod) };
        self.pods.entry(service.clone()).or_default().insert(slot, recovery);
        Ok(())
    }

    fn recovery(&self, payload: Payload, pod: &SavedPod) -> PodRecovery {
        let (phase, placement) = self.placement(pod);
        PodRecovery {
            slot: Slot::first(payload.replica),
            phase,
            placement,
            generation: pod.service.as_ref().map_or(0, |service| self.generation(service, &payload, pod)),
            restarts: pod.restarts,
            address: pod.address.clone(),
            published_ports: pod.published_ports.clone(),
            resource_ids: pod.resource_ids.clone(),
            created_at: pod.created_at,
            runs: pod.runs.clone(),
            request: self.request(&payload),
            payload,
        }
    }

    /// A starting pod counts as running: its worker starts it if it has no container.
    fn placement(&self, pod: &SavedPod) -> (Phase, Option<(NodeName, AssignmentId)>) {
        let is_known = |node: &NodeName| self.known.nodes.as_ref().is_none_or(|nodes| nodes.contains(node));
        let placement = pod.node.clone().zip(pod.assignment.clone()).filter(|(node, _)| is_known(node));
        match pod.phase {
            Phase::Succeeded | Phase::Failed => (pod.phase, placement),
            Phase::Stopping if placement.is_some() => (Phase::Stopping, placement),
            Phase::Assigned | Phase::Running if placement.is_some() => (Phase::Running, placement),
            _ => (Phase::Pending, None),
        }
    }

    /// An unknown generation is an earlier one if the specification is not the current one.
    fn generation(&self, service: &ServiceName, payload: &Payload, pod: &SavedPod) -> u64 {
        let of_spec = payload.spec.as_ref().and_then(|id| self.spec(id)).map_or(0, |spec| spec.generation);
        let known = pod.generation.max(of_spec);
        if known > 0 {
            return known;
        }
        let saved = self.saved.services.get(service).map_or(0, SavedService::generation);
        let known = self.known.services.get(service).and_then(|known| known.record);
        saved.max(known.map_or(0, |record| record.generation)).saturating_sub(1).max(1)
    }

    fn spec(&self, id: &SpecId) -> Option<SavedSpec> {
        let current = || {
            let mut specs = self.saved.services.values().filter_map(SavedService::spec);
            specs.find(|spec| spec.id == *id)
        };
        self.saved.specs.get(id).cloned().or_else(current)
    }

    fn request(&self, payload: &Payload) -> Resources {
        let pod = match &payload.spec {
            Some(id) => self.spec(id).and_then(|spec| spec.pod()),
            None => payload.inline_spec().ok().map(|inline| inline.pod),
        };
        pod.as_ref().map_or(Resources { pods: 1, ..Resources::default() }, PodSpec::request)
    }

    fn plan_services(&mut self) {
        let names: BTreeSet<ServiceName> =
            self.saved.services.keys().chain(self.pods.keys()).cloned().collect();
        for name in names {
            let pods = self.pods.remove(&name).unwrap_or_default();
            let known = self.known.services.get(&name);
            let known_record = known.and_then(|known| known.record);
            let saved = self.saved.services.get(&name);
            let is_newer =
                |saved: &&SavedService| known_record.is_none_or(|known| saved.revision() > known.revision);
            if let Some(at) = self.known.deletion_of(&name, self.saved) {
                self.plan.problems.push(format!(
                    "service {name} was deleted at {}, after this was saved: it is not recovered; with --deleted it is",
                    rfc3339(at)
                ));
                continue;
            }
            let record = saved.filter(is_newer).cloned();
            let replicas = match &record {
                Some(saved) if saved.is_active() => saved.replicas(),
                Some(_) => 0,
                None => known_record.map_or(0, |known| known.replicas),
            };
            let slots = known.iter().flat_map(|known| known.slots.keys()).chain(pods.keys());
            let taken: BTreeSet<u32> =
                slots.map(|slot| slot.replica).filter(|replica| *replica < replicas).collect();
            let missing = replicas.saturating_sub(taken.len() as u32);
            let used: BTreeSet<&SpecId> = pods.values().filter_map(|pod| pod.payload.spec.as_ref()).collect();
            let mut specs: BTreeMap<SpecId, SavedSpec> =
                used.into_iter().filter_map(|id| Some((id.clone(), self.spec(id)?))).collect();
            if let Some(spec) = record.as_ref().and_then(SavedService::spec) {
                specs.insert(spec.id.clone(), spec);
            }
            let (specs, pods) = (specs.into_values().collect(), pods.into_values().collect());
            let service = ServiceRecovery { name, record, specs, pods, replicas, missing };
            if !service.is_empty() {
                self.plan.services.push(service);
            }
        }
    }
}

/// The youngest assignment wins: nodes with older ones have not noticed that the pod moved.
fn youngest_copies<'a>(
    mut pods: Vec<(Payload, &'a SavedPod)>,
    problems: &mut RecoveryProblems,
) -> Vec<(Payload, &'a SavedPod)> {
    pods.sort_by(|(a, one), (b, other)| {
        let age = |pod: &SavedPod| (Reverse(pod.since), pod.phase != Phase::Running, Reverse(pod.generation));
        let rest = |pod: &'a SavedPod| (&pod.node, &pod.service, &pod.assignment);
        let (first, second) = ((&a.id, age(one)), (&b.id, age(other)));
        first.cmp(&second).then_with(|| (rest(one), a.replica).cmp(&(rest(other), b.replica)))
    });
    let mut copies: Vec<(Payload, &SavedPod)> = Vec::with_capacity(pods.len());
    for (payload, pod) in pods {
        let Some((first, kept)) = copies.last().filter(|(first, _)| first.id == payload.id) else {
            copies.push((payload, pod));
            continue;
        };
        if (&kept.node, &kept.assignment) != (&pod.node, &pod.assignment) {
            problems.add(format!(
                "pod {} is saved on {} and on {}: it stays on {}",
                first.id,
                place(kept),
                place(pod),
                place(kept)
            ));
        }
    }
    copies
}

impl SavedSpec {
    pub fn pod(&self) -> Option<PodSpec> {
        SpecFile::read(self.text.as_bytes()).ok()
    }
}

fn place(pod: &SavedPod) -> String {
    pod.node.as_ref().map_or_else(|| "no node".to_owned(), |node| format!("node {node}"))
}

#[derive(Default)]
struct RecoveryProblems {
    lines: Vec<String>,
    more: usize,
}

impl RecoveryProblems {
    fn add(&mut self, line: String) {
        if self.lines.len() < MAX_PROBLEMS {
            self.lines.push(line);
        } else {
            self.more += 1;
        }
    }

    fn into_lines(mut self) -> Vec<String> {
        if self.more > 0 {
            self.lines.push(format!("and {} more pods are not recovered", self.more));
        }
        self.lines
    }
}

#[cfg(test)]
mod tests;
