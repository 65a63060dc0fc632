//! The hot path: from `sq` to the queues of the nodes.
//!
//! Restores: a payload waits in `sq` or in a scheduler's hands only as long as it takes to decide about it
//! (invariants 2, 7 and 9 are kept by the scripts).
//!
//! Why a crash on any line loses nothing: BRPOPLPUSH and `take` move payloads into our in-flight list, and only
//! `assign`, `park` and `reject` take them out again, each in the very step that puts them where they belong. Between
//! the two this process has copies in its memory and nothing else. What an error leaves behind is in the list, and
//! `take` begins with it next time.

use std::time::{Duration, Instant};

use bytes::Bytes;
use common::ids::{NodeName, SchedulerId};
use common::node::Resources;
use common::payload::Payload;
use common::pod::Refusal;
use common::store::{
    AssignOutcome, Assignment, Parked, SchedulerQueue, Store, StoreError, Subscription, TAKEN_AT_ONCE,
    channel,
};

use crate::Context;
use crate::apply::{Assigned, Hands, sentence};
use crate::decide::{Outcome, PodRequest, Policy, decide};
use crate::intake::{Intake, Unspecified, Waiting};
use crate::measure;
use crate::runner::{Loop, Next, heard_already};
use crate::view::View;

/// How often a pod is decided about again in one step because its node refused it after all.
const ROUNDS: usize = 6;
/// With more pods or nodes than this a few pods more or less on one node are not worth another round.
const FEW: usize = 64;
/// Nodes named for each reason of an unschedulable pod.
const EXAMPLES: usize = 5;
const SMALLEST_BATCH: usize = 64;
/// The more are decided about together, the more of them each node gets at once: on many nodes that is what a flood costs.
const LARGEST_PER_NODE: usize = 32;
/// However few nodes there are.
const LARGEST_ON_FEW: usize = 8_192;
/// However many: what one batch takes of this process' memory is some hundred bytes for each pod.
const LARGEST: usize = 131_072;
/// With a backlog the view is kept as fresh as that,
const FRESH: Duration = Duration::from_millis(200);
/// and a pod that comes after a quiet time need not wait for it to be read again, unless it is older than that: younger
/// than a heartbeat, and what it gets wrong the script that assigns refuses.
const OLD: Duration = Duration::from_secs(3);
/// Many nodes are all read again at most so often because somebody said that room appeared.
const ALL_AT_MOST: Duration = Duration::from_millis(500);

/// The loop.
pub(crate) struct Place {
    store: Store,
    id: SchedulerId,
    block: Duration,
    policy: Policy,
    view: View,
    /// Our end of `sq`. Absent while we wait on it, and after an error: whoever drops the wait drops the connection.
    queue: Option<SchedulerQueue>,
    /// What the wait has brought.
    came: Vec<Bytes>,
    batch: usize,
    hints: Subscription,
    /// Something changed that no heartbeat tells: a cordon, a pod that ended.
    room_changed: bool,
}

impl Loop for Place {
    const NAME: &'static str = "place";

    async fn step(&mut self) -> Result<Next, StoreError> {
        let begun = Instant::now();
        // Whoever waited for a pod has looked at the nodes meanwhile.
        let (mut taken, mut old) = (std::mem::take(&mut self.came), OLD);
        if taken.is_empty() {
            (taken, old) = (self.store.take(&self.id, self.batch).await?, FRESH);
        }
        if taken.is_empty() {
            self.hear_of_room().await?;
            return Ok(Next::Rest);
        }
        let count = taken.len();
        let store = self.store.clone();
        let ((), intake) = tokio::try_join!(self.freshen(old), Intake::read(&store, taken))?;
        self.place(intake.waiting, begun).await?;
        self.park_unspecified(intake.unspecified).await?;
        // Last, so that dead letters which can not be written hold up nobody else.
        for bad in &intake.bad {
            self.hands().reject(bad).await?;
        }
        measure::batch_took(begun.elapsed());
        let more = count >= self.batch.min(TAKEN_AT_ONCE);
        self.batch = next_batch(self.batch, count, self.view.snapshot().len());
        Ok(if more { Next::Again } else { Next::Rest })
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        let mut queue = match self.queue.take() {
            Some(queue) => queue,
            None => self.store.scheduler_queue(&self.id, self.block).await?,
        };
        let store = self.store.clone();
        // What came is in our in-flight list as well: whoever drops this wait, or it fails, finds it there.
        let (came, ()) = tokio::try_join!(queue.next(self.batch), self.view.freshen(&store, FRESH))?;
        self.came = came;
        self.queue = Some(queue);
        Ok(())
    }
}

impl Place {
    pub(crate) fn new(context: &Context) -> Self {
        let policy = Policy { dead_after: context.pace.dead_after, ..Policy::default() };
        Self {
            store: context.store.clone(),
            id: context.id.clone(),
            block: context.pace.block,
            view: View::new(policy.weights),
            policy,
            queue: None,
            came: Vec::new(),
            batch: SMALLEST_BATCH,
            hints: context.store.subscribe(channel::SCHEDULER),
            room_changed: false,
        }
    }

