//! The acknowledged writes of clients.

use std::collections::{BTreeMap, BTreeSet};

use crate::checks::observed_state::{ObservedNode, PodIdCache, SimulatedState, count_junk};
use crate::workload::images::{image_in_the_end, is_global};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExpectedService {
    pub(crate) replicas: u32,
    pub(crate) image: String,
}

#[derive(Debug, Clone, Copy)]
struct PushedPod {
    is_wanted: bool,
    copies: usize,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ExpectedState {
    /// `None` if deleted.
    services: BTreeMap<String, (Option<ExpectedService>, u64)>,
    pushed: BTreeMap<String, PushedPod>,
    junk: BTreeMap<String, usize>,
    /// Copies of their payloads may remain after a failover.
    rolled_back: BTreeSet<String>,
    /// It may be in no queue, and may be requeued in transit.
    removed: BTreeSet<String>,
}

impl ExpectedState {
    pub(crate) fn acknowledge(&mut self, name: &str, service: Option<ExpectedService>, at: u64) {
        self.services.insert(name.to_owned(), (service, at));
    }

    pub(crate) fn service(&self, name: &str) -> Option<&ExpectedService> {
        self.services.get(name)?.0.as_ref()
    }

    pub(crate) fn push(&mut self, uuid: &str) {
        let pod = self.pushed.entry(uuid.to_owned()).or_insert(PushedPod { is_wanted: true, copies: 0 });
        pod.copies += 1;
    }

    pub(crate) fn delete_pushed(&mut self, uuid: &str) {
        if let Some(pod) = self.pushed.get_mut(uuid) {
            pod.is_wanted = false;
        }
    }

    pub(crate) fn pushed_pods(&self) -> Vec<String> {
        self.pushed.iter().filter(|(_, pod)| pod.is_wanted).map(|(uuid, _)| uuid.clone()).collect()
    }

    pub(crate) fn push_junk(&mut self, junk: &str) {
        *self.junk.entry(junk.to_owned()).or_default() += 1;
    }

    pub(crate) fn junk(&self) -> &BTreeMap<String, usize> {
        &self.junk
    }

    pub(crate) fn forget_junk(&mut self) {
        self.junk.clear();
    }

    pub(crate) fn remove_payload(&mut self, uuid: &str) {
        self.removed.insert(uuid.to_owned());
    }

    pub(crate) fn may_be_missing(&self, uuid: &str) -> bool {
        self.removed.contains(uuid)
    }

    pub(crate) fn may_be_duplicated(&self, uuid: &str) -> bool {
        self.removed.contains(uuid)
            || self.rolled_back.contains(uuid)
            || self.pushed.get(uuid).is_some_and(|pod| pod.copies > 1)
    }

    /// Later acknowledgements and that of `in_doubt`, with an operation in transit, are void. A backup of the
    /// time before `now` may bring them back.
    pub(crate) fn roll_back(
        &mut self,
        now: u64,
        since: u64,
        in_doubt: Option<&str>,
        observed: &SimulatedState,
        pod_ids: &mut PodIdCache,
        known_pods: Vec<String>,
    ) {
        for (name, (expected, at)) in &mut self.services {
            if *at >= since || in_doubt == Some(name) {
                let existing = observed.services.get(name).filter(|service| service.is_active);
                *expected = existing.map(|found| ExpectedService {
                    replicas: found.replicas,
                    image: image_in_the_end(&found.image),
                });
                *at = now;
            }
        }
        let queues = observed.payloads.iter().filter(|(key, _)| *key != "dq" && !key.starts_with("cs:"));
        let queued: BTreeSet<String> = queues
            .flat_map(|(_, payloads)| payloads)
            .filter_map(|payload| pod_ids.pod_of(payload).map(str::to_owned))
            .collect();
        for (uuid, pod) in &mut self.pushed {
            pod.is_wanted = match observed.pods.get(uuid) {
                Some(record) => record.is_active() && record.phase != "stopping",
                None => queued.contains(uuid) && !observed.stopped.contains(uuid),
            };
            pod.copies += 1;
        }
        self.junk = count_junk(observed);
        self.rolled_back.extend(known_pods);
    }

    pub(crate) fn differences(&self, observed: &SimulatedState) -> Vec<String> {
        let mut found = Vec::new();
        for (name, (expected, _)) in &self.services {
            compare_service(name, expected.as_ref(), observed, &mut found);
        }
        for (uuid, pod) in &self.pushed {
            let exists = observed.pods.contains_key(uuid);
            if exists != pod.is_wanted {
                let wanted = pod.is_wanted;
                found.push(format!("invariant 1: pushed pod {uuid}: expected {wanted}, exists {exists}"));
            }
        }
        found
    }
}

fn compare_service(
    name: &str,
    expected: Option<&ExpectedService>,
    observed: &SimulatedState,
    found: &mut Vec<String>,
) {
    let existing = observed.services.get(name);
    let slots: BTreeSet<&str> =
        observed.slots.get(name).map_or(BTreeSet::new(), |slots| slots.keys().map(String::as_str).collect());
    let (expected, existing) = match (expected, existing) {
        (None, None) if slots.is_empty() => return,
        (Some(expected), Some(existing)) => (expected, existing),
        _ => {
            found.push(format!(
                "invariant 1: service {name} is expected as {expected:?}, is {existing:?} \
                 with slots {slots:?}"
            ));
            return;
        }
    };
    let is_global = is_global(&expected.image);
    let has_replicas = is_global || existing.replicas == expected.replicas;
    if !existing.is_active || !has_replicas || existing.image != expected.image {
        found.push(format!("invariant 1: service {name} is expected as {expected:?}, is {existing:?}"));
    }
    if is_global {
        found.extend(wrong_nodes(name, observed));
    }
    let first_slots: Vec<String> = (0..expected.replicas).map(|replica| replica.to_string()).collect();
    if !is_global && slots != first_slots.iter().map(String::as_str).collect() {
        let replicas = expected.replicas;
        found.push(format!("invariant 1: service {name} has replicas {slots:?} of {replicas}"));
    }
    let pods = observed.pods.values().filter(|pod| pod.service == name);
    let outdated = pods.filter(|pod| pod.generation != existing.generation || pod.image != existing.image);
    found.extend(outdated.map(|pod| {
        format!("invariant 1: replica {} of service {name} is of an old generation", pod.replica)
    }));
}

/// A global service has one pod on each node that lives and has the label. None is cordoned in the end.
fn wrong_nodes(name: &str, observed: &SimulatedState) -> Option<String> {
    let is_eligible = |node: &ObservedNode| node.state == "alive" && node.has_label_disk;
    let nodes = observed.nodes.iter().filter(|(_, node)| is_eligible(node));
    let expected: Vec<&str> = nodes.map(|(name, _)| name.as_str()).collect();
    let slots = observed.slots.get(name).into_iter().flat_map(BTreeMap::values);
    let mut found: Vec<&str> =
        slots.map(|uuid| observed.pods.get(uuid).map_or("", |pod| pod.node.as_str())).collect();
    found.sort_unstable();
    (found != expected)
        .then(|| format!("global: {name} has pods on {found:?}, and {expected:?} are eligible"))
}
