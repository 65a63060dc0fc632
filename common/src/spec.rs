//! What a person asks for: services, their pods, the containers in a pod.
//!
//! [`ServiceInput`] is the wire form (JSON or YAML, lenient where users of Compose and kubectl expect it, strict about
//! unknown fields). [`PodSpec`] is the normal form: stored once per generation, read by scheduler and worker.

mod units;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{ServiceName, SpecId};
pub use units::{Command, Cpus, Environment, Memory, Port, Protocol, Seconds};

/// The most replicas one service may have. Beyond it a typo is likelier than a wish.
pub const MAX_REPLICAS: u32 = 2_000_000;

/// Wire form of a service. The fields of its only container may stand at the top level instead of in `containers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceInput {
    /// Unique in the cluster; a DNS label.
    #[schema(value_type = String, example = "web")]
    pub name: ServiceName,
    /// How many pods there shall be. `replica` and `numInstances` are the same field.
    #[serde(alias = "replica", alias = "numInstances", default = "one")]
    #[schema(default = 1, example = 3)]
    pub replicas: u32,
    /// Free words for selecting and grouping.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What a worker does with these pods when it can not reach Redis.
    #[serde(default)]
    pub on_disconnect: OnDisconnect,
    /// Time between SIGTERM and SIGKILL, seconds or `"30s"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "10s")]
    pub stop_grace_period: Option<Seconds>,
    /// The containers of each pod. One for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<Vec<ContainerSpec>>,
    /// Short for `containers[0].image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "nginx")]
    pub image: Option<String>,
    /// Short for `containers[0].command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub command: Option<Command>,
    /// Short for `containers[0].environment`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub environment: Option<Environment>,
    /// Short for `containers[0].ports`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<Port>>,
    /// Short for `containers[0].memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "64MiB")]
    pub memory: Option<Memory>,
    /// Short for `containers[0].cpus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, example = 0.5)]
    pub cpus: Option<Cpus>,
    /// Short for `containers[0].restart`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartPolicy>,
}

fn one() -> u32 {
    1
}

/// A value that parses but can not be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {detail}")]
pub struct Violation {
    /// JSON pointer to the field, `""` for the whole document.
    pub pointer: String,
    /// What is wrong and what would be right.
    pub detail: String,
}

impl Violation {
    fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}

