//! A service as Redis knows it: what somebody wants, and which version of the wish this is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::ids::{ServiceName, SpecId};
use crate::spec::PodSpec;

/// The API makes up to so many pods of a service before it answers, and more after it. A service that misses more may
/// therefore be in the making; one that misses fewer has lost them.
pub const MADE_AT_ONCE: u32 = 250;

/// Whether a service is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    /// Wanted.
    Active,
    /// Deleted by its user; it is forgotten when its last pod is gone.
    Deleting,
}

/// `service:<name>`, with the specification it points at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Its name.
    pub name: ServiceName,
    /// Wanted or going.
    pub state: ServiceState,
    /// Counts the changes of its pod specification, from 1.
    pub generation: u64,
    /// Where the specification is stored.
    pub spec_id: SpecId,
    /// How many pods there shall be.
    pub replicas: u32,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// When it was first posted.
    pub created_at: RedisMillis,
    /// When somebody last changed it.
    pub updated_at: RedisMillis,
    /// What each pod is.
    pub pod: PodSpec,
}

impl Service {
    /// The replica indices that shall have a pod.
    pub fn all_replicas(&self) -> Vec<u32> {
        (0..self.replicas).collect()
    }
}
