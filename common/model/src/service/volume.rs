//! Records of persistent and shared volumes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::ids::{NodeName, PodId, ServiceName, VolumeName};
use crate::spec::{PodSpec, SharedVolume};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeScope {
    /// Persistent, on one node.
    Replica(u32),
    /// Shared by its pods.
    Service,
    /// Shared by all services of an app that name it.
    App,
}

impl VolumeScope {
    pub fn replica(self) -> Option<u32> {
        match self {
            Self::Replica(replica) => Some(replica),
            Self::Service | Self::App => None,
        }
    }

    pub fn is_shared(self) -> bool {
        self.replica().is_none()
    }
}

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

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeClaim {
    pub name: VolumeName,
    /// Or its app, if the app shares it.
    pub service: ServiceName,
    /// In the service or app.
    pub source: String,
    pub scope: VolumeScope,
    /// Bytes.
    pub space: Option<u64>,
}

impl VolumeClaim {
    pub fn of_replica(service: &ServiceName, spec: &PodSpec, replica: u32) -> Vec<Self> {
        let persistent = spec.persistent_volumes().into_iter();
        let persistent = persistent.filter_map(|volume| {
            Self::new(service.clone(), volume.source, VolumeScope::Replica(replica), volume.space)
        });
        let shared = spec.shared_volumes().into_iter();
        persistent.chain(shared.filter_map(|volume| Self::of_shared(service, volume))).collect()
    }

    pub fn of_shared(service: &ServiceName, volume: SharedVolume) -> Option<Self> {
        let SharedVolume { source, app, space } = volume;
        match app {
            Some(app) => Self::new(ServiceName::new(app.as_str()).ok()?, source, VolumeScope::App, space),
            None => Self::new(service.clone(), source, VolumeScope::Service, space),
        }
    }

    /// `None` for a source that was written by hand: workers reject the pod.
    fn new(service: ServiceName, source: String, scope: VolumeScope, space: Option<u64>) -> Option<Self> {
        let name = VolumeName::of(&service, &source, scope).ok()?;
        Some(Self { name, service, source, scope, space })
    }

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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub claim: VolumeClaim,
    /// The node with the data, or that must remove it.
    pub node: Option<NodeName>,
    /// If it differs, the data is on a machine that had the name before.
    pub engine_id: Option<String>,
    pub state: VolumeState,
    /// Bytes, as last measured.
    pub used: Option<u64>,
    /// A sentence, if it exceeds its space.
    pub over: Option<String>,
    /// A backup recorded its place, and no node has confirmed it since.
    pub is_restored: bool,
    /// Time of binding in milliseconds, or more than all copies known then: the greater epoch is younger.
    pub epoch: Option<u64>,
    /// Its node has had the data: missing later, it is lost.
    pub is_found: bool,
    /// Its node no longer has the data. No pod gets it before an operator agrees.
    pub is_lost: bool,
    /// Its record was lost and rewritten, and its service has not been seen since.
    pub is_recovered: bool,
    /// An operator must choose.
    pub conflict: Vec<NodeName>,
    pub created_at: RedisMillis,
}

impl Volume {
    /// One whose first pod was placed on the node.
    pub fn bound(claim: VolumeClaim, node: NodeName, engine_id: Option<String>) -> Self {
        Self {
            claim,
            node: Some(node),
            engine_id,
            state: VolumeState::Bound,
            used: None,
            over: None,
            is_restored: false,
            epoch: None,
            is_found: false,
            is_lost: false,
            is_recovered: false,
            conflict: Vec::new(),
            created_at: 0,
        }
    }
}

/// A copy on this node's engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineCopy {
    pub claim: VolumeClaim,
    /// `None` if its label is missing.
    pub epoch: Option<u64>,
    pub is_mounted: bool,
}

impl From<VolumeClaim> for EngineCopy {
    fn from(claim: VolumeClaim) -> Self {
        Self { claim, epoch: None, is_mounted: false }
    }
}

/// Outside the volume's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerCopy {
    pub volume: VolumeName,
    pub node: NodeName,
    pub epoch: Option<u64>,
    pub engine_id: Option<String>,
    pub is_mounted: bool,
    /// Returns only on request.
    pub is_given_up: bool,
}

impl FormerCopy {
    /// A field of `volumes:copies`; `None` for entries of other programs.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeVerdict {
    /// `Some` if no pod is known to have had it: an interrupted start created it.
    Use(Option<u64>),
    /// Never here: its first container creates it with this epoch.
    Create(u64),
    Lost {
        /// The engine has an older copy.
        has_older: bool,
    },
    /// Nodes.
    Conflict(String),
    Unreported,
    /// The engine has an abandoned copy, which must not become the volume.
    Former,
    Elsewhere(String),
    Removing,
}

/// A machine that has not reported its volumes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnreportedNode {
    pub name: NodeName,
    /// Another machine has the name now.
    pub is_former: bool,
}

impl UnreportedNode {
    /// The node's name, and the engine's id if another machine has that name.
    pub fn from_field(field: &str) -> Option<Self> {
        let (name, is_former) = match field.split_once(' ') {
            Some((name, _engine)) => (name, true),
            None => (field, false),
        };
        Some(Self { name: NodeName::new(name).ok()?, is_former })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeSize {
    pub name: VolumeName,
    /// Bytes.
    pub used: u64,
    /// A sentence, or empty.
    pub over: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalExcess {
    pub pod: PodId,
    pub over: String,
}