    /// Reads all nodes if room appeared, and those that changed if the view is older than `old`.
    async fn freshen(&mut self, old: Duration) -> Result<(), StoreError> {
        self.hear_of_room().await?;
        self.view.freshen(&self.store, old).await
    }

    async fn hear_of_room(&mut self) -> Result<(), StoreError> {
        self.room_changed |= !heard_already(&mut self.hints).is_empty();
        if self.room_changed && self.may_read_all() {
            self.view.read_all_after(&self.store, Instant::now()).await?;
            // Only now: a hint that was put off, or whose reading failed, still stands.
            self.room_changed = false;
        }
        Ok(())
    }

    /// Few nodes are read at once. Of many the reading costs more than a moment with an old view.
    fn may_read_all(&self) -> bool {
        self.view.snapshot().len() <= FEW || self.view.all_read_ago().is_none_or(|ago| ago >= ALL_AT_MOST)
    }

    /// Gives each pod a node, or records why it has none. The order is kept: in the in-flight list the oldest is
    /// found first.
    async fn place(&mut self, mut waiting: Vec<Waiting>, taken_at: Instant) -> Result<(), StoreError> {
        for round in 1..=ROUNDS {
            if waiting.is_empty() {
                return Ok(());
            }
            let mut outcomes = self.decide(&waiting);
            if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Unschedulable { .. })) {
                // Nobody is told that there is no room by a view from before the pod was taken.
                self.view.read_all_after(&self.store, taken_at).await?;
                outcomes = self.decide(&waiting);
            }
            let (placed, hopeless) = self.sort(waiting, outcomes);
            self.hands().park(&hopeless).await?;
            // In the last round any node with room will do.
            waiting = self.assign(placed, round < ROUNDS).await?;
        }
        let parked: Vec<Parked> = waiting.into_iter().map(contended).collect();
        self.hands().park(&parked).await
    }

    fn decide(&self, waiting: &[Waiting]) -> Vec<Outcome> {
        let pods: Vec<PodRequest> = waiting.iter().map(|waiting| waiting.pod.clone()).collect();
        let decisions = decide(self.view.snapshot(), self.view.now(), &self.policy, &pods);
        let mut outcomes: Vec<Outcome> = decisions.into_iter().map(|decision| decision.outcome).collect();
        gather(&pods, &mut outcomes);
        outcomes
    }

    fn sort(
        &self,
        waiting: Vec<Waiting>,
        outcomes: Vec<Outcome>,
    ) -> (Vec<(Waiting, Assignment)>, Vec<Parked>) {
        let nodes = self.view.snapshot().len();
        let (mut placed, mut hopeless) = (Vec::new(), Vec::new());
        for (waiting, outcome) in waiting.into_iter().zip(outcomes) {
            let request = waiting.pod.request;
            match outcome {
                Outcome::Place(target) => {
                    let assignment = Assignment {
                        payload: waiting.payload.clone(),
                        node: target.name.clone(),
                        incarnation: target.incarnation.clone(),
                        request,
                    };
                    placed.push((waiting, assignment));
                }
                Outcome::Unschedulable { refusals } => {
                    let message = sentence(nodes, &refusals);
                    let refusals = refusals.iter().map(in_short).collect();
                    hopeless.push(Parked { payload: waiting.payload, request, refusals, message });
                }
            }
        }
        (placed, hopeless)
    }

    /// Carries out; gives those whose node refused, after reading these nodes again. With few pods and few nodes a node
    /// also refuses when another scheduler has just given it some: else all would choose the same idle one.
    async fn assign(
        &mut self,
        placed: Vec<(Waiting, Assignment)>,
        choosy: bool,
    ) -> Result<Vec<Waiting>, StoreError> {
        let (waiting, assignments): (Vec<_>, Vec<_>) = placed.into_iter().unzip();
        let snapshot = self.view.snapshot();
        let choosy = choosy && assignments.len() <= FEW && snapshot.len() <= FEW;
        let seen = |node: &NodeName| snapshot.get(node).filter(|_| choosy).map(|node| node.used.pods);
        let outcomes = self.hands().assign(&assignments, &seen).await?;
        let mut again = Vec::new();
        let mut nodes: Vec<NodeName> = Vec::new();
        for ((waiting, assignment), outcome) in waiting.into_iter().zip(&assignments).zip(outcomes) {
            match outcome {
                Assigned::Said(AssignOutcome::Assigned) => {
                    self.view.commit(&assignment.node, assignment.request);
                }
                Assigned::Said(AssignOutcome::Refused) => {
                    nodes.push(assignment.node.clone());
                    again.push(waiting);
                }
                Assigned::Said(AssignOutcome::Orphan) => {
                    self.hands().reject_orphan(&assignment.payload).await?;
                }
                Assigned::NodeBroken(error) => {
                    self.view.set_aside(&assignment.node, &error);
                    again.push(waiting);
                }
                Assigned::Said(AssignOutcome::Stale | AssignOutcome::Gone) | Assigned::Rejected => {}
            }
        }
        nodes.sort();
        nodes.dedup();
        self.view.read_nodes(&self.store, &nodes).await?;
        Ok(again)
    }

    async fn park_unspecified(&self, unspecified: Vec<Unspecified>) -> Result<(), StoreError> {
        let parked: Vec<Parked> = unspecified.into_iter().map(without_specification).collect();
        self.hands().park(&parked).await
    }

    fn hands(&self) -> Hands<'_> {
        Hands { store: &self.store, id: &self.id, dead_after: self.policy.dead_after }
    }
}

