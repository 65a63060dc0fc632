//! Configuration: read from flags, the environment, a file and defaults, in this order, and checked before
//! anything starts.
//!
//! [`Sources`] records the origin of each value for error messages. Nothing here reads the environment of the
//! process on its own.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::redis_url::{RedisUrl, UrlError};
use crate::reserve::Reserve;
use model::duration::HumanDuration;
use model::ids::NodeName;
use model::network::address_range::AddressRange;
use model::network::handover::SOCKET_NAME;
use model::node::Resources;
use model::node::host_access::HostAccess;
use model::node::timing::Timing;
use model::spec::{Cpus, MAX_MEMORY_BYTES, MIN_MEMORY_BYTES, Memory};
use model::value::secret::Secret;
use model::value::secret_key::SecretKey;

const MAX_PODS_PER_NODE: u64 = 1_000_000;
/// Above any kernel's limit, 2^22.
const MAX_PIDS_PER_NODE: u64 = 1 << 30;
const MAX_START_CONCURRENCY: u64 = 10_000;
const MAX_SIM_WORKERS: u64 = 100_000;

/// The proxy takes port 80 of all interfaces only if asked to.
const INGRESS_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const INGRESS_TLS_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8443);
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// Metadata services of clouds: most of them, Azure, Alibaba, Oracle.
const CLOUD_METADATA: &str = "169.254.0.0/16,168.63.129.16,100.100.100.200,192.0.0.192";
/// The longest socket path, less the suffix that a proxy appends while it binds it.
const MAX_SOCKET_PATH: usize = 100;
const DEFAULT_STATE_DIR: &str = "/run/kubeleet";

/// Returns the proxy's socket in a runtime directory; `None` if its path is too long.
pub fn proxy_socket_in(directory: &Path) -> Option<PathBuf> {
    let path = directory.join(SOCKET_NAME);
    (path.as_os_str().len() <= MAX_SOCKET_PATH).then_some(path)
}

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} (from {origin}): {problem}")]
pub struct ConfigError {
    /// Name of the environment variable.
    pub setting: String,
    /// Source of the value.
    pub origin: Origin,
    /// The fault, and the valid values.
    pub problem: String,
}

/// Source of a value, in order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A command-line flag.
    Flag,
    /// The environment.
    Environment,
    /// The configuration file.
    File,
    /// The built-in default.
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

/// Thresholds of the container disk, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskMarks {
    /// Collection of kept logs and unused images starts above this.
    pub high: u8,
    /// Collection stops below this.
    pub low: u8,
    /// The node takes no new pods from this on.
    pub full: u8,
}

/// The container runtime of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeKind {
    /// A Docker engine, or Podman through its compatible socket.
    Docker,
    /// Plain processes on this machine.
    Process,
    /// Simulated pods, for tests of large clusters.
    Sim,
}

impl std::str::FromStr for RuntimeKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "docker" | "podman" => Ok(Self::Docker),
            "process" => Ok(Self::Process),
            "sim" => Ok(Self::Sim),
            other => Err(format!("{other:?} is not a runtime: use docker, process or sim")),
        }
    }
}

/// Address of `/metrics` and `/healthz` of scheduler, worker and proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsListen {
    /// The daemon's default; if the address is in use, it only warns.
    Default,
    /// Metrics are not served.
    Off,
    /// The configured address and its origin.
    Address {
        /// The interface.
        ip: IpAddr,
        /// The port; by default the daemon's own.
        port: Option<u16>,
        /// Source of the setting.
        origin: Origin,
    },
}

/// The HTTP server of a process. Daemons may share a settings file, so each needs a token only for its own
/// address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serves {
    /// The API, at [`Config::listen`].
    Api,
    /// Metrics, at [`Config::metrics_listen`].
    Metrics,
    /// Neither.
    Nothing,
}

/// Address for the proxies of other hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelListen {
    /// The local address of the connection to Redis, unless it is loopback.
    Auto,
    /// Only this host's own proxy reaches its pods.
    Off,
    /// This address.
    Address(SocketAddr),
}

/// The certificate authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeSettings {
    /// URL of the ACME directory.
    pub directory: String,
    /// Contact address for the authority, if any.
    pub email: Option<String>,
    /// File with the authorities to trust for the directory; by default those of this machine.
    pub ca_file: Option<PathBuf>,
}

/// Limits of the cluster's growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrowthLimits {
    /// Percentage of Redis' `maxmemory` above which the API adds nothing.
    pub memory_percent: u8,
    /// Maximum number of services of the cluster.
    pub max_services: u64,
    /// Maximum number of desired pods.
    pub max_pods: u64,
    /// Maximum number of secrets, and of configs.
    pub max_secrets: u64,
}

/// The node operator's policy for pods, and default limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodPolicy {
    /// True if pods may be plain processes (`process` runtime outside `kubeleet dev`).
    pub processes: bool,
    /// Access of pods to the host.
    pub host: HostAccess,
    /// Memory limit of a pod that sets none.
    pub default_memory: DefaultMemory,
    /// Dropped Linux capabilities, without `CAP_`.
    pub dropped_capabilities: Vec<String>,
    /// True if people may run commands in pods, connect to ports and copy files.
    pub exec: bool,
}

impl PodPolicy {
    /// Capabilities in the engine's default that hardly any image needs: raw sockets (spoofed packets),
    /// device nodes, the kernel's audit log, and capabilities on files, which `no-new-privileges` makes
    /// useless. `SETPCAP` stays: the entry point of the `redis` image uses it to drop its privileges.
    pub const DROPPED_CAPABILITIES: [&str; 4] = ["AUDIT_WRITE", "MKNOD", "NET_RAW", "SETFCAP"];
}

impl Default for PodPolicy {
    fn default() -> Self {
        Self {
            processes: false,
            host: HostAccess::default(),
            default_memory: DefaultMemory::HalfOfNode,
            dropped_capabilities: Self::DROPPED_CAPABILITIES.map(str::to_owned).to_vec(),
            exec: true,
        }
    }
}

/// The memory limit of a pod that sets none. It reserves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultMemory {
    /// Half of the node's memory: one pod cannot take the whole machine.
    HalfOfNode,
    /// This amount.
    Limit(Memory),
    /// No limit.
    None,
}

impl DefaultMemory {
    /// Returns the limit on a node with `node_memory` bytes; `None` for no limit.
    pub fn on_node(self, node_memory: u64) -> Option<Memory> {
        match self {
            // A node with unknown memory offers none.
            DefaultMemory::HalfOfNode => {
                Some(Memory::from_bytes(node_memory / 2)).filter(|memory| memory.bytes() >= MIN_MEMORY_BYTES)
            }
            DefaultMemory::Limit(memory) => Some(memory),
            DefaultMemory::None => None,
        }
    }
}