impl ServiceInput {
    /// Checks what the types alone can not, and gives the normal form. All violations at once.
    pub fn normalize(self) -> Result<DesiredService, Vec<Violation>> {
        let mut violations = Vec::new();
        if self.replicas > MAX_REPLICAS {
            violations.push(Violation::new("/replicas", format!("at most {MAX_REPLICAS} replicas")));
        }
        violations.extend(label_violations(&self.labels));
        let (prefix, containers) = match self.containers {
            Some(containers) => {
                let short = [
                    ("image", self.image.is_some()),
                    ("command", self.command.is_some()),
                    ("environment", self.environment.is_some()),
                    ("ports", self.ports.is_some()),
                    ("memory", self.memory.is_some()),
                    ("cpus", self.cpus.is_some()),
                    ("restart", self.restart.is_some()),
                ];
                for (field, _) in short.into_iter().filter(|(_, given)| *given) {
                    let detail = "stands beside `containers`: move it into the container it is meant for";
                    violations.push(Violation::new(format!("/{field}"), detail));
                }
                if containers.len() != 1 {
                    let detail = format!("exactly one container for now, not {}", containers.len());
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
    let too_long =
        labels.iter().filter(|(key, value)| key.is_empty() || key.len() > 128 || value.len() > 256);
    too_long
        .map(|(key, _)| {
            let pointer = format!("/labels/{}", key.replace('~', "~0").replace('/', "~1"));
            Violation::new(pointer, "a label's key is 1 to 128 bytes long, its value at most 256")
        })
        .collect()
}

/// A service as a person wants it, checked and in normal form.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredService {
    /// Its name.
    pub name: ServiceName,
    /// How many pods.
    pub replicas: u32,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What each pod is.
    pub pod: PodSpec,
}

/// What each pod of one generation is. Stored under `spec:<id>`, never changed there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PodSpec {
    /// One for now; a list from the first day.
    pub containers: Vec<ContainerSpec>,
    /// What a worker does with the pod when it can not reach Redis.
    #[serde(default)]
    pub on_disconnect: OnDisconnect,
    /// Time between SIGTERM and SIGKILL.
    #[serde(default)]
    #[schema(value_type = u64)]
    pub stop_grace_period: Seconds,
}

impl PodSpec {
    /// CPU that placement sets aside, in thousandths of a core.
    pub fn cpu_millis(&self) -> u64 {
        self.containers.iter().filter_map(|c| c.cpus).map(|c| c.millis()).sum()
    }

    /// Memory that placement sets aside, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.containers.iter().filter_map(|c| c.memory).map(|m| m.bytes()).sum()
    }

    /// Time between SIGTERM and SIGKILL.
    pub fn grace(&self) -> Duration {
        self.stop_grace_period.duration()
    }

    /// The first container's image; what the payload shows.
    pub fn image(&self) -> &str {
        self.containers.first().map_or("", |c| c.image.as_str())
    }

    /// Whether a worker that knows only an image's name could run it (see "guests" in docs/REDIS.md).
    pub fn needs_only_an_image(&self) -> bool {
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

/// One container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ContainerSpec {
    /// Image reference, as `docker run` takes it.
    #[schema(example = "nginx")]
    pub image: String,
    /// Replaces the image's command: a list, or one text that is split like a shell would.
    #[serde(default, skip_serializing_if = "Command::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub command: Command,
    /// Environment variables: a map, or a list of `KEY=value`.
    #[serde(default, skip_serializing_if = "Environment::is_empty")]
    #[schema(value_type = BTreeMap<String, String>)]
    pub environment: Environment,
    /// Published ports: `80`, `"8080:80"`, `"0.0.0.0:8080:80/udp"`. Bound to loopback unless an address is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// Memory limit and reservation: bytes or `"64MiB"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "64MiB")]
    pub memory: Option<Memory>,
    /// CPU limit and reservation in cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, example = 0.5)]
    pub cpus: Option<Cpus>,
    /// What happens when the container ends by itself.
    #[serde(default)]
    pub restart: RestartPolicy,
}

impl ContainerSpec {
    /// A container of this image with nothing else said.
    pub fn of_image(image: impl Into<String>) -> Self {
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

    /// What can not be meant, with pointers below `prefix`.
    pub fn violations(&self, prefix: &str) -> Vec<Violation> {
        let mut found = Vec::new();
        if let Err(detail) = check_image(&self.image) {
            found.push(Violation::new(format!("{prefix}/image"), detail));
        }
        if let Some(memory) = self.memory
            && memory.bytes() < 6 * 1024 * 1024
        {
            let detail = "at least 6 MiB: no engine starts a container with less";
            found.push(Violation::new(format!("{prefix}/memory"), detail));
        }
        if let Some(cpus) = self.cpus
            && cpus.millis() < 10
        {
            found.push(Violation::new(format!("{prefix}/cpus"), "at least 0.01 cores"));
        }
        if self.ports.len() > 64 {
            found.push(Violation::new(format!("{prefix}/ports"), "at most 64 published ports"));
        }
        found
    }
}

/// Whether a text can be an image reference at all; whether it exists is the engine's to say.
pub fn check_image(image: &str) -> Result<(), &'static str> {
    if image.is_empty() {
        return Err("an image is required, as `docker run` takes it");
    }
    if image.len() > 512 {
        return Err("an image reference is at most 512 bytes long");
    }
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"./:@_-+".contains(&b);
    if !image.bytes().all(legal) || image.starts_with(['-', '.', '/']) {
        return Err("an image reference has letters, digits and ./:@_- only");
    }
    Ok(())
}

/// What a worker does with a pod when it has lost Redis for longer than the fence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    /// Lets it run, and stops it at the first reply that says it has moved. Two copies may run for a while.
    #[default]
    Keep,
    /// Stops it before anybody else may start it. Never two copies.
    Stop,
}

impl OnDisconnect {
    /// The word in labels and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            OnDisconnect::Keep => "keep",
            OnDisconnect::Stop => "stop",
        }
    }
}

/// What happens when a container ends by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// Start it again, however it ended.
    #[default]
    #[serde(alias = "unless-stopped")]
    Always,
    /// Start it again unless it ended with 0.
    #[serde(alias = "on_failure")]
    OnFailure,
    /// Let it rest.
    #[serde(alias = "no")]
    Never,
}

/// A [`PodSpec`] with the identity it is stored under.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSpec {
    /// `spec:<id>`.
    pub id: SpecId,
    /// What it says.
    pub pod: PodSpec,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalize(json: &str) -> Result<DesiredService, Vec<Violation>> {
        serde_json::from_str::<ServiceInput>(json).expect("parses").normalize()
    }

    #[test]
    fn the_smallest_service() {
        let service = normalize(r#"{"name":"web","image":"nginx","replica":3}"#).unwrap();
        assert_eq!((service.replicas, service.pod.image()), (3, "nginx"));
        assert!(service.pod.needs_only_an_image());
        assert_eq!(service.pod.grace(), Duration::from_secs(10));
    }

    #[test]
    fn three_names_of_the_replica_count() {
        for field in ["replica", "replicas", "numInstances"] {
            let json = format!(r#"{{"name":"web","image":"nginx","{field}":7}}"#);
            assert_eq!(normalize(&json).unwrap().replicas, 7, "{field}");
        }
    }

    #[test]
    fn container_fields_stand_in_one_place_only() {
        let json = r#"{"name":"web","memory":"1GiB","containers":[{"image":"nginx"}]}"#;
        let violations = normalize(json).unwrap_err();
        assert_eq!(violations[0].pointer, "/memory");
    }

    #[test]
    fn violations_point_at_the_field() {
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
