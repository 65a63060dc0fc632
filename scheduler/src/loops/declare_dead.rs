//! Declares nodes dead that were silent for longer than `KUBELEET_DEAD_AFTER`, so that their pods can move.
//!
//! The script checks again. After a change of the Redis master, and right after another declaration, it
//! answers "wait".
//!
//! A silent node may only be unable to write. So silence counts only while this scheduler's own writes
//! succeed (invariant 16, [`WriteWitness`]). A node that registered longer times gets them (invariant 18).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ::metrics::{counter, gauge};
use daemon::clock::Clock;
use daemon::control_loop::{Loop, Next};
use model::RedisMillis;
use model::ids::{NodeName, SchedulerId};
use model::node::Node;
use model::node::mass_loss::{CircuitBreaker, SilentNodes};
use store::{DeclareOutcome, ObservedCondition, SilenceProof, Store, StoreError};
use tokio::sync::Notify;

use crate::context::SchedulerContext;
use crate::metrics;
use crate::timings::LoopTimings;
use crate::write_witness::WriteWitness;

/// Tolerance for heartbeats that are newer than this scheduler's reading of the time.
const MAX_AHEAD: Duration = Duration::from_secs(1);

pub(crate) struct DeclareDeadLoop {
    store: Store,
    id: SchedulerId,
    clock: Arc<dyn Clock>,
    timings: LoopTimings,
    witness: WriteWitness,
    node_died: Arc<Notify>,
    is_breaker_open: bool,
    /// As last announced by any scheduler.
    told_breaker: Option<bool>,
    last_write: Option<RedisMillis>,
    refusal: Option<String>,
    is_waiting: bool,
    /// Each is logged once.
    broken: HashSet<NodeName>,
}

impl Loop<StoreError> for DeclareDeadLoop {
    const NAME: &'static str = "declare_dead";

    async fn step(&mut self) -> Result<Next, StoreError> {
        let begun = self.clock.now();
        let looked = self.look().await;
        // A write that is held up holds up the reads after it on the connection.
        self.note_held_up(self.clock.now().since(begun));
        if let Err(error) = &looked {
            self.refusal.get_or_insert_with(|| error.to_string());
        }
        looked
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(self.timings.death_check_interval).await;
        Ok(())
    }
}

impl DeclareDeadLoop {
    async fn look(&mut self) -> Result<Next, StoreError> {
        let now = self.write().await?;
        self.correct_future_beats(now).await?;
        // In a mass loss nodes become overdue one after the other. After half of `dead_after` they are
        // counted together.
        let suspects = self.store.beats_before(earlier(now, self.timings.dead_after / 2)).await?;
        if suspects.is_empty() {
            self.report(CircuitBreaker::Closed).await;
            return Ok(Next::Rest);
        }
        let names: Vec<NodeName> = suspects.into_iter().map(|(name, _)| name).collect();
        let (mut silent, unreadable) = self.store.nodes(&names).await?.separate(&names);
        silent.retain(|node| node.beat < earlier(now, self.dead_after(node) / 2));
        let live_nodes = self.store.live_nodes().await?;
        let given_up = silent.iter().filter(|node| node.cordoned).count();
        let breaker = CircuitBreaker::evaluate(&SilentNodes {
            nodes: live_nodes.saturating_sub(given_up),
            last_beats: silent.iter().filter(|n| !n.cordoned).map(|node| node.beat).collect(),
        });
        self.report(breaker).await;
        self.broken.retain(|name| names.contains(name));
        for (name, error) in unreadable {
            self.report_broken(&name, &error);
        }
        let overdue = silent.iter().filter(|node| node.beat < earlier(now, self.dead_after(node)));
        let overdue: Vec<&Node> = overdue.filter(|node| !breaker.is_open() || node.cordoned).collect();
        self.declare_first(&overdue).await?;
        Ok(Next::Rest)
    }

    pub(crate) fn new(context: &SchedulerContext) -> Self {
        Self {
            store: context.store.clone(),
            id: context.id.clone(),
            clock: Arc::clone(&context.clock),
            witness: WriteWitness::new(context.timings.max_write_gap),
            timings: context.timings.clone(),
            node_died: Arc::clone(&context.node_died),
            is_breaker_open: false,
            told_breaker: None,
            last_write: None,
            refusal: None,
            is_waiting: false,
            broken: HashSet::new(),
        }
    }

    /// Returns the time of Redis.
    async fn write(&mut self) -> Result<RedisMillis, StoreError> {
        let sent = self.clock.now();
        let written = self.store.scheduler_beat(&self.id, &self.timings.detection).await;
        match &written {
            Ok((redis_time, cluster)) => {
                let replied = self.clock.now();
                self.witness.succeeded(sent, replied, *redis_time, cluster.as_ref());
                self.note_held_up(replied.since(sent));
                self.tell_outage(*redis_time).await;
            }
            Err(error) => {
                self.witness.failed(error);
                self.refusal = Some(error.to_string());
            }
        }
        Ok(written?.0)
    }

    /// As in a `CLIENT PAUSE`, which refuses nothing.
    fn note_held_up(&mut self, held_up: Duration) {
        if held_up > self.timings.max_write_gap {
            let waited = || format!("Redis held its answers up for {} s", held_up.as_secs());
            self.refusal.get_or_insert_with(waited);
        }
    }

