//! The specification of a container. Workers apply it, and their policy limits it.

mod checks;
mod file_reference;
mod health;
mod health_http;
mod hook;
mod image;
mod logging;
mod pull_policy;
mod stop_signal;
mod ulimit;
mod volume;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::depends_on::DependsOn;
use super::units::{self, Command, Cpus, Environment, Memory, Port, TextList};
use super::violation::Violation;
use crate::ids::ContainerName;
use crate::node::Resources;
use document::json_pointer;
pub use file_reference::{FileMode, FileReference, OnChange};
pub use health::{CheckTiming, HealthCheck, HealthTest, ProbeMethod};
pub use health_http::{HttpCheck, HttpHeaders, StatusCodes, TcpCheck};
pub use hook::Hook;
pub use image::check_image;
pub use logging::{LogDriver, LogOptions, Logging};
pub use pull_policy::PullPolicy;
pub use stop_signal::StopSignal;
pub use ulimit::{ULIMITS, Ulimit};
pub use volume::{FolderOwner, PersistentVolume, SharedVolume, VolumeKind, VolumeMount};

/// The specification of a container.
///
/// It is stored: a field that is left out means what containers did before the field existed, and is not
/// written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ContainerSpec {
    /// Name of the container, unique in its pod; a DNS label. Needed if the pod has several containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ContainerName>,
    /// Image reference, as `docker run` takes it.
    #[schema(example = "nginx")]
    pub image: String,
    /// When the image is pulled: `always`, `missing` or `never`.
    #[serde(default, skip_serializing_if = "crate::spec::is_default")]
    pub pull_policy: PullPolicy,
    /// Replaces the image's entry point, and with it the image's command: a list of arguments, or a text that
    /// is split as a shell would split it.
    #[serde(default, skip_serializing_if = "Command::is_empty")]
    pub entrypoint: Command,
    /// Replaces the image's command: a list of arguments, or a text that is split as a shell would split it.
    #[serde(default, skip_serializing_if = "Command::is_empty")]
    pub command: Command,
    /// Environment variables: a map, or a list of `KEY=value`.
    #[serde(default, skip_serializing_if = "Environment::is_empty")]
    pub environment: Environment,
    /// Directory inside the container in which its command begins; an absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "/srv/app", pattern = "^/[^\\x00]*$", max_length = 4096)]
    pub working_dir: Option<String>,
    /// User, and perhaps group, that its command runs as: names of the image, or numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1000:1000", pattern = "^[!-9;-~]{1,256}(:[!-9;-~]{1,256})?$")]
    pub user: Option<String>,
    /// Name that the container has for itself, the same for all replicas; without it the start of the
    /// container's id. Not among several containers, which share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "mail.example.org", pattern = "^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$")]
    pub hostname: Option<String>,
    /// Published ports: `80`, `"8080:80"`, `"0.0.0.0:8080:80/udp"`. A port is bound to loopback unless an
    /// address is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// Memory limit and reservation: bytes, or a text such as `"64MiB"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Memory that is reserved, if it is less than the limit in `memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "32MiB")]
    pub memory_reservation: Option<Memory>,
    /// CPU limit and reservation, in cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// The most processes and threads; reserved on the node.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "units::pids")]
    #[schema(minimum = 1, maximum = 4096, example = 100)]
    pub pids_limit: Option<u32>,
    /// Limits of each process, by name: a number, or `soft` and `hard`; -1 is none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ulimits: BTreeMap<String, Ulimit>,
    /// Whether the file system of the image cannot be written to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Directories in memory: paths, each perhaps with options of a mount such as `/run:size=64m`.
    #[serde(default, skip_serializing_if = "TextList::is_empty")]
    pub tmpfs: TextList,
    /// Volumes: `data:/var/lib/app` stays with its replica, `/cache` goes with the pod. A map has `source`,
    /// `target`, `read_only`, `kind`, `space`, `uid`, `gid` and `mode`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeMount>,
    /// Secrets that the container gets as files in `/run/secrets`: names, or maps with `source`, `target`,
    /// `uid`, `gid`, `mode`, `on_change` and `signal`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<FileReference>,
    /// Configs that the container gets as files: names, or maps with `source`, `target`, `uid`, `gid`,
    /// `mode`, `on_change` and `signal`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub configs: Vec<FileReference>,
    /// Linux capabilities that the container does not get, besides those that no container of the node gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!(["ALL"]))]
    pub cap_drop: Vec<String>,
    /// Whether process 1 is the engine's init, which reaps processes and passes on signals.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub init: bool,
    /// Whether the container has a standard input, which `kubeleet attach -i` reaches; it stays open.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stdin_open: bool,
    /// Whether the standard input belongs to the first client, and ends with it, as that of `docker run -i`;
    /// with `stdin_open`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stdin_once: bool,
    /// Whether the container has a terminal, which `kubeleet attach -it` reaches.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tty: bool,
    /// Signal that asks the container to stop; without it the image's, or SIGTERM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<StopSignal>,
    /// Commands that run in the container, one after the other, before it is asked to stop: a list of maps
    /// with `command`. They are part of the grace period. They do not run if the container ends by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!([{"command": ["/app/leave", "--cluster"]}]))]
    pub pre_stop: Vec<Hook>,
    /// Signal that the container gets when it is to be stopped and nothing new reaches it any more, while
    /// requests and connections in flight have their `drain`: it can end its WebSockets and streams itself.
    /// It may come more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_signal: Option<StopSignal>,
    /// How much of the container's output is kept on its node, as Compose writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!({"options": {"max-size": "5m", "max-file": 2}}))]
    pub logging: Option<Logging>,
    /// Check of the container's health: one that is unhealthy is restarted, as `restart` says. Without it the
    /// image's own check, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!({"http": {"port": 8080, "path": "/healthz"}, "interval": "10s"}))]
    pub healthcheck: Option<HealthCheck>,
    /// Check whether the container can take requests now: while it cannot, its pod is not ready, and nothing
    /// is restarted. Without it the pod is ready while `healthcheck` passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!({"tcp": {"port": 8080}, "interval": "2s"}))]
    pub readiness: Option<HealthCheck>,
    /// Whether the container is restarted when it ends by itself.
    #[serde(default)]
    pub restart: RestartPolicy,
    /// Other containers of the pod that have to be started, healthy or completed before this one starts: a
    /// list of names, or a map of names to conditions.
    #[serde(default, skip_serializing_if = "DependsOn::is_empty")]
    pub depends_on: DependsOn,
    /// Whether the container only serves the others of its pod: the pod ends when the others have ended, and
    /// stops it last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sidecar: bool,
}