/// The checked configuration of a daemon.
#[derive(Debug, Clone)]
pub struct Config {
    /// URL of Redis.
    pub redis: RedisUrl,
    /// Address of the API.
    pub listen: SocketAddr,
    /// Address of the metrics of scheduler, worker and proxy.
    pub metrics_listen: MetricsListen,
    /// Maximum number of connections to the API. Half of them may be streams.
    pub max_connections: usize,
    /// Bearer token of the API, which without one listens on loopback only.
    pub token: Option<Secret>,
    /// A second, read-only token.
    pub read_token: Option<Secret>,
    /// The key of secrets, required to create or read them.
    pub secret_key: Option<SecretKey>,
    /// Name of this node.
    pub node: NodeName,
    /// Labels of this node.
    pub labels: BTreeMap<String, String>,
    /// The container runtime.
    pub runtime: RuntimeKind,
    /// `DOCKER_HOST`, if set.
    pub docker_host: Option<String>,
    /// File with registry credentials, as of `docker login`. It may be missing.
    pub registry_config: Option<PathBuf>,
    /// Limits of the cluster's growth.
    pub growth: GrowthLimits,
    /// Timing of failure detection.
    pub timing: Timing,
    /// True if a supervisor restarts the worker and enforces its lease.
    pub guard: bool,
    /// Directory for leases. It must survive a restart of the worker but not of the machine.
    pub state_dir: PathBuf,
    /// The socket between worker and proxy of a host, if any.
    pub proxy_socket: Option<PathBuf>,
    /// Address of the ingress for HTTP, if any.
    pub ingress_listen: Option<SocketAddr>,
    /// Address of the ingress for HTTPS. By default none without a directory of certificates.
    pub ingress_tls_listen: Option<SocketAddr>,
    /// Directory with the certificates and keys of the ingress.
    pub certificates: Option<PathBuf>,
    /// The authority for rules with `tls: auto`.
    pub acme: AcmeSettings,
    /// Address for the proxies of other hosts.
    pub tunnel_listen: TunnelListen,
    /// Maximum wait of a request or connection for a pod.
    pub pod_wait: Duration,
    /// Time that volumes outlive their service; `None` for ever.
    pub volume_grace: Option<Duration>,
    /// True if containers have a network with names of services.
    pub names: bool,
    /// Addresses that pods on that network cannot reach.
    pub closed_to_pods: Vec<AddressRange>,
    /// Proxies in front of the ingress whose forwarding headers are kept.
    pub trusted_proxies: Vec<AddressRange>,
    /// Maximum number of ingress connections per client address.
    pub client_connections: u64,
    /// Directory of the pods of the `process` runtime.
    pub data_dir: PathBuf,
    /// Directory of shared volumes, shared with other nodes.
    pub shared_volumes_dir: Option<PathBuf>,
    /// Policy for pods on this node.
    pub policy: PodPolicy,
    /// Maximum number of pods on this node.
    pub max_pods: u64,
    /// Maximum number of containers that start at the same time.
    pub start_concurrency: usize,
    /// Offered CPU; by default the machine's less the reserve.
    pub cpus: Option<Cpus>,
    /// Offered memory; by default the machine's less the reserve.
    pub memory: Option<Memory>,
    /// Offered processes and threads; by default the machine's less the reserve.
    pub pids: Option<u64>,
    /// Disk offered to volumes; by default the machine's less the reserve.
    pub disk: Option<Memory>,
    /// Resources kept for the system.
    pub reserve: Reserve,
    /// Number of simulated workers: `<node>-1` … `<node>-N`.
    pub sim_workers: u32,
    /// Wait before the first restart of a container. Doubles up to five minutes.
    pub restart_backoff: Duration,
    /// Thresholds of the container disk.
    pub disk_marks: DiskMarks,
    /// Time that logs of removed containers are kept; zero keeps none.
    pub log_keep: Duration,
    /// Maximum size of kept logs, in bytes.
    pub log_keep_bytes: u64,
    /// Log filter in the syntax of `tracing`.
    pub log: String,
    /// True if log lines are JSON.
    pub log_json: bool,
}

impl Config {
    /// Returns setting, address and origin of a listener open to other machines without a token.
    fn open_address(&self, serves: Serves, listen_origin: Origin) -> Option<(&'static str, IpAddr, Origin)> {
        let (setting, ip, origin) = match (serves, self.metrics_listen) {
            (Serves::Api, _) if self.token.is_none() => ("KUBELEET_LISTEN", self.listen.ip(), listen_origin),
            (Serves::Metrics, MetricsListen::Address { ip, origin, .. })
                if self.token.is_none() && self.read_token.is_none() =>
            {
                ("KUBELEET_METRICS_LISTEN", ip, origin)
            }
            _ => return None,
        };
        (!ip.is_loopback()).then_some((setting, ip, origin))
    }

    /// Returns why the read-only token keeps no client from writing.
    fn read_token_problem(&self, serves: Serves) -> Option<&'static str> {
        let read_token = self.read_token.as_ref()?;
        match &self.token {
            None if serves == Serves::Api => Some("without KUBELEET_TOKEN everybody may write: set that too"),
            Some(token) if token == read_token => Some("it is the same as KUBELEET_TOKEN, which may write"),
            None | Some(_) => None,
        }
    }

    /// Returns the resources offered to pods on the given machine.
    pub fn capacity(&self, machine: Resources) -> Resources {
        let rest = machine.saturating_sub(self.reserved(machine));
        Resources {
            cpu_millis: self.cpus.map_or(rest.cpu_millis, Cpus::millis),
            memory_bytes: self.memory.map_or(rest.memory_bytes, Memory::bytes),
            pids: self.pids.unwrap_or(rest.pids),
            disk_bytes: self.disk.map_or(rest.disk_bytes, Memory::bytes),
            pods: self.max_pods,
        }
    }

    /// Returns the resources of `machine` kept for the system: none of a resource with a configured offer.
    pub fn reserved(&self, machine: Resources) -> Resources {
        let kept = self.reserve.of(machine);
        Resources {
            cpu_millis: self.cpus.map_or(kept.cpu_millis, |_| 0),
            memory_bytes: self.memory.map_or(kept.memory_bytes, |_| 0),
            pids: self.pids.map_or(kept.pids, |_| 0),
            disk_bytes: self.disk.map_or(kept.disk_bytes, |_| 0),
            pods: 0,
        }
    }
}

