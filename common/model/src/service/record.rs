//! The record of a service: its desired state and the version of that state.

use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::ids::{AppName, ServiceName, SpecId};
use crate::pod::image::ImageContent;
use crate::service::cron::Ticks;
use crate::service::volume::{VolumeClaim, VolumeScope};
use crate::spec::{DesiredService, Kind, PodSpec, ServiceFields, UpdatePolicy};

/// Maximum number of pods that the API creates before it responds; it creates further pods afterwards. A
/// service that lacks more pods than this may still be in creation; one that lacks fewer has lost them.
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

/// The record `service:<name>` in Redis, with the specification that it refers to.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Name of the service.
    pub name: ServiceName,
    /// Whether the service is active or being deleted.
    pub state: ServiceState,
    /// Version of the pod specification: starts at 1 and grows with every change.
    pub generation: u64,
    /// Version of the desired state: every change raises it, also of replicas and labels. At least the
    /// generation; equal to it in a service that an earlier version stored.
    pub revision: u64,
    /// Id under which the specification is stored.
    pub spec_id: SpecId,
    /// Desired number of pods.
    pub replicas: u32,
    /// The other fields that a user describes.
    pub fields: ServiceFields,
    /// Whether `routes` lacks what follows from its ingress, `allow_from` or aliases.
    pub lacks_routes: bool,
    /// How far it is, if it is a job.
    pub progress: JobProgress,
    /// What it has created, if it is a cron.
    pub schedule: CronProgress,
    /// How far the rollout of its generation is.
    pub rollout: RolloutMarks,
    /// Time at which the service was created.
    pub created_at: RedisMillis,
    /// Time of the last change.
    pub updated_at: RedisMillis,
    /// Time at which its number of pods was set by a scale, if no description of it has changed it since.
    pub scaled_at: Option<RedisMillis>,
    /// Specification of each pod.
    pub pod: PodSpec,
    /// What the images of this specification were when its first pod was started: what all its pods get.
    pub images: Vec<ImageContent>,
}

/// What is noted about the rollout of a service's generation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RolloutMarks {
    /// Why no further pod is replaced.
    pub paused: Option<String>,
    /// How often pods were replaced since the service exists, as Redis has it: two schedulers do not take the
    /// same step.
    pub step: String,
    /// That the first pods, `canary` of the policy, are replaced and good: the others wait for a person.
    pub at_canary: Option<String>,
    /// Whether the others may be replaced, too.
    pub is_promoted: bool,
    /// Whether it goes on although pods are bad: it was paused, and resumed by hand.
    pub is_resumed: bool,
    /// Whether all pods were good at the same time. What happens to them later is no failure of the rollout.
    pub is_settled: bool,
    /// The fingerprint of the last specification with which all pods were good.
    pub settled_fingerprint: Option<String>,
    /// Whether the service has that specification now: after a rollback or an undo. It was tried before, so
    /// no `canary` holds it up.
    pub is_known_good: bool,
    /// Why its pods are not replaced further for now, although it is not paused: the first new ones are bad,
    /// their image cannot be pulled, or what they depend on is not there.
    pub held: Option<String>,
    /// The generation from which this one goes back by an undo. Undone again, the change is back.
    pub undone: Option<u64>,
    /// The generation before this one, if its rollout failed and this one takes it back, and why it failed.
    pub rolled_back: Option<(u64, String)>,
}

/// How far a job is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobProgress {
    /// The cron that created it, and the tick, in seconds since 1970; 0 for one that was run by hand.
    pub of_cron: Option<(ServiceName, i64)>,
    /// Time at which its first pod was created.
    pub started_at: Option<RedisMillis>,
    /// Time at which it was complete or failed.
    pub ended_at: Option<RedisMillis>,
    /// Why it failed: a word and a sentence.
    pub failure: Option<(String, String)>,
    /// How many of its pods have failed.
    pub failures: u32,
}

/// What a cron has created.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CronProgress {
    /// The ticks that were taken.
    pub ticks: Ticks,
    /// The same as it is stored.
    pub ticks_text: String,
    /// Time since which it has these times: what was before is not due.
    pub since: RedisMillis,
    /// The last write of its desired state: a tick is taken with what was read, or not at all.
    pub write: String,
}

impl JobProgress {
    /// Returns whether all completions are there.
    pub fn is_complete(&self) -> bool {
        self.ended_at.is_some() && self.failure.is_none()
    }

    /// Returns whether it neither is complete nor has failed.
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
    /// Returns the service that this desired state makes, as it is stored under `spec_id` at a time of Redis.
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
            lacks_routes: false,
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

    /// Returns what it is.
    pub fn kind(&self) -> Kind {
        self.pod.kind
    }

    /// Returns whether its pods get a former specification again: the last one with which all were good, or
    /// what took a failed rollout back.
    pub fn goes_back(&self) -> bool {
        self.rollout.is_known_good || self.rollout.rolled_back.is_some()
    }

    /// Returns how its pods are replaced now, `with_machine_ports` if one is where pods have the ports of
    /// their machine.
    pub fn replacing_policy(&self, with_machine_ports: bool) -> UpdatePolicy {
        let policy = self.fields.update_in_force(&self.pod, with_machine_ports);
        if self.goes_back() { policy.going_back().into_owned() } else { policy }
    }

    /// Returns the replica indices that get a pod as soon as it exists: all of a service, the first ones of a
    /// job.
    pub fn first_replicas(&self) -> Vec<u32> {
        let at_once =
            self.fields.job.as_ref().map_or(self.replicas, |job| job.parallelism.min(self.replicas));
        (0..at_once).collect()
    }

    /// Returns whether its pods have this volume, those of its replica if it belongs to one.
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
