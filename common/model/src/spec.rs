//! Specifications: services, their pods, and the containers of a pod.
//!
//! [`ServiceInput`] is the form that users send, as JSON or YAML. It accepts the spellings that users of
//! Compose and kubectl know, and no unknown fields. [`PodSpec`] is the normal form: it is stored once per
//! generation, and the scheduler and the worker read it.
//!
//! Each field is declared once, in [`ServiceFields`], [`PodSpec`] or [`ContainerSpec`]. Documents are read
//! strictly and the stored form leniently: that is the readers' choice, not the types'.

mod aliases;
mod allow_from;
mod check;
mod checks;
mod container;
mod dependency;
mod depends_on;
mod file_reference;
mod health;
mod health_http;
mod hook;
mod host_ports;
mod image;
mod input;
mod job;
mod logging;
mod pod;
mod pod_checks;
mod pull_policy;
mod service_fields;
mod stop_signal;
mod ulimit;
mod units;
mod update;
mod volume;

use crate::ids::SpecId;
pub use aliases::{Aliases, asked_for};
pub use allow_from::AllowFrom;
pub use checks::MAX_PIDS;
pub use container::{ContainerSpec, RestartPolicy};
pub use dependency::{Dependency, ServiceProgress, circle_with};
pub use depends_on::{DependsOn, StartCondition, circle};
pub use file_reference::{FileMode, FileReference, OnChange};
pub(crate) use health::MAX_THRESHOLD;
pub use health::{CheckTiming, HealthCheck, HealthTest, ProbeMethod};
pub use health_http::{HttpCheck, HttpHeaders, StatusCodes, TcpCheck};
pub use hook::Hook;
pub use host_ports::HostPorts;
pub use image::check_image;
pub(crate) use input::NameAndReplicas;
pub use input::{DesiredService, ServiceInput};
pub use job::{
    Concurrency, CronHistory, CronPolicy, JOB_INDEX, JobPolicy, Kind, MAX_COMPLETIONS, MAX_CRON_NAME,
};
pub use logging::{LogDriver, LogOptions, Logging};
pub use pod::{OnDisconnect, PodSpec};
pub use pull_policy::PullPolicy;
pub use service_fields::ServiceFields;
pub use stop_signal::StopSignal;
pub use ulimit::{ULIMITS, Ulimit};
pub use units::replicas;
pub use units::{
    Command, Cpus, Environment, Memory, Milliseconds, Period, Port, Protocol, Seconds, TextList,
};
pub use update::{OnFailure, RollbackPolicy, UpdateOrder, UpdatePolicy};
pub use volume::{FolderOwner, PersistentVolume, SharedVolume, VolumeKind, VolumeMount};

/// Maximum number of replicas of one service. A larger number is more likely a typing error than intended.
pub const MAX_REPLICAS: u32 = 2_000_000;

/// The names of the number of replicas in a document; the first is the one of the normal form.
pub const REPLICAS_NAMES: [&str; 3] = ["replicas", "replica", "numInstances"];

/// The most memory one container may request: far more than a machine has, and exact in a Lua number.
pub const MAX_MEMORY_BYTES: u64 = 1 << 50;

/// The least memory that Docker starts a container with.
pub const MIN_MEMORY_BYTES: u64 = 6 * 1024 * 1024;

/// A well-formed but invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {detail}")]
pub struct Violation {
    /// JSON pointer to the field; `""` for the whole document.
    pub pointer: String,
    /// What is wrong with the value, and which values are valid.
    pub detail: String,
}

impl Violation {
    pub(crate) fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}

/// A [`PodSpec`] and the id that it is stored under.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSpec {
    /// The `<id>` in `spec:<id>`.
    pub id: SpecId,
    /// The specification.
    pub pod: PodSpec,
}
