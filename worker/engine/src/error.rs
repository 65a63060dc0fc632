//! Errors of a runtime's calls, classified by the worker's reaction.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// Retried with backoff.
    #[error("image pull failed: {0}")]
    Image(String),
    /// The start of a pod is not retried: its payload is rejected. A container of a pod that runs is retried
    /// with backoff.
    #[error("the engine refused the container: {0}")]
    Refused(String),
    /// Retried, then returned to the schedulers.
    #[error("{0}")]
    PortTaken(String),
    #[error("no such container: {0}")]
    NotFound(String),
    /// A problem of the node, not of the pod.
    #[error("the engine does not answer: {0}")]
    Engine(String),
    /// Retried with backoff.
    #[error("{0}")]
    Failed(String),
}
