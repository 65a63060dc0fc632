//! Input of [`crate::load`]: files, options and allowances.

use std::collections::{BTreeMap, BTreeSet};

/// Extension fields are ignored everywhere.
pub(crate) const EXTENSION: &str = "x-";

/// Refused by default, because kubeleet would silently do less than Compose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allowance {
    /// Local directories that containers write to are not mounted: writes are lost.
    LostDirectories,
    /// With `network_mode: none` and internal networks, services still reach all that others reach.
    NoIsolation,
    /// With `deploy.mode: global-job` or `replicated-job`, the service has `replicas` pods that never end.
    OneForAll,
}

impl Allowance {
    pub fn word(self) -> &'static str {
        match self {
            Self::LostDirectories => "lost-directories",
            Self::NoIsolation => "no-isolation",
            Self::OneForAll => "one-for-all",
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Project {
    pub files: Vec<String>,
    /// The default name of the app.
    pub folder_name: String,
    pub name: Option<String>,
    /// If empty, `.env` beside the first file.
    pub env_files: Vec<String>,
    /// In addition to `COMPOSE_PROFILES`.
    pub profiles: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// Nodes have a shared directory for named volumes of several services.
    pub shares_volumes: bool,
    /// Base of relative paths; by default the first file's folder.
    pub directory: Option<String>,
    pub allowed: BTreeSet<Allowance>,
    /// Named volumes of several services that the cluster has; true if shared. They keep their kind.
    pub kept_volumes: BTreeMap<String, bool>,
}
