//! The engine's logging of a container's output.

use serde::{Deserialize, Serialize};

use crate::spec::units::{self, Memory};

/// The log of one container must not fill a node's disk.
const MIN_SIZE: u64 = 1024;
const MAX_SIZE: u64 = 1 << 30;
const MAX_FILES: u32 = 20;
const DEFAULT_SIZE: u64 = 10_000_000;
const DEFAULT_FILES: u32 = 3;

/// Where a container's output is kept on its node, and how much of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Logging {
    /// How the engine writes it. `kubeleet logs` reads both.
    #[serde(default)]
    pub driver: LogDriver,
    /// How much is kept.
    #[serde(default)]
    pub options: LogOptions,
}

/// The engine's drivers of logs that can be read again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogDriver {
    /// Lines of JSON.
    #[default]
    JsonFile,
    /// The engine's own form, compressed.
    Local,
}

/// How much of a log is kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LogOptions {
    /// Size at which a new file is begun, from 1 KiB to 1 GiB; by default 10 MB.
    #[serde(rename = "max-size", default, skip_serializing_if = "Option::is_none")]
    pub max_size: Option<Memory>,
    /// Number of files that are kept, from 1 to 20; by default 3.
    #[serde(
        rename = "max-file",
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "units::quoted_count"
    )]
    #[schema(minimum = 1, maximum = 20, example = 3)]
    pub max_file: Option<u32>,
}

impl LogDriver {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::JsonFile => "json-file",
            Self::Local => "local",
        }
    }
}

impl Logging {
    /// Bytes per file, and files.
    pub fn limits(&self) -> (u64, u32) {
        let LogOptions { max_size, max_file } = self.options;
        (max_size.map_or(DEFAULT_SIZE, Memory::bytes), max_file.unwrap_or(DEFAULT_FILES))
    }

    /// Pointers are below the field.
    pub(in crate::spec) fn problems(&self) -> Vec<(&'static str, String)> {
        let (size, files) = self.limits();
        let size = (!(MIN_SIZE..=MAX_SIZE).contains(&size)).then(|| "must be from 1 KiB to 1 GiB".to_owned());
        let files = (!(1..=MAX_FILES).contains(&files)).then(|| format!("must be from 1 to {MAX_FILES}"));
        let both = [("/options/max-size", size), ("/options/max-file", files)];
        both.into_iter().filter_map(|(pointer, problem)| Some((pointer, problem?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_compose_writes_them() {
        for (json, limits, pointers) in [
            ("{}", (10_000_000, 3), vec![]),
            (r#"{"driver":"local","options":{"max-size":"5m","max-file":2}}"#, (5 << 20, 2), vec![]),
            (r#"{"options":{"max-file":"2"}}"#, (10_000_000, 2), vec![]),
            (r#"{"options":{"max-file":2.0}}"#, (10_000_000, 2), vec![]),
            (
                r#"{"options":{"max-size":"2g","max-file":21}}"#,
                (2 << 30, 21),
                vec!["/options/max-size", "/options/max-file"],
            ),
        ] {
            let logging: Logging = serde_json::from_str(json).expect("it is read");
            let found: Vec<_> = logging.problems().into_iter().map(|(pointer, _)| pointer).collect();
            assert_eq!((logging.limits(), found), (limits, pointers), "{json}");
            let again = serde_json::to_string(&logging).expect("it is written");
            assert_eq!(serde_json::from_str::<Logging>(&again).expect("it is read again"), logging);
        }
        for bad in [r#"{"driver":"syslog"}"#, r#"{"options":{"max-file":"two"}}"#] {
            assert!(serde_json::from_str::<Logging>(bad).is_err(), "{bad}");
        }
    }
}
