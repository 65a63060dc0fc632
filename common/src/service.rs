//! The record of a service: its desired state and the version of that state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::ids::{AppName, ServiceName, SpecId};
use crate::spec::{DependsOn, PodSpec};

/// Maximum number of pods that the API creates before it responds; it creates further pods afterwards. A
/// service that lacks more pods than this may still be in creation; one that lacks fewer has lost them.
pub const PODS_CREATED_INLINE: u32 = 250;

/// Whether a service is active or being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    /// The service is kept in its desired state.
    Active,
    /// The service was deleted; its record is removed when its last pod is gone.
    Deleting,
}

/// The record `service:<name>` in Redis, with the specification that it refers to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Name of the service.
    pub name: ServiceName,
    /// Whether the service is active or being deleted.
    pub state: ServiceState,
    /// Version of the pod specification: starts at 1 and grows with every change.
    pub generation: u64,
    /// Version of the desired state: every change raises it, also of replicas and labels. At least the
    /// generation; equal to it in a service that an earlier version stored.
    #[serde(default)]
    pub revision: u64,
    /// Id under which the specification is stored.
    pub spec_id: SpecId,
    /// Desired number of pods.
    pub replicas: u32,
    /// Labels of the service.
    pub labels: BTreeMap<String, String>,
    /// The app that the service belongs to.
    #[serde(default)]
    pub app: Option<AppName>,
    /// The services that its pods wait for before they are started.
    #[serde(default)]
    pub depends_on: DependsOn,
    /// Time at which the service was created.
    pub created_at: RedisMillis,
    /// Time of the last change.
    pub updated_at: RedisMillis,
    /// Specification of each pod.
    pub pod: PodSpec,
}

impl Service {
    /// Returns the replica indices that must have a pod.
    pub fn all_replicas(&self) -> Vec<u32> {
        (0..self.replicas).collect()
    }
}
