//! Specifications of services, pods and containers.
//!
//! [`ServiceInput`] is the form that users send, with the spellings of Compose and kubectl; [`PodSpec`] is
//! the normal form, stored once per generation. Each field is declared once, in [`ServiceFields`],
//! [`PodSpec`] or [`ContainerSpec`]. Readers, not types, are strict (documents) or lenient (the stored form).

mod aliases;
mod allow_from;
mod check;
mod container;
mod dependency;
mod depends_on;
mod host_ports;
mod input;
mod job;
mod kind;
mod kind_checks;
mod limits;
mod min_available;
mod mode;
mod named_request;
mod placement;
mod placement_profile;
mod pod;
mod pod_checks;
mod pod_volumes;
mod service_fields;
mod stateful;
mod units;
mod update;
mod violation;

pub use aliases::{Aliases, asked_for};
pub use allow_from::AllowFrom;
pub use container::{
    CheckTiming, ContainerSpec, FileMode, FileReference, FolderOwner, HealthCheck, HealthTest, Hook,
    HttpCheck, HttpHeaders, LogDriver, LogOptions, Logging, OnChange, PersistentVolume, ProbeMethod,
    PullPolicy, RestartPolicy, SharedVolume, StatusCodes, StopSignal, TcpCheck, ULIMITS, Ulimit, VolumeKind,
    VolumeMount, check_image,
};
pub use dependency::{Dependency, ServiceProgress, circle_with};
pub use depends_on::{DependsOn, StartCondition, circle};
pub use host_ports::HostPorts;
pub(crate) use input::NameAndReplicas;
pub use input::{DesiredService, REPLICAS_NAMES, ServiceInput};
pub use job::{Concurrency, CronHistory, CronPolicy, JOB_INDEX, JobPolicy, MAX_COMPLETIONS};
pub use kind::Kind;
pub use kind_checks::MAX_CRON_NAME;
pub use limits::{MAX_MEMORY_BYTES, MAX_PIDS, MAX_REPLICAS, MAX_THRESHOLD, MIN_MEMORY_BYTES};
pub use min_available::MinAvailable;
pub use mode::Mode;
pub use named_request::NamedRequest;
pub use placement::{
    Affinity, AntiAffinity, FORM_WITH_RULES, InvalidConstraint, NodeConstraint, Placement, Preemption,
    Preference, Priority, Relation, RelationKind, Spread, domain_of,
};
pub use placement_profile::PlacementProfile;
pub use pod::{OnDisconnect, PodSpec, StoredSpec};
pub use service_fields::ServiceFields;
pub use stateful::Stateful;
pub use units::{
    Command, Cpus, Environment, Memory, Milliseconds, Period, Port, Protocol, Seconds, TextList, replicas,
};
pub use update::{OnFailure, RollbackPolicy, UpdateOrder, UpdatePolicy};
pub use violation::Violation;

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
