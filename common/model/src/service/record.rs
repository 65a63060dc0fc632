//! The record of a service: its desired state and its versions.

use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::ids::{AppName, ServiceName, SpecId};
use crate::pod::image::ImageContent;
use crate::service::cron::Ticks;
use crate::service::volume::{VolumeClaim, VolumeScope};
use crate::spec::{DesiredService, Kind, PodSpec, ServiceFields, UpdatePolicy};

/// Before the API responds. A service that lacks more may still be in creation; one that lacks fewer has lost
/// them.
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

/// `service:<name>` in Redis, with its specification.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    pub name: ServiceName,
    pub state: ServiceState,
    /// Of the pod specification: starts at 1 and grows with every change.
    pub generation: u64,
    /// Grows with every change of the desired state.
    pub revision: u64,
    pub spec_id: SpecId,
    /// Desired pods.
    pub replicas: u32,
    pub fields: ServiceFields,
    pub progress: JobProgress,
    pub schedule: CronProgress,
    pub rollout: RolloutMarks,
    pub created_at: RedisMillis,
    pub updated_at: RedisMillis,
    /// Unless a later description changed the number of pods.
    pub scaled_at: Option<RedisMillis>,
    pub pod: PodSpec,
    /// As of the first pod of this specification; all its pods get these.
    pub images: Vec<ImageContent>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RolloutMarks {
    /// The reason; no further pod is replaced.
    pub paused: Option<String>,
    /// Replacements as Redis stores them, which keeps two schedulers from taking the same step.
    pub step: String,
    /// The first pods (`canary`) are good: the others wait for a person.
    pub at_canary: Option<String>,
    /// The others may be replaced, too.
    pub is_promoted: bool,
    /// By hand: it continues despite bad pods.
    pub is_resumed: bool,
    /// All pods were good at the same time. Later failures do not count.
    pub is_settled: bool,
    /// Of the last specification with which all pods were good.
    pub settled_fingerprint: Option<String>,
    /// The service has that specification, after a rollback or undo: no `canary` holds it up.
    pub is_known_good: bool,
    /// Why it waits without a pause: bad first pods, a failed image pull, or a missing dependency.
    pub held: Option<String>,
    /// The generation that this one undoes. Another undo restores the change.
    pub undone: Option<u64>,
    /// The failed generation that this one rolls back, and the reason.
    pub rolled_back: Option<(u64, String)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobProgress {
    /// The cron and the tick in seconds since 1970; 0 if started by hand.
    pub of_cron: Option<(ServiceName, i64)>,
    /// Its first pod.
    pub started_at: Option<RedisMillis>,
    /// Completion or failure.
    pub ended_at: Option<RedisMillis>,
    /// A word and a sentence.
    pub failure: Option<(String, String)>,
    /// Failed pods.
    pub failures: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CronProgress {
    pub ticks: Ticks,
    /// In the stored form.
    pub ticks_text: String,
    /// The latest change of the schedule: earlier ticks are not due.
    pub since: RedisMillis,
    /// Of its desired state; it must be unchanged when a tick is taken.
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
    /// `at` is a time of Redis.
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

    /// To the last good specification, or the one before a failed rollout.
    pub fn goes_back(&self) -> bool {
        self.rollout.is_known_good || self.rollout.rolled_back.is_some()
    }

    /// `with_machine_ports`: a pod is on a node whose pods share the machine's ports.
    pub fn replacing_policy(&self, with_machine_ports: bool) -> UpdatePolicy {
        let policy = self.fields.update_in_force(&self.pod, with_machine_ports);
        if self.goes_back() { policy.going_back().into_owned() } else { policy }
    }

    /// They get a pod at once; only the first ones of a job.
    pub fn first_replicas(&self) -> Vec<u32> {
        let at_once =
            self.fields.job.as_ref().map_or(self.replicas, |job| job.parallelism.min(self.replicas));
        (0..at_once).collect()
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
