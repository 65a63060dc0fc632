//! The pods of one session: [managed](managed), [starting](starting), and [leftover](leftovers) containers.
//! All of it can be rebuilt from Redis and the engine. The lock is never held across an await.

mod checks;
mod container;
mod leftovers;
mod managed;
mod pod;
mod reasons;
mod starting;
mod status;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use daemon::clock::BootInstant;
use model::ids::{AssignmentId, NodeName, PodId};
use model::pod::payload::Payload;
use model::spec::{ContainerSpec, OnDisconnect};
use parking_lot::Mutex;
use store::saved_state::SavedPod;
use tokio::sync::watch;

pub(crate) use self::checks::ContainerChecks;
pub(crate) use self::container::ManagedContainer;
pub(crate) use self::leftovers::EndedPod;
use self::leftovers::Leftovers;
use self::managed::ManagedPods;
pub(crate) use self::managed::StartCheck;
pub(crate) use self::pod::{ManagedPod, ObservedPod};
pub(crate) use self::reasons::RESTARTED;
pub(crate) use self::starting::Admission;
use self::starting::Starts;
pub(crate) use self::status::PodStatus;
use crate::running::step::DesiredState;
use health::HealthChange;

#[derive(Default)]
pub(crate) struct PodTable {
    inner: Mutex<TableInner>,
}

#[derive(Default)]
struct TableInner {
    managed: ManagedPods,
    starts: Starts,
    leftovers: Leftovers,
}

impl TableInner {
    fn has(&self, pod: &PodId, assignment: &AssignmentId) -> bool {
        self.managed.is_managed_as(pod, assignment)
            || self.starts.is_starting_as(pod, assignment)
            || self.leftovers.is_kept(pod, assignment)
    }
}

impl PodTable {
    /// Must be followed by [`PodTable::release_start`].
    pub(crate) fn admit(&self, payload: &Payload) -> Admission {
        self.inner.lock().starts.admit(payload)
    }

    pub(crate) fn is_duplicate(&self, payload: &Payload) -> bool {
        self.inner.lock().starts.note_duplicate(&payload.id)
    }

    /// True if a duplicate payload arrived meanwhile.
    pub(crate) fn release_start(&self, pod: &PodId) -> bool {
        self.inner.lock().starts.release(pod)
    }

    pub(crate) fn is_starting_payload(&self, raw: &Bytes) -> bool {
        self.inner.lock().starts.has_payload(raw)
    }

    pub(crate) fn set_start_assignment(&self, pod: &PodId, assignment: &AssignmentId) {
        self.inner.lock().starts.set_assignment(pod, assignment);
    }

    pub(crate) fn recheck_starts(&self) {
        self.inner.lock().starts.recheck_all();
    }

    /// A stop may have been requested during the start.
    pub(crate) fn insert_started(&self, mut managed: ManagedPod) -> DesiredState {
        let mut inner = self.inner.lock();
        if inner.starts.is_stop_requested(&managed.payload.id) {
            managed.desired = DesiredState::Stop;
        }
        let desired = managed.desired;
        inner.managed.insert(managed);
        desired
    }

    /// A pod managed under this very assignment (a failover can put back its payload) leaves the table: only
    /// the start decides about it.
    pub(crate) fn can_start(&self, pod: &PodId, assignment: &AssignmentId) -> StartCheck {
        let mut inner = self.inner.lock();
        if inner.leftovers.is_removing_container_of(pod) {
            return StartCheck::Occupied;
        }
        inner.managed.make_way(pod, assignment)
    }
}

impl PodTable {
    pub(crate) fn insert_recovered(&self, managed: ManagedPod) {
        let mut inner = self.inner.lock();
        let pod = &managed.payload.id;
        if !inner.managed.contains(pod) && !inner.starts.contains(pod) {
            inner.managed.insert(managed);
        }
    }

    pub(crate) fn get(&self, pod: &PodId) -> Option<ManagedPod> {
        self.inner.lock().managed.get(pod).cloned()
    }

