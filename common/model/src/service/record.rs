//! The record of a service: its desired state and its versions.

use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::ids::{AppName, ServiceName, SpecId};
use crate::pod::image::ImageContent;
use crate::service::cron::Ticks;
use crate::service::volume::{VolumeClaim, VolumeScope};
use crate::spec::{DesiredService, Kind, PodSpec, ServiceFields, UpdatePolicy};

/// Maximum number of pods that the API creates before it responds. A service that lacks more may still be in
/// creation; one that lacks fewer has lost them.
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

/// The record `service:<name>` in Redis, with its specification.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Name of the service.
    pub name: ServiceName,
    /// Active or being deleted.
    pub state: ServiceState,
    /// Version of the pod specification: starts at 1 and grows with every change.
    pub generation: u64,
    /// Version of the desired state, incremented by every change.
    pub revision: u64,
    /// Id of the specification.
    pub spec_id: SpecId,
    /// Desired number of pods.
    pub replicas: u32,
    /// The other fields of the user's document.
    pub fields: ServiceFields,
    /// Progress, for a job.
    pub progress: JobProgress,
    /// Progress, for a cron.
    pub schedule: CronProgress,
    /// Progress of the generation's rollout.
    pub rollout: RolloutMarks,
    /// Time of creation.
    pub created_at: RedisMillis,
    /// Time of the last change.
    pub updated_at: RedisMillis,
    /// Time of the last scaling, if no later description changed the number of pods.
    pub scaled_at: Option<RedisMillis>,
    /// Specification of each pod.
    pub pod: PodSpec,
    /// Image contents when the first pod of this specification started; all its pods get these.
    pub images: Vec<ImageContent>,
}

/// The state of a generation's rollout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RolloutMarks {
    /// The reason of a pause: no further pod is replaced.
    pub paused: Option<String>,
    /// Number of replacements as Redis stores it, which keeps two schedulers from taking the same step.
    pub step: String,
    /// Set once the first pods (`canary`) are replaced and good: the others wait for a person.
    pub at_canary: Option<String>,
    /// True if the others may be replaced, too.
    pub is_promoted: bool,
    /// True if the rollout was paused and resumed by hand: it continues despite bad pods.
    pub is_resumed: bool,
    /// True once all pods were good at the same time. Later failures do not count.
    pub is_settled: bool,
    /// Fingerprint of the last specification with which all pods were good.
    pub settled_fingerprint: Option<String>,
    /// True if the service has that specification now, after a rollback or undo. It is proven: no `canary`
    /// holds it up.
    pub is_known_good: bool,
    /// The reason of a wait without a pause: bad first pods, a failed image pull, or a missing dependency.
    pub held: Option<String>,
    /// The generation that this one undoes. Another undo restores the change.
    pub undone: Option<u64>,
    /// The failed generation that this one rolls back, and the reason.
    pub rolled_back: Option<(u64, String)>,
}

/// The progress of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobProgress {
    /// The cron and the tick in seconds since 1970; 0 if started by hand.
    pub of_cron: Option<(ServiceName, i64)>,
    /// Time of its first pod.
    pub started_at: Option<RedisMillis>,
    /// Time of completion or failure.
    pub ended_at: Option<RedisMillis>,
    /// The reason of its failure: a word and a sentence.
    pub failure: Option<(String, String)>,
    /// Number of failed pods.
    pub failures: u32,
}

/// The progress of a cron.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CronProgress {
    /// The taken ticks.
    pub ticks: Ticks,
    /// The same in the stored form.
    pub ticks_text: String,
    /// Time of the latest change of the schedule: earlier ticks are not due.
    pub since: RedisMillis,
    /// The last write of its desired state, which must be unchanged when a tick is taken.
    pub write: String,
}

impl JobProgress {
    /// Returns true if all completions are there.
    pub fn is_complete(&self) -> bool {
        self.ended_at.is_some() && self.failure.is_none()
    }

    /// Returns true unless the job is complete or has failed.
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
    /// Returns the service of this desired state, stored under `spec_id` at a time of Redis.
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

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        self.pod.kind
    }

    /// Returns true if its pods return to a former specification: the last good one, or the one before a
    /// failed rollout.
    pub fn goes_back(&self) -> bool {
        self.rollout.is_known_good || self.rollout.rolled_back.is_some()
    }

    /// Returns the current replacement policy. `with_machine_ports`: a pod is on a node whose pods share the
    /// machine's ports.
    pub fn replacing_policy(&self, with_machine_ports: bool) -> UpdatePolicy {
        let policy = self.fields.update_in_force(&self.pod, with_machine_ports);
        if self.goes_back() { policy.going_back().into_owned() } else { policy }
    }

    /// Returns the replica indices that get a pod at once; only the first ones of a job.
    pub fn first_replicas(&self) -> Vec<u32> {
        let at_once =
            self.fields.job.as_ref().map_or(self.replicas, |job| job.parallelism.min(self.replicas));
        (0..at_once).collect()
    }

    /// Returns true if its pods have this volume.
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
