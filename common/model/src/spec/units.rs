//! Values with several spellings, each with one normal form.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::limits::{MAX_PIDS, MAX_THRESHOLD};
use crate::duration::HumanDuration;
use document::whole;

const MAX_SECONDS: u64 = 86_400;
const MAX_PERIOD_SECONDS: u64 = 315_360_000;

/// Docker's short units are binary: `64m` is 64 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Memory(u64);

impl Memory {
    pub fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

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

/// Thousandths of a core; kubectl's `"500m"` is half of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpus(u64);

impl Cpus {
    pub fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

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

/// At most a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Seconds(u64);

impl Seconds {
    pub fn new(seconds: u64) -> Self {
        Self(seconds)
    }

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
        let text = text.trim();
        // 0.5 would silently become 0.
        if text.parse::<f64>().is_ok() && text.parse::<u64>().is_err() {
            return Err(format!("{text:?} is not a whole number of seconds: write 30 or 30s"));
        }
        let duration = text.parse::<HumanDuration>().map_err(|error| error.to_string())?.get();
        if duration.as_secs() > MAX_SECONDS {
            return Err(format!("{text:?} is longer than a day"));
        }
        Ok(Self(duration.as_secs()))
    }
}

/// At most a day. Written as a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Milliseconds(u64);

impl Milliseconds {
    pub const MAX: Duration = Duration::from_secs(MAX_SECONDS);

    /// Capped at the maximum.
    pub fn new(duration: Duration) -> Self {
        Self(duration.min(Self::MAX).as_millis() as u64)
    }

    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 1000 {
            0 => write!(f, "{}s", self.0 / 1000),
            _ => write!(f, "{}ms", self.0),
        }
    }
}

impl Serialize for Milliseconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl std::str::FromStr for Milliseconds {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let duration = text.trim().parse::<HumanDuration>().map_err(|error| error.to_string())?.get();
        if duration > Self::MAX {
            return Err(format!("{text:?} is longer than a day"));
        }
        Ok(Self::new(duration))
    }
}

/// At most ten years, in milliseconds. Written as a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(u64);

impl Period {
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Milliseconds(self.0).fmt(f)
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl std::str::FromStr for Period {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let duration = text.trim().parse::<HumanDuration>().map_err(|error| error.to_string())?.get();
        if duration.as_secs() > MAX_PERIOD_SECONDS {
            return Err(format!("{text:?} is longer than ten years"));
        }
        Ok(Self(duration.as_millis() as u64))
    }
}

/// JSON, YAML and flags share one parser.
pub(super) fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(
    deserializer: D,
    expecting: &'static str,
) -> Result<T, D::Error> {
    struct Reader<T>(&'static str, PhantomData<T>);
    impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Reader<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
        fn visit_u64<E: de::Error>(self, n: u64) -> Result<T, E> {
            self.visit_str(&n.to_string())
        }
        fn visit_i64<E: de::Error>(self, n: i64) -> Result<T, E> {
            self.visit_str(&n.to_string())
        }
        fn visit_f64<E: de::Error>(self, n: f64) -> Result<T, E> {
            self.visit_str(&n.to_string())
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }
    deserializer.deserialize_any(Reader(expecting, PhantomData))
}

macro_rules! number_or_text {
    ($type:ident, $expecting:literal) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                parsed(deserializer, $expecting)
            }
        }
    };
}
number_or_text!(Memory, "an amount of memory such as \"64MiB\", or bytes");
number_or_text!(Cpus, "a number of cores such as 0.5");
number_or_text!(Seconds, "a duration such as \"30s\", or seconds");
number_or_text!(Milliseconds, "a duration such as \"30s\" or \"500ms\", or seconds");
number_or_text!(Period, "a duration such as \"1h\" or \"7d\", or seconds");

/// Read from a list, or from a text in shell syntax.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Command(pub Vec<String>);

