//! Persistent and shared volumes: what the cluster records about the data of services.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::ids::{NodeName, PodId, ServiceName, VolumeName};
use crate::spec::{PodSpec, SharedVolume};

/// The pods that share a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeScope {
    /// One replica of a service: the volume is persistent, and on one node.
    Replica(u32),
    /// All pods of a service: the volume is shared.
    Service,
    /// The pods of all services of an app that name it: the volume is shared.
    App,
}

impl VolumeScope {
    /// Returns the replica; `None` for a shared volume.
    pub fn replica(self) -> Option<u32> {
        match self {
            Self::Replica(replica) => Some(replica),
            Self::Service | Self::App => None,
        }
    }

    /// Whether the volume is in the directory that nodes share.
    pub fn is_shared(self) -> bool {
        self.replica().is_none()
    }
}

/// As it ends the name of a volume, and as it is stored.
impl fmt::Display for VolumeScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replica(replica) => write!(f, "{replica}"),
            Self::Service => f.write_str("shared"),
            Self::App => f.write_str("app"),
        }
    }
}

impl FromStr for VolumeScope {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "shared" => Ok(Self::Service),
            "app" => Ok(Self::App),
            number => number
                .parse()
                .map(Self::Replica)
                .map_err(|_| format!("{text:?} is neither a replica nor `shared` nor `app`")),
        }
    }
}

/// A persistent or shared volume that a pod of a service needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeClaim {
    /// Its name in the cluster.
    pub name: VolumeName,
    /// The service that has it; where an app shares it, the name of the app.
    pub service: ServiceName,
    /// Its name in the service or app.
    pub source: String,
    /// The pods that share it.
    pub scope: VolumeScope,
    /// How many bytes it is meant to hold.
    pub space: Option<u64>,
}

impl VolumeClaim {
    /// Returns what one replica of a service needs: its persistent volumes, then the shared ones.
    pub fn of_replica(service: &ServiceName, spec: &PodSpec, replica: u32) -> Vec<Self> {
        let persistent = spec.persistent_volumes().into_iter();
        let persistent = persistent.filter_map(|volume| {
            Self::new(service.clone(), volume.source, VolumeScope::Replica(replica), volume.space)
        });
        let shared = spec.shared_volumes().into_iter();
        persistent.chain(shared.filter_map(|volume| Self::of_shared(service, volume))).collect()
    }

    /// Returns a shared volume of a service or of its app.
    pub fn of_shared(service: &ServiceName, volume: SharedVolume) -> Option<Self> {
        let SharedVolume { source, app, space } = volume;
        match app {
            Some(app) => Self::new(ServiceName::new(app.as_str()).ok()?, source, VolumeScope::App, space),
            None => Self::new(service.clone(), source, VolumeScope::Service, space),
        }
    }

    /// Returns `None` for a source that cannot be one: it was written to Redis by hand, and workers refuse
    /// the pod.
    fn new(service: ServiceName, source: String, scope: VolumeScope, space: Option<u64>) -> Option<Self> {
        let name = VolumeName::of(&service, &source, scope).ok()?;
        Some(Self { name, service, source, scope, space })
    }

