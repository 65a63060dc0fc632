//! The table of settings. A row has the field, the environment variable, the default as users would write it,
//! and the parser of its text. The key in the configuration file lacks `KUBELEET_`.
//! `docs/reference/settings.md` explains each setting.

mod sources;
mod values;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::redis_url::RedisUrl;
use crate::reserve::Reserve;
use model::ids::NodeName;
use model::network::address_range::AddressRange;
use model::node::host_access::HostAccess;
use model::node::timing::Timing;
use model::node::{RebalancePolicy, ResourceIds, Resources};
use model::spec::{Cpus, Memory, PlacementProfile};
use model::value::secret::Secret;
use model::value::secret_key::SecretKey;
use sources::SettingsReader;
use values::{
    absolute_path, address, address_ranges, address_ranges_or_none, at_most, at_most_or_zero, bind_prefixes,
    boolean, bytes, capabilities, duration, duration_or_zero, https_url, labels, log_format, mail_address,
    memory, or_off, parsed, percentage, port_addresses, positive, socket_path, volume_grace,
};

pub use sources::{ConfigError, Origin, Sources};
pub use values::{DefaultMemory, MetricsListen, RuntimeKind, TunnelListen, proxy_socket_in};

/// Above any kernel's limit, 2^22.
const MAX_PIDS: u64 = 1 << 30;
const INGRESS_TLS_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8443);