impl Command {
    /// The container runs the image's own command.
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
                f.write_str("a list of arguments, or a text that is split as a shell would split it")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Command, E> {
                let arguments = shlex::split(text);
                arguments.map(Command).ok_or_else(|| E::custom("a quotation mark is not closed"))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Command, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Command)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// Read from a list, or from one text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct TextList(pub Vec<String>);

impl TextList {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn as_slice(&self) -> &[String] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for TextList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = TextList;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of texts, or one text")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<TextList, E> {
                Ok(TextList(vec![text.to_owned()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<TextList, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(TextList)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// Read from a map, or from a list of `KEY=value`. `Debug` hides values, which can be secret.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Fails if no operating system accepts it.
    pub fn insert(&mut self, name: &str, value: String) -> Result<(), String> {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(format!("{name:?} cannot be the name of an environment variable"));
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
        /// An untagged enum would report errors at the whole environment.
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Environment;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of names to values, or a list of KEY=value")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Environment, A::Error> {
                let variables =
                    BTreeMap::<String, VariableValue>::deserialize(MapAccessDeserializer::new(map))?;
                collect(variables.into_iter().map(|(name, VariableValue(value))| (name, value)))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Environment, A::Error> {
                let entries = Vec::<KeyValue>::deserialize(SeqAccessDeserializer::new(seq))?;
                collect(entries.into_iter().map(|KeyValue(name, value)| (name, value)))
            }
        }
        fn collect<E: de::Error>(
            variables: impl Iterator<Item = (String, String)>,
        ) -> Result<Environment, E> {
            let mut environment = Environment::default();
            for (name, value) in variables {
                environment.insert(&name, value).map_err(E::custom)?;
            }
            Ok(environment)
        }
        deserializer.deserialize_any(Reader)
    }
}

/// Users write bare numbers and booleans; engines accept strings only.
struct VariableValue(String);

impl<'de> Deserialize<'de> for VariableValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = VariableValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number or a boolean")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<VariableValue, E> {
                Ok(VariableValue(text.to_owned()))
            }
            fn visit_bool<E: de::Error>(self, flag: bool) -> Result<VariableValue, E> {
                Ok(VariableValue(flag.to_string()))
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<VariableValue, E> {
                Ok(VariableValue(n.to_string()))
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<VariableValue, E> {
                Ok(VariableValue(n.to_string()))
            }
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<VariableValue, E> {
                Ok(VariableValue(n.to_string()))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

struct KeyValue(String, String);

impl<'de> Deserialize<'de> for KeyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = KeyValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("KEY=value")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<KeyValue, E> {
                let (name, value) = text.split_once('=').ok_or_else(|| E::custom("write KEY=value"))?;
                Ok(KeyValue(name.to_owned(), value.to_owned()))
            }
        }
        deserializer.deserialize_str(Reader)
    }
}

/// [`super::ServiceInput::normalize`] checks the maximum.
pub fn replicas<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    whole_number(deserializer, super::limits::MAX_REPLICAS.into())
}

pub(super) fn pids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    optional_number::<_, MAX_PIDS>(deserializer)
}

pub(super) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    optional_number::<_, MAX_THRESHOLD>(deserializer)
}

fn optional_number<'de, D: Deserializer<'de>, const MAX: u32>(
    deserializer: D,
) -> Result<Option<u32>, D::Error> {
    struct Number<const MAX: u32>(u32);
    impl<'de, const MAX: u32> Deserialize<'de> for Number<MAX> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            whole_number(deserializer, MAX.into()).map(Self)
        }
    }
    Ok(Option::<Number<MAX>>::deserialize(deserializer)?.map(|Number(number)| number))
}

/// The checks of its field reject more.
pub(super) fn weight<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    whole_number(deserializer, u32::MAX.into())
}

pub(super) fn at_least_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NonZeroU64, D::Error> {
    whole_number(deserializer, u32::MAX.into())
}