/// All settings: environment variable and description. The flag is the name without `KUBELEET_`, in lower
/// case with `-`; the key in the file has `_` instead.
pub const SETTINGS: &[(&str, &str)] = &[
    ("KUBELEET_REDIS_URL", "redis://, rediss:// or redis+sentinel:// URL"),
    ("KUBELEET_LISTEN", "address of the API"),
    ("KUBELEET_METRICS_LISTEN", "address of the /metrics of scheduler, worker and proxy, or off"),
    ("KUBELEET_MAX_CONNECTIONS", "connections that the API keeps open"),
    ("KUBELEET_TOKEN", "bearer token of the API"),
    ("KUBELEET_TOKEN_FILE", "file with the bearer token"),
    ("KUBELEET_READ_TOKEN", "second bearer token of the API, which may only read"),
    ("KUBELEET_READ_TOKEN_FILE", "file with that token"),
    ("KUBELEET_REDIS_MEMORY_LIMIT", "percentage of Redis' maxmemory beyond which the API adds nothing"),
    ("KUBELEET_CLUSTER_MAX_SERVICES", "maximum number of services of the cluster"),
    ("KUBELEET_CLUSTER_MAX_PODS", "maximum number of pods of the cluster"),
    ("KUBELEET_CLUSTER_MAX_SECRETS", "maximum number of secrets, and of configs, of the cluster"),
    ("KUBELEET_SECRET_KEY_FILE", "file with the key of secrets, for APIs, workers and proxies"),
    ("KUBELEET_NODE", "worker name"),
    ("KUBELEET_LABELS", "labels of this node: zone=a,disk=ssd"),
    ("KUBELEET_RUNTIME", "docker, process or sim"),
    ("KUBELEET_REGISTRY_CONFIG", "file with credentials of registries, as docker login writes it"),
    ("KUBELEET_HEARTBEAT", "time between heartbeats"),
    ("KUBELEET_DEAD_AFTER", "silence after which a node is declared dead"),
    ("KUBELEET_FENCE_AFTER", "silence after which a worker stops its `stop` pods"),
    ("KUBELEET_GUARD", "off: run the worker without a supervisor process"),
    ("KUBELEET_STATE_DIR", "directory for leases; a reboot must empty it"),
    ("KUBELEET_PROXY_SOCKET", "socket between the workers and the proxy of a host, or off"),
    ("KUBELEET_INGRESS_LISTEN", "address on which the proxy takes HTTP requests from outside, or off"),
    ("KUBELEET_INGRESS_TLS_LISTEN", "address on which the proxy takes HTTPS requests from outside, or off"),
    ("KUBELEET_CERTIFICATES", "directory with the certificates of the ingress and their keys"),
    ("KUBELEET_ACME_DIRECTORY", "URL of the ACME directory from which certificates are ordered"),
    ("KUBELEET_ACME_EMAIL", "address for mail of that authority"),
    ("KUBELEET_ACME_CA_FILE", "file with the authorities that the HTTPS of that directory is trusted by"),
    (
        "KUBELEET_TUNNEL_LISTEN",
        "address on which the proxy takes connections from those of other hosts, or off",
    ),
    ("KUBELEET_VOLUME_GRACE", "how long volumes stay without their service, or off"),
    ("KUBELEET_POD_WAIT", "how long a request or connection waits for a pod that takes it"),
    ("KUBELEET_NAMES", "off: containers are in the engine's own network, and reach no service by name"),
    (
        "KUBELEET_CLOSED_TO_PODS",
        "addresses that pods with names do not reach, as 10.0.0.0/8,10.1.2.3; or none",
    ),
    ("KUBELEET_TRUSTED_PROXIES", "proxies before the ingress, as 10.0.0.0/8,10.1.2.3"),
    ("KUBELEET_CLIENT_CONNECTIONS", "how many connections to the ingress a client's address may have"),
    ("KUBELEET_DATA_DIR", "directory for pods of the process runtime"),
    ("KUBELEET_ALLOW_PROCESSES", "true: pods may be plain processes on this machine"),
    ("KUBELEET_PORT_ADDRESSES", "addresses besides loopback that pods may publish ports on; any or none"),
    (
        "KUBELEET_SHARED_VOLUMES_DIR",
        "directory that this machine shares with other nodes, for shared volumes",
    ),
    ("KUBELEET_BIND_PREFIXES", "paths of the host that pods may mount, with all below them; none"),
    ("KUBELEET_DEFAULT_MEMORY", "memory limit of pods that set none; 0 for no limit"),
    ("KUBELEET_DROP_CAPABILITIES", "capabilities that containers do not get; none for the engine's default"),
    ("KUBELEET_EXEC", "off: no exec, attach, port-forward and cp in the pods of this node"),
    ("KUBELEET_MAX_PODS", "maximum number of pods on this node"),
    ("KUBELEET_START_CONCURRENCY", "containers started at the same time"),
    ("KUBELEET_CPUS", "cores that this node offers"),
    ("KUBELEET_MEMORY", "memory that this node offers"),
    ("KUBELEET_PIDS", "processes and threads that this node offers"),
    ("KUBELEET_DISK", "disk that this node offers to volumes"),
    ("KUBELEET_RESERVED_CPUS", "cores of the machine that are kept for the system"),
    ("KUBELEET_RESERVED_MEMORY", "memory of the machine that is kept for the system"),
    ("KUBELEET_RESERVED_PIDS", "processes and threads that are kept for the system"),
    ("KUBELEET_RESERVED_DISK", "disk of this machine that is kept for images, logs and the system"),
    ("KUBELEET_SIM_WORKERS", "simulated workers in one sim process"),
    ("KUBELEET_RESTART_BACKOFF", "wait before the first restart of a container"),
    ("KUBELEET_IMAGE_GC_HIGH", "percentage of the disk of containers above which kept logs and images go"),
    ("KUBELEET_IMAGE_GC_LOW", "percentage down to which they go"),
    ("KUBELEET_DISK_PRESSURE", "percentage from which on the node takes no new pods"),
    ("KUBELEET_LOG_KEEP", "how long the logs of removed containers are kept; 0 for not at all"),
    ("KUBELEET_LOG_KEEP_SIZE", "disk that the logs of removed containers may have"),
    ("KUBELEET_LOG", "log filter, e.g. info or worker=debug"),
    ("KUBELEET_LOG_FORMAT", "text or json"),
];

/// The sources of settings.
pub struct Sources<'a> {
    /// Flags, by environment variable.
    pub flags: BTreeMap<String, String>,
    /// Reads one environment variable.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// Settings of the configuration file, by environment variable.
    pub file: BTreeMap<String, String>,
    /// Reads the file of a `…_FILE` setting.
    pub read_file: &'a dyn Fn(&str) -> Result<String, String>,
    /// Host name of the machine.
    pub host_name: String,
}

