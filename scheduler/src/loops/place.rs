//! The hot path: moves pods from `sq` to the queues of the nodes (invariants 2, 7 and 9).
//!
//! A crash loses nothing: BRPOPLPUSH and `take` move payloads into the in-flight list, and only `assign`,
//! `park` and `reject` move them on. After an error, the next `take` returns the rest first.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use ::metrics::histogram;
use bytes::Bytes;
use daemon::control_loop::{Loop, Next};
use model::ids::{NodeName, SchedulerId};
use model::pod::Refusal;
use model::pod::payload::Payload;
use model::spec::PlacementProfile;
use pending::{
    Intake, MIN_BATCH, PendingPod, SeenMark, batch_limit, class_of, decide_by_priority, group_by_node,
    locate_volumes, next_batch_size, parked, read_needs, read_services, read_waits,
};
use placement::{Decision, DecisionRecord, Outcome, PlacementPolicy, PodRequest};
use store::pending_hints;
use store::{
    Assignment, CountedAssignment, NamedAssignment, Parked, SchedulerQueue, Store, StoreError, Subscription,
    TAKEN_AT_ONCE, channel,
};

use crate::apply::{Executor, Settled, chain_marks, unschedulable_message};
use crate::context::SchedulerContext;
use crate::decision_log::DecisionLog;
use crate::metrics;
use crate::preempting::{Preempting, set_targets};

use crate::view::ClusterView;

/// While nodes refuse the pod.
const MAX_ROUNDS: usize = 6;
/// Rounds in which a pod is not parked because room has appeared meanwhile: all nodes are read for it.
const MAX_LOOKS: usize = 3;
/// Number of pods, and of nodes. Beyond it, exactness is not worth another round.
const MAX_EXACT_SPREAD: usize = 64;
/// For each reason.
const MAX_STORED_EXAMPLES: usize = 5;
/// Pods in the queue, if more arrive all the time.
const FLOOD: usize = 512;
const GATHER_STEP: Duration = Duration::from_millis(20);
const MAX_GATHER: Duration = Duration::from_secs(2);
/// With a backlog.
const MAX_VIEW_AGE: Duration = Duration::from_millis(200);
/// After an idle time. Shorter than a heartbeat interval; the script refuses wrong decisions.
const MAX_IDLE_VIEW_AGE: Duration = Duration::from_secs(3);
/// Services change seldom, and in small part.
const MAX_NEEDS_AGE: Duration = Duration::from_secs(60);
/// In a large cluster.
const READ_ALL_COOLDOWN: Duration = Duration::from_millis(500);

type PlacedPod = (PendingPod, Assignment);
type ParkedPod = (PendingPod, Parked);

pub(crate) struct PlacementLoop {
    store: Store,
    id: SchedulerId,
    queue_block: Duration,
    policy: PlacementPolicy,
    /// Of pods whose service names none.
    profile: PlacementProfile,
    needs_read_at: Option<Instant>,
    view: ClusterView,
    log: DecisionLog,
    preempting: Preempting,
    /// `None` during a wait: dropping the wait must also drop its connection.
    queue: Option<SchedulerQueue>,
    received: Vec<Bytes>,
    batch_size: usize,
    hints: Subscription,
    /// A node was uncordoned or relabelled, or a pod ended: no heartbeat shows it.
    must_read_all: bool,
    /// In this round.
    refused_by: BTreeSet<NodeName>,
}

impl Loop<StoreError> for PlacementLoop {
    const NAME: &'static str = "place";

    async fn step(&mut self) -> Result<Next, StoreError> {
        let started = Instant::now();
        self.preempting.drop_ended(&self.store, &mut self.view).await?;
        let mut payloads = std::mem::take(&mut self.received);
        // The wait has refreshed the view too.
        let mut max_view_age = MAX_IDLE_VIEW_AGE;
        if payloads.is_empty() {
            self.gather().await?;
            payloads = self.store.take(&self.id, self.batch_size).await?;
            max_view_age = MAX_VIEW_AGE;
        }
        if payloads.is_empty() {
            self.handle_hints().await?;
            return Ok(Next::Rest);
        }
        let count = payloads.len();
        let store = self.store.clone();
        let written = self.log.write(&store);
        let read = async { tokio::try_join!(self.refresh(max_view_age), Intake::read(&store, payloads)) };
        let ((), read) = tokio::join!(written, read);
        let ((), mut intake) = read?;
        self.read_services(&mut intake.pending).await?;
        self.place(intake.pending, started).await?;
        self.park_anyway(&intake.without_spec).await?;
        // Failing dead letters must block no valid pod.
        for pod in &intake.invalid {
            self.executor().reject(pod).await?;
        }
        histogram!(metrics::BATCH_SECONDS).record(started.elapsed());
        let has_more = count >= self.batch_size.min(TAKEN_AT_ONCE);
        self.batch_size = next_batch_size(self.batch_size, count, self.view.snapshot().len());
        Ok(if has_more { Next::Again } else { Next::Rest })
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        let mut queue = match self.queue.take() {
            Some(queue) => queue,
            None => self.store.scheduler_queue(&self.id, self.queue_block).await?,
        };
        let store = self.store.clone();
        let written = self.log.write(&store);
        // If this is dropped or fails, the payloads are in the in-flight list.
        let (received, ()) = tokio::try_join!(queue.next(self.batch_size), async {
            let ((), refreshed) = tokio::join!(written, self.view.refresh(&store, MAX_VIEW_AGE));
            refreshed
        })?;
        self.received = received;
        self.queue = Some(queue);
        Ok(())
    }
}

