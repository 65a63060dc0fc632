//! Services and the durability of writes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use super::{CronStatus, JobStatus, rfc3339};
use model::ids::ServiceName;
use model::pod::image::ImageContent;
use model::service::{RolloutMarks, Service, ServiceState};
use model::spec::{
    ContainerSpec, DesiredService, NamedRequest, OnDisconnect, PodSpec, Seconds, ServiceFields, Stateful,
};

/// A service: its desired state and the current state of its pods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServiceView {
    /// Name of the service, unique in the cluster.
    pub name: ServiceName,
    /// Whether the service is active or being deleted.
    pub state: ServiceState,
    /// Version of the pod specification: starts at 1 and grows with every change of it, which replaces the
    /// pods.
    pub generation: u64,
    /// Version of the desired state: every change raises it, also of replicas and labels. Also the ETag.
    #[serde(default)]
    pub revision: u64,
    /// Desired number of pods. Of a global service, the number of its nodes.
    pub replicas: u32,
    /// The other fields of the service itself, as its user described them.
    #[serde(flatten, serialize_with = "with_labels")]
    #[schema(inline)]
    pub fields: ServiceFields,
    /// How far it is, if it is a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_status: Option<JobStatus>,
    /// Its jobs and its next times, if it is a cron.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron_status: Option<CronStatus>,
    /// The outcome of its latest change, if it is paused or was rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutView>,
    /// Why no further pod is created or replaced for now, although nothing is paused: new pods are bad, their
    /// image cannot be pulled, what they depend on is not there, or a node holds pods whose records are lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// The specification of its pods. Environment values are included: treat this document as confidential.
    #[serde(flatten)]
    #[schema(inline)]
    pub pod: PodSpec,
    /// The ids of the images for all pods of this generation, set by its first pod; empty before it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageContent>,
    /// When the service was created.
    pub created_at: String,
    /// When the service was last changed.
    pub updated_at: String,
    /// When its number of pods was set by a scale, if no `PUT` or `PATCH` has changed it since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled_at: Option<String>,
    /// Current state of the service's pods.
    pub status: ServiceStatus,
    /// Whether Redis' replicas have confirmed the write. Only in responses to writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<DurabilityView>,
}

/// The view has `labels` even if there are none.
fn with_labels<S: Serializer>(fields: &ServiceFields, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct WithLabels<'a> {
        labels: &'a BTreeMap<String, String>,
        #[serde(flatten)]
        others: ServiceFields,
    }
    let others = ServiceFields { labels: BTreeMap::new(), ..fields.clone() };
    WithLabels { labels: &fields.labels, others }.serialize(serializer)
}

impl ServiceView {
    /// Only the API sets them.
    pub const SERVER_FIELDS: [&str; 13] = [
        "state",
        "generation",
        "revision",
        "job_status",
        "cron_status",
        "rollout",
        "held",
        "images",
        "created_at",
        "updated_at",
        "scaled_at",
        "status",
        "durability",
    ];

    /// Without the status of a job or cron.
    pub fn new(service: Service, status: ServiceStatus) -> Self {
        let replicas = service.wanted_pods();
        Self {
            name: service.name,
            state: service.state,
            generation: service.generation,
            revision: service.revision,
            replicas,
            fields: service.fields,
            job_status: None,
            cron_status: None,
            held: service.rollout.held.clone(),
            rollout: RolloutView::of(service.generation, service.rollout),
            pod: service.pod,
            images: service.images,
            created_at: rfc3339(service.created_at),
            updated_at: rfc3339(service.updated_at),
            scaled_at: service.scaled_at.map(rfc3339),
            status,
            durability: None,
        }
    }

    pub fn desired(&self) -> DesiredService {
        let Self { name, replicas, fields, pod, .. } = self.clone();
        DesiredService { name, replicas, fields, pod }
    }
}

/// The current state of a service: its pods counted by phase.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceStatus {
    /// Desired number of pods; 0 while the service is being deleted.
    pub desired: u64,
    /// Pods that wait for a node.
    pub pending: u64,
    /// Pods that a node is starting.
    pub assigned: u64,
    /// Pods that run, ready or not.
    pub running: u64,
    /// Pods that run and have no problem. One that crashes again and again is not among them.
    #[serde(default)]
    pub ready: u64,
    /// Pods that are being stopped.
    pub stopping: u64,
    /// Pods that ended by themselves with exit code 0.
    pub succeeded: u64,
    /// Pods that ended by themselves with an error, or could not be started.
    pub failed: u64,
    /// Running pods of the current generation.
    pub updated: u64,
    /// Pending pods that fit no node at the moment.
    pub unschedulable: u64,
    /// The problem, in a sentence; empty when the service is healthy.
    pub message: String,
    /// How the images of some of its pods differ, in a sentence; empty if none is known to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image_warning: String,
    /// All this in one word: `ready`, `starting`, `updating`, `scaling`, `degraded`, `unschedulable`,
    /// `failed`, `succeeded` or `deleting`. Empty in responses of versions before 0.2.
    #[serde(default)]
    pub summary: String,
}

