//! Secrets and configs as files of a container, as in Compose.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::stop_signal::StopSignal;
use crate::ids::ValueName;
use crate::spec::units::parsed;
use crate::spec::violation::Violation;
use crate::value::ValueKind;

const MAX_FILES: usize = 64;
const SECRETS_DIRECTORY: &str = "/run/secrets";
const MAX_TARGET: usize = 4096;

/// Read from a name, or from a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileReference {
    pub source: ValueName,
    /// Absolute, or below `/run/secrets` (a config's: below `/`). By default the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// By default `0444`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_change: Option<OnChange>,
    /// By default `SIGHUP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<StopSignal>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnChange {
    #[default]
    Restart,
    /// The file is replaced in running containers.
    Signal,
    /// Containers keep their version.
    None,
}

impl FileReference {
    pub fn on_change(&self) -> OnChange {
        self.on_change.unwrap_or_default()
    }

    pub fn reload_signal(&self) -> Option<StopSignal> {
        (self.on_change() == OnChange::Signal).then(|| self.signal.unwrap_or(StopSignal::HANG_UP))
    }

    pub fn path(&self, kind: ValueKind) -> String {
        let target = self.target.as_deref().unwrap_or(self.source.as_str());
        match kind {
            _ if target.starts_with('/') => target.to_owned(),
            ValueKind::Secret => format!("{SECRETS_DIRECTORY}/{target}"),
            ValueKind::Config => format!("/{target}"),
        }
    }
}

/// Octal, each digit 0 or readable. Decimal digits count as octal: YAML has no such octal numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(u32);

impl FileMode {
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl Default for FileMode {
    fn default() -> Self {
        Self(0o444)
    }
}

impl std::str::FromStr for FileMode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim().trim_start_matches("0o").trim_start_matches('0');
        // 256, which is 0400 in decimal, grants more than reading.
        let is_valid = (1..=3).contains(&digits.len())
            && digits.bytes().all(|digit| matches!(digit, b'0' | b'4'..=b'7'));
        let bits = u32::from_str_radix(digits, 8).ok().filter(|_| is_valid);
        bits.map(Self).ok_or_else(|| format!("{text:?} is not a mode of a file: write \"0444\" or \"0400\""))
    }
}

impl Serialize for FileMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{:04o}", self.0))
    }
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, "the mode of a file, such as \"0444\"")
    }
}

impl<'de> Deserialize<'de> for FileReference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Long {
            source: ValueName,
            target: Option<String>,
            uid: Option<OwnerId>,
            gid: Option<OwnerId>,
            mode: Option<FileMode>,
            on_change: Option<OnChange>,
            signal: Option<StopSignal>,
        }
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = FileReference;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name, or a map with source, target, uid, gid, mode, on_change and signal")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<FileReference, E> {
                let source = ValueName::new(text).map_err(E::custom)?;
                Ok(FileReference {
                    source,
                    target: None,
                    uid: None,
                    gid: None,
                    mode: None,
                    on_change: None,
                    signal: None,
                })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FileReference, A::Error> {
                let Long { source, target, uid, gid, mode, on_change, signal } =
                    Long::deserialize(MapAccessDeserializer::new(map))?;
                Ok(FileReference {
                    source,
                    target,
                    uid: uid.map(u32::from),
                    gid: gid.map(u32::from),
                    mode,
                    on_change,
                    signal,
                })
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

pub(in crate::spec) struct OwnerId(u32);

impl From<OwnerId> for u32 {
    fn from(OwnerId(number): OwnerId) -> Self {
        number
    }
}

impl<'de> Deserialize<'de> for OwnerId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: String = parsed(deserializer, "the number of a user or group, such as \"1000\"")?;
        // The largest number means "none" in chown(2).
        let number = text.parse().ok().filter(|number| *number < u32::MAX);
        number.map(Self).ok_or_else(|| {
            de::Error::custom(format!("{text:?} is not the number of a user or group: write \"1000\""))
        })
    }
}

pub(in crate::spec) fn violations(secrets: &[FileReference], configs: &[FileReference]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut paths = BTreeMap::new();
    for (field, kind, files) in
        [("secrets", ValueKind::Secret, secrets), ("configs", ValueKind::Config, configs)]
    {
        if files.len() > MAX_FILES {
            violations.push(Violation::new(field, format!("at most {MAX_FILES} {field}")));
        }
        for (index, file) in files.iter().enumerate() {
            let pointer = format!("{field}/{index}");
            let path = file.path(kind);
            if file.signal.is_some() && file.on_change() != OnChange::Signal {
                let problem = "only `on_change: signal` sends a signal";
                violations.push(Violation::new(format!("{pointer}/signal"), problem));
            }
            if let Some(problem) = target_problem(file.target.as_deref(), kind) {
                violations.push(Violation::new(format!("{pointer}/target"), problem));
            } else if let Some(other) = paths.insert(path.clone(), pointer.clone()) {
                violations.push(Violation::new(pointer, format!("{path} is the file of {other} already")));
            }
        }
    }
    violations
}