impl PlacementLoop {
    pub(crate) fn new(context: &SchedulerContext) -> Self {
        let policy = PlacementPolicy { dead_after: context.timings.dead_after, ..PlacementPolicy::default() };
        Self {
            store: context.store.clone(),
            id: context.id.clone(),
            queue_block: context.timings.queue_block,
            view: ClusterView::new(policy.weights),
            log: DecisionLog::default(),
            preempting: Preempting::default(),
            policy,
            profile: context.profile,
            needs_read_at: None,
            queue: None,
            received: Vec::new(),
            batch_size: MIN_BATCH,
            hints: context.store.subscribe(channel::SCHEDULER),
            must_read_all: false,
            refused_by: BTreeSet::new(),
        }
    }

    /// Waits for a whole batch during a flood: it costs several scripts per node, however few pods it has.
    async fn gather(&mut self) -> Result<(), StoreError> {
        let nodes = self.view.snapshot().len();
        if nodes <= MAX_EXACT_SPREAD {
            return Ok(());
        }
        let (begun, full) = (Instant::now(), batch_limit(nodes));
        let mut waiting = self.store.waiting_pods().await?;
        while (FLOOD..full).contains(&waiting) && begun.elapsed() < MAX_GATHER {
            tokio::time::sleep(GATHER_STEP).await;
            let before = std::mem::replace(&mut waiting, self.store.waiting_pods().await?);
            if !fills_soon(before, waiting, full) {
                break;
            }
        }
        self.batch_size = self.batch_size.max(waiting.min(full));
        Ok(())
    }

    async fn refresh(&mut self, max_age: Duration) -> Result<(), StoreError> {
        self.handle_hints().await?;
        self.view.refresh(&self.store, max_age).await
    }

    async fn handle_hints(&mut self) -> Result<(), StoreError> {
        self.must_read_all |= !pending_hints(&mut self.hints).is_empty();
        if self.must_read_all && self.can_read_all() {
            self.view.read_all_after(&self.store, Instant::now()).await?;
            // Only now: a postponed or failed read is still pending.
            self.must_read_all = false;
        }
        Ok(())
    }

    /// Reading a large cluster costs more than an old view.
    fn can_read_all(&self) -> bool {
        self.view.snapshot().len() <= MAX_EXACT_SPREAD
            || self.view.since_all_read().is_none_or(|elapsed| elapsed >= READ_ALL_COOLDOWN)
    }

    /// Keeps the order: the scripts find the oldest entry of the in-flight list first.
    async fn place(&mut self, mut pods: Vec<PendingPod>, taken_at: Instant) -> Result<(), StoreError> {
        let mut looked_after = taken_at;
        for round in 1..=MAX_ROUNDS {
            if pods.is_empty() {
                return Ok(());
            }
            if round > 1 {
                // Their volumes may be bound by now, and their siblings placed.
                locate_volumes(&self.store, &mut pods).await?;
                self.read_services(&mut pods).await?;
            }
            set_targets(&self.view, &mut pods);
            let mut decisions = self.decide(&pods);
            if decisions.iter().any(|one| matches!(one.outcome, Outcome::Unschedulable { .. })) {
                // A view from before the pod was taken must not make it unschedulable.
                self.view.read_all_after(&self.store, looked_after).await?;
                read_waits(&self.store, &mut pods).await?;
                set_targets(&self.view, &mut pods);
                decisions = self.decide(&pods);
            }
            let (placed, mut parked) = self.split(pods, decisions);
            self.preempting.make_room(&self.store, &mut self.view, &self.policy, &mut parked).await?;
            // In a large cluster reading all nodes again costs more than a pod that waits for its backoff.
            let looks_again = round <= MAX_LOOKS && self.can_read_all();
            let again = self.park(parked, looks_again).await?;
            if !again.is_empty() {
                looked_after = Instant::now();
            }
            // In the last round any node will do.
            let spread_exactly = round < MAX_ROUNDS;
            pods = self.assign(placed, spread_exactly).await?;
            pods.extend(again);
        }
        let parked: Vec<Parked> = pods.into_iter().map(parked_as_contended).collect();
        self.park_anyway(&parked).await
    }

