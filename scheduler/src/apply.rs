//! Executes decisions about pods.
//!
//! Every payload here is in this scheduler's in-flight list until a script moves it. After an error its next
//! step takes the rest again; after its death, the reclaim loop of another one returns it.

use std::collections::HashMap;
use std::time::Duration;

use ::metrics::counter;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use model::ids::{AssignmentId, NodeName, PodId, SchedulerId, ServiceName};
use model::pod::Refusal;
use model::pod::payload::Payload;
use pending::InvalidPod;
use placement::Reason;
use store::{AssignOutcome, Assignment, ParkOutcome, Parked, RejectedPod, Store, StoreError};

use crate::metrics;

/// A few milliseconds of Redis per script.
const PODS_PER_SCRIPT: usize = 250;
/// The next is on its way while Redis runs one.
const CONCURRENT_SCRIPTS: usize = 3;

pub(crate) struct Executor<'a> {
    pub(crate) store: &'a Store,
    pub(crate) id: &'a SchedulerId,
    pub(crate) dead_after: Duration,
}

/// Where a pod of a step is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Settled {
    Assigned,
    Parked,
    /// Its payload was dropped, or others have it.
    Gone,
    DeadLetter,
    /// Still in flight: reject it.
    UnknownService,
    /// Still in flight, as in all that follow: decide again with fresh data.
    Refused,
    NodeBroken(StoreError),
    NodesChanged,
}

impl From<AssignOutcome> for Settled {
    fn from(outcome: AssignOutcome) -> Self {
        match outcome {
            AssignOutcome::Assigned => Self::Assigned,
            AssignOutcome::Stale | AssignOutcome::Gone => Self::Gone,
            AssignOutcome::UnknownService => Self::UnknownService,
            AssignOutcome::Refused => Self::Refused,
        }
    }
}

impl From<ParkOutcome> for Settled {
    fn from(outcome: ParkOutcome) -> Self {
        match outcome {
            ParkOutcome::Parked => Self::Parked,
            ParkOutcome::Stale | ParkOutcome::Gone => Self::Gone,
            ParkOutcome::UnknownService => Self::UnknownService,
            ParkOutcome::Changed => Self::NodesChanged,
        }
    }
}

/// Each script expects what the one before it leaves.
pub(crate) fn chain_marks(assignments: &mut [Assignment]) {
    let mut latest: HashMap<ServiceName, String> = HashMap::new();
    for script in assignments.chunks_mut(PODS_PER_SCRIPT) {
        let mut marks: HashMap<ServiceName, (String, String)> = HashMap::new();
        for Assignment { payload, counted, .. } in script {
            let Some((service, counted)) = payload.service().zip(counted.as_mut()) else { continue };
            for (name, seen) in &mut counted.related {
                latest.get(name).into_iter().for_each(|mark| seen.clone_from(mark));
            }
            let (seen, next) = marks.entry(service).or_insert_with_key(|service| {
                let seen = latest.get(service).unwrap_or(&counted.seen_mark).clone();
                (seen, AssignmentId::random().to_string())
            });
            (counted.seen_mark, counted.next_mark) = (seen.clone(), next.clone());
        }
        latest.extend(marks.into_iter().map(|(service, (_, next))| (service, next)));
    }
}

