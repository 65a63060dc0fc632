//! Where settings come from. Nothing here reads the process's environment on its own.

use std::collections::BTreeMap;
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} (from {origin}): {problem}")]
pub struct ConfigError {
    pub setting: String,
    pub origin: Origin,
    pub problem: String,
}

/// In order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    Flag,
    Environment,
    File,
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

pub struct Sources<'a> {
    pub flags: BTreeMap<String, String>,
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    pub file: BTreeMap<String, String>,
    pub read_file: &'a dyn Fn(&str) -> Result<String, String>,
    pub host_name: String,
}

impl Sources<'_> {
    pub(crate) fn none() -> Self {
        Self {
            flags: BTreeMap::new(),
            environment: &|_| None,
            file: BTreeMap::new(),
            read_file: &|_| Err(String::new()),
            host_name: String::new(),
        }
    }

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
}

pub(crate) struct SettingsReader<'a> {
    pub(crate) sources: &'a Sources<'a>,
    /// With its default if that is a text.
    pub(crate) asked: BTreeMap<&'static str, Option<&'static str>>,
    pub(crate) problems: Vec<ConfigError>,
}

impl<'a> SettingsReader<'a> {
    pub(crate) fn new(sources: &'a Sources<'a>) -> Self {
        Self { sources, asked: BTreeMap::new(), problems: Vec::new() }
    }

    pub(crate) fn find(&mut self, setting: &'static str) -> Option<(String, Origin)> {
        self.asked.entry(setting).or_default();
        self.sources.find(setting)
    }

    pub(crate) fn origin(&mut self, setting: &'static str) -> Origin {
        self.find(setting).map_or(Origin::Default, |(_, origin)| origin)
    }

    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        (self.sources.environment)(name).filter(|text| !text.is_empty())
    }

    pub(crate) fn refuse(&mut self, setting: &str, origin: Origin, problem: impl Into<String>) {
        self.problems.push(ConfigError { setting: setting.to_owned(), origin, problem: problem.into() });
    }

    pub(crate) fn optional<T>(
        &mut self,
        setting: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let (text, origin) = self.find(setting)?;
        parse(&text).map_err(|problem| self.refuse(setting, origin, problem)).ok()
    }

    pub(crate) fn value<T>(
        &mut self,
        setting: &'static str,
        default: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        let value = self.optional(setting, &parse);
        self.asked.insert(setting, Some(default));
        value.unwrap_or_else(|| parse(default).expect("a valid default"))
    }

    /// `parse` gets path and text.
    pub(crate) fn file<T>(
        &mut self,
        setting: &'static str,
        parse: impl Fn(&str, &str) -> Result<T, String>,
    ) -> Option<T> {
        let read_file = self.sources.read_file;
        self.optional(setting, |path| parse(path, &read_file(path)?))
    }
}
