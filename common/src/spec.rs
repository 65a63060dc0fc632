//! Specifications: services, their pods, and the containers of a pod.
//!
//! [`ServiceInput`] is the form that users send, as JSON or YAML. It accepts the spellings that users of
//! Compose and kubectl know, and no unknown fields. [`PodSpec`] is the normal form: it is stored once per
//! generation, and the scheduler and the worker read it.

mod host_ports;
mod image;
mod units;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{ServiceName, SpecId};
use crate::json_pointer;
pub use host_ports::HostPorts;
pub use image::check_image;
pub(crate) use units::replicas;
pub use units::{Command, Cpus, Environment, Memory, Port, Protocol, Seconds};

/// Maximum number of replicas of one service. A larger number is more likely a typing error than intended.
pub const MAX_REPLICAS: u32 = 2_000_000;

/// The names of the number of replicas in a document; the first is the one of the normal form.
pub const REPLICAS_NAMES: [&str; 3] = ["replicas", "replica", "numInstances"];

/// The most memory one container may request: far more than a machine has, and exact in a Lua number.
pub(crate) const MAX_MEMORY_BYTES: u64 = 1 << 50;

/// The least memory that Docker starts a container with.
pub(crate) const MIN_MEMORY_BYTES: u64 = 6 * 1024 * 1024;

/// A service as a user describes it. The fields of its only container can be at the top level instead of in
/// `containers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceInput {
    /// Name of the service, unique in the cluster; a DNS label.
    pub name: ServiceName,
    /// Desired number of pods. `replica` and `numInstances` are accepted as names of this field.
    #[serde(
        alias = "replica",
        alias = "numInstances",
        default = "one",
        deserialize_with = "units::replicas"
    )]
    #[schema(default = 1, example = 3)]
    pub replicas: u32,
    /// Labels for selecting and grouping services.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What a worker does with these pods while it cannot reach Redis.
    #[serde(default)]
    pub on_disconnect: OnDisconnect,
    /// Time between SIGTERM and SIGKILL when a pod is stopped: seconds, or a text such as `"30s"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_grace_period: Option<Seconds>,
    /// Containers of each pod. Exactly one at present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<Vec<ContainerSpec>>,
    /// Short for `containers[0].image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "nginx")]
    pub image: Option<String>,
    /// Short for `containers[0].command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Command>,
    /// Short for `containers[0].environment`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Environment>,
    /// Short for `containers[0].ports`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<Port>>,
    /// Short for `containers[0].memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Short for `containers[0].cpus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Short for `containers[0].restart`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartPolicy>,
}

fn one() -> u32 {
    1
}

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
    fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}

impl ServiceInput {
    /// Checks the values and returns the normal form.
    ///
    /// # Errors
    /// All violations at once, not only the first one.
    pub fn normalize(self) -> Result<DesiredService, Vec<Violation>> {
        let mut violations = Vec::new();
        if self.replicas > MAX_REPLICAS {
            violations.push(Violation::new("/replicas", format!("at most {MAX_REPLICAS} replicas")));
        }
        violations.extend(label_violations(&self.labels));
        let (prefix, containers) = match self.containers {
            Some(containers) => {
                let top_level = [
                    ("image", self.image.is_some()),
                    ("command", self.command.is_some()),
                    ("environment", self.environment.is_some()),
                    ("ports", self.ports.is_some()),
                    ("memory", self.memory.is_some()),
                    ("cpus", self.cpus.is_some()),
                    ("restart", self.restart.is_some()),
                ];
                for (field, _) in top_level.into_iter().filter(|(_, is_set)| *is_set) {
                    let detail = "cannot be combined with `containers`: set it in the container instead";
                    violations.push(Violation::new(format!("/{field}"), detail));
                }
                if containers.len() != 1 {
                    let detail =
                        format!("exactly one container is supported at present, not {}", containers.len());
                    violations.push(Violation::new("/containers", detail));
                }
                ("/containers/0", containers)
            }
            None => {
                let container = ContainerSpec {
                    image: self.image.unwrap_or_default(),
                    command: self.command.unwrap_or_default(),
                    environment: self.environment.unwrap_or_default(),
                    ports: self.ports.unwrap_or_default(),
                    memory: self.memory,
                    cpus: self.cpus,
                    restart: self.restart.unwrap_or_default(),
                };
                ("", vec![container])
            }
        };
        for container in &containers {
            violations.extend(container.violations(prefix));
        }
        if !violations.is_empty() {
            return Err(violations);
        }
        let pod = PodSpec {
            containers,
            on_disconnect: self.on_disconnect,
            stop_grace_period: self.stop_grace_period.unwrap_or_default(),
        };
        Ok(DesiredService { name: self.name, replicas: self.replicas, labels: self.labels, pod })
    }
}