    pub(crate) fn reloading(&self) -> Vec<ManagedPod> {
        let inner = self.inner.lock();
        let is_reloading = |managed: &&ManagedPod| {
            let mut containers = managed.spec.containers.iter();
            let files = |one: &ContainerSpec| {
                one.secrets.iter().chain(&one.configs).any(|file| file.reload_signal().is_some())
            };
            managed.desired == DesiredState::Run && containers.any(files)
        };
        inner.managed.iter().filter(is_reloading).cloned().collect()
    }

    pub(crate) fn managed_count(&self) -> usize {
        self.inner.lock().managed.len()
    }

    pub(crate) fn note_health(&self, change: &HealthChange) -> Option<PodId> {
        self.inner.lock().managed.note_health(change)
    }

    pub(crate) fn handles(&self) -> HashSet<String> {
        self.inner.lock().managed.iter().flat_map(ManagedPod::handles).cloned().collect()
    }

    pub(crate) fn version(&self) -> u64 {
        self.inner.lock().managed.version()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.inner.lock().managed.changes()
    }

    pub(crate) fn map_managed<T, C: FromIterator<T>>(&self, of_one: impl Fn(&ManagedPod) -> Option<T>) -> C {
        self.inner.lock().managed.iter().filter_map(of_one).collect()
    }

    pub(crate) fn is_starting_as(&self, pod: &PodId, assignment: &AssignmentId) -> bool {
        self.inner.lock().starts.is_starting_as(pod, assignment)
    }

    pub(crate) fn to_save(&self, node: &NodeName) -> Vec<SavedPod> {
        let inner = self.inner.lock();
        let own = inner.managed.iter().filter(|managed| managed.desired != DesiredState::Discard);
        own.map(|managed| managed.to_save(node)).collect()
    }

    pub(crate) fn is_discarded(&self, pod: &PodId, assignment: &AssignmentId) -> bool {
        let inner = self.inner.lock();
        let managed = inner.managed.get(pod).filter(|managed| managed.assignment == *assignment);
        managed.is_some_and(|managed| managed.desired == DesiredState::Discard)
    }

    pub(crate) fn idle(&self) -> Vec<ManagedPod> {
        self.inner.lock().managed.idle().cloned().collect()
    }

    pub(crate) fn update<T>(
        &self,
        pod: &PodId,
        assignment: &AssignmentId,
        change: impl FnOnce(&mut ManagedPod) -> T,
    ) -> Option<T> {
        self.inner.lock().managed.update(pod, assignment, change)
    }

    /// After `true` the caller must end with [`PodTable::update`] or [`PodTable::remove`].
    pub(crate) fn mark_busy(&self, seen: &ManagedPod) -> bool {
        self.inner.lock().managed.mark_busy(seen)
    }

    pub(crate) fn note_observed(&self, seen: &ManagedPod, observed: &ObservedPod<'_>) -> Option<ManagedPod> {
        self.inner.lock().managed.note_observed(seen, observed)
    }

    pub(crate) fn remove(&self, pod: &PodId, assignment: &AssignmentId) {
        self.inner.lock().managed.remove(pod, assignment);
    }

    /// Pods due at `looked_at` were left for a reason that only a change can remove.
    pub(crate) fn next_due(&self, looked_at: BootInstant, recovers_after: Duration) -> Option<BootInstant> {
        let inner = self.inner.lock();
        let times = inner.managed.idle().flat_map(|managed| due_times(managed, recovers_after));
        times.filter(|at| *at > looked_at).min()
    }

    pub(crate) fn due(
        &self,
        (looked_at, now): (BootInstant, BootInstant),
        recovers_after: Duration,
    ) -> Vec<(PodId, Option<String>)> {
        let inner = self.inner.lock();
        let is_due =
            |managed: &&ManagedPod| due_times(managed, recovers_after).any(|at| at > looked_at && at <= now);
        let due = inner.managed.idle().filter(is_due);
        due.map(|managed| (managed.payload.id.clone(), managed.handles().next().cloned())).collect()
    }
}

