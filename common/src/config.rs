//! Configuration: read from flag, environment, file and default, in this order, and judged before anything starts.
//!
//! [`Sources`] knows where a setting came from, so that an error can say so; nothing here reads the process'
//! environment by itself.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::ids::NodeName;
use crate::node::Resources;
use crate::spec::{Cpus, Memory};
use crate::store::{RedisUrl, UrlError};

/// A setting that can not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} (from {origin}): {problem}")]
pub struct ConfigError {
    /// The setting's name in the environment.
    pub setting: String,
    /// Where its value came from.
    pub origin: Origin,
    /// What is wrong and what would be right.
    pub problem: String,
}

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A command-line flag.
    Flag,
    /// The environment.
    Environment,
    /// The configuration file.
    File,
    /// Nobody said anything.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Flag => "a flag",
            Origin::Environment => "the environment",
            Origin::File => "the configuration file",
            Origin::Default => "the default",
        })
    }
}

/// A text that is shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one who must send or compare it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// What runs containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeKind {
    /// A Docker engine, or Podman's socket.
    Docker,
    /// Plain processes.
    Process,
    /// Nothing: pods are imagined, for scale.
    Sim,
}

impl std::str::FromStr for RuntimeKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "docker" | "podman" => Ok(Self::Docker),
            "process" => Ok(Self::Process),
            "sim" => Ok(Self::Sim),
            other => Err(format!("{other:?} is no runtime: write docker, process or sim")),
        }
    }
}

/// How fast failures are noticed. `heartbeat < fence_after < dead_after` always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Between two heartbeats of a worker.
    pub heartbeat: Duration,
    /// A worker whose last heartbeat was sent longer ago stops its `on_disconnect: stop` pods.
    pub fence_after: Duration,
    /// A node that was silent for longer is declared dead.
    pub dead_after: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(5),
            fence_after: Duration::from_secs(15),
            dead_after: Duration::from_secs(20),
        }
    }
}

/// What the operator of a node allows its pods beyond the default, which is nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodPolicy {
    /// Pods may be plain processes of this machine (`process` runtime outside `kubeleet dev`).
    pub processes: bool,
}

/// Everything a daemon needs to know.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the cluster's state is.
    pub redis: RedisUrl,
    /// Where the API listens.
    pub listen: SocketAddr,
    /// The API's bearer token; loopback only without one.
    pub token: Option<Secret>,
    /// This node's name.
    pub node: NodeName,
    /// This node's labels.
    pub labels: BTreeMap<String, String>,
    /// What runs containers.
    pub runtime: RuntimeKind,
    /// `DOCKER_HOST`, where given.
    pub docker_host: Option<String>,
    /// Failure detection.
    pub timing: Timing,
    /// Whether the worker process has a guard.
    pub guard: bool,
    /// Where leases are kept across restarts of a worker, but not of the machine.
    pub state_dir: PathBuf,
    /// Where the `process` runtime keeps its pods.
    pub data_dir: PathBuf,
    /// What pods may do here.
    pub policy: PodPolicy,
    /// How many pods this node takes.
    pub max_pods: u64,
    /// How many containers this node starts at a time.
    pub start_concurrency: usize,
    /// CPU to offer; all there is when absent.
    pub cpus: Option<Cpus>,
    /// Memory to offer; all there is when absent.
    pub memory: Option<Memory>,
    /// How many imaginary workers one `sim` process is: `<node>-1` … `<node>-N`.
    pub sim_workers: u32,
    /// The first wait before an exited container is started again; doubles up to five minutes.
    pub restart_backoff: Duration,
    /// `tracing` filter.
    pub log: String,
    /// Log lines as JSON.
    pub log_json: bool,
}

impl Config {
    /// What this node offers when the machine has `machine`.
    pub fn capacity(&self, machine: Resources) -> Resources {
        Resources {
            cpu_millis: self.cpus.map_or(machine.cpu_millis, Cpus::millis),
            memory_bytes: self.memory.map_or(machine.memory_bytes, Memory::bytes),
            pods: self.max_pods,
        }
    }
}

