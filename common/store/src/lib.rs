//! Operations on the state of the cluster in Redis. Only this crate and `redis-link` import `redis`, and only
//! this crate spells key names.
//!
//! Each atomic operation is a Lua script under `lua/`; its caller here turns the reply into an enum. Every
//! operation is idempotent: it may be repeated after a lost reply.
//!
//! May import `model`, `redis-link`, `daemon` and `document`.
//!
//! Tests: beside the code, scripts, schedules

mod broken_key;
mod channels;
mod check;
mod events;
mod foreign_keys;
mod json;
mod keys;
mod loaded;
mod network;
mod node;
mod pod;
pub mod recovery;
mod reply;
mod scripts;
mod server;
mod service;
mod store;
mod value;

pub use broken_key::{RedisKey, is_queue_of, or_broken};
pub use channels::{
    Channel, ChannelError, ChannelOutcome, ChannelReader, ChannelWriter, ConnectRequest, LinesRequest,
    LogRequest, LoggedPod, NodeAnswer, NodeQuestion, NodeRequest, PEER_TIMEOUT, Receipt,
};
pub use check::Finding;
pub use foreign_keys::ForeignKey;
pub use keys::channel;
pub use loaded::Loaded;
pub use network::addresses::GivenAddress;
pub use network::certificates::{CertificateStatuses, Challenge};
pub use network::endpoints::{
    AliasesByApp, Callers, EndpointChange, EndpointReading, EndpointVersion, FollowedEndpoints, ReadingStep,
    Routes, Routing,
};
pub use network::proxies::ProxySign;
pub use node::conditions::ObservedCondition;
pub use node::dead_nodes::{DeclareOutcome, DrainOutcome, SilenceProof};
pub use node::drains::DrainNews;
pub use node::healing::{FormerSpecs, HolderCorrection, NodeUsage, RestoreOutcome};
pub use node::held::{HeldNode, HoldReason};
pub use node::hints::WorkerHint;
pub use node::labels::LabelNodeOutcome;
pub use node::nodes::{NodeQueues, RemoveNodeOutcome};
pub use node::session::{
    Claimant, Fenced, HeartbeatReply, KnownCluster, NameTaken, RedisProcess, Registration, Session,
    SessionResult,
};
pub use node::shared_directory::SharedDirectoryReport;
pub use node::volumes::{BindVolumeOutcome, RemoveVolumeOutcome, VolumeReport};
pub use pod::claims::{Ack, AckItem, Claim, ClaimItem, ClaimReply, WorkQueue};
pub use pod::dead_letters::{DeadLetter, DeadLetterRequeue, EditedPayload, RejectedPod};
pub use pod::decisions::StoredDecision;
pub use pod::external_workers::{ExternalBeat, ExternalSign};
pub use pod::placed_services::{PlacedService, Sibling, WaitingPods};
pub use pod::pod_reports::{FinishReport, PodOutcome, PodRef, StatusReport, WriteOutcome};
pub use pod::preemption::{PlannedPreemption, PreemptedPod};
pub use pod::queues::{Peeked, PeekedPayload, QueueName, UnschedulablePod};
pub use pod::reconciling::{CreateOutcome, ReplacedPod, RequeueOutcome, StopOutcome};
pub use pod::scheduling::{
    AssignOutcome, Assignment, CountedAssignment, NamedAssignment, ParkOutcome, Parked, SchedulerQueue,
    TAKEN_AT_ONCE,
};
pub use pod::unschedulable::{Unparked, UnschedulableClass};
pub use recovery::RecoveryAnswer;
pub use recovery::saved_state;
pub use redis_link::{
    AttachedReplica, CAUSES, Durability, LinkHealth, LinkOptions, MessageHandler, RedisCommand,
    SentinelFacts, SentinelReport, StoreError, Subscription, Transport, TransportConnection, pending_hints,
    tick_or_hints,
};
pub use scripts::{Arguments, AtMaxmemory, NamedArguments, PRELUDE, Prelude, ProcessKind, SCRIPTS, Script};
pub use server::capacity::{ClusterSize, RedisMemory};
pub use server::info::{ServerConcern, ServerInfo, Severity};
pub use server::redundancy::Redundancy;
pub use server::write_probe::{ProbeReport, WriteProbe};
pub use service::app_locks::{APP_LOCK_PERIOD, AppLockOutcome};
pub use service::confirm::{WriteReceipt, WriteState};
pub use service::history::{FormerGeneration, GenerationOutcome};
pub use service::jobs::{CronTick, IndexResult, JobIndices, JobResults, TickOutcome};
pub use service::prepared::PreparedImages;
pub use service::rollout_marks::{MarkOutcome, RolloutMark};
pub use service::services::{DeleteOutcome, PutMode, PutOutcome, RestartOutcome, ScaleOutcome};
pub use service::stored_spec::{NEWEST_FORM, is_same_specification};
pub use store::Store;
pub use value::registries::PutLoginOutcome;
pub use value::value_rollouts::{ValueRollout, ValueRolloutNote};
pub use value::values::PutValueOutcome;
