//! Values that people write in more than one way, each read into one form: memory, cores, durations, ports,
//! environment, command.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Bytes. Read from a number or a text such as `64m`, `64MiB`, `1.5GB`; Docker's one-letter units are binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Memory(u64);

impl Memory {
    /// This many bytes.
    pub fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// In bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl std::str::FromStr for Memory {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.trim().to_ascii_lowercase();
        let docker_unit = lower.strip_suffix(['k', 'm', 'g', 't']).is_some_and(|n| n.parse::<f64>().is_ok());
        let canonical = if docker_unit { format!("{lower}ib") } else { lower };
        let size: bytesize::ByteSize = canonical
            .parse()
            .map_err(|_| format!("{text:?} is not an amount of memory: write 64MiB, 64m or bytes"))?;
        Ok(Self(size.as_u64()))
    }
}

/// Processor cores, in thousandths. Read from `0.5`, `2`, `"0.5"` or kubectl's `"500m"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpus(u64);

impl Cpus {
    /// This many thousandths of a core.
    pub fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// In thousandths of a core.
    pub fn millis(self) -> u64 {
        self.0
    }
}

impl Serialize for Cpus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / 1000.0)
    }
}

impl std::str::FromStr for Cpus {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let cores = match text.strip_suffix('m') {
            Some(millis) => millis.parse::<f64>().map(|m| m / 1000.0),
            None => text.parse::<f64>(),
        };
        let bad = || format!("{text:?} is not a number of cores: write 0.5, 2 or 500m");
        match cores {
            Ok(cores) if cores.is_finite() && (0.0..=100_000.0).contains(&cores) => {
                Ok(Self((cores * 1000.0).round() as u64))
            }
            _ => Err(bad()),
        }
    }
}

/// Whole seconds; ten unless said. Read from a number of seconds or `"1m 30s"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Seconds(u64);

impl Seconds {
    /// This many seconds.
    pub fn new(seconds: u64) -> Self {
        Self(seconds)
    }

    /// As a duration.
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

impl Default for Seconds {
    fn default() -> Self {
        Self(10)
    }
}

impl std::str::FromStr for Seconds {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = match text.trim().parse::<u64>() {
            Ok(seconds) => seconds,
            Err(_) => humantime::parse_duration(text)
                .map_err(|_| format!("{text:?} is not a duration: write 30s, 2m or a number of seconds"))?
                .as_secs(),
        };
        if seconds > 86_400 {
            return Err(format!("{text:?} is longer than a day"));
        }
        Ok(Self(seconds))
    }
}

/// Reads a number or a text through `FromStr`, so that JSON, YAML and flags share one parser.
macro_rules! number_or_text {
    ($type:ident, $expecting:literal) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Reader;
                impl Visitor<'_> for Reader {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_u64<E: de::Error>(self, n: u64) -> Result<$type, E> {
                        self.visit_str(&n.to_string())
                    }
                    fn visit_i64<E: de::Error>(self, n: i64) -> Result<$type, E> {
                        self.visit_str(&n.to_string())
                    }
                    fn visit_f64<E: de::Error>(self, n: f64) -> Result<$type, E> {
                        self.visit_str(&n.to_string())
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_any(Reader)
            }
        }
    };
}
number_or_text!(Memory, "an amount of memory such as \"64MiB\", or bytes");
number_or_text!(Cpus, "a number of cores such as 0.5");
number_or_text!(Seconds, "a duration such as \"30s\", or seconds");

/// The words of a command. Read from a list, or from one text that is split the way a shell would.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Command(pub Vec<String>);

impl Command {
    /// Whether the image's own command runs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Command;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of words, or one text that is split like a shell would")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Command, E> {
                let words = shlex::split(text).ok_or_else(|| E::custom("a quotation mark is not closed"))?;
                Ok(Command(words))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Command, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = seq.next_element::<String>()? {
                    words.push(word);
                }
                Ok(Command(words))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// Environment variables. Read from a map or a list of `KEY=value`. `Debug` shows the names only: values may be secret.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Name and value, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Adds one; refuses names an operating system would.
    pub fn insert(&mut self, name: &str, value: String) -> Result<(), String> {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(format!("{name:?} can not be the name of an environment variable"));
        }
        self.0.insert(name.to_owned(), value);
        Ok(())
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl<'de> Deserialize<'de> for Environment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// YAML and JSON writers put bare numbers and booleans here; engines want text.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Scalar {
            Text(String),
            Bool(bool),
            Int(i64),
            Float(f64),
        }
        impl From<Scalar> for String {
            fn from(scalar: Scalar) -> String {
                match scalar {
                    Scalar::Text(text) => text,
                    Scalar::Bool(flag) => flag.to_string(),
                    Scalar::Int(n) => n.to_string(),
                    Scalar::Float(n) => n.to_string(),
                }
            }
        }
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Environment;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of names to values, or a list of KEY=value")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Environment, A::Error> {
                let mut environment = Environment::default();
                while let Some((name, value)) = map.next_entry::<String, Scalar>()? {
                    environment.insert(&name, value.into()).map_err(de::Error::custom)?;
                }
                Ok(environment)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Environment, A::Error> {
                let mut environment = Environment::default();
                while let Some(entry) = seq.next_element::<String>()? {
                    let (name, value) =
                        entry.split_once('=').ok_or_else(|| de::Error::custom("each entry is KEY=value"))?;
                    environment.insert(name, value.to_owned()).map_err(de::Error::custom)?;
                }
                Ok(environment)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// TCP or UDP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// As engines write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }
}

