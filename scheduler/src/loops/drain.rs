//! Moves the pods of dead nodes.
//!
//! Restores invariant 4: what stands in the queues of a node that was declared dead goes back to `sq`, once, however
//! many schedulers drain it. Looks at all dead nodes, not only those that died just now: somebody may push to one
//! later, and a scheduler may have died while draining.

use std::sync::Arc;
use std::time::Duration;

use common::ids::NodeName;
use common::node::{Node, NodeState};
use common::store::{DrainOutcome, Store, StoreError};
use tokio::sync::Notify;

use crate::Context;
use crate::runner::{Loop, Next};

/// So many scripts, of a hundred pods each, before another node has its turn.
const STEPS: usize = 1000;
/// Nodes asked for the lengths of their queues at a time.
const PAGE: usize = 500;

/// The loop.
pub(crate) struct Drain {
    store: Store,
    tick: Duration,
    died: Arc<Notify>,
    /// Nodes that could not be drained the last time: said once each.
    stuck: Vec<NodeName>,
}

impl Loop for Drain {
    const NAME: &'static str = "drain";

    async fn step(&mut self) -> Result<Next, StoreError> {
        let names = self.store.node_names().await?;
        let (nodes, _) = self.store.nodes_each(&names).await?;
        let dead: Vec<Node> = nodes.into_iter().filter(|node| node.state == NodeState::Dead).collect();
        let mut stuck = Vec::new();
        for node in self.holding(&dead).await? {
            match self.drain(node).await {
                Ok(()) => {}
                Err(error) if error.is_transient() => return Err(error),
                // A broken key of one node is no reason to leave the others.
                Err(error) => {
                    if !self.stuck.contains(&node.name) {
                        tracing::error!(node = %node.name, "the dead node's pods can not all be moved: {error}");
                    }
                    stuck.push(node.name.clone());
                }
            }
        }
        self.stuck = stuck;
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        // Time is up, or a node died: both mean the same.
        let _elapsed = tokio::time::timeout(self.tick, self.died.notified()).await;
        Ok(())
    }
}

impl Drain {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            store: context.store.clone(),
            tick: context.pace.drain_tick,
            died: Arc::clone(&context.died),
            stuck: Vec::new(),
        }
    }

    /// Those with something in their queues; also those that can not be asked.
    async fn holding<'a>(&self, dead: &'a [Node]) -> Result<Vec<&'a Node>, StoreError> {
        let mut holding = Vec::new();
        for page in dead.chunks(PAGE) {
            let names: Vec<NodeName> = page.iter().map(|node| node.name.clone()).collect();
            match self.store.node_queues(&names).await {
                Ok(queues) => holding.extend(
                    page.iter()
                        .zip(queues)
                        .filter(|(_, q)| q.pending + q.starting + q.running > 0)
                        .map(|(node, _)| node),
                ),
                Err(error) if error.is_transient() => return Err(error),
                Err(_) => holding.extend(page),
            }
        }
        Ok(holding)
    }

    async fn drain(&self, node: &Node) -> Result<(), StoreError> {
        for _ in 0..STEPS {
            match self.store.drain_step(node).await? {
                DrainOutcome::Moved(_) => {}
                DrainOutcome::Empty | DrainOutcome::Alive => return Ok(()),
            }
        }
        Ok(())
    }
}