impl ContainerSpec {
    /// Not at the top level, for an only container.
    pub(crate) const AMONG_OTHERS: [&str; 3] = ["name", "depends_on", "sidecar"];

    pub fn from_image(image: impl Into<String>) -> Self {
        Self { image: image.into(), ..Self::default() }
    }

    pub(super) fn request(&self) -> Resources {
        Resources {
            cpu_millis: self.cpus.map_or(0, Cpus::millis),
            memory_bytes: self.memory_reservation.or(self.memory).map_or(0, Memory::bytes),
            pids: self.pids_limit.map_or(0, u64::from),
            // Reserved per pod: its containers share volumes.
            disk_bytes: 0,
            pods: 0,
        }
    }

    pub(super) fn has_only_image(&self) -> bool {
        *self == Self::from_image(self.image.clone())
    }

    /// Pointers are below `prefix`.
    pub fn violations(&self, prefix: &str) -> Vec<Violation> {
        let too_many_ports = (self.ports.len() > 64).then(|| "at most 64 published ports".to_owned());
        let no_stdin = (self.stdin_once && !self.stdin_open).then(|| "needs `stdin_open`".to_owned());
        let single = [
            ("stdin_once", no_stdin),
            ("image", check_image(&self.image).err().map(ToString::to_string)),
            ("working_dir", self.working_dir.as_deref().and_then(checks::path)),
            ("user", self.user.as_deref().and_then(checks::user)),
            ("ports", too_many_ports),
            ("memory", self.memory.and_then(checks::memory)),
            (
                "memory_reservation",
                self.memory_reservation.and_then(|least| checks::reservation(least, self.memory)),
            ),
            ("hostname", self.hostname.as_deref().and_then(checks::hostname)),
            ("cpus", self.cpus.and_then(checks::cpus)),
            ("pids_limit", self.pids_limit.and_then(checks::pids_limit)),
        ];
        // Workers check each pod, and mostly find nothing.
        let single =
            single.into_iter().filter_map(|(field, problem)| Some((field.to_owned(), Some(problem?))));
        let of_list = |field: &'static str, list: &'_ [String], check: fn(&str) -> Option<String>| {
            list.iter()
                .enumerate()
                .map(|(at, text)| (format!("{field}/{at}"), check(text)))
                .collect::<Vec<_>>()
        };
        let ulimits = self
            .ulimits
            .iter()
            .map(|(name, limit)| (format!("ulimits/{}", json_pointer::escape(name)), limit.problem(name)));
        let health = [("healthcheck", &self.healthcheck), ("readiness", &self.readiness)];
        let health = health.into_iter().flat_map(|(field, check)| {
            let problems = check.iter().flat_map(HealthCheck::problems);
            problems.map(move |(pointer, problem)| (format!("{field}{pointer}"), Some(problem)))
        });
        // An image describes one check, its health check.
        let no_method = self
            .readiness
            .as_ref()
            .is_some_and(HealthCheck::has_only_times)
            .then(|| "says not how to check: add one of `test`, `http`, `tcp` and `command`".to_owned());
        let hooks = hook::problems(&self.pre_stop).into_iter();
        let hooks = hooks.map(|(pointer, problem)| (format!("pre_stop{pointer}"), Some(problem)));
        let logging = self.logging.iter().flat_map(Logging::problems);
        let logging = logging.map(|(pointer, problem)| (format!("logging{pointer}"), Some(problem)));
        let file_problems = file_reference::violations(&self.secrets, &self.configs).into_iter();
        let file_problems = file_problems.map(|violation| (violation.pointer, violation.detail));
        single
            .chain(of_list("tmpfs", self.tmpfs.as_slice(), checks::tmpfs))
            .chain(of_list("cap_drop", &self.cap_drop, checks::capability))
            .chain(ulimits)
            .chain(health)
            .chain(no_method.map(|problem| ("readiness".to_owned(), Some(problem))))
            .chain(hooks)
            .chain(logging)
            .chain(self.volume_problems())
            .filter_map(|(field, problem)| Some((field, problem?)))
            .chain(file_problems)
            .map(|(field, problem)| Violation::new(format!("{prefix}/{field}"), problem))
            .collect()
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
