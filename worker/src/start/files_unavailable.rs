//! Missing files or volumes of a container.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilesUnavailable {
    pub(crate) reason: &'static str,
    /// Without any content.
    pub(crate) message: String,
}
