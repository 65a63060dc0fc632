//! The operations on the state of the cluster in Redis: only this crate and `redis-link` import the `redis`
//! crate, and only this one spells the name of a key.
//!
//! Everything that must happen in one step is a Lua script under `lua/`. An operation here fills in its keys
//! and arguments and turns its reply into an enum at once. Every operation may be repeated after a lost
//! reply: doing it twice has the same effect as once.
//!
//! May import `model`, `redis-link`, `daemon` and `document`. `tests/tests/scripts/` holds the scripts, and
//! the simulator their interplay.

mod addresses;
mod app_locks;
mod backup;
pub mod broken_key;
mod capacity;
mod certificates;
mod channels;
mod check;
mod claims;
mod conditions;
mod confirm;
mod dead_letters;
mod dead_nodes;
mod dependencies;
mod endpoints;
mod events;
mod external_workers;
mod foreign_keys;
mod healing;
mod held;
mod history;
mod jobs;
mod keys;
mod logs;
mod nodes;
mod pod_reports;
mod pods;
mod prepared;
mod proxies;
mod queues;
mod reconciling;
pub mod recovery;
mod redundancy;
mod registries;
mod reply;
mod rollout_marks;
pub mod saved_state;
mod schedulers;
mod scheduling;
mod scripts;
mod server;
mod service_fields;
mod services;
mod session;
mod shared_directory;
mod spec_cache;
mod stored_spec;
mod usage;
mod value_rollouts;
mod values;
mod volumes;
mod write_probe;

use std::sync::Arc;

pub use addresses::GivenAddress;
pub use app_locks::{APP_LOCK_PERIOD, AppLockOutcome};
pub use broken_key::or_broken;
pub use capacity::{ClusterSize, RedisMemory};
pub use certificates::{CertificateStatuses, Challenge};
pub use channels::{
    Channel, ChannelError, ChannelOutcome, ChannelReader, ChannelWriter, PEER_TIMEOUT, Receipt,
};
pub use check::Finding;
pub use claims::{Ack, AckItem, Claim, ClaimItem, ClaimReply, WorkQueue};
pub use conditions::ObservedCondition;
pub use confirm::{WriteReceipt, WriteState};
pub use daemon::redis_url::{RedisUrl, UrlError};
pub use dead_letters::{DeadLetter, DeadLetterRequeue, EditedPayload};
pub use dead_nodes::{DeclareOutcome, DrainOutcome, SilenceProof};
pub use endpoints::{
    AliasesByApp, Callers, EndpointChange, EndpointReading, EndpointVersion, FollowedEndpoints, ReadingStep,
    Routes, Routing,
};
pub use external_workers::{ExternalBeat, ExternalSign};
pub use foreign_keys::ForeignKey;
pub use healing::{FormerSpecs, NodeUsage, PortCorrection, RestoreOutcome};
pub use held::{HeldNode, HoldReason};
pub use history::{FormerGeneration, GenerationOutcome};
pub use jobs::{CronTick, IndexResult, JobIndices, JobResults, TickOutcome};
pub use keys::channel;
pub use logs::{
    AnyLogRequest, GarbageRequest, LinesRequest, LogChunk, LogRequest, LoggedPod, LoginCheckRequest,
};
pub use model::broken_key::BrokenKey;
pub use model::queue_lengths::QueueLengths;
pub use nodes::{NodeQueues, RemoveNodeOutcome};
pub use pod_reports::{FinishReport, PodOutcome, PodRef, StatusReport, WriteOutcome};
pub use prepared::{PrepareRequest, PreparedImages};
pub use proxies::ProxySign;
pub use queues::{Peeked, PeekedPayload, QueueName, UnschedulablePod};
pub use reconciling::{CreateOutcome, ReplacedPod, RequeueOutcome, StopOutcome};
pub use recovery::RecoveryAnswer;
use redis_link::Link;
pub use redis_link::{
    AttachedReplica, CAUSES, Durability, LinkHealth, LinkOptions, MessageHandler, RedisCommand,
    SentinelFacts, SentinelReport, StoreError, Subscription, Transport, TransportConnection,
};
pub use redundancy::Redundancy;
pub use registries::PutLoginOutcome;
pub use rollout_marks::{MarkOutcome, RolloutMark};
pub use scheduling::{AssignOutcome, Assignment, ParkOutcome, Parked, SchedulerQueue, TAKEN_AT_ONCE, Unpark};
pub use scripts::{Arguments, AtMaxmemory, NamedArguments, PRELUDE, Prelude, ProcessKind, SCRIPTS, Script};
pub use server::{ServerConcern, ServerInfo, Severity};
pub use services::{DeleteOutcome, PutMode, PutOutcome, RestartOutcome, ScaleOutcome};
pub use session::{
    Claimant, Fenced, HeartbeatReply, KnownCluster, NameTaken, RedisProcess, Registration, Session,
    SessionResult,
};
pub use shared_directory::SharedDirectoryReport;
use spec_cache::SpecCache;
pub use value_rollouts::{ValueRollout, ValueRolloutNote};
pub use values::PutValueOutcome;
pub use volumes::{BindVolumeOutcome, RemoveVolumeOutcome, VolumeReport};
pub use write_probe::{ProbeReport, WriteProbe};

/// The state of the cluster in Redis, with an operation for each use of it. Cheap to clone; clones share
/// connections.
#[derive(Clone)]
pub struct Store {
    link: Link,
    specs: Arc<SpecCache>,
}

impl Store {
    /// Creates a store for the Redis behind this URL. It connects on first use.
    pub fn new(url: RedisUrl, options: LinkOptions) -> Self {
        Self { link: Link::new(url, options), specs: Arc::default() }
    }

    /// Creates a store whose commands go over `transport` instead of a network.
    pub fn with_transport(transport: Arc<dyn Transport>, url: RedisUrl, options: LinkOptions) -> Self {
        Self { link: Link::with_transport(transport, url, options), specs: Arc::default() }
    }

    /// Returns a channel that tells whether Redis can be reached.
    pub fn health(&self) -> tokio::sync::watch::Receiver<LinkHealth> {
        self.link.health()
    }

    /// Checks that Redis answers.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.link.query(&redis::cmd("PING")).await
    }

    /// Subscribes to the hints on a channel (see [`channel`]). They may be lost: callers must also read state
    /// by themselves.
    pub fn subscribe(&self, channel: &str) -> Subscription {
        self.link.subscribe(channel)
    }
}
