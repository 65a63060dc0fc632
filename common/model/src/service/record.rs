//! The record of a service: its desired state and its versions.

use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::ids::{AppName, ServiceName, SpecId};
use crate::pod::image::ImageContent;
use crate::service::cron::Ticks;
use crate::service::members::Members;
use crate::service::moves::Moves;
use crate::service::volume::{VolumeClaim, VolumeScope};
use crate::spec::{DesiredService, Kind, PodSpec, ServiceFields, UpdatePolicy};

/// A service that lacks more may still be in creation; one that lacks fewer has lost them.
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

/// `service:<name>`, with its specification.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    pub name: ServiceName,
    pub state: ServiceState,
    /// Counts pod specifications, from 1.
    pub generation: u64,
    /// Counts changes of the desired state.
    pub revision: u64,
    pub spec_id: SpecId,
    /// If the service is global, one more than the highest number of its members: see
    /// [`wanted_pods`](Self::wanted_pods).
    pub replicas: u32,
    pub fields: ServiceFields,
    pub progress: JobProgress,
    pub schedule: CronProgress,
    pub rollout: RolloutMarks,
    pub moves: Moves,
    /// The nodes of a global service.
    pub members: Members,
    pub created_at: RedisMillis,
    pub updated_at: RedisMillis,
    /// Unless a later description changed the replicas.
    pub scaled_at: Option<RedisMillis>,
    pub pod: PodSpec,
    /// As of its first pod; all its pods get these.
    pub images: Vec<ImageContent>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RolloutMarks {
    /// No further pod is replaced.
    pub paused: Option<String>,
    /// Replacements as Redis counts them; keeps two schedulers from taking the same step.
    pub step: String,
    /// The first pods (`canary`) are good: the others wait for a person.
    pub at_canary: Option<String>,
    pub is_promoted: bool,
    /// By hand: continues despite bad pods.
    pub is_resumed: bool,
    /// All pods were good at the same time; later failures do not count.
    pub is_settled: bool,
    /// The fingerprint of the last settled specification.
    pub settled_fingerprint: Option<String>,
    /// After a rollback or undo: no `canary` holds it up.
    pub is_known_good: bool,
    /// Waits without a pause: bad first pods, a failed image pull, or a missing dependency.
    pub held: Option<String>,
    /// The generation that this one undoes. Another undo restores the change.
    pub undone: Option<u64>,
    /// The failed generation, and the reason.
    pub rolled_back: Option<(u64, String)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobProgress {
    /// The tick is 0 if started by hand.
    pub of_cron: Option<(ServiceName, i64)>,
    pub started_at: Option<RedisMillis>,
    pub ended_at: Option<RedisMillis>,
    /// A word and a sentence.
    pub failure: Option<(String, String)>,
    /// Failed pods.
    pub failures: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CronProgress {
    pub ticks: Ticks,
    /// As stored.
    pub ticks_text: String,
    /// Earlier ticks are not due.
    pub since: RedisMillis,
    /// Names the desired state; must be unchanged when a tick is taken.
    pub write: String,
}

impl JobProgress {
    pub fn is_complete(&self) -> bool {
        self.ended_at.is_some() && self.failure.is_none()
    }

    pub fn is_running(&self) -> bool {
        self.ended_at.is_none() && self.failure.is_none()
    }
}

impl From<Service> for DesiredService {
    fn from(service: Service) -> Self {
        let Service { name, replicas, fields, pod, .. } = service;
        Self { name, replicas, fields, pod }
    }
}

impl Service {
    pub fn created(desired: DesiredService, spec_id: SpecId, at: RedisMillis) -> Self {
        let DesiredService { name, replicas, fields, pod } = desired;
        Self {
            name,
            state: ServiceState::Active,
            generation: 1,
            revision: 1,
            spec_id,
            replicas,
            fields,
            progress: JobProgress::default(),
            schedule: CronProgress::default(),
            rollout: RolloutMarks::default(),
            moves: Moves::default(),
            members: Members::default(),
            created_at: at,
            updated_at: at,
            scaled_at: None,
            pod,
            images: Vec::new(),
        }
    }

    pub fn kind(&self) -> Kind {
        self.pod.kind
    }

    pub fn is_global(&self) -> bool {
        self.pod.mode.is_global()
    }

    /// While it is active.
    pub fn wanted_pods(&self) -> u32 {
        if self.is_global() { self.members.wanted().count() as u32 } else { self.replicas }
    }

    /// To the last settled specification, or the one before a failed rollout.
    pub fn goes_back(&self) -> bool {
        self.rollout.is_known_good || self.rollout.rolled_back.is_some()
    }

    /// `with_machine_ports`: a pod's node shares the ports of its machine.
    pub fn replacing_policy(&self, with_machine_ports: bool) -> UpdatePolicy {
        let policy = self.fields.update_in_force(&self.pod, with_machine_ports);
        if self.goes_back() { policy.going_back().into_owned() } else { policy }
    }

    /// They get a pod at once.
    pub fn first_replicas(&self) -> Vec<u32> {
        let is_ordered = self.pod.stateful.as_ref().is_some_and(|stateful| stateful.starts_in_order());
        let at_once = match &self.fields.job {
            Some(job) => job.parallelism,
            None if is_ordered => 1,
            // The schedulers know the nodes.
            None if self.is_global() => 0,
            None => self.replicas,
        };
        (0..at_once.min(self.replicas)).collect()
    }

    pub fn has_volume(&self, claim: &VolumeClaim) -> bool {
        let owner = match claim.scope {
            VolumeScope::App => self.fields.app.as_ref().map(AppName::as_str),
            VolumeScope::Replica(_) | VolumeScope::Service => Some(self.name.as_str()),
        };
        let is_source = |source: &str| source == claim.source;
        owner == Some(claim.service.as_str())
            && match claim.scope {
                VolumeScope::Replica(_) => {
                    self.pod.persistent_volumes().iter().any(|volume| is_source(&volume.source))
                }
                VolumeScope::Service | VolumeScope::App => self.pod.shared_volumes().iter().any(|volume| {
                    is_source(&volume.source) && volume.app.is_some() == (claim.scope == VolumeScope::App)
                }),
            }
    }
}