    /// Returns the pods that must be decided about again, because room has appeared since the nodes were
    /// read. Without another look, their class is looked at right away.
    async fn park(&mut self, pods: Vec<ParkedPod>, looks_again: bool) -> Result<Vec<PendingPod>, StoreError> {
        let (pods, parked): (Vec<_>, Vec<_>) = pods.into_iter().unzip();
        let results = self.executor().park(&parked, self.view.freed()).await?;
        let (mut again, mut anyway) = (Vec::new(), Vec::new());
        for ((pod, parked), settled) in pods.into_iter().zip(parked).zip(results) {
            if self.settle(&pod.payload, None, settled).await? {
                match looks_again {
                    true => again.push(pod),
                    false => anyway.push(parked),
                }
            }
        }
        self.park_anyway(&anyway).await?;
        Ok(again)
    }

    async fn park_anyway(&mut self, parked: &[Parked]) -> Result<(), StoreError> {
        let results = self.executor().park(parked, None).await?;
        for (parked, settled) in parked.iter().zip(results) {
            self.settle(&parked.payload, None, settled).await?;
        }
        Ok(())
    }

    /// Each pod of a step leaves it here, or stays in flight. Returns whether it must be decided about again.
    async fn settle(
        &mut self,
        payload: &Payload,
        assigned: Option<(&Assignment, &PodRequest)>,
        settled: Settled,
    ) -> Result<bool, StoreError> {
        let node = assigned.map(|(assignment, _)| &assignment.node);
        match settled {
            Settled::Assigned => {
                if let Some((assignment, request)) = assigned {
                    self.view.commit(assignment, request);
                }
                self.log.assigned(&payload.id);
                Ok(false)
            }
            Settled::Parked | Settled::Gone | Settled::DeadLetter => Ok(false),
            Settled::UnknownService => {
                self.executor().reject_unknown_service(payload).await?;
                Ok(false)
            }
            Settled::Refused => {
                self.refused_by.extend(node.cloned());
                Ok(true)
            }
            Settled::NodeBroken(error) => {
                node.into_iter().for_each(|node| self.view.quarantine(node, &error));
                Ok(true)
            }
            Settled::NodesChanged => Ok(true),
        }
    }

    /// After the nodes: a pod that another scheduler places later makes its node refuse.
    async fn read_services(&mut self, pods: &mut [PendingPod]) -> Result<(), StoreError> {
        self.view.set_placed(read_services(&self.store, self.profile, pods).await?);
        let mut profiles = pods.iter().map(|pod| pod.request.requirements.profile);
        let is_old = self.needs_read_at.is_none_or(|at| at.elapsed() >= MAX_NEEDS_AGE);
        if is_old && profiles.any(|profile| profile == PlacementProfile::Fragmentation) {
            self.view.set_needs(read_needs(&self.store).await?);
            self.needs_read_at = Some(Instant::now());
        }
        Ok(())
    }

    fn decide(&mut self, pods: &[PendingPod]) -> Vec<Decision> {
        let recorded = self.log.sample(Instant::now(), pods.len(), self.view.snapshot().len());
        let policy = &self.policy;
        let decide =
            |view: &ClusterView| decide_by_priority(view.snapshot(), view.now(), policy, pods, &recorded);
        let (mut decisions, records) = if self.view.nominations().is_empty() {
            decide(&self.view)
        } else {
            self.view.with_room_of(pods.iter().map(|pod| pod.payload.id.clone()), decide)
        };
        group_by_node(pods, &mut decisions);
        let mut records: HashMap<usize, DecisionRecord> = records.into_iter().collect();
        let of_pod = |(pod, decision): (&PendingPod, &Decision)| {
            Some((pod.payload.id.clone(), records.remove(&decision.pod)?))
        };
        self.log.decided(pods.iter().zip(&decisions).filter_map(of_pod));
        decisions
    }

