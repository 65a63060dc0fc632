//! The values of settings.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use super::sources::Origin;
use model::duration::HumanDuration;
use model::network::address_range::AddressRange;
use model::network::handover::SOCKET_NAME;
use model::spec::{MAX_MEMORY_BYTES, MIN_MEMORY_BYTES, Memory};

/// A typing error must not lose data.
const SHORTEST_VOLUME_GRACE: Duration = Duration::from_secs(60 * 60);
/// Less the suffix that a proxy appends while it binds the socket.
const MAX_SOCKET_PATH: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeKind {
    /// Or Podman through its compatible socket.
    Docker,
    Process,
    Sim,
}

impl FromStr for RuntimeKind {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsListen {
    /// If it is in use, the daemon only warns.
    Default,
    Off,
    Address {
        ip: IpAddr,
        /// By default the daemon's own.
        port: Option<u16>,
        origin: Origin,
    },
}

impl MetricsListen {
    pub(super) fn parse(text: &str, origin: Origin) -> Result<Self, String> {
        match (text, text.parse::<SocketAddr>(), text.parse()) {
            ("off", ..) => Ok(Self::Off),
            (_, Ok(address), _) => Ok(Self::Address { ip: address.ip(), port: Some(address.port()), origin }),
            (_, _, Ok(ip)) => Ok(Self::Address { ip, port: None, origin }),
            _ => Err(format!("{text:?} is not an address: write 10.0.0.1, 127.0.0.1:7071, or off")),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelListen {
    /// The local address of the connection to Redis, unless loopback.
    Auto,
    /// Only this host's own proxy reaches its pods.
    Off,
    Address(SocketAddr),
}

impl FromStr for TunnelListen {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            _ => address("10.0.0.5:7079, auto, or off")(text).map(Self::Address),
        }
    }
}

/// The memory limit of a pod that sets none. It reserves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultMemory {
    /// One pod cannot take the whole machine.
    HalfOfNode,
    Limit(Memory),
    None,
}

impl FromStr for DefaultMemory {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let memory = memory(text)?;
        match memory.bytes() {
            0 => Ok(Self::None),
            bytes if bytes < MIN_MEMORY_BYTES => {
                Err(format!("{text:?} is less than 6 MiB, and Docker starts no container with less"))
            }
            _ => Ok(Self::Limit(memory)),
        }
    }
}

impl DefaultMemory {
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

/// `None` if too long.
pub fn proxy_socket_in(directory: &Path) -> Option<PathBuf> {
    let path = directory.join(SOCKET_NAME);
    (path.as_os_str().len() <= MAX_SOCKET_PATH).then_some(path)
}

pub(super) fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

pub(super) fn or_off<T>(
    parse: impl Fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<Option<T>, String> {
    move |text| if text == "off" { Ok(None) } else { parse(text).map(Some) }
}

fn list<T>(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    if text.trim() == "none" { Ok(Vec::new()) } else { text.split(',').map(parse).collect() }
}

pub(super) fn duration_or_zero(text: &str) -> Result<Duration, String> {
    parsed(text).map(HumanDuration::get)
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    // Users mean 0 as "off", which it would not be.
    if text.parse::<f64>() == Ok(0.0) {
        return Err(format!("{text:?} is too short: write a duration such as 5s or 500ms"));
    }
    duration_or_zero(text)
}

pub(super) fn volume_grace(text: &str) -> Result<Duration, String> {
    let grace = duration(text)?;
    if grace >= SHORTEST_VOLUME_GRACE {
        return Ok(grace);
    }
    Err(format!("{text:?} is too short: write 1h or more, such as 30d, or off"))
}

pub(super) fn positive<T: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| *number > T::from(0));
    number.ok_or_else(|| format!("{text:?} is not a whole number greater than 0"))
}

pub(super) fn at_most<T: TryFrom<u64>>(max: u64) -> impl Fn(&str) -> Result<T, String> {
    move |text| {
        let number: u64 = positive(text)?;
        match number.try_into() {
            Ok(fitting) if number <= max => Ok(fitting),
            _ => Err(format!("{text:?} is more than {max}")),
        }
    }
}

pub(super) fn at_most_or_zero(max: u64) -> impl Fn(&str) -> Result<u64, String> {
    move |text| if text.trim() == "0" { Ok(0) } else { at_most(max)(text) }
}