/// The fields say how the [`SettingsReader`] `$s` reads them.
macro_rules! settings {
    (
        |$s:ident|
        $(#[$meta:meta])*
        pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty = $read:expr,)* }
    ) => {
        $(#[$meta])*
        pub struct $name { $($(#[$doc])* pub $field: $type,)* }

        impl $name {
            fn read($s: &mut SettingsReader<'_>) -> Self {
                Self { $($field: $read,)* }
            }
        }
    };
}

settings! { |s|
#[derive(Debug, Clone)]
pub struct Config {
    pub timing: Timing = Timing {
        heartbeat: s.value("KUBELEET_HEARTBEAT", "5s", duration),
        fence_after: s.value("KUBELEET_FENCE_AFTER", "15s", duration),
        dead_after: s.value("KUBELEET_DEAD_AFTER", "20s", duration),
    },
    pub redis: RedisUrl = s.value("KUBELEET_REDIS_URL", "redis://127.0.0.1:6379", parsed),
    /// The address of the API.
    pub listen: SocketAddr = s.value("KUBELEET_LISTEN", "127.0.0.1:7070", address("127.0.0.1:7070")),
    /// The address of the metrics of the other daemons.
    pub metrics_listen: MetricsListen = s.metrics_listen("KUBELEET_METRICS_LISTEN"),
    /// Half of them may be streams.
    pub max_connections: usize = s.value("KUBELEET_MAX_CONNECTIONS", "1024", positive),
    /// Without one, the API listens on loopback only.
    pub token: Option<Secret> = s.token("KUBELEET_TOKEN", "KUBELEET_TOKEN_FILE"),
    pub read_token: Option<Secret> = s.token("KUBELEET_READ_TOKEN", "KUBELEET_READ_TOKEN_FILE"),
    pub secret_key: Option<SecretKey> = s.file("KUBELEET_SECRET_KEY_FILE", |path, text| {
        SecretKey::parse(text).map_err(|problem| format!("{path}: {problem}"))
    }),
    pub node: NodeName = s.node("KUBELEET_NODE"),
    pub labels: BTreeMap<String, String> = s.value("KUBELEET_LABELS", "", labels),
    /// Ids of named resources that the node offers to pods.
    pub resources: ResourceIds = s.value("KUBELEET_RESOURCES", "", parsed),
    pub runtime: RuntimeKind = s.value("KUBELEET_RUNTIME", "docker", parsed),
    pub docker_host: Option<String> = s.variable("DOCKER_HOST"),
    /// A configured file must be readable; that of `docker login` may appear later.
    pub registry_config: Option<PathBuf> = s
        .file("KUBELEET_REGISTRY_CONFIG", |path, _| Ok(path.into()))
        .or_else(|| s.docker_login()),
    pub growth: GrowthLimits = GrowthLimits::read(s),
    /// A supervisor restarts the worker and enforces its lease.
    pub guard: bool = s.value("KUBELEET_GUARD", "on", boolean),
    /// Must survive a restart of the worker but not of the machine.
    pub state_dir: PathBuf = s.value("KUBELEET_STATE_DIR", "/run/kubeleet", parsed),
    pub proxy_socket: Option<PathBuf> = s.optional("KUBELEET_PROXY_SOCKET", or_off(socket_path)).flatten(),
    /// The proxy takes port 80 of all interfaces only if asked to.
    pub ingress_listen: Option<SocketAddr> =
        s.value("KUBELEET_INGRESS_LISTEN", "127.0.0.1:8080", or_off(address("0.0.0.0:80, or off"))),
    pub ingress_tls_listen: Option<SocketAddr> = s
        .optional("KUBELEET_INGRESS_TLS_LISTEN", or_off(address("0.0.0.0:80, or off")))
        .unwrap_or_else(|| s.find("KUBELEET_CERTIFICATES").map(|_| INGRESS_TLS_LISTEN)),
    pub certificates: Option<PathBuf> =
        s.optional("KUBELEET_CERTIFICATES", absolute_path("/etc/letsencrypt/live")),
    pub acme: AcmeSettings = AcmeSettings::read(s),
    pub tunnel_listen: TunnelListen = s.value("KUBELEET_TUNNEL_LISTEN", "auto", parsed),
    /// `None` for ever.
    pub volume_grace: Option<Duration> = s.value("KUBELEET_VOLUME_GRACE", "off", or_off(volume_grace)),
    /// Of pods whose service names none.
    pub placement_profile: PlacementProfile = s.value("KUBELEET_PLACEMENT_PROFILE", "default", parsed),
    pub rebalance: RebalancePolicy = s.value("KUBELEET_REBALANCE", "off", parsed),
    /// In an hour.
    pub rebalance_moves: usize = s.value("KUBELEET_REBALANCE_MOVES", "60", at_most(10_000)),
    pub pod_wait: Duration = s.value("KUBELEET_POD_WAIT", "10s", duration),
    pub names: bool = s.value("KUBELEET_NAMES", "true", boolean),
    /// By default the metadata services of clouds: most of them, Azure, Alibaba, Oracle.
    pub closed_to_pods: Vec<AddressRange> = s.value(
        "KUBELEET_CLOSED_TO_PODS",
        "169.254.0.0/16,168.63.129.16,100.100.100.200,192.0.0.192",
        address_ranges_or_none,
    ),
    /// Their forwarding headers are kept.
    pub trusted_proxies: Vec<AddressRange> = s.value("KUBELEET_TRUSTED_PROXIES", "", address_ranges),
    pub client_connections: u64 = s.value("KUBELEET_CLIENT_CONNECTIONS", "1000", positive),
    pub data_dir: PathBuf = s.value("KUBELEET_DATA_DIR", "/var/lib/kubeleet", parsed),
    pub shared_volumes_dir: Option<PathBuf> =
        s.optional("KUBELEET_SHARED_VOLUMES_DIR", absolute_path("/mnt/shared")),
    pub policy: PodPolicy = PodPolicy::read(s),
    pub max_pods: u64 = s.value("KUBELEET_MAX_PODS", "250", at_most(1_000_000)),
    pub start_concurrency: usize = s.value("KUBELEET_START_CONCURRENCY", "8", at_most(10_000)),
    /// By default the machine's less the reserve, like the next three.
    pub cpus: Option<Cpus> = s.optional("KUBELEET_CPUS", parsed),
    pub memory: Option<Memory> = s.optional("KUBELEET_MEMORY", memory),
    pub pids: Option<u64> = s.optional("KUBELEET_PIDS", at_most(MAX_PIDS)),
    pub disk: Option<Memory> = s.optional("KUBELEET_DISK", memory),
    pub reserve: Reserve = Reserve {
        cpus: s.optional("KUBELEET_RESERVED_CPUS", parsed),
        memory: s.optional("KUBELEET_RESERVED_MEMORY", memory),
        pids: s.optional("KUBELEET_RESERVED_PIDS", at_most_or_zero(MAX_PIDS)),
        disk: s.optional("KUBELEET_RESERVED_DISK", memory),
    },
    pub sim_workers: u32 = s.value("KUBELEET_SIM_WORKERS", "1", at_most(100_000)),
    /// Doubles up to five minutes.
    pub restart_backoff: Duration = s.value("KUBELEET_RESTART_BACKOFF", "10s", duration),
    pub disk_marks: DiskMarks = DiskMarks::read(s),
    /// Zero keeps none.
    pub log_keep: Duration = s.value("KUBELEET_LOG_KEEP", "24h", duration_or_zero),
    pub log_keep_bytes: u64 = s.value("KUBELEET_LOG_KEEP_SIZE", "256MiB", bytes),
    pub log: String = s.value("KUBELEET_LOG", "info", parsed),
    pub log_json: bool = s.value("KUBELEET_LOG_FORMAT", "text", log_format),
}
}

settings! { |s|
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrowthLimits {
    /// Percent of Redis' `maxmemory`.
    pub memory_percent: u8 = s.value("KUBELEET_REDIS_MEMORY_LIMIT", "80", percentage),
    pub max_services: u64 = s.value("KUBELEET_CLUSTER_MAX_SERVICES", "10000", positive),
    pub max_pods: u64 = s.value("KUBELEET_CLUSTER_MAX_PODS", "2000000", positive),
    /// And configs.
    pub max_secrets: u64 = s.value("KUBELEET_CLUSTER_MAX_SECRETS", "1000", positive),
}
}

settings! { |s|
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeSettings {
    pub directory: String =
        s.value("KUBELEET_ACME_DIRECTORY", "https://acme-v02.api.letsencrypt.org/directory", https_url),
    pub email: Option<String> = s.optional("KUBELEET_ACME_EMAIL", mail_address),
    /// By default those of this machine.
    pub ca_file: Option<PathBuf> =
        s.optional("KUBELEET_ACME_CA_FILE", absolute_path("/etc/kubeleet/acme-ca.pem")),
}
}

settings! { |s|
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodPolicy {
    /// Pods may be plain processes outside `kubeleet dev`.
    pub processes: bool = s.value("KUBELEET_ALLOW_PROCESSES", "false", boolean),
    pub host: HostAccess = HostAccess {
        port_addresses: s.value("KUBELEET_PORT_ADDRESSES", "any", port_addresses),
        bind_prefixes: s.value("KUBELEET_BIND_PREFIXES", "none", bind_prefixes),
    },
    pub default_memory: DefaultMemory =
        s.optional("KUBELEET_DEFAULT_MEMORY", parsed).unwrap_or(DefaultMemory::HalfOfNode),
    /// By default those that hardly any image needs: raw sockets (spoofed packets), device nodes, the
    /// kernel's audit log, and capabilities on files, which `no-new-privileges` makes useless. `SETPCAP`
    /// stays: the `redis` image drops its privileges with it.
    pub dropped_capabilities: Vec<String> =
        s.value("KUBELEET_DROP_CAPABILITIES", "AUDIT_WRITE,MKNOD,NET_RAW,SETFCAP", capabilities),
    pub exec: bool = s.value("KUBELEET_EXEC", "true", boolean),
}
}

settings! { |s|
/// Percent of the container disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskMarks {
    /// Collection of kept logs and unused images starts, and stops at `low`.
    pub high: u8 = s.value("KUBELEET_IMAGE_GC_HIGH", "85", percentage),
    pub low: u8 = s.value("KUBELEET_IMAGE_GC_LOW", "80", percentage),
    /// No new pods.
    pub full: u8 = s.value("KUBELEET_DISK_PRESSURE", "95", percentage),
}
}

impl Default for PodPolicy {
    fn default() -> Self {
        Self::read(&mut SettingsReader::new(&Sources::none()))
    }
}

/// Daemons may share a settings file: each needs a token only for its own address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serves {
    Api,
    Metrics,
    Nothing,
}

impl Config {
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

    /// None of a resource with a configured offer.
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

/// By environment variable, with defaults that are texts.
pub fn settings() -> BTreeMap<&'static str, Option<&'static str>> {
    let nothing = Sources::none();
    let mut reader = SettingsReader::new(&nothing);
    Config::read(&mut reader);
    reader.asked
}

/// By environment variable.
pub fn parse_file(text: &str) -> Result<BTreeMap<String, String>, String> {
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
    let known = settings();
    let mut found = BTreeMap::new();
    for (key, value) in table {
        let name = format!("KUBELEET_{}", key.to_uppercase());
        if !known.contains_key(name.as_str()) {
            return Err(format!("{key:?} is not a setting; docs/reference/settings.md lists all of them"));
        }
        let text = match value {
            toml::Value::String(text) => text,
            other => other.to_string(),
        };
        found.insert(name, text);
    }
    Ok(found)
}

impl Sources<'_> {
    /// Fails with all invalid settings.
    pub fn config(&self, serves: Serves) -> Result<Config, Vec<ConfigError>> {
        let mut reader = SettingsReader::new(self);
        let mut config = Config::read(&mut reader);
        config.disk_marks.low = config.disk_marks.low.min(config.disk_marks.high);
        // Simulated pods have no address; thousands of workers would look for a socket each second.
        if reader.find("KUBELEET_PROXY_SOCKET").is_none() && config.runtime != RuntimeKind::Sim {
            config.proxy_socket = proxy_socket_in(&config.state_dir);
        }
        reader.check_timing(&config.timing);
        reader.check_reserve();
        reader.check_access(&config, serves);
        if reader.problems.is_empty() { Ok(config) } else { Err(reader.problems) }
    }
}

impl SettingsReader<'_> {
    fn metrics_listen(&mut self, setting: &'static str) -> MetricsListen {
        let origin = self.origin(setting);
        self.optional(setting, |text| MetricsListen::parse(text, origin)).unwrap_or(MetricsListen::Default)
    }

    /// The stronger of two sources wins; within one the token wins over its file.
    fn token(&mut self, own: &'static str, of_file: &'static str) -> Option<Secret> {
        let (token, file_origin) = (self.find(own), self.origin(of_file));
        if let Some((text, origin)) = token
            && origin <= file_origin
        {
            return Some(Secret::new(text));
        }
        self.file(of_file, |path, text| match text.trim() {
            "" => Err(format!("{path} is empty")),
            token => Ok(Secret::new(token)),
        })
    }

    fn node(&mut self, setting: &'static str) -> NodeName {
        let host = NodeName::new(self.sources.host_name.clone());
        // Machines with the same name would take over each other's pods.
        if let (Err(invalid), None) = (&host, self.find(setting)) {
            let problem = format!("is not set, and the host name cannot take its place: {invalid}; set it");
            self.refuse(setting, Origin::Default, problem);
        }
        let host = host.unwrap_or_else(|_| NodeName::new("node").expect("a valid name"));
        self.optional(setting, parsed).unwrap_or(host)
    }

    fn docker_login(&self) -> Option<PathBuf> {
        let directory =
            self.variable("DOCKER_CONFIG").or_else(|| Some(self.variable("HOME")? + "/.docker"))?;
        Some((directory + "/config.json").into())
    }
}

