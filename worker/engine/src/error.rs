//! Why a call of a runtime failed.

/// Why a call failed, sorted by what the worker does about it. Each has the engine's own message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// The image could not be pulled: retried with backoff.
    #[error("image pull failed: {0}")]
    Image(String),
    /// The engine refuses this container as specified: not retried.
    #[error("the engine refused the container: {0}")]
    Refused(String),
    /// Another program has a host port of the container: retried, then given back to the schedulers.
    #[error("{0}")]
    PortTaken(String),
    /// There is no such container.
    #[error("no such container: {0}")]
    NotFound(String),
    /// The engine did not answer in time or could not be reached: a problem of the node, not of the pod.
    #[error("the engine does not answer: {0}")]
    Engine(String),
    /// Any other failure: retried with backoff.
    #[error("{0}")]
    Failed(String),
}