impl ServiceStatus {
    pub fn summarize(&mut self, state: ServiceState) {
        self.summary = self.word(state, self.ready).to_owned();
    }

    /// Versions before 0.2 send none: then every running pod counts as ready.
    pub fn summary(&self, state: ServiceState) -> &str {
        if self.summary.is_empty() { self.word(state, self.running) } else { &self.summary }
    }

    /// See [`ServiceStatus::summary`].
    pub fn ready_pods(&self) -> u64 {
        if self.summary.is_empty() { self.running } else { self.ready }
    }

    /// No problem, or no check passed yet.
    fn is_starting(&self) -> bool {
        self.message.is_empty() || self.message.contains(": Starting: ")
    }

    fn word(&self, state: ServiceState, ready: u64) -> &'static str {
        if state == ServiceState::Deleting {
            "deleting"
        } else if self.unschedulable > 0 {
            "unschedulable"
        } else if self.failed > 0 {
            "failed"
        } else if self.running >= self.desired && self.stopping > 0 {
            "scaling"
        } else if self.updated + self.succeeded >= self.desired {
            match ready {
                ready if ready < self.running && self.is_starting() => "starting",
                ready if ready < self.running => "degraded",
                0 if self.succeeded > 0 => "succeeded",
                _ => "ready",
            }
        } else if self.running >= self.desired {
            "updating"
        } else {
            "starting"
        }
    }
}

/// Whether a write would survive the loss of Redis' master at this moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DurabilityView {
    /// Where the write is stored.
    pub state: DurabilityState,
    /// Number of replicas that have confirmed the write.
    pub replicas: usize,
    /// Number of replicas that must confirm the write.
    pub known: usize,
    /// The same in a sentence.
    #[serde(default)]
    pub message: String,
}

/// Where a write is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DurabilityState {
    /// On the master and on every known replica.
    Confirmed,
    /// On the master; not all replicas have confirmed it in time.
    Unconfirmed,
    /// On the master, which has no replicas.
    SingleMachine,
}

/// The outcome of a change of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutView {
    /// The outcome.
    pub state: RolloutState,
    /// The generation that it is about: the current one, or the one that was rolled back.
    pub generation: u64,
    /// Why.
    pub message: String,
}

impl RolloutView {
    /// If noteworthy.
    fn of(generation: u64, marks: RolloutMarks) -> Option<Self> {
        let view = |state, generation, message| Self { state, generation, message };
        let paused = marks.paused.map(|why| view(RolloutState::Paused, generation, why));
        let rolled_back = marks.rolled_back.map(|(failed, why)| view(RolloutState::RolledBack, failed, why));
        let at_canary = marks.at_canary.filter(|_| !marks.is_promoted);
        let at_canary = at_canary.map(|what| view(RolloutState::AtCanary, generation, what));
        paused.or(rolled_back).or(at_canary)
    }
}

/// The outcome of a change of a service, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RolloutState {
    /// No further pod is replaced.
    Paused,
    /// It failed, and the service has the specification before it again.
    RolledBack,
    /// The first pods are replaced and good; the others wait until the change is promoted.
    AtCanary,
}

/// The outcome of a generation, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GenerationOutcomeView {
    /// All its pods were good at the same time.
    Good,
    /// New pods were bad.
    Failed,
    /// It failed, and was taken back.
    RolledBack,
}

/// A generation of a service, with the specification of its pods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GenerationView {
    /// Its number. An undone change is a new generation with a former specification.
    pub generation: u64,
    /// Until when it was wanted. The current generation has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Its outcome, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<GenerationOutcomeView>,
    /// Why it failed; empty if it did not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Whether an undo that names no generation goes back to it.
    pub undo_target: bool,
    /// Whether a worker that cannot reach Redis keeps or stops its pods.
    pub on_disconnect: OnDisconnect,
    /// Seconds between SIGTERM and SIGKILL when one of its pods is stopped.
    pub stop_grace_period: Seconds,
    /// Seconds that requests in flight have to end before one of its pods is stopped, if they were set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Seconds>,
    /// Whether its pods were known by their numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stateful: Option<Stateful>,
    /// How many ids of each named resource its pods got.
    #[serde(default, skip_serializing_if = "NamedRequest::is_empty")]
    pub resources: NamedRequest,
    /// Containers of each pod. Environment values are included: treat this document as confidential.
    pub containers: Vec<ContainerSpec>,
    /// The ids of its images, if known: an undo goes back to exactly these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageContent>,
}

/// The desired number of pods of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaleInput {
    /// Desired number of pods. `replica` and `numInstances` are accepted as names of this field.
    #[serde(alias = "replica", alias = "numInstances", deserialize_with = "model::spec::replicas")]
    #[schema(example = 5)]
    pub replicas: u32,
}
