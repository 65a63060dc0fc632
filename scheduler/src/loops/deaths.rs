//! Declares silent nodes dead.
//!
//! Restores: a node that was silent for longer than `KUBELEET_DEAD_AFTER` is not counted on any more, so that its pods
//! can move (invariant 4 follows in the drain loop). The script looks again: a node that beat meanwhile, or has begun
//! another life, stays alive. After a change of master, and right after another death, it says "wait".

use std::sync::Arc;
use std::time::Duration;

use common::RedisMillis;
use common::ids::NodeName;
use common::node::Node;
use common::store::{DeclareOutcome, Store, StoreError};
use tokio::sync::Notify;

use crate::Context;
use crate::brake::{Brake, Silence, judge};
use crate::measure;
use crate::pace::Pace;
use crate::runner::{Loop, Next};

/// The loop.
pub(crate) struct Deaths {
    store: Store,
    pace: Pace,
    died: Arc<Notify>,
    held: bool,
    waiting: bool,
}

impl Loop for Deaths {
    const NAME: &'static str = "deaths";

    async fn step(&mut self) -> Result<Next, StoreError> {
        let now = self.store.redis_now().await?;
        // All nodes of a mass loss fall silent at once, but are overdue one after the other: half the time tells.
        let suspects = self.store.beats_before(before(now, self.pace.dead_after / 2)).await?;
        if suspects.is_empty() {
            self.say_brake(Brake::Released);
            return Ok(Next::Rest);
        }
        let names: Vec<NodeName> = suspects.into_iter().map(|(name, _)| name).collect();
        let (silent, unreadable) = self.store.nodes_each(&names).await?;
        let living = self.store.living_nodes().await?;
        let given_up = silent.iter().filter(|node| node.cordoned).count();
        let brake = judge(&Silence {
            nodes: living.saturating_sub(given_up),
            last_beats: silent.iter().filter(|n| !n.cordoned).map(|node| node.beat).collect(),
        });
        self.say_brake(brake);
        for (name, error) in unreadable {
            tracing::debug!(node = %name, "can not be judged: {error}");
        }
        let limit = before(now, self.pace.dead_after);
        let overdue = silent.iter().filter(|node| node.beat < limit);
        self.declare_first(overdue.filter(|node| brake == Brake::Released || node.cordoned)).await?;
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(self.pace.death_tick).await;
        Ok(())
    }
}

impl Deaths {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            store: context.store.clone(),
            pace: context.pace.clone(),
            died: Arc::clone(&context.died),
            held: false,
            waiting: false,
        }
    }

    /// Declares the first that is still silent when the script looks. One at a time: the next tick judges anew.
    async fn declare_first(&mut self, overdue: impl Iterator<Item = &Node> + Send) -> Result<(), StoreError> {
        let Pace { dead_after, master_pause, death_gap, .. } = self.pace;
        for node in overdue {
            match self.store.declare_dead(node, dead_after, master_pause, death_gap).await? {
                DeclareOutcome::Declared => {
                    tracing::warn!(node = %node.name, "declared dead after {dead_after:?} of silence: its pods move");
                    measure::declared_dead();
                    self.died.notify_one();
                    self.waiting = false;
                    return Ok(());
                }
                // Another scheduler was first; drain beside it.
                DeclareOutcome::Already => self.died.notify_one(),
                DeclareOutcome::Alive => {}
                DeclareOutcome::Wait(left) => {
                    if !self.waiting && left > death_gap {
                        tracing::warn!("the Redis master changed: nobody is declared dead for {left:.0?}");
                    }
                    self.waiting = true;
                    return Ok(());
                }
            }
        }
        self.waiting = false;
        Ok(())
    }

    fn say_brake(&mut self, brake: Brake) {
        let held = brake != Brake::Released;
        if let (Brake::Held { silent, nodes }, false) = (brake, self.held) {
            tracing::error!(
                "{silent} of {nodes} nodes fell silent at once: none is declared dead and no pod moves until they are \
                 back; check the network, and cordon those that are gone for good"
            );
        } else if self.held && !held {
            tracing::warn!(
                "the nodes that fell silent at once are back, or given up: silent nodes are declared dead again"
            );
        }
        self.held = held;
        measure::brake(held);
    }
}

fn before(now: RedisMillis, ago: Duration) -> RedisMillis {
    now.saturating_sub(ago.as_millis() as RedisMillis)
}