/// Parses a configuration file (TOML, with the keys described at [`SETTINGS`]). Returns the settings by
/// environment variable.
///
/// # Errors
/// If the text is not TOML or has an unknown key.
pub fn parse_file(text: &str) -> Result<BTreeMap<String, String>, String> {
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
    let mut settings = BTreeMap::new();
    for (key, value) in table {
        let name = format!("KUBELEET_{}", key.to_uppercase());
        if !SETTINGS.iter().any(|(known, _)| *known == name) {
            return Err(format!("{key:?} is not a setting; docs/reference/settings.md lists all of them"));
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
        // Scripts pass `--token "$TOKEN"` even without a token.
        let is_token = setting.starts_with("KUBELEET_TOKEN") || setting.starts_with("KUBELEET_READ_TOKEN");
        let given = |text: &String| !is_token || !text.trim().is_empty();
        if let Some(text) = self.flags.get(setting).filter(|text| given(text)) {
            return Some((text.clone(), Origin::Flag));
        }
        if let Some(text) = (self.environment)(setting).filter(|text| !text.is_empty() && given(text)) {
            return Some((text, Origin::Environment));
        }
        self.file.get(setting).filter(|text| given(text)).map(|text| (text.clone(), Origin::File))
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

    /// Returns the checked configuration of a process that serves `serves`.
    ///
    /// # Errors
    /// All invalid settings, not only the first one.
    pub fn config(&self, serves: Serves) -> Result<Config, Vec<ConfigError>> {
        let mut problems = Vec::new();
        let p = &mut problems;
        let timing = self.timing(p);
        let default_redis = "redis://127.0.0.1:6379".parse().expect("a valid URL");
        let config = Config {
            redis: self.read(p, "KUBELEET_REDIS_URL", default_redis, |t| {
                t.parse().map_err(|e: UrlError| e.to_string())
            }),
            listen: self.read(p, "KUBELEET_LISTEN", SocketAddr::from(([127, 0, 0, 1], 7070)), address),
            metrics_listen: self.metrics_listen(p),
            max_connections: self.read(p, "KUBELEET_MAX_CONNECTIONS", 1024, positive) as usize,
            token: self.token(p, ["KUBELEET_TOKEN", "KUBELEET_TOKEN_FILE"]),
            read_token: self.token(p, ["KUBELEET_READ_TOKEN", "KUBELEET_READ_TOKEN_FILE"]),
            secret_key: self.read(p, "KUBELEET_SECRET_KEY_FILE", None, |path| {
                let text = (self.read_file)(path)?;
                SecretKey::parse(&text).map(Some).map_err(|problem| format!("{path}: {problem}"))
            }),
            node: self.node(p),
            labels: self.read(p, "KUBELEET_LABELS", BTreeMap::new(), labels),
            runtime: self.read(p, "KUBELEET_RUNTIME", RuntimeKind::Docker, |t| t.parse()),
            docker_host: (self.environment)("DOCKER_HOST").filter(|host| !host.is_empty()),
            registry_config: self.registry_config(p),
            growth: GrowthLimits {
                memory_percent: self.read(p, "KUBELEET_REDIS_MEMORY_LIMIT", 80, percentage),
                max_services: self.read(p, "KUBELEET_CLUSTER_MAX_SERVICES", 10_000, positive),
                max_pods: self.read(p, "KUBELEET_CLUSTER_MAX_PODS", 2_000_000, positive),
                max_secrets: self.read(p, "KUBELEET_CLUSTER_MAX_SECRETS", 1_000, positive),
            },
            timing,
            guard: self.read(p, "KUBELEET_GUARD", true, boolean),
            state_dir: self.read(p, "KUBELEET_STATE_DIR", DEFAULT_STATE_DIR.into(), |t| Ok(t.into())),
            proxy_socket: self.proxy_socket(p),
            ingress_listen: self.read(p, "KUBELEET_INGRESS_LISTEN", Some(INGRESS_LISTEN), ingress_address),
            ingress_tls_listen: self.read(
                p,
                "KUBELEET_INGRESS_TLS_LISTEN",
                self.find("KUBELEET_CERTIFICATES").map(|_| INGRESS_TLS_LISTEN),
                ingress_address,
            ),
            certificates: self.read(p, "KUBELEET_CERTIFICATES", None, |t| {
                absolute_path(t, "/etc/letsencrypt/live").map(Some)
            }),
            acme: AcmeSettings {
                directory: self.read(p, "KUBELEET_ACME_DIRECTORY", LETS_ENCRYPT.to_owned(), https_url),
                email: self.read(p, "KUBELEET_ACME_EMAIL", None, |t| mail_address(t).map(Some)),
                ca_file: self.read(p, "KUBELEET_ACME_CA_FILE", None, |t| {
                    absolute_path(t, "/etc/kubeleet/acme-ca.pem").map(Some)
                }),
            },
            tunnel_listen: self.read(p, "KUBELEET_TUNNEL_LISTEN", TunnelListen::Auto, tunnel_address),
            volume_grace: self.read(p, "KUBELEET_VOLUME_GRACE", None, volume_grace),
            pod_wait: self.read(p, "KUBELEET_POD_WAIT", Duration::from_secs(10), duration),
            names: self.read(p, "KUBELEET_NAMES", true, boolean),
            closed_to_pods: self.read(p, "KUBELEET_CLOSED_TO_PODS", cloud_metadata(), closed_to_pods),
            trusted_proxies: self.read(p, "KUBELEET_TRUSTED_PROXIES", Vec::new(), address_ranges),
            client_connections: self.read(p, "KUBELEET_CLIENT_CONNECTIONS", 1_000, positive),
            data_dir: self.read(p, "KUBELEET_DATA_DIR", "/var/lib/kubeleet".into(), |t| Ok(t.into())),
            shared_volumes_dir: self
                .read(p, "KUBELEET_SHARED_VOLUMES_DIR", None, |t| absolute_path(t, "/mnt/shared").map(Some)),
            policy: self.policy(p),
            max_pods: self.read(p, "KUBELEET_MAX_PODS", 250, |t| at_most(t, MAX_PODS_PER_NODE)),
            start_concurrency: self
                .read(p, "KUBELEET_START_CONCURRENCY", 8, |t| at_most(t, MAX_START_CONCURRENCY))
                as usize,
            cpus: self.read(p, "KUBELEET_CPUS", None, |t| t.parse().map(Some)),
            memory: self.read(p, "KUBELEET_MEMORY", None, |t| node_memory(t).map(Some)),
            pids: self.read(p, "KUBELEET_PIDS", None, |t| at_most(t, MAX_PIDS_PER_NODE).map(Some)),
            disk: self.read(p, "KUBELEET_DISK", None, |t| node_memory(t).map(Some)),
            reserve: self.reserve(p),
            sim_workers: self.read(p, "KUBELEET_SIM_WORKERS", 1, |t| at_most(t, MAX_SIM_WORKERS)) as u32,
            restart_backoff: self.read(p, "KUBELEET_RESTART_BACKOFF", Duration::from_secs(10), duration),
            disk_marks: self.disk_marks(p),
            log_keep: self.read(p, "KUBELEET_LOG_KEEP", Duration::from_secs(24 * 3600), duration_or_zero),
            log_keep_bytes: self.read(p, "KUBELEET_LOG_KEEP_SIZE", 256 << 20, disk_bytes),
            log: self.read(p, "KUBELEET_LOG", "info".to_owned(), |t| Ok(t.to_owned())),
            log_json: self.read(p, "KUBELEET_LOG_FORMAT", false, log_format),
        };
        problems.extend(self.access_problems(&config, serves));
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    fn access_problems(&self, config: &Config, serves: Serves) -> Vec<ConfigError> {
        let origin_of = |setting| self.find(setting).map_or(Origin::Default, |(_, origin)| origin);
        let mut problems = Vec::new();
        let open = config.open_address(serves, origin_of("KUBELEET_LISTEN"));
        if let Some((setting, ip, origin)) = open {
            let problem = reachable_without_token(serves, ip);
            problems.push(ConfigError { setting: setting.to_owned(), origin, problem });
        }
        if let Some(problem) = config.read_token_problem(serves) {
            let setting = "KUBELEET_READ_TOKEN";
            let setting = if self.find(setting).is_some() { setting } else { "KUBELEET_READ_TOKEN_FILE" };
            let (setting, origin) = (setting.to_owned(), origin_of(setting));
            problems.push(ConfigError { setting, origin, problem: problem.to_owned() });
        }
        problems
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
                "heartbeat < fence < dead must hold, but the values are {:?}, {:?} and {:?}: a worker must \
                 stop its pods before another worker starts them",
                timing.heartbeat, timing.fence_after, timing.dead_after
            );
            let setting = "KUBELEET_HEARTBEAT, KUBELEET_FENCE_AFTER, KUBELEET_DEAD_AFTER".to_owned();
            problems.push(ConfigError { setting, origin: Origin::Environment, problem });
        }
        if timing.dead_after > Timing::LONGEST_DEAD_AFTER {
            let problem =
                "it is longer than 1h: the pods of a machine that dies would not move for that time"
                    .to_owned();
            let setting = "KUBELEET_DEAD_AFTER".to_owned();
            problems.push(ConfigError { setting, origin: Origin::Environment, problem });
        }
        timing
    }

    /// Simulated pods have no address, and thousands of workers would look for a socket each second.
    fn proxy_socket(&self, problems: &mut Vec<ConfigError>) -> Option<PathBuf> {
        let setting = "KUBELEET_PROXY_SOCKET";
        if let Some((text, origin)) = self.find(setting) {
            return match text.as_str() {
                "off" => None,
                path if path.len() <= MAX_SOCKET_PATH => Some(path.into()),
                path => {
                    let problem = format!(
                        "{path:?} is too long: the path of a socket has at most {MAX_SOCKET_PATH} bytes"
                    );
                    problems.push(ConfigError { setting: setting.to_owned(), origin, problem });
                    None
                }
            };
        }
        let is_simulated = self.find("KUBELEET_RUNTIME").is_some_and(|(text, _)| text == "sim");
        let directory =
            self.find("KUBELEET_STATE_DIR").map_or(DEFAULT_STATE_DIR.to_owned(), |(text, _)| text);
        proxy_socket_in(directory.as_ref()).filter(|_| !is_simulated)
    }

    /// A configured file must be readable. The file of `docker login` may appear later.
    fn registry_config(&self, problems: &mut Vec<ConfigError>) -> Option<PathBuf> {
        let variable = |name: &str| (self.environment)(name).filter(|value| !value.is_empty());
        let directory = variable("DOCKER_CONFIG").or_else(|| Some(variable("HOME")? + "/.docker"));
        let usual = directory.map(|directory| PathBuf::from(directory + "/config.json"));
        self.read(problems, "KUBELEET_REGISTRY_CONFIG", usual, |path| {
            (self.read_file)(path)?;
            Ok(Some(path.into()))
        })
    }

    fn policy(&self, problems: &mut Vec<ConfigError>) -> PodPolicy {
        let p = problems;
        let default = PodPolicy::default();
        PodPolicy {
            processes: self.read(p, "KUBELEET_ALLOW_PROCESSES", default.processes, boolean),
            host: HostAccess {
                port_addresses: self.read(p, "KUBELEET_PORT_ADDRESSES", None, port_addresses),
                bind_prefixes: self.read(p, "KUBELEET_BIND_PREFIXES", Vec::new(), bind_prefixes),
            },
            default_memory: self.read(p, "KUBELEET_DEFAULT_MEMORY", default.default_memory, default_memory),
            exec: self.read(p, "KUBELEET_EXEC", default.exec, boolean),
            dropped_capabilities: self.read(
                p,
                "KUBELEET_DROP_CAPABILITIES",
                default.dropped_capabilities,
                capabilities,
            ),
        }
    }

    /// Rejects a reserve beside a configured offer: it would have no effect.
    fn reserve(&self, problems: &mut Vec<ConfigError>) -> Reserve {
        for resource in ["CPUS", "MEMORY", "PIDS", "DISK"] {
            let (offer, reserve) = (format!("KUBELEET_{resource}"), format!("KUBELEET_RESERVED_{resource}"));
            if let (Some(_), Some((_, origin))) = (self.find(&offer), self.find(&reserve)) {
                let problem = format!(
                    "has no effect beside {offer}, which says how much pods may have: unset one of the two"
                );
                problems.push(ConfigError { setting: reserve, origin, problem });
            }
        }
        let p = problems;
        Reserve {
            cpus: self.read(p, "KUBELEET_RESERVED_CPUS", None, |t| t.parse().map(Some)),
            memory: self.read(p, "KUBELEET_RESERVED_MEMORY", None, |t| node_memory(t).map(Some)),
            pids: self.read(p, "KUBELEET_RESERVED_PIDS", None, |t| reserved_pids(t).map(Some)),
            disk: self.read(p, "KUBELEET_RESERVED_DISK", None, |t| node_memory(t).map(Some)),
        }
    }

    fn disk_marks(&self, problems: &mut Vec<ConfigError>) -> DiskMarks {
        let high = self.read(problems, "KUBELEET_IMAGE_GC_HIGH", 85, percentage);
        DiskMarks {
            high,
            low: self.read(problems, "KUBELEET_IMAGE_GC_LOW", 80, percentage).min(high),
            full: self.read(problems, "KUBELEET_DISK_PRESSURE", 95, percentage),
        }
    }

    fn metrics_listen(&self, problems: &mut Vec<ConfigError>) -> MetricsListen {
        let setting = "KUBELEET_METRICS_LISTEN";
        let origin = self.find(setting).map_or(Origin::Default, |(_, origin)| origin);
        self.read(problems, setting, MetricsListen::Default, |text| match text {
            "off" => Ok(MetricsListen::Off),
            text => match (text.parse::<SocketAddr>(), text.parse()) {
                (Ok(address), _) => {
                    Ok(MetricsListen::Address { ip: address.ip(), port: Some(address.port()), origin })
                }
                (Err(_), Ok(ip)) => Ok(MetricsListen::Address { ip, port: None, origin }),
                (Err(_), Err(_)) => {
                    Err(format!("{text:?} is not an address: write 10.0.0.1, 127.0.0.1:7071, or off"))
                }
            },
        })
    }

    fn node(&self, problems: &mut Vec<ConfigError>) -> NodeName {
        let fallback = NodeName::new("node").expect("a valid name");
        let host = NodeName::new(self.host_name.clone());
        // Machines that silently shared a name would take over each other's pods.
        if let (Err(invalid), None) = (&host, self.find("KUBELEET_NODE")) {
            let problem = format!("is not set, and the host name cannot take its place: {invalid}; set it");
            let setting = "KUBELEET_NODE".to_owned();
            problems.push(ConfigError { setting, origin: Origin::Default, problem });
        }
        let host = host.unwrap_or(fallback);
        self.read(problems, "KUBELEET_NODE", host, |text| NodeName::new(text).map_err(|e| e.to_string()))
    }

    /// Reads a token. A flag wins over the environment, and the environment over the file. Within one source
    /// the token wins over the name of its file.
    fn token(&self, problems: &mut Vec<ConfigError>, [own, of_file]: [&str; 2]) -> Option<Secret> {
        let (token, file) = (self.find(own), self.find(of_file));
        let is_overridden = |origin: Origin| file.as_ref().is_some_and(|(_, other)| *other < origin);
        if let Some((text, origin)) = token
            && !is_overridden(origin)
        {
            return Some(Secret::new(text));
        }
        self.read(problems, of_file, None, |path| {
            let text = (self.read_file)(path)?;
            let token = text.trim();
            if token.is_empty() { Err(format!("{path} is empty")) } else { Ok(Some(Secret::new(token))) }
        })
    }
}

fn reachable_without_token(serves: Serves, ip: IpAddr) -> String {
    let tokens = match serves {
        Serves::Metrics => "KUBELEET_READ_TOKEN, KUBELEET_READ_TOKEN_FILE",
        Serves::Api | Serves::Nothing => "KUBELEET_TOKEN, KUBELEET_TOKEN_FILE",
    };
    format!("{ip} can be reached from other machines: set one of {tokens}, or listen on 127.0.0.1")
}

fn duration(text: &str) -> Result<Duration, String> {
    // Users mean 0 as "off", which it would not be.
    if text.parse::<f64>() == Ok(0.0) {
        return Err(format!("{text:?} is too short: write a duration such as 5s or 500ms"));
    }
    text.parse::<HumanDuration>().map(HumanDuration::get).map_err(|error| error.to_string())
}

/// A typing error must not lose data.
const SHORTEST_VOLUME_GRACE: Duration = Duration::from_secs(60 * 60);

fn volume_grace(text: &str) -> Result<Option<Duration>, String> {
    match text {
        "off" => Ok(None),
        text => match duration(text)? {
            grace if grace >= SHORTEST_VOLUME_GRACE => Ok(Some(grace)),
            _ => Err(format!("{text:?} is too short: write 1h or more, such as 30d, or off")),
        },
    }
}

fn duration_or_zero(text: &str) -> Result<Duration, String> {
    text.parse::<HumanDuration>().map(HumanDuration::get).map_err(|error| error.to_string())
}

fn disk_bytes(text: &str) -> Result<u64, String> {
    node_memory(text).map(Memory::bytes)
}

fn positive(text: &str) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| format!("{text:?} is not a whole number greater than 0"))
}

