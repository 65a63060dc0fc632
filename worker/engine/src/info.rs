//! What an engine and its images are.

/// What an engine is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineInfo {
    /// `docker`, `podman`, `process`, `sim`.
    pub runtime: &'static str,
    /// Its version, for display.
    pub version: String,
    /// Its lasting id, which it has beside its volumes; empty if it has none.
    pub id: String,
}

/// What an image is that an engine has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalImage {
    /// Its id on this engine.
    pub id: String,
    /// Its digests in the repository of the name that was asked for. One that was built or loaded here has
    /// none.
    pub digests: Vec<String>,
}