impl Executor<'_> {
    /// A node refuses if it has more pods than `max_pods`. With such a limit pass at most the pods of one
    /// script: each of them counts.
    ///
    /// After an error, some may have been assigned.
    pub(crate) async fn assign(
        &self,
        assignments: &[Assignment],
        max_pods: &(dyn Fn(&NodeName) -> Option<u64> + Sync),
    ) -> Result<Vec<Settled>, StoreError> {
        let scripts: Vec<_> =
            assignments.chunks(PODS_PER_SCRIPT).map(|chunk| self.assign_chunk(chunk, max_pods)).collect();
        let mut scripts = futures_util::stream::iter(scripts).buffered(CONCURRENT_SCRIPTS);
        let mut results = Vec::with_capacity(assignments.len());
        while let Some(chunk) = scripts.try_next().await? {
            results.extend(chunk);
        }
        let placed = results.iter().filter(|result| **result == Settled::Assigned).count();
        counter!(metrics::PODS_PLACED).increment(placed as u64);
        Ok(results)
    }

    async fn assign_chunk(
        &self,
        chunk: &[Assignment],
        max_pods: &(dyn Fn(&NodeName) -> Option<u64> + Sync),
    ) -> Result<Vec<Settled>, StoreError> {
        match self.store.assign_as_seen(self.id, self.dead_after, chunk, max_pods).await {
            Ok(outcomes) => Ok(outcomes.into_iter().map(Settled::from).collect()),
            Err(error) if error.is_broken_key() => {
                // One broken key fails the whole script.
                let mut results = Vec::with_capacity(chunk.len());
                for assignment in chunk {
                    results.push(self.assign_one(assignment).await?);
                }
                Ok(results)
            }
            Err(error) => Err(error),
        }
    }

    async fn assign_one(&self, assignment: &Assignment) -> Result<Settled, StoreError> {
        let answer = self.store.assign(self.id, self.dead_after, std::slice::from_ref(assignment)).await;
        let error = match answer {
            Ok(outcomes) => {
                return Ok(outcomes.into_iter().next().map_or(Settled::Gone, Settled::from));
            }
            Err(error) if error.is_broken_key() => error,
            Err(error) => return Err(error),
        };
        if self.is_pod_broken(&assignment.payload.id).await? {
            self.reject_broken(&assignment.payload.raw, &error).await?;
            return Ok(Settled::DeadLetter);
        }
        if self.is_node_broken(&assignment.node).await? {
            return Ok(Settled::NodeBroken(error));
        }
        // All pods need the broken key.
        Err(error)
    }

    /// `seen_freed` is that of the nodes' view, or `None` to park the pods whatever has happened to the
    /// nodes.
    ///
    /// After an error, some may have been recorded.
    pub(crate) async fn park(
        &self,
        parked: &[Parked],
        seen_freed: Option<u64>,
    ) -> Result<Vec<Settled>, StoreError> {
        let mut results = Vec::with_capacity(parked.len());
        for chunk in parked.chunks(PODS_PER_SCRIPT) {
            match self.store.park_as_seen(self.id, chunk, seen_freed).await {
                Ok(outcomes) => results.extend(outcomes.into_iter().map(Settled::from)),
                Err(error) if error.is_broken_key() => {
                    for parked in chunk {
                        results.push(self.park_one(parked).await?);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let parked = results.iter().filter(|result| **result == Settled::Parked).count();
        counter!(metrics::PODS_PARKED).increment(parked as u64);
        Ok(results)
    }

    async fn park_one(&self, parked: &Parked) -> Result<Settled, StoreError> {
        match self.store.park(self.id, std::slice::from_ref(parked)).await {
            Ok(outcomes) => Ok(outcomes.into_iter().next().map_or(Settled::Gone, Settled::from)),
            Err(error) if error.is_broken_key() && self.is_pod_broken(&parked.payload.id).await? => {
                self.reject_broken(&parked.payload.raw, &error).await?;
                Ok(Settled::DeadLetter)
            }
            Err(error) => Err(error),
        }
    }

    /// A pod that a recovery has brought back meanwhile stays in flight, and is taken again.
    pub(crate) async fn reject_unknown_service(&self, payload: &Payload) -> Result<(), StoreError> {
        let reason = format!(
            "pod {} has no record and does not belong to service {}: the service was deleted, or the payload \
             was pushed with a `spec` field; remove that field to start a pod without a service",
            payload.id, payload.name
        );
        let pod = RejectedPod::WithoutRecord(&payload.id);
        match self.store.reject_in_flight(self.id, &payload.raw, pod, &reason).await {
            Err(error) if error.is_broken_key() => self.reject_broken(&payload.raw, &error).await,
            result => result.map(drop),
        }
    }

    pub(crate) async fn reject(&self, pod: &InvalidPod) -> Result<(), StoreError> {
        match self.store.reject_in_flight(self.id, &pod.raw, pod.id.as_ref(), &pod.reason).await {
            // The pod's record may be the broken key.
            Err(error) if pod.id.is_some() && error.is_broken_key() => self
                .store
                .reject_in_flight(self.id, &pod.raw, RejectedPod::Unreadable, &pod.reason)
                .await
                .map(drop),
            result => result.map(drop),
        }
    }

    async fn reject_broken(&self, raw: &Bytes, error: &StoreError) -> Result<(), StoreError> {
        let reason = format!("the pod's record in Redis is broken: {error}");
        self.reject(&InvalidPod { raw: raw.clone(), id: None, reason }).await
    }

    async fn is_pod_broken(&self, id: &PodId) -> Result<bool, StoreError> {
        is_broken(self.store.pod(id).await)
    }

    async fn is_node_broken(&self, name: &NodeName) -> Result<bool, StoreError> {
        let (_, broken_queues) = self.store.node_queues(std::slice::from_ref(name)).await?;
        Ok(!broken_queues.is_empty() || is_broken(self.store.node(name).await)?)
    }
}

fn is_broken<T>(read: Result<T, StoreError>) -> Result<bool, StoreError> {
    match read {
        Ok(_) => Ok(false),
        Err(error) if error.is_broken_key() => Ok(true),
        Err(error) => Err(error),
    }
}

/// "0/3 nodes are available: 2 InsufficientMemory, 1 Cordoned". Leaves out changing numbers: each change
/// would be an event.
pub(crate) fn unschedulable_message(nodes: usize, refusals: &[Refusal]) -> String {
    if nodes == 0 {
        return "the cluster has no nodes; start `kubeleet worker` on a machine".to_owned();
    }
    let reasons: Vec<String> = refusals.iter().map(counted).collect();
    format!("0/{nodes} nodes are available: {}", reasons.join(", "))
}

/// On some nodes room is all that is missing, and the rules of the service leave out the others.
pub(crate) fn only_lacks_room(message: &str) -> bool {
    let Some((_, reasons)) = message.split_once(" nodes are available: ") else { return false };
    let words: Vec<&str> = reasons_in(reasons).filter_map(|reason| reason.split(' ').nth(1)).collect();
    let is_room =
        |word: &&str| ["TooManyPods", "MaxPerNode"].contains(word) || word.starts_with("Insufficient");
    let rules_out = [Reason::CONSTRAINT, Reason::OTHER_NODE, Reason::AFFINITY, Reason::ANTI_AFFINITY];
    let rules_out = rules_out.map(Reason::as_str);
    words.iter().any(is_room) && words.iter().all(|word| is_room(word) || rules_out.contains(word))
}

/// Their examples are in parentheses, which may have commas.
fn reasons_in(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let parts = text.split(move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.map(str::trim_start)
}

fn counted(refusal: &Refusal) -> String {
    let reason = format!("{} {}", refusal.count, refusal.reason);
    let is_constant = [
        Reason::HOST_PORT_TAKEN,
        Reason::INSUFFICIENT_RESOURCE,
        Reason::VOLUME_ELSEWHERE,
        Reason::VOLUME_UNREPORTED,
        Reason::VOLUME_CONFLICT,
        Reason::VOLUME_FORMER,
        Reason::NOT_ALLOWED,
        Reason::CONSTRAINT,
        Reason::NO_ZONE,
        Reason::OTHER_ZONE,
        Reason::MAX_PER_NODE,
        Reason::AFFINITY,
        Reason::ANTI_AFFINITY,
        Reason::OTHER_NODE,
        Reason::NO_SHARED_DIRECTORY,
    ]
    .iter()
    .any(|reason| refusal.reason == reason.as_str());
    match refusal.nodes.first().filter(|_| is_constant) {
        Some(example) => format!("{reason} ({})", example.detail),
        None => reason,
    }
}

#[cfg(test)]
mod tests {
    use model::pod::NodeRefusal;

    use super::*;

    #[test]
    fn the_message_says_in_words_what_does_not_change_by_itself() {
        for (reason, detail, expected) in [
            ("HostPortTaken", "port 80/tcp is taken by web", "2 HostPortTaken (port 80/tcp is taken by web)"),
            ("NotAllowed", "KUBELEET_BIND_PREFIXES", "2 NotAllowed (KUBELEET_BIND_PREFIXES)"),
            ("InsufficientMemory", "has 5 of 6 MiB", "2 InsufficientMemory"),
        ] {
            let nodes = vec![NodeRefusal { node: "a".to_owned(), detail: detail.to_owned() }];
            let refusal = Refusal { reason: reason.to_owned(), count: 2, nodes };
            let message = unschedulable_message(2, &[refusal]);
            assert_eq!(message, format!("0/2 nodes are available: {expected}"));
        }
    }

    #[test]
    fn a_pod_only_lacks_room_if_its_rules_leave_nodes_that_are_full() {
        for (reasons, expected) in [
            ("2 InsufficientMemory", true),
            ("3 MaxPerNode (has 2 of the service's pods and may have 2), 1 TooManyPods", true),
            ("2 MaxPerNode (has 1), 3 Constraint (has disk=hdd, but the service needs zone in (a,b))", true),
            ("3 Constraint (has disk=hdd, but the service needs disk == ssd)", false),
            ("1 InsufficientCpu, 2 AntiAffinity (has 1 pod of db, away from which the service runs)", true),
            ("3 AntiAffinity (has 1 pod of db, away from which the service runs)", false),
            ("1 InsufficientCpu, 2 OtherNode (the service is global, and this is the pod of w1)", true),
            ("2 InsufficientCpu, 1 Cordoned", false),
            ("1 VolumeElsewhere (data is on w1)", false),
        ] {
            let message = format!("0/5 nodes are available: {reasons}");
            assert_eq!(only_lacks_room(&message), expected, "{reasons}");
        }
        assert!(!only_lacks_room("the cluster has no nodes"));
    }

    #[test]
    fn the_message_counts_nodes_by_reason() {
        let refusal = |reason: &str, count| Refusal { reason: reason.to_owned(), count, nodes: Vec::new() };
        let refusals = [refusal("InsufficientMemory", 2), refusal("Cordoned", 1)];
        let expected = "0/3 nodes are available: 2 InsufficientMemory, 1 Cordoned";
        assert_eq!(unschedulable_message(3, &refusals), expected);
        assert!(unschedulable_message(0, &[refusal("NoNodes", 0)]).contains("has no nodes"));
    }
}