pub(super) fn optional_at_least_one<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<NonZeroU64>, D::Error> {
    #[derive(Deserialize)]
    struct Number(#[serde(deserialize_with = "at_least_one")] NonZeroU64);
    Ok(Option::<Number>::deserialize(deserializer)?.map(|Number(number)| number))
}

/// Docker's log options are texts such as `"2"`.
pub(super) fn quoted_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    struct Quoted(u32);
    impl<'de> Deserialize<'de> for Quoted {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Reader;
            impl Visitor<'_> for Reader {
                type Value = u32;
                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a whole number")
                }
                fn visit_u64<E: de::Error>(self, number: u64) -> Result<u32, E> {
                    u32::try_from(number)
                        .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
                }
                fn visit_i64<E: de::Error>(self, number: i64) -> Result<u32, E> {
                    u32::try_from(number).map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
                }
                fn visit_f64<E: de::Error>(self, number: f64) -> Result<u32, E> {
                    let count = whole(number).and_then(|number| u32::try_from(number).ok());
                    count.ok_or_else(|| E::invalid_value(de::Unexpected::Float(number), &self))
                }
                fn visit_str<E: de::Error>(self, text: &str) -> Result<u32, E> {
                    text.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
                }
            }
            deserializer.deserialize_any(Reader).map(Self)
        }
    }
    Ok(Option::<Quoted>::deserialize(deserializer)?.map(|Quoted(count)| count))
}

/// The checks reject 0.
pub(super) fn port<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    whole_number(deserializer, u16::MAX.into())
}

/// Accepts `3.0`. Errors name `max`.
fn whole_number<'de, D, T>(deserializer: D, max: u64) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    struct Reader {
        max: u64,
    }
    impl Visitor<'_> for Reader {
        type Value = u64;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a whole number from 0 to {}", self.max)
        }
        fn visit_u64<E: de::Error>(self, n: u64) -> Result<u64, E> {
            Ok(n)
        }
        fn visit_i64<E: de::Error>(self, n: i64) -> Result<u64, E> {
            u64::try_from(n).map_err(|_| E::invalid_value(de::Unexpected::Signed(n), &self))
        }
        fn visit_f64<E: de::Error>(self, n: f64) -> Result<u64, E> {
            whole(n).ok_or_else(|| E::invalid_value(de::Unexpected::Float(n), &self))
        }
    }
    let number = deserializer.deserialize_u64(Reader { max })?;
    T::try_from(number)
        .map_err(|_| de::Error::invalid_value(de::Unexpected::Unsigned(number), &Reader { max }))
}

fn optional_port<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    #[derive(Deserialize)]
    struct Number(#[serde(deserialize_with = "port")] u16);
    Ok(Option::<Number>::deserialize(deserializer)?.map(|Number(port)| port))
}

/// The protocol of a published port.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    pub fn as_str(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }
}

/// Read from `80`, `"8080:80"`, `"0.0.0.0:8080:80/udp"`, or an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Port {
    pub container: u16,
    /// By default the engine chooses one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<u16>,
    /// By default loopback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_ip: Option<IpAddr>,
    pub protocol: Protocol,
}

