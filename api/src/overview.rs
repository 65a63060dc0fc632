//! The cluster at a glance: read once, for `/status` and for `/metrics`.

use std::time::Duration;

use common::RedisMillis;
use common::node::{Node, NodeState};
use common::store::{LinkHealth, NodeQueues, QueueLengths, StoreError};

use crate::census::Phases;
use crate::dto::NodeCounts;
use crate::state::App;
use crate::views;

/// A scheduler that was silent for longer is not counted on.
const SCHEDULER_FRESH: Duration = Duration::from_secs(20);

/// What there is.
pub(crate) struct Overview {
    /// Redis' clock.
    pub(crate) now: RedisMillis,
    /// All nodes.
    pub(crate) nodes: Vec<Node>,
    /// Each node's queues, in the same order.
    pub(crate) node_queues: Vec<NodeQueues>,
    /// The cluster's own queues.
    pub(crate) queues: QueueLengths,
    /// How many services.
    pub(crate) services: u64,
    /// How many of them have a write that the replicas have not confirmed yet.
    pub(crate) unconfirmed_writes: u64,
    /// Pods by phase.
    pub(crate) pods: Phases,
    /// Schedulers that gave a sign of life lately.
    pub(crate) schedulers: u64,
}

impl Overview {
    /// Reads it all.
    pub(crate) async fn read(app: &App) -> Result<Self, StoreError> {
        let store = &app.store;
        let nodes = store.nodes(&store.node_names().await?).await?;
        let names: Vec<_> = nodes.iter().map(|node| node.name.clone()).collect();
        Ok(Self {
            node_queues: store.node_queues(&names).await?,
            nodes,
            queues: store.queue_lengths().await?,
            services: store.service_names().await?.len() as u64,
            unconfirmed_writes: store.unconfirmed_writes().await?,
            pods: app.census.phases(store).await?,
            schedulers: living_schedulers(app).await?,
            now: store.redis_now().await?,
        })
    }

    /// How many nodes are how.
    pub(crate) fn node_counts(&self, fresh: Duration) -> NodeCounts {
        let count =
            |which: &dyn Fn(&Node) -> bool| self.nodes.iter().filter(|node| which(node)).count() as u64;
        NodeCounts {
            total: self.nodes.len() as u64,
            ready: count(&|node| views::is_ready(node, self.now, fresh)),
            cordoned: count(&|node| node.cordoned),
            dead: count(&|node| node.state == NodeState::Dead),
        }
    }
}

/// How many schedulers gave a sign of life lately.
pub(crate) async fn living_schedulers(app: &App) -> Result<u64, StoreError> {
    let schedulers = app.store.schedulers().await?;
    let now = app.store.redis_now().await?;
    let fresh = |at: RedisMillis| Duration::from_millis(now.saturating_sub(at)) <= SCHEDULER_FRESH;
    Ok(schedulers.into_iter().filter(|(_, at)| fresh(*at)).count() as u64)
}

/// The master's address, or why there is none, as the link last knew it.
pub(crate) fn link(app: &App) -> Result<String, String> {
    match &*app.store.health().borrow() {
        LinkHealth::Connected { master, .. } => Ok(master.clone()),
        LinkHealth::Away { why, .. } => Err(why.clone()),
    }
}