/// A published port. Read from `80`, `"80"`, `"8080:80"`, `"0.0.0.0:8080:80/udp"` or this very shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Port {
    /// Inside the container.
    pub container: u16,
    /// On the host; the engine chooses one when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<u16>,
    /// Address on the host; loopback when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub host_ip: Option<IpAddr>,
    /// TCP unless said.
    pub protocol: Protocol,
}

impl std::str::FromStr for Port {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a port: write 80, 8080:80 or 0.0.0.0:8080:80/udp");
        let number = |part: &str| part.parse::<u16>().ok().filter(|n| *n > 0).ok_or_else(bad);
        let (rest, protocol) = match text.rsplit_once('/') {
            None => (text, Protocol::Tcp),
            Some((rest, "tcp")) => (rest, Protocol::Tcp),
            Some((rest, "udp")) => (rest, Protocol::Udp),
            Some(_) => return Err(bad()),
        };
        let (host_part, container) = match rest.rsplit_once(':') {
            None => (None, number(rest)?),
            Some((host, container)) => (Some(host), number(container)?),
        };
        let (host_ip, host) = match host_part {
            None => (None, None),
            Some(part) => match part.rsplit_once(':') {
                None => (None, Some(number(part)?)),
                Some((ip, port)) => {
                    let ip = ip.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| bad())?;
                    (Some(ip), if port.is_empty() { None } else { Some(number(port)?) })
                }
            },
        };
        Ok(Self { container, host, host_ip, protocol })
    }
}

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Long {
            container: u16,
            #[serde(default)]
            host: Option<u16>,
            #[serde(default)]
            host_ip: Option<IpAddr>,
            #[serde(default)]
            protocol: Protocol,
        }
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Port;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port such as 80, \"8080:80\" or \"0.0.0.0:8080:80/udp\"")
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Port, E> {
                self.visit_str(&n.to_string())
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Port, E> {
                self.visit_str(&n.to_string())
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Port, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Port, A::Error> {
                let Long { container, host, host_ip, protocol } =
                    Long::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(Port { container, host, host_ip, protocol })
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_in_every_spelling() {
        let cases =
            [("64m", 64 << 20), ("64MiB", 64 << 20), ("64MB", 64_000_000), ("1g", 1 << 30), ("512", 512)];
        for (text, bytes) in cases {
            assert_eq!(text.parse::<Memory>().unwrap().bytes(), bytes, "{text}");
        }
        assert_eq!(serde_json::from_str::<Memory>("1048576").unwrap().bytes(), 1 << 20);
        assert!(serde_json::from_str::<Memory>("-5").is_err());
        assert!("much".parse::<Memory>().unwrap_err().contains("64MiB"));
    }

    #[test]
    fn cores_in_every_spelling() {
        for (json, millis) in [("0.5", 500), ("2", 2000), ("\"0.25\"", 250), ("\"500m\"", 500)] {
            assert_eq!(serde_json::from_str::<Cpus>(json).unwrap().millis(), millis, "{json}");
        }
        for bad in ["-1", "\"NaN\"", "\"inf\"", "1e300", "\"two\""] {
            assert!(serde_json::from_str::<Cpus>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ports_in_every_spelling() {
        let port = |text: &str| text.parse::<Port>().unwrap();
        assert_eq!((port("80").container, port("80").host), (80, None));
        assert_eq!((port("8080:80").host, port("8080:80").protocol), (Some(8080), Protocol::Tcp));
        let full = port("0.0.0.0:8080:80/udp");
        assert_eq!((full.host_ip, full.protocol), (Some("0.0.0.0".parse().unwrap()), Protocol::Udp));
        assert_eq!(port("[::1]:8080:80").host_ip, Some("::1".parse().unwrap()));
        for bad in ["", "0", "99999", "a:b", "1:2:3:4", "80/sctp"] {
            assert!(bad.parse::<Port>().is_err(), "{bad}");
        }
        let long: Port = serde_json::from_str(r#"{"container":80,"host":8080}"#).unwrap();
        assert_eq!(long, port("8080:80"));
    }

    #[test]
    fn environment_shows_names_but_no_values() {
        let environment: Environment = serde_json::from_str(r#"{"PASSWORD":"hunter2","N":1}"#).unwrap();
        let shown = format!("{environment:?}");
        assert!(shown.contains("PASSWORD") && !shown.contains("hunter2"), "{shown}");
        let listed: Environment = serde_json::from_str(r#"["PASSWORD=hunter2","N=1"]"#).unwrap();
        assert_eq!(listed, environment);
    }

    #[test]
    fn a_command_is_split_like_a_shell_would() {
        let command: Command = serde_json::from_str(r#""sh -c 'sleep 1'""#).unwrap();
        assert_eq!(command.0, ["sh", "-c", "sleep 1"]);
    }
}
