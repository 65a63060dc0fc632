//! Why files or volumes of a container are not there.

/// Why the files of a container are not there: the start is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilesUnavailable {
    /// The reason of the pod's status.
    pub(crate) reason: &'static str,
    /// What is missing and what to do, without a part of any content.
    pub(crate) message: String,
}