fn label_violations(labels: &BTreeMap<String, String>) -> Vec<Violation> {
    let invalid = labels.iter().filter(|(key, value)| key.is_empty() || key.len() > 128 || value.len() > 256);
    invalid
        .map(|(key, _)| {
            let pointer = format!("/labels/{}", json_pointer::escape(key));
            Violation::new(pointer, "the key of a label has 1 to 128 bytes, its value at most 256 bytes")
        })
        .collect()
}

/// The desired state of a service, checked and in normal form.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredService {
    /// Name of the service.
    pub name: ServiceName,
    /// Desired number of pods.
    pub replicas: u32,
    /// Labels of the service.
    pub labels: BTreeMap<String, String>,
    /// Specification of each pod.
    pub pod: PodSpec,
}

/// The specification of every pod of one generation. It is stored under `spec:<id>` and never changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PodSpec {
    /// Containers of the pod. Exactly one at present.
    pub containers: Vec<ContainerSpec>,
    /// What a worker does with the pod while it cannot reach Redis.
    #[serde(default)]
    pub on_disconnect: OnDisconnect,
    /// Seconds between SIGTERM and SIGKILL when the pod is stopped.
    #[serde(default)]
    pub stop_grace_period: Seconds,
}

impl PodSpec {
    /// Returns the CPU that is reserved for the pod, in thousandths of a core.
    pub fn cpu_millis(&self) -> u64 {
        self.containers.iter().filter_map(|c| c.cpus).map(|c| c.millis()).sum()
    }

    /// Returns the memory that is reserved for the pod, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.containers.iter().filter_map(|c| c.memory).map(|m| m.bytes()).sum()
    }

    /// Returns the ports that the pod takes on its node.
    pub fn host_ports(&self) -> HostPorts {
        HostPorts::of(self.containers.iter().flat_map(|container| &container.ports))
    }

    /// Returns the time between SIGTERM and SIGKILL when the pod is stopped.
    pub fn grace(&self) -> Duration {
        self.stop_grace_period.duration()
    }

    /// Returns the image of the first container, which the payload contains.
    pub fn image(&self) -> &str {
        self.containers.first().map_or("", |c| c.image.as_str())
    }

    /// Returns true if an external worker could run the pod: such a worker knows only the name of the image
    /// (see docs/reference/redis.md).
    pub fn needs_only_image(&self) -> bool {
        self.containers.iter().all(|c| {
            c.command.0.is_empty()
                && c.environment.is_empty()
                && c.ports.is_empty()
                && c.memory.is_none()
                && c.cpus.is_none()
                && c.restart == RestartPolicy::default()
        }) && self.on_disconnect == OnDisconnect::Keep
    }
}

/// The specification of a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ContainerSpec {
    /// Image reference, as `docker run` takes it.
    #[schema(example = "nginx")]
    pub image: String,
    /// Replaces the image's command: a list of arguments, or a text that is split as a shell would split it.
    #[serde(default, skip_serializing_if = "Command::is_empty")]
    pub command: Command,
    /// Environment variables: a map, or a list of `KEY=value`.
    #[serde(default, skip_serializing_if = "Environment::is_empty")]
    pub environment: Environment,
    /// Published ports: `80`, `"8080:80"`, `"0.0.0.0:8080:80/udp"`. A port is bound to loopback unless an
    /// address is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// Memory limit and reservation: bytes, or a text such as `"64MiB"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// CPU limit and reservation, in cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Whether the container is restarted when it ends by itself.
    #[serde(default)]
    pub restart: RestartPolicy,
}

impl ContainerSpec {
    /// Returns a container of this image with defaults for everything else.
    pub fn from_image(image: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            command: Command::default(),
            environment: Environment::default(),
            ports: Vec::new(),
            memory: None,
            cpus: None,
            restart: RestartPolicy::default(),
        }
    }

    /// Returns all invalid values, with pointers below `prefix`.
    pub fn violations(&self, prefix: &str) -> Vec<Violation> {
        let mut found = Vec::new();
        if let Err(detail) = check_image(&self.image) {
            found.push(Violation::new(format!("{prefix}/image"), detail));
        }
        if let Some(memory) = self.memory
            && memory.bytes() < MIN_MEMORY_BYTES
        {
            let detail = "must be at least 6 MiB: Docker does not start a container with less";
            found.push(Violation::new(format!("{prefix}/memory"), detail));
        }
        if self.memory.is_some_and(|memory| memory.bytes() > MAX_MEMORY_BYTES) {
            found.push(Violation::new(format!("{prefix}/memory"), "at most 1 PiB"));
        }
        if let Some(cpus) = self.cpus
            && cpus.millis() < 10
        {
            found.push(Violation::new(format!("{prefix}/cpus"), "must be at least 0.01 cores"));
        }
        if self.ports.len() > 64 {
            found.push(Violation::new(format!("{prefix}/ports"), "at most 64 published ports"));
        }
        found
    }
}

