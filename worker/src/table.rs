//! What one life of a worker knows of its pods: those it holds, those it is starting, containers on their way out.
//!
//! Everything here can be found again from Redis and the engine; it is lost with the life. One lock, never held across
//! an await.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use common::clock::BootInstant;
use common::ids::{AssignmentId, PodId, ServiceName};
use common::payload::Payload;
use common::spec::{OnDisconnect, PodSpec, RestartPolicy};
use tokio::sync::Notify;

use crate::step::Wish;

/// A pod that runs here as far as Redis is concerned: its payload is in `cs`.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) payload: Payload,
    pub(crate) service: Option<ServiceName>,
    pub(crate) assignment: AssignmentId,
    pub(crate) rules: Rules,
    pub(crate) wish: Wish,
    /// Something is being done to it; nobody else touches it meanwhile.
    pub(crate) busy: bool,
    /// Grows with each change, so that what was seen before a change is not taken for what is.
    pub(crate) version: u64,
    pub(crate) restarts: u32,
    pub(crate) streak: u32,
    pub(crate) up_since: Option<BootInstant>,
    pub(crate) restart_at: Option<BootInstant>,
    pub(crate) retry_at: Option<BootInstant>,
    /// How it is, and whether Redis has been told.
    pub(crate) status: Status,
    pub(crate) told: bool,
}

impl Held {
    pub(crate) fn new(
        payload: Payload,
        service: Option<ServiceName>,
        assignment: AssignmentId,
        rules: Rules,
    ) -> Self {
        Self {
            payload,
            service,
            assignment,
            rules,
            wish: Wish::Run,
            busy: false,
            version: 0,
            restarts: 0,
            streak: 0,
            up_since: None,
            restart_at: None,
            retry_at: None,
            status: Status::default(),
            told: true,
        }
    }

    /// Takes note of how it is; Redis is to be told.
    pub(crate) fn says(&mut self, status: Status) {
        self.told = false;
        self.status = status;
    }
}

/// What of a pod's specification matters after its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) restart: RestartPolicy,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) grace: Duration,
}

impl Rules {
    pub(crate) fn of(spec: &PodSpec) -> Self {
        let restart = spec.containers.first().map(|container| container.restart).unwrap_or_default();
        Self { restart, on_disconnect: spec.on_disconnect, grace: spec.grace() }
    }
}

/// How a pod is: what a report says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) restarts: u32,
    pub(crate) exit_code: Option<i64>,
}

/// A pod whose payload is in `rq`, in the hands of one start.
struct Starting {
    raw: Bytes,
    assignment: Option<AssignmentId>,
    /// Another copy of its payload was seen: look again when this one is through.
    duplicate: bool,
    /// Somebody may want it stopped, or it may have moved: ask Redis again before going on.
    recheck: Arc<Notify>,
    /// When somebody asked to stop it.
    stop: bool,
}

#[derive(Default)]
struct Inner {
    held: HashMap<PodId, Held>,
    starting: HashMap<PodId, Starting>,
    /// Containers that are being stopped and removed, by handle, with their pod.
    leaving: HashMap<String, PodId>,
    /// Containers of pods that ended, kept for their logs; oldest first.
    ended: Vec<Ended>,
    versions: u64,
}

/// A container kept for its logs.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) pod: PodId,
    pub(crate) assignment: AssignmentId,
    pub(crate) at: BootInstant,
}

/// What [`Table::begin`] found.
pub(crate) enum Begun {
    /// It is the caller's to start. The `Notify` says when to ask Redis again.
    Mine(Arc<Notify>),
    /// It is being started already.
    Twin,
}

