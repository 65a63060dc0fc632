//! Moves the pods of dead nodes to `sq`, once, however many schedulers drain (invariant 4). Checks all dead
//! nodes: payloads can be pushed to one later, and a scheduler can die while it drains.
//!
//! Also forgets the proxy of a host that was dead for long: the machine may be stolen, and it has the key.

use std::sync::Arc;
use std::time::Duration;

use daemon::control_loop::{Loop, Next};
use model::RedisMillis;
use model::ids::NodeName;
use model::node::{Node, NodeState};
use store::{DrainOutcome, NodeQueues, Store, StoreError, is_queue_of};
use tokio::sync::Notify;

use crate::context::SchedulerContext;

/// Then the next node gets its turn.
const MAX_SCRIPTS_PER_NODE: usize = 1000;
/// Times `dead_after`: half an hour by default.
const FORGET_PROXY_AFTER: u32 = 90;
const PAGE_SIZE: usize = 500;

pub(crate) struct DrainLoop {
    store: Store,
    interval: Duration,
    forget_proxy_after: Duration,
    node_died: Arc<Notify>,
    /// Each is logged once.
    failing: Vec<NodeName>,
}

impl Loop<StoreError> for DrainLoop {
    const NAME: &'static str = "drain";

    async fn step(&mut self) -> Result<Next, StoreError> {
        let names = self.store.node_names().await?;
        let nodes = self.store.nodes(&names).await?.found();
        let dead: Vec<Node> = nodes.into_iter().filter(|node| node.state == NodeState::Dead).collect();
        let mut failing = Vec::new();
        for node in self.with_payloads(&dead).await? {
            match self.drain(node).await {
                Ok(()) => {}
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => {
                    if !self.failing.contains(&node.name) {
                        tracing::error!(
                            node = %node.name,
                            "not all pods of this dead node can be moved: {error}; \
                             fix the key, retrying every {:?}",
                            self.interval
                        );
                    }
                    failing.push(node.name.clone());
                }
            }
        }
        self.failing = failing;
        if !dead.is_empty() {
            let now = self.store.redis_now().await?;
            self.store.forget_proxies(&silent_for(&dead, now, self.forget_proxy_after)).await?;
        }
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        let _elapsed = tokio::time::timeout(self.interval, self.node_died.notified()).await;
        Ok(())
    }
}

fn silent_for(nodes: &[Node], now: RedisMillis, time: Duration) -> Vec<NodeName> {
    let is_silent = |node: &&Node| u128::from(now.saturating_sub(node.beat)) > time.as_millis();
    nodes.iter().filter(is_silent).map(|node| node.name.clone()).collect()
}

impl DrainLoop {
    pub(crate) fn new(context: &SchedulerContext) -> Self {
        Self {
            store: context.store.clone(),
            interval: context.timings.drain_interval,
            forget_proxy_after: context.timings.dead_after * FORGET_PROXY_AFTER,
            node_died: Arc::clone(&context.node_died),
            failing: Vec::new(),
        }
    }

    async fn with_payloads<'a>(&self, dead: &'a [Node]) -> Result<Vec<&'a Node>, StoreError> {
        let mut found = Vec::new();
        for page in dead.chunks(PAGE_SIZE) {
            let names: Vec<NodeName> = page.iter().map(|node| node.name.clone()).collect();
            let (queues, broken) = self.store.node_queues(&names).await?;
            // A broken queue has length 0: its drain fails and is logged.
            let has_broken = |node: &Node| broken.iter().any(|queue| is_queue_of(queue, &node.name));
            let has_payloads = |q: &NodeQueues| q.pending + q.starting + q.running > 0;
            let with_payloads = |(node, q): &(&Node, NodeQueues)| has_payloads(q) || has_broken(node);
            found.extend(page.iter().zip(queues).filter(with_payloads).map(|(node, _)| node));
        }
        Ok(found)
    }

    async fn drain(&self, node: &Node) -> Result<(), StoreError> {
        for _ in 0..MAX_SCRIPTS_PER_NODE {
            match self.store.drain_step(node).await? {
                DrainOutcome::Moved(_) => {}
                DrainOutcome::Empty | DrainOutcome::Alive => return Ok(()),
            }
        }
        Ok(())
    }
}
