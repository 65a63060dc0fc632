//! The state of the whole cluster, read once for `/status` and for `/metrics`.

use std::time::Duration;

use api_types::NodeCounts;
use model::RedisMillis;
use model::ids::{SchedulerId, ServiceName};
use model::node::timing::Timing;
use model::node::{Node, NodeState};
use model::queue_lengths::QueueLengths;
use store::broken_key;
use store::{ForeignKey, HeldNode, LinkHealth, NodeQueues, RedisMemory, StoreError};

use crate::cluster::broken::BrokenKeys;
use crate::cluster::proxy_watch::ProxySigns;
use crate::state::AppState;
use crate::status::pod_counts::{PhaseCounts, Reasons};
use crate::status::views;

/// A scheduler that has been silent for longer does not count as alive. Without work it shows a sign of life
/// every two seconds.
const SCHEDULER_TIMEOUT: Duration = Duration::from_secs(6);

/// The time for which a silent scheduler is reported. It may have been replaced by one of another name.
const SCHEDULER_MISSED: Duration = Duration::from_secs(60);

/// Replicas confirm a write within this time, also after a short fault.
const CONFIRM_SOON: Duration = Duration::from_secs(10);

/// The state of the cluster.
pub(crate) struct Overview {
    /// The time on Redis' clock.
    pub(crate) now: RedisMillis,
    /// All nodes.
    pub(crate) nodes: Vec<Node>,
    /// Workers that leave containers alone, because this Redis does not know their cluster or their pods.
    pub(crate) held: Vec<HeldNode>,
    /// The queues of each node, in the order of `nodes`.
    pub(crate) node_queues: Vec<NodeQueues>,
    /// The queues that belong to no node.
    pub(crate) queues: QueueLengths,
    /// The number of services.
    pub(crate) services: u64,
    /// The number of services with a write that the replicas have not confirmed yet.
    pub(crate) unconfirmed_writes: u64,
    /// How many of those have not been confirmed for some time.
    pub(crate) lasting_unconfirmed_writes: u64,
    /// Pods by phase.
    pub(crate) pods: PhaseCounts,
    /// The pods in phase running that are not ready.
    pub(crate) pods_not_ready: u64,
    /// Services that have no record, and how many pods each has all the same.
    pub(crate) without_record: Vec<(ServiceName, usize)>,
    /// Pods that are not well, by their reason.
    pub(crate) reasons: Reasons,
    /// The number of schedulers that are alive.
    pub(crate) schedulers: u64,
    /// Schedulers that fell silent a short time ago without having ended, with the length of the silence.
    pub(crate) silent_schedulers: Vec<(SchedulerId, Duration)>,
    /// With which times they detect failures, where that is known.
    pub(crate) scheduler_times: Vec<(SchedulerId, Timing)>,
    /// The proxies that live, and those that have gone.
    pub(crate) proxies: ProxySigns,
    /// Keys of the whole cluster that another program wrote.
    pub(crate) foreign_keys: Vec<ForeignKey>,
    /// When the Redis master changed or was restarted, if it ever did.
    pub(crate) master_changed_at: Option<RedisMillis>,
    /// How full Redis is.
    pub(crate) memory: RedisMemory,
    /// The keys that could not be read.
    pub(crate) broken: BrokenKeys,
}

impl Overview {
    /// Reads the state of the cluster. A key that cannot be read harms only the object that it names.
    pub(crate) async fn read(app: &AppState) -> Result<Self, StoreError> {
        let (store, mut broken) = (&app.store, BrokenKeys::default());
        let names = broken.take(store.node_names().await, broken_key::nodes)?;
        let (nodes, unreadable) = store.nodes_each(&names).await?;
        broken.extend(unreadable.iter().map(|(name, error)| broken_key::node(name, error)));
        let names: Vec<_> = nodes.iter().map(|node| node.name.clone()).collect();
        let (node_queues, broken_queues) = store.node_queues(&names).await?;
        broken.extend(broken_queues);
        let (queues, broken_queues) = store.queue_lengths_and_broken().await?;
        broken.extend(broken_queues);
        let unconfirmed_writes = broken.take(store.unconfirmed_writes().await, broken_key::unconfirmed)?;
        let lasting = store.lasting_unconfirmed_writes(CONFIRM_SOON).await;
        let lasting_unconfirmed_writes = BrokenKeys::default().take(lasting, broken_key::unconfirmed)?;
        let pods = app.pod_counts.read(store).await?;
        broken.merge(&pods.broken);
        // A broken set of schedulers is among the broken queues.
        let schedulers = BrokenKeys::default().take(schedulers(app).await, broken_key::schedulers)?;
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

    /// Counts nodes by state. A node whose last heartbeat is older than `fresh` is not ready.
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

/// Returns the schedulers, and how long each has been silent.
async fn schedulers(app: &AppState) -> Result<Vec<(SchedulerId, Duration)>, StoreError> {
    let schedulers = app.store.schedulers().await?;
    let now = app.store.redis_now().await?;
    let silence = |at: RedisMillis| Duration::from_millis(now.saturating_sub(at));
    Ok(schedulers.into_iter().map(|(id, at)| (id, silence(at))).collect())
}

/// Returns the schedulers that are alive.
fn alive(schedulers: Vec<(SchedulerId, Duration)>) -> Vec<SchedulerId> {
    let alive = schedulers.into_iter().filter(|(_, silence)| *silence <= SCHEDULER_TIMEOUT);
    alive.map(|(id, _)| id).collect()
}

/// Returns the schedulers that fell silent a short time ago. One that has ended was silent for an hour at
/// once.
fn missed(schedulers: &[(SchedulerId, Duration)]) -> Vec<(SchedulerId, Duration)> {
    let is_missed = |silence: &Duration| *silence > SCHEDULER_TIMEOUT && *silence <= SCHEDULER_MISSED;
    schedulers.iter().filter(|(_, silence)| is_missed(silence)).cloned().collect()
}

/// Returns the number of schedulers that are alive.
pub(crate) async fn count_live_schedulers(app: &AppState) -> Result<u64, StoreError> {
    Ok(alive(schedulers(app).await?).len() as u64)
}

/// A broken hash of proxies is moved out of the way by the proxies themselves.
async fn read_proxies(app: &AppState) -> Result<ProxySigns, StoreError> {
    match app.proxy_watch.read(&app.store).await {
        Err(error) if error.is_broken_key() => Ok(ProxySigns::default()),
        signs => signs,
    }
}

/// Returns the address of the Redis master as last known, or why there is no connection to it.
pub(crate) fn redis_master(app: &AppState) -> Result<String, String> {
    match &*app.store.health().borrow() {
        LinkHealth::Connected { master, .. } => Ok(master.clone()),
        LinkHealth::Disconnected { why, .. } => Err(why.clone()),
    }
}