fn at_most(text: &str, max: u64) -> Result<u64, String> {
    let number = positive(text)?;
    if number <= max { Ok(number) } else { Err(format!("{text:?} is more than {max}")) }
}

fn reserved_pids(text: &str) -> Result<u64, String> {
    if text.trim() == "0" { Ok(0) } else { at_most(text, MAX_PIDS_PER_NODE) }
}

fn node_memory(text: &str) -> Result<Memory, String> {
    let memory: Memory = text.parse()?;
    if memory.bytes() <= MAX_MEMORY_BYTES { Ok(memory) } else { Err(format!("{text:?} is more than 1 PiB")) }
}

fn port_addresses(text: &str) -> Result<Option<Vec<IpAddr>>, String> {
    match text.trim() {
        "any" => Ok(None),
        "none" => Ok(Some(Vec::new())),
        list => {
            let address = |part: &str| {
                let bad = || format!("{part:?} is not an IP address: write 10.0.0.5,10.1.0.5, any or none");
                part.trim().parse().map_err(|_| bad())
            };
            list.split(',').map(address).collect::<Result<_, _>>().map(Some)
        }
    }
}

fn absolute_path(text: &str, example: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text.trim());
    let is_plain = !path.components().any(|part| part == std::path::Component::ParentDir);
    let bad = || format!("{text:?} is not an absolute path without `..`: write {example}");
    if path.is_absolute() && is_plain && path.parent().is_some() { Ok(path) } else { Err(bad()) }
}

