//! Persistent and shared volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{NodeName, ServiceName, VolumeName};
use crate::spec::VolumeKind;
use crate::volume::VolumeState;

/// A persistent volume of a replica of a service, or a shared one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeView {
    /// Name of the volume: the service, the source and the replica, as in `web_data_0`; `web_data_shared` is
    /// shared by a service, `shop_data_app` by an app.
    pub name: VolumeName,
    /// `persistent` or `shared`.
    pub kind: VolumeKind,
    /// The service that it belongs to, or the app that shares it; it may be gone.
    pub service: ServiceName,
    /// Its name in the service or app.
    pub source: String,
    /// The replica that it belongs to; null for a shared volume.
    pub replica: Option<u32>,
    /// The node that has its data. Pods that need it run only there. Null for a shared volume, unless the
    /// node is to remove it.
    pub node: Option<NodeName>,
    /// The id of the container engine that has its data; null if that has none. If the node's is another one,
    /// the data is on the machine that had the name before.
    #[serde(default)]
    pub engine_id: Option<String>,
    /// Whether it can be used.
    pub state: VolumeState,
    /// Whether a service that is not scaled to zero has the volume, and its replica. Such a volume cannot be
    /// removed.
    pub in_use: bool,
    /// How many bytes it is meant to hold; null if the service does not say.
    pub space: Option<u64>,
    /// How many bytes it held when its node measured last; null before that, and where the node cannot.
    #[serde(default)]
    pub used: Option<u64>,
    /// That it holds more than its space; null if it does not.
    #[serde(default)]
    pub problem: Option<String>,
    /// When its first pod was assigned.
    pub created_at: String,
}
