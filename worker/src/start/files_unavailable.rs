//! Missing files or volumes of a container.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilesUnavailable {
    pub(crate) reason: &'static str,
    /// The missing object and what to do, without any content.
    pub(crate) message: String,
}
