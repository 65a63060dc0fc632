//! Input of [`crate::load`]: files, options and allowances.

use std::collections::{BTreeMap, BTreeSet};

/// Ignored everywhere.
pub(crate) const EXTENSION: &str = "x-";

/// kubeleet would silently do less than Compose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allowance {
    /// Directories that containers write to are not mounted: writes are lost.
    LostDirectories,
    /// Services still reach all that others reach.
    NoIsolation,
    /// A global service has `replicas` pods.
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
    /// By a directory of the nodes.
    pub shares_volumes: bool,
    /// By default the first file's folder.
    pub directory: Option<String>,
    pub allowed: BTreeSet<Allowance>,
    /// In the cluster, of several services; true if shared. They keep their kind.
    pub kept_volumes: BTreeMap<String, bool>,
}
