//! Persistent volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{NodeName, ServiceName, VolumeName};
use crate::volume::VolumeState;

/// A persistent volume of a replica of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeView {
    /// Name of the volume: the service, the source and the replica, as in `web_data_0`.
    pub name: VolumeName,
    /// The service that it belongs to; it may be gone.
    pub service: ServiceName,
    /// Its name in the service.
    pub source: String,
    /// The replica that it belongs to.
    pub replica: u32,
    /// The node that has its data. Pods that need it run only there.
    pub node: NodeName,
    /// Whether it can be used.
    pub state: VolumeState,
    /// Whether the service exists, has this replica and mounts the volume. Such a volume cannot be removed.
    pub in_use: bool,
    /// How many bytes it is meant to hold; null if the service does not say.
    pub space: Option<u64>,
    /// When it was bound to its node.
    pub created_at: String,
}