    /// Announces an outage that exceeded the maximum gap.
    async fn tell_outage(&mut self, now: RedisMillis) {
        let (since, refusal) = (self.last_write.replace(now), self.refusal.take());
        let (Some(since), Some(refusal)) = (since, refusal) else { return };
        let outage = Duration::from_millis(now.saturating_sub(since));
        if outage <= self.timings.max_write_gap {
            return;
        }
        let message = format!(
            "Redis takes writes again, after {} s in which it took none of scheduler {}; the last: {refusal}. No node \
             is declared dead for a silence of that time",
            outage.as_secs(),
            self.id
        );
        if !self.tell(ObservedCondition::WriteOutage { since }, &message).await {
            (self.last_write, self.refusal) = (Some(since), Some(refusal));
        }
    }

    async fn tell(&self, condition: ObservedCondition<'_>, message: &str) -> bool {
        let told = self.store.note_condition(condition, message).await;
        if let Err(error) = &told {
            tracing::debug!(%error, message, "an event could not be written");
        }
        told.is_ok()
    }

    fn dead_after(&self, node: &Node) -> Duration {
        self.timings.detection.dead_after_of(node.timing.as_ref())
    }

    async fn declare(&self, node: &Node, proof: SilenceProof) -> Result<DeclareOutcome, StoreError> {
        let LoopTimings { dead_after, master_change_pause, min_death_interval, .. } = self.timings;
        self.store.declare_dead(node, dead_after, master_change_pause, min_death_interval, proof).await
    }

    /// They come from a former master. Set to now, a dead node falls silent; a live one corrects its own.
    async fn correct_future_beats(&self, now: RedisMillis) -> Result<(), StoreError> {
        let future = self.store.beats_since(now + MAX_AHEAD.as_millis() as RedisMillis).await?;
        if future.is_empty() {
            return Ok(());
        }
        let names: Vec<NodeName> = future.into_iter().map(|(name, _)| name).collect();
        for node in self.store.nodes(&names).await?.found() {
            self.declare(&node, SilenceProof::default()).await?;
        }
        Ok(())
    }

    /// Only one: the next step evaluates the circuit breaker again.
    async fn declare_first(&mut self, overdue: &[&Node]) -> Result<(), StoreError> {
        let min_death_interval = self.timings.min_death_interval;
        for node in overdue {
            let outcome = self.declare(node, self.witness.proof(node.cordoned)).await;
            if let Err(error) = &outcome
                && !error.is_broken_key()
            {
                self.witness.failed(error);
            }
            let outcome = match outcome {
                Err(error) if !error.is_transient() => {
                    self.report_broken(&node.name, &error);
                    continue;
                }
                outcome => outcome?,
            };
            match outcome {
                DeclareOutcome::Declared => {
                    let dead_after = self.dead_after(node);
                    tracing::warn!(
                        node = %node.name,
                        "node declared dead after {dead_after:?} of silence; its pods move to other nodes"
                    );
                    counter!(metrics::NODES_DECLARED_DEAD).increment(1);
                    self.node_died.notify_one();
                    self.is_waiting = false;
                    return Ok(());
                }
                // Another scheduler was first: help to drain.
                DeclareOutcome::Already => self.node_died.notify_one(),
                DeclareOutcome::Alive => {}
                DeclareOutcome::Wait(left) => {
                    if !self.is_waiting && left > min_death_interval {
                        tracing::warn!(
                            "the Redis master changed: no node is declared dead for {left:.0?}, \
                             until the workers have found the new master"
                        );
                    }
                    self.is_waiting = true;
                    return Ok(());
                }
            }
        }
        self.is_waiting = false;
        Ok(())
    }

    fn report_broken(&mut self, name: &NodeName, error: &StoreError) {
        if self.broken.insert(name.clone()) {
            tracing::error!(
                node = %name,
                "the silent node cannot be declared dead, and its pods cannot move: {error}; fix the key"
            );
        }
    }

    async fn report(&mut self, breaker: CircuitBreaker) {
        let is_open = breaker.is_open();
        self.witness.breaker(is_open, self.clock.now());
        let message = match breaker {
            CircuitBreaker::Open { silent, nodes } => format!(
                "mass loss: {silent} of {nodes} nodes fell silent at once; no node is declared dead and \
                 no pods move until they are back; check the network and Redis, and cordon the nodes \
                 that are gone for good"
            ),
            CircuitBreaker::Closed => format!(
                "mass loss is over: enough silent nodes are back or cordoned; a node that stays silent for \
                 another {:?} is declared dead",
                self.timings.dead_after
            ),
        };
        match (self.is_breaker_open, is_open) {
            (false, true) => tracing::error!("{message}"),
            (true, false) => tracing::warn!("{message}"),
            (false, false) | (true, true) => {}
        }
        self.is_breaker_open = is_open;
        gauge!(metrics::MASS_LOSS_BREAKER).set(if is_open { 1.0 } else { 0.0 });
        // Also at the start: another scheduler may have announced the beginning.
        if self.told_breaker != Some(is_open)
            && self.tell(ObservedCondition::MassLoss { is_on: is_open }, &message).await
        {
            self.told_breaker = Some(is_open);
        }
    }
}

fn earlier(now: RedisMillis, duration: Duration) -> RedisMillis {
    now.saturating_sub(duration.as_millis() as RedisMillis)
}
