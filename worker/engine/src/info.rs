//! Descriptions of an engine and its images.

/// An engine's identity and version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineInfo {
    /// `docker`, `podman`, `process`, `sim`.
    pub runtime: &'static str,
    /// Its version, for display.
    pub version: String,
    /// Its permanent id, stored beside its volumes; empty if it has none.
    pub id: String,
}

/// An image that the engine has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalImage {
    /// Its id on this engine.
    pub id: String,
    /// Its digests in the requested repository. Images built or loaded here have none.
    pub digests: Vec<String>,
}
