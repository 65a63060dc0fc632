//! Persistent and shared volumes: their condition, and where their data is.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use model::ids::{NodeName, ServiceName, VolumeName};
use model::service::volume::VolumeState;
use model::spec::VolumeKind;

/// How a volume is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeCondition {
    /// Nothing is wrong with it.
    #[default]
    Good,
    /// Its node does not have the data any more. No pod gets it until it is removed, or another copy is
    /// chosen.
    Lost,
    /// Several nodes have copies, and which one is wanted is not known. No pod gets it until one is chosen.
    Conflict,
    /// This is a copy that is not the volume: it was given up, or is older. It stays until it is removed.
    Former,
}

/// Chooses a copy of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BindVolumeInput {
    /// The node whose copy is to be the volume.
    pub node: NodeName,
}

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
    pub engine_id: Option<String>,
    /// Whether it is lost, in conflict, or a former copy of the volume of this name.
    #[serde(default)]
    pub condition: VolumeCondition,
    /// Whether it can be used.
    pub state: VolumeState,
    /// Whether a service that is not scaled to zero has the volume, and its replica. Such a volume cannot be
    /// removed.
    pub in_use: bool,
    /// How many bytes it is meant to hold; null if the service does not say.
    pub space: Option<u64>,
    /// How many bytes it held when its node measured last; null before that, and where the node cannot.
    pub used: Option<u64>,
    /// The problem with it, such as that it holds more than its space; null if there is none.
    pub problem: Option<String>,
    /// When its first pod was assigned, or when this was recorded anew.
    pub created_at: String,
}