pub(super) fn percentage(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<u8>().ok();
    let valid = number.filter(|percent| (1..=100).contains(percent));
    valid.ok_or_else(|| format!("{text:?} is not a percentage: write a whole number from 1 to 100"))
}

pub(super) fn memory(text: &str) -> Result<Memory, String> {
    let memory: Memory = text.parse()?;
    if memory.bytes() <= MAX_MEMORY_BYTES { Ok(memory) } else { Err(format!("{text:?} is more than 1 PiB")) }
}

pub(super) fn bytes(text: &str) -> Result<u64, String> {
    memory(text).map(Memory::bytes)
}

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        other => {
            Err(format!("{other:?} is neither true nor false; on, off, yes, no, 1 and 0 are valid as well"))
        }
    }
}

pub(super) fn log_format(text: &str) -> Result<bool, String> {
    match text {
        "json" => Ok(true),
        "text" => Ok(false),
        other => Err(format!("{other:?} is not a log format: use text or json")),
    }
}

pub(super) fn address(example: &str) -> impl Fn(&str) -> Result<SocketAddr, String> {
    move |text| text.parse().map_err(|_| format!("{text:?} is not an address with a port: write {example}"))
}

pub(super) fn port_addresses(text: &str) -> Result<Option<Vec<IpAddr>>, String> {
    let address = |part: &str| {
        let bad = |_| format!("{part:?} is not an IP address: write 10.0.0.5,10.1.0.5, any or none");
        part.trim().parse().map_err(bad)
    };
    if text.trim() == "any" { Ok(None) } else { list(text.trim(), address).map(Some) }
}

pub(super) fn address_ranges(text: &str) -> Result<Vec<AddressRange>, String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::parse).collect()
}

pub(super) fn address_ranges_or_none(text: &str) -> Result<Vec<AddressRange>, String> {
    if text.trim() == "none" { Ok(Vec::new()) } else { address_ranges(text) }
}

pub(super) fn https_url(text: &str) -> Result<String, String> {
    match text.strip_prefix("https://") {
        Some(rest) if !rest.is_empty() && !rest.contains(char::is_whitespace) => Ok(text.to_owned()),
        _ => Err(format!("{text:?} is no URL of an ACME directory: write https://ca.example/directory")),
    }
}

pub(super) fn mail_address(text: &str) -> Result<String, String> {
    let is_address = text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.contains('.'));
    let is_plain = !text.contains(|c: char| c.is_whitespace() || c == ':');
    (is_address && is_plain)
        .then(|| text.to_owned())
        .ok_or_else(|| format!("{text:?} is no address for mail: write ops@web.example"))
}

fn is_absolute(path: &Path) -> bool {
    path.is_absolute() && !path.components().any(|part| part == Component::ParentDir)
}

pub(super) fn absolute_path(example: &str) -> impl Fn(&str) -> Result<PathBuf, String> {
    move |text| {
        let path = Path::new(text.trim());
        let bad = || format!("{text:?} is not an absolute path without `..`: write {example}");
        if is_absolute(path) && path.parent().is_some() { Ok(path.into()) } else { Err(bad()) }
    }
}

pub(super) fn socket_path(text: &str) -> Result<PathBuf, String> {
    if text.len() <= MAX_SOCKET_PATH {
        return Ok(text.into());
    }
    Err(format!("{text:?} is too long: the path of a socket has at most {MAX_SOCKET_PATH} bytes"))
}

pub(super) fn bind_prefixes(text: &str) -> Result<Vec<PathBuf>, String> {
    list(text, |part| {
        let path = Path::new(part.trim());
        let bad =
            || format!("{part:?} is not an absolute path without `..`: write /srv/app,/mnt/media or none");
        if is_absolute(path) { Ok(path.into()) } else { Err(bad()) }
    })
}

pub(super) fn capabilities(text: &str) -> Result<Vec<String>, String> {
    list(text, |part| {
        let name = part.trim().to_ascii_uppercase();
        let name = name.strip_prefix("CAP_").unwrap_or(&name);
        let is_valid = !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        let bad = || format!("{part:?} is not a capability: write NET_RAW,MKNOD, ALL or none");
        if is_valid { Ok(name.to_owned()) } else { Err(bad()) }
    })
}

pub(super) fn labels(text: &str) -> Result<BTreeMap<String, String>, String> {
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
