//! Errors of a runtime's calls. `worker/src/start/pod_start.rs` decides how often a start is tried again.

/// A failed call, classified by the worker's reaction, with the engine's own message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// The image could not be pulled. Retried with backoff.
    #[error("image pull failed: {0}")]
    Image(String),
    /// The engine refuses this container as specified. Not retried.
    #[error("the engine refused the container: {0}")]
    Refused(String),
    /// Another program has a host port of the container. Retried, then returned to the schedulers.
    #[error("{0}")]
    PortTaken(String),
    /// There is no such container.
    #[error("no such container: {0}")]
    NotFound(String),
    /// The engine did not answer in time or could not be reached. A problem of the node, not of the pod.
    #[error("the engine does not answer: {0}")]
    Engine(String),
    /// Any other failure. Retried with backoff.
    #[error("{0}")]
    Failed(String),
}