    /// Reads back the name of a volume; its space is not in it.
    pub fn from_name(name: &VolumeName) -> Option<Self> {
        let (service, rest) = name.as_str().split_once('_')?;
        let (source, scope) = rest.rsplit_once('_')?;
        Self::new(ServiceName::new(service).ok()?, source.to_owned(), scope.parse().ok()?, None)
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

/// The record of a persistent or shared volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its name, the service, the source, which pods have it, and how much it is meant to hold.
    pub claim: VolumeClaim,
    /// The node that has its data, or that is to remove it. `None` for a shared volume that is not being
    /// removed.
    pub node: Option<NodeName>,
    /// The id of that node's container engine; `None` if it has none. If it differs from the node's, the data
    /// is on a machine that had the name before.
    pub engine_id: Option<String>,
    /// Whether it can be used.
    pub state: VolumeState,
    /// How many bytes it held when its node measured last; `None` before that.
    pub used: Option<u64>,
    /// That it holds more than its space, in a sentence; `None` if it does not, or has none.
    pub over: Option<String>,
    /// Whether a backup says where it is, and no node has said so since.
    pub is_restored: bool,
    /// When it was bound, in milliseconds, or later than all of its copies that were known then: of two
    /// copies the one with the greater epoch is younger. `None` for one that a version before has bound.
    pub epoch: Option<u64>,
    /// Whether its node has had the data: that it is there no more is a loss.
    pub is_found: bool,
    /// Whether its node does not have the data any more. No pod gets it before an operator says so.
    pub is_lost: bool,
    /// Whether its record was lost and written again, and its service has not been seen since.
    pub is_recovered: bool,
    /// The nodes whose copies contradict each other: an operator has to choose one. Empty without a conflict.
    pub conflict: Vec<NodeName>,
    /// When it was bound to its node.
    pub created_at: RedisMillis,
}

/// A copy of a persistent volume on this node's engine, as it is reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineCopy {
    /// The volume.
    pub claim: VolumeClaim,
    /// The epoch for which it was created; `None` if a version before has created it.
    pub epoch: Option<u64>,
    /// Whether a pod of this node has it.
    pub is_mounted: bool,
}

impl From<VolumeClaim> for EngineCopy {
    fn from(claim: VolumeClaim) -> Self {
        Self { claim, epoch: None, is_mounted: false }
    }
}

/// A copy of a persistent volume that its record does not name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerCopy {
    /// The volume.
    pub volume: VolumeName,
    /// The node that has the copy.
    pub node: NodeName,
    /// The epoch for which it was created, if that is known.
    pub epoch: Option<u64>,
    /// The id of the node's container engine, if it has one.
    pub engine_id: Option<String>,
    /// Whether a pod of that node has it.
    pub is_mounted: bool,
    /// Whether it was given up: it comes back only when it is asked for.
    pub is_given_up: bool,
}

impl FormerCopy {
    /// Reads a field of `volumes:copies`. Returns `None` for what another program wrote there.
    pub fn from_field(field: &str, value: &str) -> Option<Self> {
        let (volume, node) = field.split_once(' ')?;
        let mut words = value.split(' ');
        let (epoch, engine_id, mounted) = (words.next()?, words.next()?, words.next()?);
        Some(Self {
            volume: VolumeName::new(volume).ok()?,
            node: NodeName::new(node).ok()?,
            epoch: epoch.parse().ok(),
            engine_id: Some(engine_id.to_owned()).filter(|id| id != "-"),
            is_mounted: mounted == "1",
            is_given_up: false,
        })
    }
}

/// Whether the containers of a pod may have a persistent volume of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeVerdict {
    /// The engine has it. `Some` if no pod is known to have had it: it was created by a start that was
    /// interrupted.
    Use(Option<u64>),
    /// It was never here: its first container creates it, with this epoch.
    Create(u64),
    /// It was here, and is not any more.
    Lost {
        /// Whether the engine has an older copy in its place.
        has_older: bool,
    },
    /// These nodes have copies that contradict each other.
    Conflict(String),
    /// Where its data is is not known yet.
    Unreported,
    /// The engine has a copy that was given up, and that must not become the volume.
    Former,
    /// It is on another node.
    Elsewhere(String),
    /// It is being removed.
    Removing,
}

/// A machine that has not told Redis which volumes it has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnreportedNode {
    /// The name of its node.
    pub name: NodeName,
    /// Whether another machine has the name now.
    pub is_former: bool,
}

impl UnreportedNode {
    /// Reads a field of `volumes:reports`: the name of a node, with the id of the engine if another machine
    /// has the name.
    pub fn from_field(field: &str) -> Option<Self> {
        let (name, is_former) = match field.split_once(' ') {
            Some((name, _engine)) => (name, true),
            None => (field, false),
        };
        Some(Self { name: NodeName::new(name).ok()?, is_former })
    }
}

/// How much a volume holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeSize {
    /// Its name in the cluster.
    pub name: VolumeName,
    /// How many bytes.
    pub used: u64,
    /// That this is more than its space, in a sentence; empty if it is not.
    pub over: String,
}

/// A local volume that holds more than its space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalExcess {
    /// The pod that has it.
    pub pod: PodId,
    /// How much more, in a sentence.
    pub over: String,
}
