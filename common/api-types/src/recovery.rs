//! The plan or result of `kubeleet cluster recover` and `kubeleet restore`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State found in the files of the workers or in a backup, and the part of it that Redis lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecoveryView {
    /// Id of the cluster.
    pub cluster: String,
    /// Whether the plan was carried out. Otherwise nothing was changed.
    pub applied: bool,
    /// Services of which something is missing.
    pub services: Vec<ServiceRecoveryView>,
    /// Number of missing pods that were pushed onto a queue.
    pub pushed_pods: u64,
    /// Number of missing persistent volumes. Their nodes say later whether they are there.
    #[serde(default)]
    pub volumes: u64,
    /// Number of saved pods that are recorded already.
    pub present_pods: u64,
    /// Number of missing secrets, configs and logins for registries. Always 0 for the saved state of workers.
    #[serde(default)]
    pub values: u64,
    /// Number of saved secrets, configs and logins for registries that are there already.
    #[serde(default)]
    pub present_values: u64,
    /// Nodes whose workers have sent their saved state. Empty for a backup.
    pub nodes: Vec<NodeAnswerView>,
    /// Saved state that is not recovered, and other notes, one sentence each.
    pub problems: Vec<String>,
}

/// The missing parts of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceRecoveryView {
    /// Name of the service.
    pub name: String,
    /// Whether its record is missing or older than the saved one.
    pub record: bool,
    /// Desired number of pods.
    pub replicas: u32,
    /// Number of pods that are recorded again, in their slots and on their nodes.
    pub recovered: u64,
    /// Number of desired pods that no worker runs. They are created anew.
    pub new: u32,
}

/// The answer of one worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeAnswerView {
    /// Name of the node.
    pub node: String,
    /// Whether the worker has answered.
    pub answered: bool,
    /// Number of pods that it has saved.
    pub pods: u64,
}
