//! What is to be read, and what is allowed in it.

use std::collections::{BTreeMap, BTreeSet};

/// What begins with this is for the author only, wherever it stands.
pub(crate) const EXTENSION: &str = "x-";

/// What is refused unless the user allows it, because it would silently be less than with Compose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allowance {
    /// Directories beside the file, or in the user's home, that have files and that containers write to: they
    /// are not mounted, and what is written there is lost with the container.
    LostDirectories,
    /// `network_mode: none` and internal networks: such services reach all that others reach.
    NoIsolation,
    /// `deploy.mode: global`: the service has the number of pods in `replicas`.
    OneForAll,
}

impl Allowance {
    /// Returns the word of the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::LostDirectories => "lost-directories",
            Self::NoIsolation => "no-isolation",
            Self::OneForAll => "one-for-all",
        }
    }
}

/// What is to be read.
#[derive(Debug, Clone, Default)]
pub struct Project {
    /// The files, in the order in which a later one overrides an earlier one.
    pub files: Vec<String>,
    /// The name of the folder that the first file is in: without a better name, that of the app.
    pub folder_name: String,
    /// The name of the app, whatever the files say.
    pub name: Option<String>,
    /// The files of variables; without any, `.env` beside the first file.
    pub env_files: Vec<String>,
    /// The profiles that are active besides those of `COMPOSE_PROFILES`.
    pub profiles: Vec<String>,
    /// The variables of the environment.
    pub environment: BTreeMap<String, String>,
    /// Whether the cluster has nodes that share a directory: a named volume of several services is in it
    /// then.
    pub shares_volumes: bool,
    /// The folder in which relative paths begin; without it, that of the first file.
    pub directory: Option<String>,
    /// What is not refused.
    pub allowed: BTreeSet<Allowance>,
    /// Of the named volumes of several services, those that a service in the cluster has, and whether shared:
    /// they stay what they are.
    pub kept_volumes: BTreeMap<String, bool>,
}