impl std::str::FromStr for Port {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a port: write 80, 8080:80 or 0.0.0.0:8080:80/udp");
        let number = |part: &str| match part.parse::<u64>() {
            Ok(number @ 1..=0xffff) => Ok(number as u16),
            Ok(0x1_0000..) => Err(format!("{part} is not a port: a port is at most 65535")),
            _ => Err(bad()),
        };
        let is_range = |part: &str| {
            part.split_once('-').is_some_and(|(first, last)| is_number(first) && is_number(last))
        };
        if text.split(['/', ':']).any(is_range) {
            return Err(format!("{text:?} is a range of ports: write a line for each port"));
        }
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

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Long {
            #[serde(deserialize_with = "port")]
            container: u16,
            #[serde(default, deserialize_with = "optional_port")]
            host: Option<u16>,
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
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<Port, E> {
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
    fn memory_is_read_in_every_spelling() {
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
    fn whole_numbers_may_be_written_with_a_point() {
        for json in ["80", "80.0", r#"{"container": 80.0, "host": null}"#] {
            assert_eq!(serde_json::from_str::<Port>(json).unwrap().container, 80, "{json}");
        }
        for bad in ["80.5", r#"{"container": 80.5}"#, r#"{"container": 65536}"#, r#"{"container": -1}"#] {
            assert!(serde_json::from_str::<Port>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn cores_are_read_in_every_spelling() {
        for (json, millis) in [("0.5", 500), ("2", 2000), ("\"0.25\"", 250), ("\"500m\"", 500)] {
            assert_eq!(serde_json::from_str::<Cpus>(json).unwrap().millis(), millis, "{json}");
        }
        for bad in ["-1", "\"NaN\"", "\"inf\"", "1e300", "\"two\""] {
            assert!(serde_json::from_str::<Cpus>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ports_are_read_in_every_spelling() {
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
    fn debug_output_of_an_environment_has_no_values() {
        let environment: Environment = serde_json::from_str(r#"{"PASSWORD":"hunter2","N":1}"#).unwrap();
        let shown = format!("{environment:?}");
        assert!(shown.contains("PASSWORD") && !shown.contains("hunter2"), "{shown}");
        let listed: Environment = serde_json::from_str(r#"["PASSWORD=hunter2","N=1"]"#).unwrap();
        assert_eq!(listed, environment);
    }

    #[test]
    fn a_command_is_split_as_a_shell_would() {
        let command: Command = serde_json::from_str(r#""sh -c 'sleep 1'""#).unwrap();
        assert_eq!(command.0, ["sh", "-c", "sleep 1"]);
    }

    #[test]
    fn an_error_in_an_environment_names_the_variable() {
        let error = |json: &str| {
            let mut reader = serde_json::Deserializer::from_str(json);
            let error = serde_path_to_error::deserialize::<_, Environment>(&mut reader).unwrap_err();
            (error.path().to_string(), error.into_inner().to_string())
        };
        let (path, text) = error(r#"{"A":1,"B":[]}"#);
        assert_eq!(path, "B");
        assert!(text.contains("a string, a number or a boolean"), "{text}");
        assert!(error(r#"["A"]"#).1.contains("KEY=value"));
        assert!(error("7").1.contains("a map of names to values"));
        assert!(error(r#"{"A=B":1}"#).1.contains("A=B"));
    }

    #[test]
    fn milliseconds_are_read_in_every_spelling_and_written_in_one() {
        for (json, shown) in [
            ("30", "30s"),
            ("0.5", "500ms"),
            ("\"500ms\"", "500ms"),
            ("\"1m30s\"", "90s"),
            ("\"1m 30s\"", "90s"),
            ("\"1.5\"", "1500ms"),
            ("0", "0s"),
            ("86400", "86400s"),
        ] {
            let duration: Milliseconds = serde_json::from_str(json).unwrap();
            assert_eq!(duration.to_string(), shown, "{json}");
            assert_eq!(shown.parse(), Ok(duration));
        }
        for bad in ["-1", "\"soon\"", "86401", "\"2 days\"", "true", "\"\""] {
            assert!(serde_json::from_str::<Milliseconds>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn seconds_are_whole_and_at_most_a_day() {
        for (json, seconds) in
            [("30", 30), ("\"30\"", 30), ("\"2m\"", 120), ("\"1m 30s\"", 90), ("\" 5 \"", 5), ("\"0s\"", 0)]
        {
            assert_eq!(serde_json::from_str::<Seconds>(json).unwrap(), Seconds::new(seconds), "{json}");
        }
        assert_eq!("1500ms".parse::<Seconds>().unwrap(), Seconds::new(1));
        for bad in ["-1", "1.5", "\"0.5\"", "\"1e2\"", "86401", "\"2 days\"", "\"soon\"", "\"\""] {
            assert!(serde_json::from_str::<Seconds>(bad).is_err(), "{bad}");
        }
    }
}