/// The settings there are: name in the environment, and what it means. The flag is the name without `KUBELEET_`,
/// in lower case with `-`; the key in the file is the same with `_`.
pub const SETTINGS: &[(&str, &str)] = &[
    ("KUBELEET_REDIS_URL", "redis://, rediss:// or redis+sentinel:// URL"),
    ("KUBELEET_LISTEN", "address of the API"),
    ("KUBELEET_TOKEN", "bearer token of the API"),
    ("KUBELEET_TOKEN_FILE", "file with the bearer token"),
    ("KUBELEET_NODE", "worker name"),
    ("KUBELEET_LABELS", "zone=a,disk=ssd"),
    ("KUBELEET_RUNTIME", "docker, process or sim"),
    ("KUBELEET_HEARTBEAT", "time between heartbeats"),
    ("KUBELEET_DEAD_AFTER", "silence after which a node is declared dead"),
    ("KUBELEET_FENCE_AFTER", "silence after which a worker stops its `stop` pods"),
    ("KUBELEET_GUARD", "off: the worker has no guard"),
    ("KUBELEET_STATE_DIR", "directory for leases, emptied by a reboot"),
    ("KUBELEET_DATA_DIR", "directory for pods of the process runtime"),
    ("KUBELEET_ALLOW_PROCESSES", "true: pods may be plain processes here"),
    ("KUBELEET_MAX_PODS", "pods this node takes"),
    ("KUBELEET_START_CONCURRENCY", "containers started at a time"),
    ("KUBELEET_CPUS", "cores this node offers"),
    ("KUBELEET_MEMORY", "memory this node offers"),
    ("KUBELEET_SIM_WORKERS", "imaginary workers in one sim process"),
    ("KUBELEET_RESTART_BACKOFF", "first wait before a container is restarted"),
    ("KUBELEET_LOG", "log filter, e.g. info or worker=debug"),
    ("KUBELEET_LOG_FORMAT", "text or json"),
];

/// Where settings come from.
pub struct Sources<'a> {
    /// Flags given, by environment name.
    pub flags: BTreeMap<String, String>,
    /// Reads one environment variable.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// The configuration file, by environment name.
    pub file: BTreeMap<String, String>,
    /// Reads the file that a `…_FILE` setting names.
    pub read_file: &'a dyn Fn(&str) -> Result<String, String>,
    /// The machine's host name.
    pub host_name: String,
}

/// Reads a configuration file (TOML; keys as [`SETTINGS`] says) into settings by environment name.
pub fn parse_file(text: &str) -> Result<BTreeMap<String, String>, String> {
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
    let mut settings = BTreeMap::new();
    for (key, value) in table {
        let name = format!("KUBELEET_{}", key.to_uppercase());
        if !SETTINGS.iter().any(|(known, _)| *known == name) {
            return Err(format!("{key:?} is no setting; see `kubeleet help settings`"));
        }
        let text = match value {
            toml::Value::String(text) => text,
            other => other.to_string(),
        };
        settings.insert(name, text);
    }
    Ok(settings)
}