/// What a worker does with a pod once it has not reached Redis for the fence period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    /// Keeps the pod running until Redis replies that it has moved. Two copies can run for a while.
    #[default]
    Keep,
    /// Stops the pod before another node can start it. Two copies never run at the same time.
    Stop,
}

impl OnDisconnect {
    /// Returns the name of this policy in labels and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            OnDisconnect::Keep => "keep",
            OnDisconnect::Stop => "stop",
        }
    }
}

/// Whether a container is restarted when it ends by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// Restart the container, whatever its exit code.
    #[default]
    #[serde(alias = "unless-stopped")]
    Always,
    /// Restart the container unless its exit code is 0.
    #[serde(alias = "on_failure")]
    OnFailure,
    /// Do not restart the container.
    #[serde(alias = "no")]
    Never,
}

/// A [`PodSpec`] and the id that it is stored under.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSpec {
    /// The `<id>` in `spec:<id>`.
    pub id: SpecId,
    /// The specification.
    pub pod: PodSpec,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalize(json: &str) -> Result<DesiredService, Vec<Violation>> {
        serde_json::from_str::<ServiceInput>(json).expect("parses").normalize()
    }

    #[test]
    fn the_smallest_service_gets_defaults() {
        let service = normalize(r#"{"name":"web","image":"nginx","replica":3}"#).unwrap();
        assert_eq!((service.replicas, service.pod.image()), (3, "nginx"));
        assert!(service.pod.needs_only_image());
        assert_eq!(service.pod.grace(), Duration::from_secs(10));
    }

    #[test]
    fn the_replica_count_has_three_names() {
        for field in ["replica", "replicas", "numInstances"] {
            let json = format!(r#"{{"name":"web","image":"nginx","{field}":7}}"#);
            assert_eq!(normalize(&json).unwrap().replicas, 7, "{field}");
        }
    }

    #[test]
    fn container_fields_cannot_be_in_two_places() {
        let json = r#"{"name":"web","memory":"1GiB","containers":[{"image":"nginx"}]}"#;
        let violations = normalize(json).unwrap_err();
        assert_eq!(violations[0].pointer, "/memory");
    }

    #[test]
    fn violations_point_to_the_field() {
        let json =
            r#"{"name":"web","replicas":3000000,"containers":[{"image":"","memory":"1KiB","cpus":0.001}]}"#;
        let violations = normalize(json).unwrap_err();
        let pointers: Vec<_> = violations.iter().map(|v| v.pointer.as_str()).collect();
        assert_eq!(
            pointers,
            ["/replicas", "/containers/0/image", "/containers/0/memory", "/containers/0/cpus"]
        );
    }

    #[test]
    fn memory_has_an_upper_limit() {
        let json = |memory| format!(r#"{{"name":"web","image":"nginx","memory":"{memory}"}}"#);
        assert!(normalize(&json("1024TiB")).is_ok());
        assert_eq!(normalize(&json("1025TiB")).unwrap_err()[0].pointer, "/memory");
    }

    #[test]
    fn unknown_fields_are_refused() {
        let error = serde_json::from_str::<ServiceInput>(r#"{"name":"web","imgae":"nginx"}"#).unwrap_err();
        assert!(error.to_string().contains("imgae"), "{error}");
    }

    #[test]
    fn the_normal_form_round_trips() {
        let json = r#"{"name":"web","image":"nginx","command":"sh -c 'sleep 1'","environment":["A=b"],
            "ports":["8080:80"],"memory":"64m","cpus":"0.5","restart":"no","on_disconnect":"stop"}"#;
        let pod = normalize(json).unwrap().pod;
        let stored = serde_json::to_string(&pod).unwrap();
        assert_eq!(serde_json::from_str::<PodSpec>(&stored).unwrap(), pod);
        assert_eq!((pod.cpu_millis(), pod.memory_bytes()), (500, 64 << 20));
    }
}