fn target_problem(target: Option<&str>, kind: ValueKind) -> Option<String> {
    let target = target?;
    let path = target.strip_prefix('/').unwrap_or(target);
    let is_absolute = path.len() < target.len();
    let is_clean = !path.contains('\0')
        && target.len() <= MAX_TARGET
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    let has_directory = path.contains('/') && !is_absolute;
    (!is_clean || has_directory).then(|| {
        let name = if kind == ValueKind::Secret { "db_password" } else { "app.conf" };
        format!("must be a name such as {name}, or the absolute path of a file")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> FileReference {
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
    }

    #[test]
    fn a_file_is_read_in_every_form_of_compose() {
        let short = read(r#""db""#);
        assert_eq!(
            (short.path(ValueKind::Secret), short.path(ValueKind::Config)),
            ("/run/secrets/db".into(), "/db".into())
        );
        let long = read(r#"{"source":"db","target":"pw","uid":"103","gid":104,"mode":"0440"}"#);
        assert_eq!(long.path(ValueKind::Secret), "/run/secrets/pw");
        assert_eq!((long.uid, long.gid, long.mode.map(FileMode::bits)), (Some(103), Some(104), Some(0o440)));
        assert_eq!(read(r#"{"source":"db","target":"/etc/pw"}"#).path(ValueKind::Config), "/etc/pw");
        let silent = read(r#"{"source":"db","on_change":"none"}"#);
        assert_eq!((short.on_change(), silent.on_change()), (OnChange::Restart, OnChange::None));
        let loud = read(r#"{"source":"db","on_change":"signal"}"#);
        assert_eq!((loud.reload_signal(), silent.reload_signal()), (Some(StopSignal::HANG_UP), None));
        let again = serde_json::to_string(&long).unwrap();
        assert_eq!(read(&again), long, "what is stored is read again");
        for bad in [
            r#"{"target":"a"}"#,
            r#"{"source":"a","x":1}"#,
            "7",
            r#""a b""#,
            r#"{"source":"a","uid":"root"}"#,
            r#"{"source":"a","on_change":"reload"}"#,
        ] {
            assert!(serde_json::from_str::<FileReference>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_mode_that_was_written_in_decimal_is_refused() {
        for (json, bits) in [("\"0400\"", 0o400), ("\"444\"", 0o444), ("440", 0o440), ("\"0o600\"", 0o600)] {
            let mode: FileMode = serde_json::from_str(json).unwrap();
            assert_eq!(mode.bits(), bits, "{json}");
        }
        // Decimal forms of 0400, 0440, 0444, 0600, 0640 and 0644.
        for bad in ["256", "288", "292", "384", "416", "420", "\"\"", "\"0\"", "\"04444\"", "\"rw\"", "-1"] {
            assert!(serde_json::from_str::<FileMode>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_target_is_a_file_and_belongs_to_one_value() {
        let pointers = |secrets: &str, configs: &str| -> Vec<String> {
            let list = |json: &str| serde_json::from_str::<Vec<FileReference>>(json).unwrap();
            violations(&list(secrets), &list(configs)).into_iter().map(|found| found.pointer).collect()
        };
        assert_eq!(pointers(r#"["a","b"]"#, r#"["a"]"#), Vec::<String>::new());
        assert_eq!(pointers(r#"["a","a"]"#, "[]"), ["secrets/1"]);
        assert_eq!(pointers(r#"["a"]"#, r#"[{"source":"b","target":"/run/secrets/a"}]"#), ["configs/0"]);
        assert_eq!(
            pointers(r#"[{"source":"a","on_change":"signal","signal":"USR1"}]"#, "[]"),
            Vec::<String>::new()
        );
        assert_eq!(pointers(r#"[{"source":"a","signal":"USR1"}]"#, "[]"), ["secrets/0/signal"]);
        for target in ["", "/", "a/b", "../a", "/a/../b", "/a/", "."] {
            let json = format!(r#"[{{"source":"a","target":"{target}"}}]"#);
            assert_eq!(pointers(&json, "[]"), ["secrets/0/target"], "{target}");
        }
    }
}
