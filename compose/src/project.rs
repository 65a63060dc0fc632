//! Input of [`crate::load`]: files, options and allowances.

use std::collections::{BTreeMap, BTreeSet};

/// Prefix of extension fields, which are ignored everywhere.
pub(crate) const EXTENSION: &str = "x-";

/// Features refused by default because kubeleet would silently do less than Compose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allowance {
    /// Non-empty local directories that containers write to: they are not mounted, and writes are lost with
    /// the container.
    LostDirectories,
    /// `network_mode: none` and internal networks: such services still reach all that others reach.
    NoIsolation,
    /// `deploy.mode: global`: the service has `replicas` pods.
    OneForAll,
}

impl Allowance {
    /// Returns the value of the command-line option.
    pub fn word(self) -> &'static str {
        match self {
            Self::LostDirectories => "lost-directories",
            Self::NoIsolation => "no-isolation",
            Self::OneForAll => "one-for-all",
        }
    }
}

/// Files and options to load.
#[derive(Debug, Clone, Default)]
pub struct Project {
    /// Files; later ones override earlier ones.
    pub files: Vec<String>,
    /// Name of the first file's folder, the default name of the app.
    pub folder_name: String,
    /// Name of the app, overriding the files.
    pub name: Option<String>,
    /// Env files; if empty, `.env` beside the first file.
    pub env_files: Vec<String>,
    /// Active profiles in addition to `COMPOSE_PROFILES`.
    pub profiles: Vec<String>,
    /// Environment variables.
    pub environment: BTreeMap<String, String>,
    /// True if the cluster has nodes with a shared directory: named volumes of several services are then
    /// shared.
    pub shares_volumes: bool,
    /// Base of relative paths; by default the first file's folder.
    pub directory: Option<String>,
    /// Allowances given by the user.
    pub allowed: BTreeSet<Allowance>,
    /// Named volumes of several services that already exist in the cluster; true if shared. They keep their
    /// kind.
    pub kept_volumes: BTreeMap<String, bool>,
}