impl SettingsReader<'_> {
    fn check_timing(&mut self, timing: &Timing) {
        if timing.heartbeat >= timing.fence_after || timing.fence_after >= timing.dead_after {
            let problem = format!(
                "heartbeat < fence < dead must hold, but the values are {:?}, {:?} and {:?}: a worker must \
                 stop its pods before another worker starts them",
                timing.heartbeat, timing.fence_after, timing.dead_after
            );
            let settings = "KUBELEET_HEARTBEAT, KUBELEET_FENCE_AFTER, KUBELEET_DEAD_AFTER";
            self.refuse(settings, Origin::Environment, problem);
        }
        if timing.dead_after > Timing::LONGEST_DEAD_AFTER {
            let problem =
                "it is longer than 1h: the pods of a machine that dies would not move for that time";
            self.refuse("KUBELEET_DEAD_AFTER", Origin::Environment, problem);
        }
    }

    /// A reserve beside a configured offer would have no effect.
    fn check_reserve(&mut self) {
        for (offer, reserve) in [
            ("KUBELEET_CPUS", "KUBELEET_RESERVED_CPUS"),
            ("KUBELEET_MEMORY", "KUBELEET_RESERVED_MEMORY"),
            ("KUBELEET_PIDS", "KUBELEET_RESERVED_PIDS"),
            ("KUBELEET_DISK", "KUBELEET_RESERVED_DISK"),
        ] {
            if let (Some(_), Some((_, origin))) = (self.find(offer), self.find(reserve)) {
                let problem = format!(
                    "has no effect beside {offer}, which says how much pods may have: unset one of the two"
                );
                self.refuse(reserve, origin, problem);
            }
        }
    }

    /// A read-only token beside no other one keeps no client from writing.
    fn check_access(&mut self, config: &Config, serves: Serves) {
        let is_open = config.token.is_none();
        let open = match (serves, config.metrics_listen) {
            (Serves::Api, _) if is_open => {
                let origin = self.origin("KUBELEET_LISTEN");
                Some(("KUBELEET_LISTEN", config.listen.ip(), origin, "KUBELEET_TOKEN, KUBELEET_TOKEN_FILE"))
            }
            (Serves::Metrics, MetricsListen::Address { ip, origin, .. })
                if is_open && config.read_token.is_none() =>
            {
                let tokens = "KUBELEET_READ_TOKEN, KUBELEET_READ_TOKEN_FILE";
                Some(("KUBELEET_METRICS_LISTEN", ip, origin, tokens))
            }
            _ => None,
        };
        if let Some((setting, ip, origin, tokens)) = open
            && !ip.is_loopback()
        {
            let problem = format!(
                "{ip} can be reached from other machines: set one of {tokens}, or listen on 127.0.0.1"
            );
            self.refuse(setting, origin, problem);
        }
        let problem = match (&config.token, &config.read_token) {
            (None, Some(_)) if serves == Serves::Api => {
                "without KUBELEET_TOKEN everybody may write: set that too"
            }
            (Some(token), Some(read_token)) if token == read_token => {
                "it is the same as KUBELEET_TOKEN, which may write"
            }
            _ => return,
        };
        let (own, of_file) = ("KUBELEET_READ_TOKEN", "KUBELEET_READ_TOKEN_FILE");
        let setting = if self.find(own).is_some() { own } else { of_file };
        let origin = self.origin(setting);
        self.refuse(setting, origin, problem);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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
        assert_eq!(config(&[], &[], "").unwrap().timing, Timing::default());
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