impl Sources<'_> {
    fn find(&self, setting: &str) -> Option<(String, Origin)> {
        if let Some(text) = self.flags.get(setting) {
            return Some((text.clone(), Origin::Flag));
        }
        if let Some(text) = (self.environment)(setting).filter(|text| !text.is_empty()) {
            return Some((text, Origin::Environment));
        }
        self.file.get(setting).map(|text| (text.clone(), Origin::File))
    }

    fn read<T>(
        &self,
        problems: &mut Vec<ConfigError>,
        setting: &str,
        default: T,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        let Some((text, origin)) = self.find(setting) else { return default };
        parse(&text).unwrap_or_else(|problem| {
            problems.push(ConfigError { setting: setting.to_owned(), origin, problem });
            default
        })
    }

    /// The whole configuration, or everything that is wrong with it.
    pub fn config(&self) -> Result<Config, Vec<ConfigError>> {
        let mut problems = Vec::new();
        let p = &mut problems;
        let timing = self.timing(p);
        let default_redis = "redis://127.0.0.1:6379".parse().expect("a valid URL");
        let config = Config {
            redis: self.read(p, "KUBELEET_REDIS_URL", default_redis, |t| {
                t.parse().map_err(|e: UrlError| e.to_string())
            }),
            listen: self.read(p, "KUBELEET_LISTEN", SocketAddr::from(([127, 0, 0, 1], 7070)), address),
            token: self.token(p),
            node: self.node(p),
            labels: self.read(p, "KUBELEET_LABELS", BTreeMap::new(), labels),
            runtime: self.read(p, "KUBELEET_RUNTIME", RuntimeKind::Docker, |t| t.parse()),
            docker_host: (self.environment)("DOCKER_HOST").filter(|host| !host.is_empty()),
            timing,
            guard: self.read(p, "KUBELEET_GUARD", true, boolean),
            state_dir: self.read(p, "KUBELEET_STATE_DIR", "/run/kubeleet".into(), |t| Ok(t.into())),
            data_dir: self.read(p, "KUBELEET_DATA_DIR", "/var/lib/kubeleet".into(), |t| Ok(t.into())),
            policy: PodPolicy { processes: self.read(p, "KUBELEET_ALLOW_PROCESSES", false, boolean) },
            max_pods: self.read(p, "KUBELEET_MAX_PODS", 250, positive),
            start_concurrency: self.read(p, "KUBELEET_START_CONCURRENCY", 8, positive) as usize,
            cpus: self.read(p, "KUBELEET_CPUS", None, |t| t.parse().map(Some)),
            memory: self.read(p, "KUBELEET_MEMORY", None, |t| t.parse().map(Some)),
            sim_workers: self.read(p, "KUBELEET_SIM_WORKERS", 1, positive) as u32,
            restart_backoff: self.read(p, "KUBELEET_RESTART_BACKOFF", Duration::from_secs(10), duration),
            log: self.read(p, "KUBELEET_LOG", "info".to_owned(), |t| Ok(t.to_owned())),
            log_json: self.read(p, "KUBELEET_LOG_FORMAT", false, log_format),
        };
        if !config.listen.ip().is_loopback() && config.token.is_none() {
            let origin = self.find("KUBELEET_LISTEN").map_or(Origin::Default, |(_, origin)| origin);
            let problem = format!(
                "{} can be reached from other machines: set KUBELEET_TOKEN or KUBELEET_TOKEN_FILE, or listen on 127.0.0.1",
                config.listen
            );
            problems.push(ConfigError { setting: "KUBELEET_LISTEN".to_owned(), origin, problem });
        }
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    fn timing(&self, problems: &mut Vec<ConfigError>) -> Timing {
        let default = Timing::default();
        let timing = Timing {
            heartbeat: self.read(problems, "KUBELEET_HEARTBEAT", default.heartbeat, duration),
            fence_after: self.read(problems, "KUBELEET_FENCE_AFTER", default.fence_after, duration),
            dead_after: self.read(problems, "KUBELEET_DEAD_AFTER", default.dead_after, duration),
        };
        if timing.heartbeat >= timing.fence_after || timing.fence_after >= timing.dead_after {
            let problem = format!(
                "heartbeat < fence < dead must hold, and {:?} < {:?} < {:?} does not: a worker must have stopped its \
                 pods before they start elsewhere",
                timing.heartbeat, timing.fence_after, timing.dead_after
            );
            let setting = "KUBELEET_HEARTBEAT, KUBELEET_FENCE_AFTER, KUBELEET_DEAD_AFTER".to_owned();
            problems.push(ConfigError { setting, origin: Origin::Environment, problem });
        }
        timing
    }

    fn node(&self, problems: &mut Vec<ConfigError>) -> NodeName {
        let fallback = NodeName::new("node").expect("a valid name");
        let host = NodeName::new(self.host_name.clone()).unwrap_or(fallback);
        self.read(problems, "KUBELEET_NODE", host, |text| NodeName::new(text).map_err(|e| e.to_string()))
    }

    fn token(&self, problems: &mut Vec<ConfigError>) -> Option<Secret> {
        if let Some((text, _)) = self.find("KUBELEET_TOKEN") {
            return Some(Secret::new(text));
        }
        self.read(problems, "KUBELEET_TOKEN_FILE", None, |path| {
            let text = (self.read_file)(path)?;
            let token = text.trim();
            if token.is_empty() { Err(format!("{path} is empty")) } else { Ok(Some(Secret::new(token))) }
        })
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds > 0.0 => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) => Err(()),
        Err(_) => humantime::parse_duration(text).map_err(drop),
    };
    parsed.map_err(|()| format!("{text:?} is not a duration: write 5s, 500ms or a number of seconds"))
}