/// What [`Table::room_for`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// Nothing is in the way.
    Free,
    /// Something of an older assignment is.
    Taken,
    /// Something is being done to the pod as this assignment: what comes of it may be another assignment.
    Busy,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Table {
    inner: Mutex<Inner>,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Starting.

    /// Takes a payload in hand, unless its pod is in somebody's hands already.
    pub(crate) fn begin(&self, payload: &Payload) -> Begun {
        let mut inner = self.lock();
        if let Some(twin) = inner.starting.get_mut(&payload.id) {
            twin.duplicate = true;
            return Begun::Twin;
        }
        let recheck = Arc::new(Notify::new());
        let starting = Starting {
            raw: payload.raw.clone(),
            assignment: None,
            duplicate: false,
            recheck: recheck.clone(),
            stop: false,
        };
        inner.starting.insert(payload.id.clone(), starting);
        Begun::Mine(recheck)
    }

    /// Whether somebody works on exactly these bytes.
    pub(crate) fn is_in_hand(&self, raw: &Bytes) -> bool {
        self.lock().starting.values().any(|starting| starting.raw == *raw)
    }

    /// As which assignment a pod is being started.
    pub(crate) fn starts_as(&self, pod: &PodId, assignment: &AssignmentId) {
        if let Some(starting) = self.lock().starting.get_mut(pod) {
            starting.assignment = Some(assignment.clone());
        }
    }

    /// It is in nobody's hands any more; gives whether a copy of its payload waits.
    pub(crate) fn let_go(&self, pod: &PodId) -> bool {
        self.lock().starting.remove(pod).is_some_and(|starting| starting.duplicate)
    }

    /// From starting to held in one step; a stop that was asked for meanwhile is not forgotten. Gives what is to be
    /// done with it.
    pub(crate) fn hold_started(&self, mut held: Held) -> Wish {
        let mut inner = self.lock();
        let id = held.payload.id.clone();
        if inner.starting.get(&id).is_some_and(|starting| starting.stop) {
            held.wish = Wish::Stop;
        }
        let wish = held.wish;
        inner.insert(id, held);
        wish
    }

    /// Pods that may begin to run here and perhaps must not run twice: held ones that may be started again, and those
    /// that are being started.
    pub(crate) fn never_twice(&self) -> Vec<(PodId, AssignmentId)> {
        let inner = self.lock();
        let twice = |held: &&Held| held.rules.on_disconnect == OnDisconnect::Stop;
        let held = inner.held.values().filter(twice);
        let held = held.map(|held| (held.payload.id.clone(), held.assignment.clone()));
        let starting =
            inner.starting.iter().filter_map(|(pod, s)| Some((pod.clone(), s.assignment.clone()?)));
        held.chain(starting).collect()
    }

    /// Makes every start that waits ask Redis again.
    pub(crate) fn recheck_all(&self) {
        for starting in self.lock().starting.values() {
            starting.recheck.notify_one();
        }
    }

    // Held.

    /// Holds a pod that was found in `cs`, unless it is known already.
    pub(crate) fn adopt(&self, held: Held) {
        let mut inner = self.lock();
        let id = held.payload.id.clone();
        if !inner.held.contains_key(&id) && !inner.starting.contains_key(&id) {
            inner.insert(id, held);
        }
    }

    /// Whether something has to be done about it that a container of this pod began to run, or that anything else
    /// happened to it. Not when that is our own doing, or when nothing is held that could miss it.
    pub(crate) fn is_news(&self, pod: &PodId, began: bool) -> bool {
        let inner = self.lock();
        let is_starting = inner.starting.contains_key(pod);
        let is_idle = inner.held.get(pod).is_some_and(|held| !held.busy);
        if began { !is_starting } else { is_starting || is_idle }
    }

    /// Whether a pod is held or being started.
    pub(crate) fn knows(&self, pod: &PodId) -> bool {
        let inner = self.lock();
        inner.held.contains_key(pod) || inner.starting.contains_key(pod)
    }

    pub(crate) fn get(&self, pod: &PodId) -> Option<Held> {
        self.lock().held.get(pod).cloned()
    }

    pub(crate) fn held(&self) -> usize {
        self.lock().held.len()
    }

    /// All held pods nobody is busy with.
    pub(crate) fn idle(&self) -> Vec<Held> {
        self.lock().held.values().filter(|held| !held.busy).cloned().collect()
    }

    /// Changes a held pod, if it still is held as this assignment.
    pub(crate) fn update<T>(
        &self,
        pod: &PodId,
        assignment: &AssignmentId,
        change: impl FnOnce(&mut Held) -> T,
    ) -> Option<T> {
        let mut inner = self.lock();
        let version = inner.next_version();
        let held = inner.held.get_mut(pod).filter(|held| held.assignment == *assignment)?;
        held.version = version;
        Some(change(held))
    }

    /// Makes it busy, if it is exactly as it was seen. Who gets `true` must end with [`Table::update`] or
    /// [`Table::forget`].
    pub(crate) fn take(&self, seen: &Held) -> bool {
        let mut inner = self.lock();
        let found = inner.held.get_mut(&seen.payload.id);
        let same = |held: &&mut Held| held.version == seen.version && !held.busy;
        found.filter(same).map(|held| held.busy = true).is_some()
    }

    /// Holds it no more.
    pub(crate) fn forget(&self, pod: &PodId, assignment: &AssignmentId) {
        let mut inner = self.lock();
        if inner.held.get(pod).is_some_and(|held| held.assignment == *assignment) {
            inner.held.remove(pod);
        }
    }

    /// Somebody wants this pod stopped. Gives whether it is known here.
    pub(crate) fn stop(&self, pod: &PodId) -> bool {
        let mut inner = self.lock();
        let version = inner.next_version();
        let mut known = false;
        if let Some(starting) = inner.starting.get_mut(pod) {
            if !std::mem::replace(&mut starting.stop, true) {
                starting.recheck.notify_one();
            }
            known = true;
        }
        if let Some(held) = inner.held.get_mut(pod) {
            if held.wish == Wish::Run {
                held.wish = Wish::Stop;
                held.version = version;
                (held.restart_at, held.retry_at) = (None, None);
            }
            known = true;
        }
        known
    }

    /// This pod as this assignment is not this node's any more. Gives whether it is known here as such.
    pub(crate) fn disown(&self, pod: &PodId, assignment: &AssignmentId) -> bool {
        let mut inner = self.lock();
        let version = inner.next_version();
        if let Some(held) = inner.held.get_mut(pod).filter(|held| held.assignment == *assignment) {
            if held.wish != Wish::Drop {
                (held.wish, held.version, held.retry_at) = (Wish::Drop, version, None);
            }
            return true;
        }
        match inner.starting.get(pod) {
            Some(starting) if starting.assignment.as_ref() == Some(assignment) => {
                starting.recheck.notify_one();
                true
            }
            Some(_) | None => false,
        }
    }

    /// The next moment at which a held pod wants to be looked at.
    pub(crate) fn next_due(&self, now: BootInstant) -> Option<BootInstant> {
        let inner = self.lock();
        let idle = inner.held.values().filter(|held| !held.busy);
        // What is past already was not acted upon for a reason that only a change can remove.
        idle.flat_map(|held| [held.restart_at, held.retry_at]).flatten().filter(|at| *at > now).min()
    }

    /// Of all pods and assignments that this worker believes to be its own the next `count` after this one, round and
    /// round, each once.
    pub(crate) fn claims_after(&self, after: Option<&PodId>, count: usize) -> Vec<(PodId, AssignmentId)> {
        let inner = self.lock();
        let held = inner.held.values().map(|held| (&held.payload.id, &held.assignment));
        let starting = inner.starting.iter().filter_map(|(pod, s)| Some((pod, s.assignment.as_ref()?)));
        let mut claims: Vec<_> = held.chain(starting).collect();
        claims.sort_unstable_by_key(|(pod, assignment)| (Some(*pod) <= after, *pod, *assignment));
        claims.dedup_by_key(|(pod, _)| *pod);
        claims.into_iter().take(count).map(|(pod, assignment)| (pod.clone(), assignment.clone())).collect()
    }

    // Containers on their way out.

    /// Whether a container with these labels is accounted for: held, being started, leaving, or kept for its logs.
    pub(crate) fn accounts_for(&self, handle: &str, pod: &PodId, assignment: &AssignmentId) -> bool {
        let inner = self.lock();
        inner.held.get(pod).is_some_and(|held| held.assignment == *assignment)
            || inner.starting.get(pod).is_some_and(|s| s.assignment.as_ref() == Some(assignment))
            || inner.leaving.contains_key(handle)
            || inner.ended.iter().any(|ended| ended.pod == *pod && ended.assignment == *assignment)
    }

    /// A container is about to be removed; false when it is on its way out already.
    pub(crate) fn leaves(&self, handle: &str, pod: &PodId) -> bool {
        self.lock().leaving.insert(handle.to_owned(), pod.clone()).is_none()
    }

    /// It was removed, or could not be.
    pub(crate) fn left(&self, handle: &str) {
        self.lock().leaving.remove(handle);
    }

    /// Whether a pod that was claimed may be started. What is held as an older assignment is disowned. What is held as this
    /// very one (a failover can put back a payload that runs) is held no more: the start decides about it alone, and
    /// nothing that was seen before it does.
    pub(crate) fn room_for(&self, pod: &PodId, assignment: &AssignmentId) -> Room {
        let mut inner = self.lock();
        let version = inner.next_version();
        if inner.leaving.values().any(|leaving| leaving == pod) {
            return Room::Taken;
        }
        let Some(held) = inner.held.get_mut(pod) else { return Room::Free };
        if held.assignment != *assignment {
            if held.wish != Wish::Drop {
                (held.wish, held.version, held.retry_at) = (Wish::Drop, version, None);
            }
            return Room::Taken;
        }
        if held.busy {
            return Room::Busy;
        }
        inner.held.remove(pod);
        Room::Free
    }

    /// The pod ended: its container stays for its logs.
    pub(crate) fn keep_ended(&self, ended: Ended) {
        self.lock().ended.push(ended);
    }

    /// Forgets kept containers beyond the newest `most` and those that ended before `before`; gives them.
    pub(crate) fn expire_ended(&self, most: usize, before: BootInstant) -> HashSet<(PodId, AssignmentId)> {
        let mut inner = self.lock();
        let surplus = inner.ended.len().saturating_sub(most);
        let old = inner.ended.iter().filter(|ended| ended.at < before).count();
        let expired = inner.ended.drain(..surplus.max(old));
        expired.map(|ended| (ended.pod, ended.assignment)).collect()
    }
}

