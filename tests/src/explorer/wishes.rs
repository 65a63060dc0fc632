//! What was acknowledged to the outside: what has to be there when everything has come to rest.

use std::collections::{BTreeMap, BTreeSet};

use super::checks::junk_in;
use super::view::{Heads, View};

/// A service as it was last acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) replicas: u32,
    pub(super) image: String,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Wishes {
    /// None: deleted. With the step at which it was acknowledged.
    services: BTreeMap<String, (Option<Wanted>, u64)>,
    /// Pushed pods by uuid: whether it is wanted, and how often it was pushed.
    pushed: BTreeMap<String, (bool, usize)>,
    /// What was pushed and is no pod, and how often.
    junk: BTreeMap<String, usize>,
    /// Pods of before a failover: copies of their payloads may lie about.
    rolled_back: BTreeSet<String>,
    /// Pods whose payload somebody removed: it may be nowhere, and put back while it is on its way.
    lost: BTreeSet<String>,
}

impl Wishes {
    pub(super) fn acknowledge(&mut self, service: &str, wanted: Option<Wanted>, at: u64) {
        self.services.insert(service.to_owned(), (wanted, at));
    }

    /// What a service's user believes.
    pub(super) fn of(&self, service: &str) -> Option<&Wanted> {
        self.services.get(service)?.0.as_ref()
    }

    pub(super) fn push(&mut self, uuid: &str) {
        let (_, copies) = self.pushed.entry(uuid.to_owned()).or_insert((true, 0));
        *copies += 1;
    }

    pub(super) fn unwant(&mut self, uuid: &str) {
        if let Some((wanted, _)) = self.pushed.get_mut(uuid) {
            *wanted = false;
        }
    }

    /// Pushed pods that are wanted.
    pub(super) fn pushed(&self) -> Vec<String> {
        self.pushed.iter().filter(|(_, (wanted, _))| *wanted).map(|(uuid, _)| uuid.clone()).collect()
    }

    pub(super) fn push_junk(&mut self, junk: &str) {
        *self.junk.entry(junk.to_owned()).or_default() += 1;
    }

    pub(super) fn junk(&self) -> &BTreeMap<String, usize> {
        &self.junk
    }

    pub(super) fn lose(&mut self, uuid: &str) {
        self.lost.insert(uuid.to_owned());
    }

    pub(super) fn may_be_nowhere(&self, uuid: &str) -> bool {
        self.lost.contains(uuid)
    }

    pub(super) fn may_be_copied(&self, uuid: &str) -> bool {
        self.lost.contains(uuid)
            || self.rolled_back.contains(uuid)
            || self.pushed.get(uuid).is_some_and(|(_, copies)| *copies > 1)
    }

    /// Redis has lost what was written since `step`: what was acknowledged since is not promised, and neither is
    /// `unsure`, whose reply was on the way. What is there counts.
    pub(super) fn roll_back(
        &mut self,
        step: u64,
        unsure: Option<&str>,
        view: &View,
        heads: &mut Heads,
        known: Vec<String>,
    ) {
        for (name, (wanted, at)) in &mut self.services {
            if *at >= step || unsure == Some(name) {
                let there = view.services.get(name).filter(|service| service.active);
                *wanted = there.map(|s| Wanted { replicas: s.replicas, image: s.image.clone() });
            }
        }
        let queues = view.payloads.iter().filter(|(key, _)| *key != "dq" && !key.starts_with("cs:"));
        let queued: BTreeSet<String> = queues
            .flat_map(|(_, raws)| raws)
            .filter_map(|raw| heads.pod_of(raw).map(str::to_owned))
            .collect();
        for (uuid, (wanted, copies)) in &mut self.pushed {
            *wanted = match view.pods.get(uuid) {
                Some(pod) => pod.is_live() && pod.phase != "stopping",
                None => queued.contains(uuid) && !view.stopped.contains(uuid),
            };
            *copies += 1;
        }
        self.junk = junk_in(view);
        self.rolled_back.extend(known);
    }

    pub(super) fn unfulfilled(&self, view: &View) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, (wanted, _)) in &self.services {
            let there = view.services.get(name);
            let taken: Vec<u32> =
                view.slots.get(name).map_or(Vec::new(), |slots| slots.keys().copied().collect());
            match (wanted, there) {
                (None, None) if taken.is_empty() => {}
                (Some(wanted), Some(there)) => {
                    if !there.active || there.replicas != wanted.replicas || there.image != wanted.image {
                        wrong.push(format!("invariant 1: {name} shall be {wanted:?} and is {there:?}"));
                    }
                    if taken != (0..wanted.replicas).collect::<Vec<_>>() {
                        wrong.push(format!(
                            "invariant 1: {name} has replicas {taken:?} of {}",
                            wanted.replicas
                        ));
                    }
                    let old = view
                        .pods
                        .values()
                        .filter(|pod| pod.service == *name && pod.generation != there.generation);
                    wrong.extend(
                        old.map(|pod| {
                            format!("invariant 1: replica {} of {name} is an old one", pod.replica)
                        }),
                    );
                }
                _ => wrong
                    .push(format!("invariant 1: {name} shall be {wanted:?} and is {there:?} with {taken:?}")),
            }
        }
        for (uuid, (wanted, _)) in &self.pushed {
            if view.pods.contains_key(uuid) != *wanted {
                wrong.push(format!("invariant 1: {uuid} was pushed; wanted: {wanted}, there: {}", !wanted));
            }
        }
        wrong
    }
}