fn positive(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("{text:?} is not a whole number from 1"))
}

fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        other => Err(format!("{other:?} is neither true nor false")),
    }
}

fn log_format(text: &str) -> Result<bool, String> {
    match text {
        "json" => Ok(true),
        "text" => Ok(false),
        other => Err(format!("{other:?} is no log format: write text or json")),
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is not an address with a port: write 127.0.0.1:7070"))
}

fn labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let pairs = text.split(',').filter(|part| !part.trim().is_empty());
    pairs
        .map(|part| match part.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok((key.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err(format!("{part:?} is no label: write zone=a,disk=ssd")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(flags: &[(&str, &str)], env: &[(&str, &str)], file: &str) -> Result<Config, String> {
        let own = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let env = own(env);
        let sources = Sources {
            flags: own(flags),
            environment: &|name| env.get(name).cloned(),
            file: parse_file(file)?,
            read_file: &|path| {
                if path == "/token" { Ok("s3cret\n".into()) } else { Err("no such file".into()) }
            },
            host_name: "host1".into(),
        };
        sources.config().map_err(|e| e.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }

    #[test]
    fn flag_beats_environment_beats_file_beats_default() {
        let file = "node = \"from-file\"";
        let name = |flags: &[_], env: &[_], file| config(flags, env, file).unwrap().node.to_string();
        assert_eq!(name(&[], &[], ""), "host1");
        assert_eq!(name(&[], &[], file), "from-file");
        assert_eq!(name(&[], &[("KUBELEET_NODE", "from-env")], file), "from-env");
        assert_eq!(name(&[("KUBELEET_NODE", "flag")], &[("KUBELEET_NODE", "env")], file), "flag");
    }

    #[test]
    fn another_interface_than_loopback_needs_a_token() {
        let open = [("KUBELEET_LISTEN", "0.0.0.0:7070")];
        assert!(config(&[], &open, "").unwrap_err().contains("KUBELEET_TOKEN"));
        let with = [open[0], ("KUBELEET_TOKEN_FILE", "/token")];
        let config = config(&[], &with, "").unwrap();
        assert_eq!(config.token.as_ref().unwrap().expose(), "s3cret");
        assert!(!format!("{config:?}").contains("s3cret"));
    }

    #[test]
    fn fence_must_lie_between_heartbeat_and_death() {
        let error = config(&[("KUBELEET_FENCE_AFTER", "25s")], &[], "").unwrap_err();
        assert!(error.contains("heartbeat < fence < dead"), "{error}");
        let fast =
            [("KUBELEET_HEARTBEAT", "1s"), ("KUBELEET_FENCE_AFTER", "4"), ("KUBELEET_DEAD_AFTER", "6s")];
        assert_eq!(config(&fast, &[], "").unwrap().timing.fence_after, Duration::from_secs(4));
    }

    #[test]
    fn every_problem_is_told_at_once_with_its_origin() {
        let error = config(&[("KUBELEET_RUNTIME", "vm")], &[("KUBELEET_HEARTBEAT", "soon")], "max_pods = 0")
            .unwrap_err();
        for part in ["a flag", "the environment", "the configuration file", "\"vm\"", "\"soon\""] {
            assert!(error.contains(part), "{error}");
        }
        assert!(config(&[], &[], "max_podz = 1").unwrap_err().contains("max_podz"));
    }
}