fn due_times(managed: &ManagedPod, recovers_after: Duration) -> impl Iterator<Item = BootInstant> {
    let of_container = move |container: &ManagedContainer| {
        let recovering_since = container.running_since.filter(|_| container.is_recovering());
        [container.restart_at, recovering_since.map(|since| since.plus(recovers_after))]
    };
    managed.containers.iter().flat_map(of_container).chain([managed.retry_at]).flatten()
}

impl PodTable {
    pub(crate) fn contains(&self, pod: &PodId) -> bool {
        let inner = self.inner.lock();
        inner.managed.contains(pod) || inner.starts.contains(pod)
    }

    pub(crate) fn request_stop(&self, pod: &PodId) -> bool {
        let mut inner = self.inner.lock();
        let is_starting = inner.starts.request_stop(pod);
        let is_managed = inner.managed.request_stop(pod);
        is_starting || is_managed
    }

    pub(crate) fn mark_foreign(&self, pod: &PodId, assignment: &AssignmentId) -> bool {
        let mut inner = self.inner.lock();
        inner.managed.mark_foreign(pod, assignment) || inner.starts.mark_foreign(pod, assignment)
    }

    /// Our own starts and actions are no news.
    pub(crate) fn is_news(&self, pod: &PodId, is_start: bool) -> bool {
        let inner = self.inner.lock();
        let is_starting = inner.starts.contains(pod);
        let is_idle = inner.managed.get(pod).is_some_and(|managed| !managed.busy);
        if is_start { !is_starting } else { is_starting || is_idle }
    }

    pub(crate) fn exclusive_assignments(&self) -> Vec<(PodId, AssignmentId)> {
        let inner = self.inner.lock();
        let exclusive = inner.managed.iter().filter(|pod| pod.spec.on_disconnect == OnDisconnect::Stop);
        let managed = exclusive.map(|managed| (&managed.payload.id, &managed.assignment));
        let all = managed.chain(inner.starts.assignments());
        all.map(|(pod, assignment)| (pod.clone(), assignment.clone())).collect()
    }

    /// In the order of ids after `after`, wrapping around.
    pub(crate) fn assignments_after(
        &self,
        after: Option<&PodId>,
        count: usize,
    ) -> Vec<(PodId, AssignmentId)> {
        let inner = self.inner.lock();
        let managed = inner.managed.iter().map(|managed| (&managed.payload.id, &managed.assignment));
        let mut all: Vec<_> = managed.chain(inner.starts.assignments()).collect();
        all.sort_unstable_by_key(|(pod, assignment)| (Some(*pod) <= after, *pod, *assignment));
        all.dedup_by_key(|(pod, _)| *pod);
        all.into_iter().take(count).map(|(pod, assignment)| (pod.clone(), assignment.clone())).collect()
    }
}

impl PodTable {
    pub(crate) fn accounts_for(&self, handle: &str, pod: &PodId, assignment: &AssignmentId) -> bool {
        let inner = self.inner.lock();
        inner.has(pod, assignment) || inner.leftovers.is_removing(handle)
    }

    pub(crate) fn has(&self, pod: &PodId, assignment: &AssignmentId) -> bool {
        self.inner.lock().has(pod, assignment)
    }

    pub(crate) fn begin_removal(&self, handle: &str, pod: &PodId) -> bool {
        self.inner.lock().leftovers.begin_removal(handle, pod)
    }

    pub(crate) fn end_removal(&self, handle: &str) {
        self.inner.lock().leftovers.end_removal(handle);
    }

    pub(crate) fn keep_ended(&self, ended: EndedPod) {
        self.inner.lock().leftovers.keep(ended);
    }

    pub(crate) fn ended(&self) -> Vec<EndedPod> {
        self.inner.lock().leftovers.ended().to_vec()
    }

    pub(crate) fn release_ended(&self, pod: &PodId, assignment: &AssignmentId) {
        self.inner.lock().leftovers.release(pod, assignment);
    }

    pub(crate) fn expire_ended(&self, max: usize, before: BootInstant) -> HashSet<(PodId, AssignmentId)> {
        self.inner.lock().leftovers.expire(max, before)
    }
}