fn bind_prefixes(text: &str) -> Result<Vec<PathBuf>, String> {
    if text.trim() == "none" {
        return Ok(Vec::new());
    }
    let prefix = |part: &str| {
        let path = PathBuf::from(part.trim());
        let is_plain = !path.components().any(|part| part == std::path::Component::ParentDir);
        let bad =
            || format!("{part:?} is not an absolute path without `..`: write /srv/app,/mnt/media or none");
        if path.is_absolute() && is_plain { Ok(path) } else { Err(bad()) }
    };
    text.split(',').map(prefix).collect()
}

fn default_memory(text: &str) -> Result<DefaultMemory, String> {
    let memory = node_memory(text)?;
    match memory.bytes() {
        0 => Ok(DefaultMemory::None),
        bytes if bytes < MIN_MEMORY_BYTES => {
            Err(format!("{text:?} is less than 6 MiB, and Docker starts no container with less"))
        }
        _ => Ok(DefaultMemory::Limit(memory)),
    }
}

fn capabilities(text: &str) -> Result<Vec<String>, String> {
    if text.trim() == "none" {
        return Ok(Vec::new());
    }
    let name = |part: &str| {
        let name = part.trim().to_ascii_uppercase();
        let name = name.strip_prefix("CAP_").unwrap_or(&name);
        let is_valid = !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        let bad = || format!("{part:?} is not a capability: write NET_RAW,MKNOD, ALL or none");
        if is_valid { Ok(name.to_owned()) } else { Err(bad()) }
    };
    text.split(',').map(name).collect()
}

fn percentage(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<u8>().ok();
    let valid = number.filter(|percent| (1..=100).contains(percent));
    valid.ok_or_else(|| format!("{text:?} is not a percentage: write a whole number from 1 to 100"))
}

fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        other => {
            Err(format!("{other:?} is neither true nor false; on, off, yes, no, 1 and 0 are valid as well"))
        }
    }
}

fn log_format(text: &str) -> Result<bool, String> {
    match text {
        "json" => Ok(true),
        "text" => Ok(false),
        other => Err(format!("{other:?} is not a log format: use text or json")),
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is not an address with a port: write 127.0.0.1:7070"))
}

fn https_url(text: &str) -> Result<String, String> {
    match text.strip_prefix("https://") {
        Some(rest) if !rest.is_empty() && !rest.contains(char::is_whitespace) => Ok(text.to_owned()),
        _ => Err(format!("{text:?} is no URL of an ACME directory: write https://ca.example/directory")),
    }
}

fn mail_address(text: &str) -> Result<String, String> {
    let is_address = text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.contains('.'));
    let is_plain = !text.contains(|c: char| c.is_whitespace() || c == ':');
    (is_address && is_plain)
        .then(|| text.to_owned())
        .ok_or_else(|| format!("{text:?} is no address for mail: write ops@web.example"))
}

fn ingress_address(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "off" {
        return Ok(None);
    }
    let wrong = |_| format!("{text:?} is not an address with a port: write 0.0.0.0:80, or off");
    text.parse().map(Some).map_err(wrong)
}

fn tunnel_address(text: &str) -> Result<TunnelListen, String> {
    match text {
        "off" => Ok(TunnelListen::Off),
        "auto" => Ok(TunnelListen::Auto),
        _ => text.parse().map(TunnelListen::Address).map_err(|_| {
            format!("{text:?} is not an address with a port: write 10.0.0.5:7079, auto, or off")
        }),
    }
}

fn address_ranges(text: &str) -> Result<Vec<AddressRange>, String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::parse).collect()
}

fn cloud_metadata() -> Vec<AddressRange> {
    address_ranges(CLOUD_METADATA).expect("ranges of addresses")
}

fn closed_to_pods(text: &str) -> Result<Vec<AddressRange>, String> {
    if text.trim() == "none" { Ok(Vec::new()) } else { address_ranges(text) }
}

