//! State of the whole cluster, read once for `/status` and `/metrics`.

use std::time::Duration;

use api_types::NodeCounts;
use model::RedisMillis;
use model::ids::{SchedulerId, ServiceName};
use model::node::timing::Timing;
use model::node::{Node, NodeState};
use model::queue_lengths::QueueLengths;
use store::{ForeignKey, HeldNode, LinkHealth, NodeQueues, RedisKey, RedisMemory, StoreError};

use crate::cluster::broken::BrokenKeys;
use crate::cluster::proxy_watch::ProxySigns;
use crate::state::AppState;
use crate::status::pod_counts::{PhaseCounts, Reasons};
use crate::status::views;

/// An idle scheduler reports every two seconds.
const SCHEDULER_TIMEOUT: Duration = Duration::from_secs(6);

/// Its replacement may have another name.
const SCHEDULER_MISSED: Duration = Duration::from_secs(60);

/// Replicas confirm a write within this time, even after a short fault.
const CONFIRM_SOON: Duration = Duration::from_secs(10);

pub(crate) struct Overview {
    /// On Redis' clock.
    pub(crate) now: RedisMillis,
    pub(crate) nodes: Vec<Node>,
    pub(crate) held: Vec<HeldNode>,
    pub(crate) node_queues: Vec<NodeQueues>,
    pub(crate) queues: QueueLengths,
    pub(crate) services: u64,
    pub(crate) unconfirmed_writes: u64,
    pub(crate) lasting_unconfirmed_writes: u64,
    pub(crate) pods: PhaseCounts,
    /// Running pods only.
    pub(crate) pods_not_ready: u64,
    pub(crate) without_record: Vec<(ServiceName, usize)>,
    pub(crate) reasons: Reasons,
    pub(crate) schedulers: u64,
    pub(crate) silent_schedulers: Vec<(SchedulerId, Duration)>,
    pub(crate) scheduler_times: Vec<(SchedulerId, Timing)>,
    pub(crate) proxies: ProxySigns,
    pub(crate) foreign_keys: Vec<ForeignKey>,
    pub(crate) master_changed_at: Option<RedisMillis>,
    pub(crate) memory: RedisMemory,
    pub(crate) broken: BrokenKeys,
}

impl Overview {
    pub(crate) async fn read(app: &AppState) -> Result<Self, StoreError> {
        let (store, mut broken) = (&app.store, BrokenKeys::default());
        let names = broken.take(store.node_names().await, RedisKey::Nodes)?;
        let (nodes, unreadable) = store.nodes(&names).await?.separate(&names);
        broken.extend(unreadable.iter().map(|(name, error)| RedisKey::Node(name).broken(error)));
        let names: Vec<_> = nodes.iter().map(|node| node.name.clone()).collect();
        let (node_queues, broken_queues) = store.node_queues(&names).await?;
        broken.extend(broken_queues);
        let (queues, broken_queues) = store.queue_lengths_and_broken().await?;
        broken.extend(broken_queues);
        let unconfirmed_writes = broken.take(store.unconfirmed_writes().await, RedisKey::Unconfirmed)?;
        let lasting = store.lasting_unconfirmed_writes(CONFIRM_SOON).await;
        let lasting_unconfirmed_writes = BrokenKeys::default().take(lasting, RedisKey::Unconfirmed)?;
        let pods = app.pod_counts.read(store).await?;
        broken.merge(&pods.broken);
        // A broken set of schedulers is already among the broken queues.
        let schedulers = BrokenKeys::default().take(schedulers(app).await, RedisKey::Schedulers)?;
        let silent_schedulers = missed(&schedulers);
        let schedulers = alive(schedulers);
        let scheduler_times = store.scheduler_timings(&schedulers).await?;
        let known_times = |(id, times): (&SchedulerId, Option<Timing>)| Some((id.clone(), times?));
        Ok(Self {
            node_queues,
            nodes,
            held: store.held_nodes().await?,
            queues,
            services: pods.services,
            unconfirmed_writes,
            lasting_unconfirmed_writes,
            without_record: pods.without_record.clone(),
            pods: pods.phases.clone(),
            pods_not_ready: pods.not_ready,
            reasons: pods.reasons.clone(),
            schedulers: schedulers.len() as u64,
            silent_schedulers,
            scheduler_times: schedulers.iter().zip(scheduler_times).filter_map(known_times).collect(),
            proxies: read_proxies(app).await?,
            foreign_keys: store.foreign_keys().await?,
            master_changed_at: store.master_changed_at().await?,
            memory: store.memory().await?,
            now: store.redis_now().await?,
            broken,
        })
    }

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

async fn schedulers(app: &AppState) -> Result<Vec<(SchedulerId, Duration)>, StoreError> {
    let schedulers = app.store.schedulers().await?;
    let now = app.store.redis_now().await?;
    let silence = |at: RedisMillis| Duration::from_millis(now.saturating_sub(at));
    Ok(schedulers.into_iter().map(|(id, at)| (id, silence(at))).collect())
}

fn alive(schedulers: Vec<(SchedulerId, Duration)>) -> Vec<SchedulerId> {
    let alive = schedulers.into_iter().filter(|(_, silence)| *silence <= SCHEDULER_TIMEOUT);
    alive.map(|(id, _)| id).collect()
}

/// A scheduler that ended properly shows an hour of silence at once.
fn missed(schedulers: &[(SchedulerId, Duration)]) -> Vec<(SchedulerId, Duration)> {
    let is_missed = |silence: &Duration| *silence > SCHEDULER_TIMEOUT && *silence <= SCHEDULER_MISSED;
    schedulers.iter().filter(|(_, silence)| is_missed(silence)).cloned().collect()
}

pub(crate) async fn count_live_schedulers(app: &AppState) -> Result<u64, StoreError> {
    Ok(alive(schedulers(app).await?).len() as u64)
}

/// Proxies themselves move a broken hash out of the way.
async fn read_proxies(app: &AppState) -> Result<ProxySigns, StoreError> {
    match app.proxy_watch.read(&app.store).await {
        Err(error) if error.is_broken_key() => Ok(ProxySigns::default()),
        signs => signs,
    }
}

pub(crate) fn redis_master(app: &AppState) -> Result<String, String> {
    match &*app.store.health().borrow() {
        LinkHealth::Connected { master, .. } => Ok(master.clone()),
        LinkHealth::Disconnected { why, .. } => Err(why.clone()),
    }
}
