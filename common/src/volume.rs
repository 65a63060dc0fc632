//! Persistent volumes: what the cluster records about the data of services.

use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::ids::{NodeName, ServiceName, VolumeName};
use crate::spec::PodSpec;

/// A persistent volume that a pod of a service needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeClaim {
    /// Its name in the cluster.
    pub name: VolumeName,
    /// The service.
    pub service: ServiceName,
    /// Its name in the service.
    pub source: String,
    /// The replica that it belongs to.
    pub replica: u32,
    /// How many bytes it is meant to hold.
    pub space: Option<u64>,
}

impl VolumeClaim {
    /// Returns what one replica of a service needs.
    pub fn of_replica(service: &ServiceName, spec: &PodSpec, replica: u32) -> Vec<Self> {
        let volumes = spec.persistent_volumes().into_iter();
        let claim = |volume: crate::spec::PersistentVolume| {
            // A source that cannot be one was written to Redis by hand; the worker refuses the pod.
            let name = VolumeName::of_replica(service, &volume.source, replica).ok()?;
            let (service, source, space) = (service.clone(), volume.source, volume.space);
            Some(Self { name, service, source, replica, space })
        };
        volumes.filter_map(claim).collect()
    }
}

/// Whether a volume can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// Its data is on its node, or will be once its first pod starts there.
    Bound,
    /// Its node was asked to remove its data. No pod that needs it is placed before that.
    Removing,
}

/// The record of a persistent volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its name, the service, the source, the replica, and how much it is meant to hold.
    pub claim: VolumeClaim,
    /// The node that has its data.
    pub node: NodeName,
    /// Whether it can be used.
    pub state: VolumeState,
    /// Whether a backup says where it is, and no node has said so since.
    pub is_restored: bool,
    /// When it was bound to its node.
    pub created_at: RedisMillis,
}