    fn split(&self, pods: Vec<PendingPod>, decisions: Vec<Decision>) -> (Vec<PlacedPod>, Vec<ParkedPod>) {
        let nodes = self.view.snapshot().len();
        let mut placed = Vec::new();
        let mut parked = Vec::new();
        for (pod, Decision { outcome, .. }) in pods.into_iter().zip(decisions) {
            let request = pod.request.requirements.resources();
            match outcome {
                Outcome::Place(target) => {
                    let assignment = Assignment {
                        payload: pod.payload.clone(),
                        node: target.name.clone(),
                        incarnation: target.incarnation.clone(),
                        request,
                        host_ports: pod.request.requirements.host_ports.clone(),
                        named: self.named(&pod, &target.name),
                        volumes: pod.volumes.clone(),
                        seen_labels: self.seen_labels(&pod, &target.name),
                        counted: counted(&pod),
                    };
                    placed.push((pod, assignment));
                }
                Outcome::Unschedulable { refusals } => {
                    let message = unschedulable_message(nodes, &refusals);
                    let refusals = refusals.iter().map(with_few_examples).collect();
                    let payload = pod.payload.clone();
                    let class = Some(class_of(&pod));
                    parked.push((pod, Parked { payload, request, refusals, message, class }));
                }
            }
        }
        (placed, parked)
    }

    fn seen_labels(&self, pod: &PendingPod, node: &NodeName) -> Option<u64> {
        let PodRequest { requirements, ordinal, .. } = &pod.request;
        if requirements.rules.is_none() && ordinal.is_none() {
            return None;
        }
        self.view.snapshot().get(node).map(|node| node.labels_revision)
    }

    fn named(&self, pod: &PendingPod, node: &NodeName) -> Option<NamedAssignment> {
        let request = pod.request.requirements.named.clone()?;
        let offered = self.view.snapshot().get(node).map(|node| node.offered_ids().clone());
        Some(NamedAssignment { request, offered: offered.unwrap_or_default() })
    }

    /// Returns the pods whose node refused, after reading these nodes again. With `spread_exactly`, a node
    /// also refuses right after another scheduler's assignment: all would choose the same idle node.
    async fn assign(
        &mut self,
        placed: Vec<PlacedPod>,
        spread_exactly: bool,
    ) -> Result<Vec<PendingPod>, StoreError> {
        let (pods, mut assignments): (Vec<_>, Vec<_>) = placed.into_iter().unzip();
        chain_marks(&mut assignments);
        let snapshot = self.view.snapshot();
        let spread_exactly =
            spread_exactly && assignments.len() <= MAX_EXACT_SPREAD && snapshot.len() <= MAX_EXACT_SPREAD;
        let max_pods =
            |node: &NodeName| snapshot.get(node).filter(|_| spread_exactly).map(|node| node.used.pods);
        let results = self.executor().assign(&assignments, &max_pods).await?;
        let mut refused = Vec::new();
        for ((pod, assignment), settled) in pods.into_iter().zip(&assignments).zip(results) {
            if self.settle(&pod.payload, Some((assignment, &pod.request)), settled).await? {
                refused.push(pod);
            }
        }
        let nodes: Vec<NodeName> = std::mem::take(&mut self.refused_by).into_iter().collect();
        self.view.read_nodes(&self.store, &nodes).await?;
        Ok(refused)
    }

    fn executor(&self) -> Executor<'_> {
        Executor { store: &self.store, id: &self.id, dead_after: self.policy.dead_after }
    }
}

fn counted(pod: &PendingPod) -> Option<CountedAssignment> {
    let SeenMark { own, related, is_awaited } = &**pod.seen_mark.as_ref()?;
    let rules = pod.request.requirements.rules.as_ref();
    let opens_domains = *is_awaited || rules.is_some_and(|rules| rules.has_hard_spread());
    let (seen_mark, related) = (own.clone(), related.clone());
    Some(CountedAssignment { seen_mark, next_mark: String::new(), opens_domains, related })
}

/// There may be a hundred thousand unschedulable pods.
fn with_few_examples(refusal: &Refusal) -> Refusal {
    let Refusal { reason, count, nodes } = refusal;
    let nodes = nodes.iter().take(MAX_STORED_EXAMPLES).cloned().collect();
    Refusal { reason: reason.clone(), count: *count, nodes }
}

/// `before` and `now` are one step apart.
fn fills_soon(before: usize, now: usize, full: usize) -> bool {
    let steps = (MAX_GATHER.as_millis() / GATHER_STEP.as_millis()) as usize;
    now.saturating_sub(before) * steps >= full
}

/// Other schedulers were faster.
fn parked_as_contended(pod: PendingPod) -> Parked {
    let message = "the nodes with enough resources filled up or changed during placement; retrying";
    let request = pod.request.requirements.resources();
    parked(pod.payload, request, "Contended", message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_waited_for_only_while_it_grows_fast() {
        for (before, now, expected) in
            [(1_000, 1_320, true), (1_000, 1_319, false), (1_000, 1_000, false), (1_000, 900, false)]
        {
            assert_eq!(fills_soon(before, now, 32_000), expected, "{before} {now}");
        }
    }
}