/// Every unschedulable pod has a copy of this in Redis' memory, and there may be a hundred thousand of them.
fn in_short(refusal: &Refusal) -> Refusal {
    let Refusal { reason, count, nodes } = refusal;
    Refusal { reason: reason.clone(), count: *count, nodes: nodes.iter().take(EXAMPLES).cloned().collect() }
}

/// Pods in a row that ask for the same are as good as each other: those that one node gets are made to stand together.
/// The pods' own order stays. So a script that assigns some of them reads and writes few nodes, and a worker finds
/// its pods at once, claims and acknowledges them together.
fn gather(pods: &[PodRequest], outcomes: &mut [Outcome]) {
    let alike = |a: &PodRequest, b: &PodRequest| {
        (a.request, a.needs_only_an_image, &a.service) == (b.request, b.needs_only_an_image, &b.service)
    };
    let mut rest = outcomes;
    for row in pods.chunk_by(alike) {
        let (these, others) = rest.split_at_mut(row.len());
        these.sort_by(|a, b| node_of(a).cmp(&node_of(b)));
        rest = others;
    }
}

/// Nodes by name, then those without one.
fn node_of(outcome: &Outcome) -> (bool, Option<&NodeName>) {
    match outcome {
        Outcome::Place(target) => (false, Some(&target.name)),
        Outcome::Unschedulable { .. } => (true, None),
    }
}

/// Eight times as many while there is a backlog, so that a flood costs few calls; fewer when there is none, so that
/// several schedulers share what comes.
fn next_batch(batch: usize, taken: usize, nodes: usize) -> usize {
    let next = if taken >= batch {
        batch * 8
    } else if taken < batch / 4 {
        batch / 2
    } else {
        batch
    };
    next.clamp(SMALLEST_BATCH, (nodes * LARGEST_PER_NODE).clamp(LARGEST_ON_FEW, LARGEST))
}

/// A pod that other schedulers were always faster with.
fn contended(waiting: Waiting) -> Parked {
    let message = "the nodes that had room filled up or changed while it was being placed; it is tried again";
    parked(waiting.payload, waiting.pod.request, "Contended", message.to_owned())
}

/// A pod that nobody can know the needs of. It waits: should its record be gone too, parking says so.
fn without_specification(unspecified: Unspecified) -> Parked {
    parked(unspecified.payload, Resources::default(), "NoSpecification", unspecified.why)
}

fn parked(payload: Payload, request: Resources, reason: &str, message: String) -> Parked {
    let refusals = vec![Refusal { reason: reason.to_owned(), count: 0, nodes: Vec::new() }];
    Parked { payload, request, refusals, message }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::sync::Arc;

    use common::ids::PodId;

    use super::*;
    use crate::decide::Target;

    #[test]
    fn batches_follow_the_backlog() {
        let mut batch = SMALLEST_BATCH;
        for _ in 0..10 {
            batch = next_batch(batch, batch, 1_000);
        }
        assert_eq!(batch, 32_000);
        assert_eq!(next_batch(batch, batch / 2, 1_000), batch);
        assert_eq!(next_batch(batch, batch, 3), LARGEST_ON_FEW);
        assert_eq!(next_batch(batch, batch, 5_000), LARGEST);
        for _ in 0..10 {
            batch = next_batch(batch, 1, 1_000);
        }
        assert_eq!(batch, SMALLEST_BATCH);
    }

    #[test]
    fn alike_pods_of_one_node_stand_together_and_no_pod_gets_what_another_asked_for() {
        let pod = |id: &str, cpu_millis| PodRequest {
            id: PodId::new(id).unwrap(),
            request: Resources { cpu_millis, memory_bytes: 0, pods: 1 },
            needs_only_an_image: false,
            service: None,
        };
        let on = |name: &str| {
            let name = NodeName::new(name).unwrap();
            Outcome::Place(Arc::new(Target { name, incarnation: None }))
        };
        let nowhere = || Outcome::Unschedulable { refusals: Arc::from([]) };
        let pods =
            [pod("1", 1), pod("2", 1), pod("3", 1), pod("4", 1), pod("5", 2), pod("6", 2), pod("7", 1)];
        let mut outcomes = [on("b"), on("a"), on("b"), nowhere(), on("z"), on("a"), on("b")];
        gather(&pods, &mut outcomes);
        assert_eq!(outcomes, [on("a"), on("b"), on("b"), nowhere(), on("a"), on("z"), on("b")]);
    }
}