fn labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let pairs = text.split(',').filter(|part| !part.trim().is_empty());
    pairs
        .map(|part| match part.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok((key.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err(format!("{part:?} is not a label: write zone=a,disk=ssd")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(flags: &[(&str, &str)], env: &[(&str, &str)], file: &str) -> Result<Config, String> {
        config_of(Serves::Api, flags, env, file)
    }

    fn config_of(
        serves: Serves,
        flags: &[(&str, &str)],
        env: &[(&str, &str)],
        file: &str,
    ) -> Result<Config, String> {
        let own = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let env = own(env);
        let sources = Sources {
            flags: own(flags),
            environment: &|name| env.get(name).cloned(),
            file: parse_file(file)?,
            read_file: &|path| {
                let exists = path == "/token" || path.ends_with("docker/config.json");
                let exists = exists && !path.starts_with("/nowhere");
                if exists { Ok("s3cret\n".into()) } else { Err("no such file".into()) }
            },
            host_name: "host1".into(),
        };
        sources.config(serves).map_err(|e| e.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }

    #[test]
    fn flag_overrides_environment_overrides_file_overrides_default() {
        let file = "node = \"from-file\"";
        let name = |flags: &[_], env: &[_], file| config(flags, env, file).unwrap().node.to_string();
        assert_eq!(name(&[], &[], ""), "host1");
        assert_eq!(name(&[], &[], file), "from-file");
        assert_eq!(name(&[], &[("KUBELEET_NODE", "from-env")], file), "from-env");
        assert_eq!(name(&[("KUBELEET_NODE", "flag")], &[("KUBELEET_NODE", "env")], file), "flag");
    }

    #[test]
    fn a_host_name_that_cannot_be_the_name_of_a_node_is_refused_and_not_replaced() {
        let long = "a".repeat(64);
        for host in ["", "-a", "a host", long.as_str()] {
            let sources = |environment: &dyn Fn(&str) -> Option<String>| {
                let (flags, file) = (BTreeMap::new(), BTreeMap::new());
                let read_file = &|_: &str| Err("no such file".into());
                let host_name = host.to_owned();
                let sources = Sources { flags, environment, file, read_file, host_name };
                sources.config(Serves::Nothing).map(|config| config.node.to_string())
            };
            let errors = sources(&|_| None).unwrap_err();
            let message = errors.iter().map(ToString::to_string).collect::<String>();
            assert!(
                message.contains("KUBELEET_NODE") && message.contains("the host name cannot"),
                "{message}"
            );
            let named = sources(&|name| (name == "KUBELEET_NODE").then(|| "w1".to_owned()));
            assert_eq!(named.unwrap(), "w1", "a name that is set needs no host name");
        }
    }

    #[test]
    fn listening_beyond_loopback_requires_a_token() {
        let open = [("KUBELEET_LISTEN", "0.0.0.0:7070")];
        assert!(config(&[], &open, "").unwrap_err().contains("KUBELEET_TOKEN"));
        let with = [open[0], ("KUBELEET_TOKEN_FILE", "/token")];
        let config = config(&[], &with, "").unwrap();
        assert_eq!(config.token.as_ref().unwrap().expose(), "s3cret");
        assert!(!format!("{config:?}").contains("s3cret"));
    }

    #[test]
    fn an_empty_token_is_unset_and_the_source_decides_before_the_kind() {
        let token = |flags: &[_], env: &[_], file| {
            config(flags, env, file).map(|config| config.token.map(|token| token.expose().to_owned()))
        };
        let file = [("KUBELEET_TOKEN_FILE", "/token")];
        let some = |text: &str| Ok(Some(text.to_owned()));
        for empty in ["", " "] {
            assert_eq!(token(&[("KUBELEET_TOKEN", empty)], &file, ""), some("s3cret"));
            assert_eq!(token(&[("KUBELEET_TOKEN", empty)], &[], ""), Ok(None));
        }
        assert_eq!(token(&file, &[], "token = \"of-the-file\""), some("s3cret"), "a flag wins");
        assert_eq!(token(&file, &[("KUBELEET_TOKEN", "env")], ""), some("s3cret"));
        assert_eq!(token(&[], &[file[0], ("KUBELEET_TOKEN", "env")], ""), some("env"));
        assert_eq!(token(&[("KUBELEET_TOKEN", "flag")], &file, ""), some("flag"));
        let open = [("KUBELEET_LISTEN", "0.0.0.0:7070"), ("KUBELEET_TOKEN", "")];
        assert!(config(&open, &[], "").unwrap_err().contains("KUBELEET_TOKEN"), "no token, no open door");
    }

    #[test]
    fn ingress_is_on_loopback_unless_asked() {
        let parse = |name, value| config(&[], &[(name, value)], "");
        let default = config(&[], &[], "").unwrap();
        assert_eq!(default.ingress_listen, Some(SocketAddr::from(([127, 0, 0, 1], 8080))));
        assert_eq!(parse("KUBELEET_INGRESS_LISTEN", "off").unwrap().ingress_listen, None);
        let asked = parse("KUBELEET_INGRESS_LISTEN", "0.0.0.0:80").unwrap().ingress_listen;
        assert_eq!(asked, Some(SocketAddr::from(([0, 0, 0, 0], 80))));
        assert!(parse("KUBELEET_INGRESS_LISTEN", "80").unwrap_err().contains("or off"));
        assert_eq!(default.ingress_tls_listen, None, "there is no certificate");
        let with_files = parse("KUBELEET_CERTIFICATES", "/etc/letsencrypt/live").unwrap();
        assert_eq!(with_files.ingress_tls_listen, Some(SocketAddr::from(([127, 0, 0, 1], 8443))));
        let asked = parse("KUBELEET_INGRESS_TLS_LISTEN", "0.0.0.0:443").unwrap();
        assert_eq!(asked.ingress_tls_listen, Some(SocketAddr::from(([0, 0, 0, 0], 443))), "for `tls: auto`");
        assert_eq!(default.certificates, None);
        assert!(default.acme.directory.contains("letsencrypt"));
        assert!(parse("KUBELEET_ACME_DIRECTORY", "http://ca.example").unwrap_err().contains("https://"));
        let mail = |text| parse("KUBELEET_ACME_EMAIL", text).map(|config| config.acme.email);
        assert_eq!(mail("ops@web.example"), Ok(Some("ops@web.example".to_owned())));
        assert!(mail("mailto:ops").is_err());
        assert_eq!(parse("KUBELEET_INGRESS_TLS_LISTEN", "off").unwrap().ingress_tls_listen, None);
        let directory = parse("KUBELEET_CERTIFICATES", "/etc/letsencrypt/live").unwrap().certificates;
        assert_eq!(directory.as_deref(), Some(Path::new("/etc/letsencrypt/live")));
        assert!(parse("KUBELEET_CERTIFICATES", "certificates").unwrap_err().contains("absolute path"));
        assert_eq!(default.tunnel_listen, TunnelListen::Auto);
        let tunnel = parse("KUBELEET_TUNNEL_LISTEN", "10.0.0.5:1").unwrap().tunnel_listen;
        assert_eq!(tunnel, TunnelListen::Address(SocketAddr::from(([10, 0, 0, 5], 1))));
        assert_eq!(parse("KUBELEET_TUNNEL_LISTEN", "off").unwrap().tunnel_listen, TunnelListen::Off);
        assert!(parse("KUBELEET_TUNNEL_LISTEN", "7079").unwrap_err().contains("auto, or off"));
        let closed = |text| parse("KUBELEET_CLOSED_TO_PODS", text).unwrap().closed_to_pods;
        assert_eq!(closed("none"), []);
        assert_eq!(closed("10.9.0.0/16"), ["10.9.0.0/16".parse().unwrap()]);
        assert_eq!(parse("KUBELEET_NAMES", "on").unwrap().closed_to_pods.len(), 4);
        let trusted = parse("KUBELEET_TRUSTED_PROXIES", "10.0.0.0/8, 10.1.2.3").unwrap().trusted_proxies;
        assert_eq!(trusted.len(), 2);
        assert!(parse("KUBELEET_TRUSTED_PROXIES", "10.0.0.0/40").unwrap_err().contains("neither an address"));
        let of_client =
            |text| parse("KUBELEET_CLIENT_CONNECTIONS", text).map(|config| config.client_connections);
        assert_eq!((default.client_connections, of_client("20000")), (1_000, Ok(20_000)));
        assert!(of_client("0").unwrap_err().contains("greater than 0"));
    }

    #[test]
    fn metrics_address_is_read_and_checked() {
        let setting = |value: &'static str| [("KUBELEET_METRICS_LISTEN", value)];
        let parse = |value| config(&[], &setting(value), "").map(|config| config.metrics_listen);
        assert_eq!(config(&[], &[], "").unwrap().metrics_listen, MetricsListen::Default);
        assert_eq!(parse("off"), Ok(MetricsListen::Off));
        let address = |text: &str, port| {
            let (ip, origin) = (text.parse().unwrap(), Origin::Environment);
            Ok(MetricsListen::Address { ip, port, origin })
        };
        assert_eq!(parse("127.0.0.1:9"), address("127.0.0.1", Some(9)));
        assert_eq!(parse("10.0.0.1"), address("10.0.0.1", None), "each daemon has a port of its own");
        assert_eq!(parse("[fd00::1]:9"), address("fd00::1", Some(9)));
        assert_eq!(parse("fd00::1"), address("fd00::1", None));
        assert!(parse("7071").unwrap_err().contains("is not an address"));
    }

    #[test]
    fn a_daemon_needs_a_token_for_the_addresses_that_it_listens_to_itself() {
        let file = "listen = \"10.0.0.1:7070\"\nmetrics_listen = \"10.0.0.1:7071\"";
        let refused = |serves, env: &[_]| config_of(serves, &[], env, file).err().unwrap_or_default();
        let token = [("KUBELEET_TOKEN_FILE", "/token")];
        let read_token = [("KUBELEET_READ_TOKEN_FILE", "/token")];
        assert_eq!(refused(Serves::Nothing, &[]), "");
        for serves in [Serves::Nothing, Serves::Metrics, Serves::Api] {
            assert_eq!(refused(serves, &token), "");
        }
        let api = refused(Serves::Api, &[]);
        assert!(api.contains("KUBELEET_LISTEN") && !api.contains("KUBELEET_METRICS_LISTEN"), "{api}");
        let metrics = refused(Serves::Metrics, &[]);
        assert!(
            metrics.contains("KUBELEET_METRICS_LISTEN") && !metrics.contains("KUBELEET_LISTEN"),
            "{metrics}"
        );
        assert!(metrics.contains("set one of KUBELEET_READ_TOKEN"), "{metrics}");
        assert_eq!(refused(Serves::Metrics, &read_token), "", "metrics can only be read");
        assert!(refused(Serves::Api, &read_token).contains("everybody may write"));
    }

    #[test]
    fn numbers_have_an_upper_bound() {
        for (setting, largest, wrong) in [
            ("KUBELEET_MAX_PODS", "1000000", "9223372036854775808"),
            ("KUBELEET_MEMORY", "1PiB", "2PiB"),
            ("KUBELEET_CPUS", "100000", "100001"),
            ("KUBELEET_RESERVED_MEMORY", "1PiB", "2PiB"),
            ("KUBELEET_RESERVED_PIDS", "0", "-1"),
            ("KUBELEET_PIDS", "4194304", "9223372036854775808"),
            ("KUBELEET_START_CONCURRENCY", "10000", "18446744073709551615"),
            ("KUBELEET_SIM_WORKERS", "100000", "4294967296"),
        ] {
            assert!(config(&[], &[(setting, largest)], "").is_ok(), "{setting}");
            assert!(config(&[], &[(setting, wrong)], "").unwrap_err().contains(wrong), "{setting}");
        }
    }

    #[test]
    fn a_node_offers_what_its_machine_has_less_the_reserve_or_what_is_configured() {
        let machine =
            Resources { cpu_millis: 4_000, memory_bytes: 20 << 30, pids: 32_768, disk_bytes: 0, pods: 0 };
        let gib = 1 << 30;
        let offers = |env: &[_]| {
            let config = config(&[], env, "").unwrap();
            let (offered, kept) = (config.capacity(machine), config.reserved(machine));
            ((offered.cpu_millis, offered.memory_bytes, offered.pids), (kept.memory_bytes, kept.pids))
        };
        assert_eq!(offers(&[]), ((4_000, 19 * gib, 31_744), (gib, 1024)));
        let reserve = [
            ("KUBELEET_RESERVED_CPUS", "0.5"),
            ("KUBELEET_RESERVED_MEMORY", "2GiB"),
            ("KUBELEET_RESERVED_PIDS", "0"),
        ];
        assert_eq!(offers(&reserve), ((3_500, 18 * gib, 32_768), (2 * gib, 0)));
        let offer = [("KUBELEET_CPUS", "3"), ("KUBELEET_MEMORY", "10GiB"), ("KUBELEET_PIDS", "99")];
        assert_eq!(offers(&offer), ((3_000, 10 * gib, 99), (0, 0)));
        assert_eq!(offers(&[("KUBELEET_RESERVED_MEMORY", "1TiB")]).0.1, 0);
        let error = config(&[], &[offer[1], reserve[1]], "").unwrap_err();
        assert!(error.contains("KUBELEET_RESERVED_MEMORY") && error.contains("has no effect"), "{error}");
    }

    #[test]
    fn the_memory_limit_is_a_percentage() {
        let parse = |value: &str| {
            let setting = [("KUBELEET_REDIS_MEMORY_LIMIT", value)];
            config(&[], &setting, "").map(|config| config.growth.memory_percent)
        };
        assert_eq!((parse(""), parse("90"), parse("75 %")), (Ok(80), Ok(90), Ok(75)));
        for wrong in ["0", "101", "-1", "some"] {
            assert!(parse(wrong).unwrap_err().contains("is not a percentage"), "{wrong}");
        }
    }

    #[test]
    fn the_policy_of_a_node_is_read_and_checked() {
        let policy = |setting, value| config(&[], &[(setting, value)], "").map(|config| config.policy);
        assert_eq!(config(&[], &[], "").unwrap().policy, PodPolicy::default());

        let addresses =
            |value| policy("KUBELEET_PORT_ADDRESSES", value).map(|policy| policy.host.port_addresses);
        assert_eq!((addresses("any"), addresses("none")), (Ok(None), Ok(Some(vec![]))));
        let two = ["10.0.0.5".parse().unwrap(), "fd00::5".parse().unwrap()];
        assert_eq!(addresses("10.0.0.5, fd00::5"), Ok(Some(two.to_vec())));
        assert!(addresses("eth0").unwrap_err().contains("is not an IP address"));

        let prefixes =
            |value| policy("KUBELEET_BIND_PREFIXES", value).map(|policy| policy.host.bind_prefixes);
        assert_eq!(prefixes("none"), Ok(vec![]));
        assert_eq!(prefixes("/srv/app, /mnt"), Ok(vec![PathBuf::from("/srv/app"), PathBuf::from("/mnt")]));
        for wrong in ["srv", "/srv/../etc", "/srv,"] {
            assert!(prefixes(wrong).unwrap_err().contains("is not an absolute path"), "{wrong}");
        }

        let memory = |value| policy("KUBELEET_DEFAULT_MEMORY", value).map(|policy| policy.default_memory);
        assert_eq!(memory("0"), Ok(DefaultMemory::None));
        assert_eq!(memory("1GiB"), Ok(DefaultMemory::Limit("1GiB".parse().unwrap())));
        for wrong in ["1MiB", "2PiB", "lots"] {
            assert!(memory(wrong).is_err(), "{wrong}");
        }

        let dropped = |value| policy("KUBELEET_DROP_CAPABILITIES", value).map(|p| p.dropped_capabilities);
        assert_eq!(dropped("none"), Ok(vec![]));
        assert_eq!(dropped("cap_net_raw, MKNOD"), Ok(vec!["NET_RAW".to_owned(), "MKNOD".to_owned()]));
        assert!(dropped("NET RAW").unwrap_err().contains("is not a capability"));
    }

    #[test]
    fn credentials_of_registries_are_where_docker_login_writes_them_or_where_the_setting_says() {
        let path = |env: &[_]| config(&[], env, "").map(|config| config.registry_config);
        assert_eq!(path(&[]), Ok(None));
        assert_eq!(path(&[("HOME", "/nowhere")]), Ok(Some("/nowhere/.docker/config.json".into())));
        assert_eq!(path(&[("HOME", "/home/me")]), Ok(Some("/home/me/.docker/config.json".into())));
        let other = [("HOME", "/home/me"), ("DOCKER_CONFIG", "/etc/docker")];
        assert_eq!(path(&other), Ok(Some("/etc/docker/config.json".into())));
        assert_eq!(path(&[("KUBELEET_REGISTRY_CONFIG", "/token")]), Ok(Some("/token".into())));
        assert!(path(&[("KUBELEET_REGISTRY_CONFIG", "/missing")]).unwrap_err().contains("no such file"));
    }

    #[test]
    fn a_pod_without_a_memory_limit_gets_half_of_the_node() {
        let on = |node: u64| DefaultMemory::HalfOfNode.on_node(node).map(Memory::bytes);
        assert_eq!(
            (on(8 << 30), on(12 << 20), on(11 << 20), on(0)),
            (Some(4 << 30), Some(6 << 20), None, None)
        );
        assert_eq!(DefaultMemory::None.on_node(8 << 30), None);
    }

    #[test]
    fn fence_must_lie_between_heartbeat_and_dead() {
        let error = config(&[("KUBELEET_FENCE_AFTER", "25s")], &[], "").unwrap_err();
        assert!(error.contains("heartbeat < fence < dead"), "{error}");
        let fast =
            [("KUBELEET_HEARTBEAT", "1s"), ("KUBELEET_FENCE_AFTER", "4"), ("KUBELEET_DEAD_AFTER", "6s")];
        assert_eq!(config(&fast, &[], "").unwrap().timing.fence_after, Duration::from_secs(4));
        let error = config(&[("KUBELEET_DEAD_AFTER", "61m")], &[], "").unwrap_err();
        assert!(error.contains("longer than 1h"), "{error}");
        assert!(config(&[("KUBELEET_DEAD_AFTER", "1h")], &[], "").is_ok());
    }

    #[test]
    fn a_token_that_may_only_read_needs_one_that_may_write() {
        let tokens =
            |token, read| config(&[], &[("KUBELEET_TOKEN", token), ("KUBELEET_READ_TOKEN", read)], "");
        assert_eq!(tokens("a", "b").unwrap().read_token, Some(Secret::new("b")));
        assert_eq!(tokens("a", "").unwrap().read_token, None);
        for (token, read, problem) in [("", "b", "everybody may write"), ("a", "a", "the same")] {
            let error = tokens(token, read).unwrap_err();
            assert!(error.contains("KUBELEET_READ_TOKEN") && error.contains(problem), "{error}");
        }
    }

    #[test]
    fn all_problems_are_reported_at_once_with_their_origin() {
        let error = config(&[("KUBELEET_RUNTIME", "vm")], &[("KUBELEET_HEARTBEAT", "soon")], "max_pods = 0")
            .unwrap_err();
        for part in ["a flag", "the environment", "the configuration file", "\"vm\"", "\"soon\""] {
            assert!(error.contains(part), "{error}");
        }
        assert!(config(&[], &[], "max_podz = 1").unwrap_err().contains("max_podz"));
    }
}
