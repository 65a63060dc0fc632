//! Descriptions of an engine and its images.

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineInfo {
    /// `docker`, `podman`, `process`, `sim`.
    pub runtime: &'static str,
    pub version: String,
    /// Permanent, stored beside its volumes; empty if it has none.
    pub id: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalImage {
    pub id: String,
    /// In the requested repository. Images built or loaded here have none.
    pub digests: Vec<String>,
}