impl Inner {
    fn next_version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    fn insert(&mut self, id: PodId, mut held: Held) {
        held.version = self.next_version();
        self.held.insert(id, held);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn payload(uuid: &str) -> Payload {
        Payload::parse(format!(r#"{{"name":"a","uuid":"{uuid}","image":"a","replica":0}}"#).into()).unwrap()
    }

    fn held(uuid: &str, assignment: &str) -> Held {
        let rules = Rules {
            restart: RestartPolicy::Always,
            on_disconnect: OnDisconnect::Stop,
            grace: Duration::ZERO,
        };
        Held::new(payload(uuid), None, AssignmentId::new(assignment).unwrap(), rules)
    }

    #[test]
    fn a_start_and_what_is_done_to_a_held_pod_never_overlap() {
        let table = Table::default();
        let (first, second) = (AssignmentId::new("first").unwrap(), AssignmentId::new("second").unwrap());
        let pod = payload("p").id;
        assert_eq!(table.room_for(&pod, &first), Room::Free);
        table.adopt(held("p", "first"));
        let seen = table.get(&pod).unwrap();

        assert!(table.take(&seen));
        assert_eq!(
            table.room_for(&pod, &first),
            Room::Busy,
            "it may be reported lost, and start again as another"
        );
        table.update(&pod, &first, |held| held.busy = false);

        let seen = table.get(&pod).unwrap();
        assert_eq!(table.room_for(&pod, &first), Room::Free);
        assert!(!table.take(&seen), "what was seen before the start is nothing to act upon");
        assert!(!table.knows(&pod));

        table.adopt(held("p", "first"));
        assert_eq!(table.room_for(&pod, &second), Room::Taken);
        assert_eq!(table.get(&pod).unwrap().wish, Wish::Drop);
        table.forget(&pod, &first);
        assert!(table.leaves("container", &pod));
        assert_eq!(table.room_for(&pod, &second), Room::Taken);
        table.left("container");
        assert_eq!(table.room_for(&pod, &second), Room::Free);
    }

    #[test]
    fn what_comes_of_our_own_starts_and_stops_is_no_news() {
        let table = Table::default();
        let pod = payload("p").id;
        let news = |table: &Table| (table.is_news(&pod, true), table.is_news(&pod, false));
        assert_eq!(news(&table), (true, false), "a container of nobody: only that it runs matters");
        table.begin(&payload("p"));
        assert_eq!(news(&table), (false, true), "it may end before it is held");
        table.let_go(&pod);
        table.adopt(held("p", "first"));
        assert_eq!(news(&table), (true, true));
        assert!(table.take(&table.get(&pod).unwrap()));
        assert_eq!(news(&table), (true, false), "whoever is busy with it looks when he is done");
    }

    #[test]
    fn beats_ask_about_everybody_in_turn_and_about_nobody_twice() {
        let table = Table::default();
        for n in 0..150 {
            let payload = payload(&format!("{n:03}"));
            table.begin(&payload);
            table.starts_as(&payload.id, &AssignmentId::new("a").unwrap());
        }
        let mut after = None;
        let firsts: Vec<String> = (0..3)
            .map(|_| {
                let asked = table.claims_after(after.as_ref(), 64);
                assert_eq!(asked.len(), 64);
                after = asked.last().map(|(pod, _)| pod.clone());
                asked[0].0.to_string()
            })
            .collect();
        assert_eq!(firsts, ["000", "064", "128"]);
        assert_eq!(after.as_ref().unwrap().as_str(), "041", "it goes on from the beginning");
        assert_eq!(table.claims_after(after.as_ref(), 1_000).len(), 150);
        assert!(Table::default().claims_after(None, 64).is_empty());
    }
}
