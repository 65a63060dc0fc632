//! The state of the cluster and of the API process.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::DurabilityView;
use model::broken_key::BrokenKey;
use model::pod::lifecycle::Phase;
use model::queue_lengths::QueueLengths;

/// Summary of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusView {
    /// Connection to Redis. While it is down, the numbers below are unknown and reported as zero.
    pub redis: RedisView,
    /// Durability of the latest write through this API process. Null before the first write, and once a newer
    /// write or a failover has superseded it.
    pub durability: Option<DurabilityView>,
    /// Number of services with a write that the replicas have not confirmed yet. An event `WriteConfirmed`
    /// reports the confirmation.
    #[serde(default)]
    pub unconfirmed_writes: u64,
    /// Number of nodes by state.
    pub nodes: NodeCounts,
    /// Number of services.
    pub services: u64,
    /// Number of pods by phase.
    #[schema(value_type = BTreeMap<String, u64>)]
    pub pods: BTreeMap<Phase, u64>,
    /// Number of pods in phase `running` that are not ready: those that crash again and again, for example.
    #[serde(default)]
    pub pods_not_ready: u64,
    /// Lengths of the queues that belong to no node.
    pub queues: QueueLengths,
    /// Number of schedulers that are alive.
    pub schedulers: u64,
    /// The parts that still pause because the Redis master changed or was restarted. Null if none does.
    pub pause: Option<PauseView>,
    /// Keys in Redis that cannot be read, at most 20. Each harms only the object that it names.
    #[serde(default)]
    pub broken: Vec<BrokenKey>,
    /// Replicas and Sentinels of Redis. Null while the server does not say.
    pub redundancy: Option<RedundancyView>,
    /// Problems for an operator to look at, one sentence each. If Redis takes no writes, that is the first.
    pub problems: Vec<String>,
}

/// Replicas and Sentinels of Redis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RedundancyView {
    /// Number of replicas that should be attached to the master.
    pub replicas: usize,
    /// How many of them are attached and keep up.
    pub replicas_attached: usize,
    /// Number of Sentinels; 0 if there are none.
    pub sentinels: usize,
    /// How many of them answer.
    pub sentinels_answering: usize,
    /// Whether the Sentinels could replace the master now. Null without Sentinels.
    pub can_fail_over: Option<bool>,
}

/// The connection of this API process to Redis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RedisView {
    /// Whether this process is connected to a master.
    pub connected: bool,
    /// Whether Redis takes writes. If not, `problems` begins with the reason.
    pub writable: bool,
    /// Product and version of the server, such as `Redis 7.0.15`; empty if unknown.
    #[serde(default)]
    pub server: String,
    /// Address of the master; empty while there is no connection.
    pub master: String,
    /// Why there is no connection; empty while there is one.
    pub detail: String,
    /// How full Redis is. Null while there is no connection.
    pub memory: Option<RedisMemoryView>,
}

/// A pause after the Redis master changed or was restarted: lost writes must be known first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PauseView {
    /// When the master changed, as the first process noticed.
    pub master_changed_at: String,
    /// For how many more seconds no node is declared dead, however long it is silent.
    pub no_deaths_for_seconds: u64,
    /// For how many more seconds workers start no pods.
    pub no_starts_for_seconds: u64,
}

/// How full Redis is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RedisMemoryView {
    /// Bytes in use.
    pub used_bytes: u64,
    /// Redis' `maxmemory` in bytes. Null without a limit.
    pub limit_bytes: Option<u64>,
    /// Bytes that can be added before the API refuses requests that add. Null without a limit.
    pub headroom_bytes: Option<u64>,
}

/// Number of nodes by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeCounts {
    /// All known nodes.
    pub total: u64,
    /// Nodes that are alive, with a recent heartbeat and a working engine.
    pub ready: u64,
    /// Nodes that are excluded from new assignments.
    pub cordoned: u64,
    /// Nodes that were declared dead.
    pub dead: u64,
}

/// Response of `/readyz` when this process can serve requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReadyView {
    /// Always true: a process that is not ready responds with a 503 problem.
    pub ready: bool,
    /// Problems that do not keep the API from serving requests.
    pub warnings: Vec<String>,
}
