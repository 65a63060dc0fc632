//! Errors that keep a worker from starting or continuing.

use std::path::PathBuf;

use engine::RuntimeError;
use model::ids::{InvalidName, NodeName};

#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error(
        "the lease of {node} cannot be written to {}: {source}; make the directory writable or set \
         KUBELEET_STATE_DIR",
        path.display()
    )]
    StateDir { node: NodeName, path: PathBuf, source: std::io::Error },
    /// No isolation, so the operator must allow it explicitly.
    #[error(
        "the process runtime runs pods as plain processes of this machine, without isolation; set \
         KUBELEET_ALLOW_PROCESSES=true to allow that, or use KUBELEET_RUNTIME=docker"
    )]
    ProcessesNotAllowed,
    #[error("invalid container engine: {0}; check DOCKER_HOST")]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Name(#[from] InvalidName),
    #[error(
        "another worker has been node {node} since {since} and is alive; two workers cannot share a name: set \
         another KUBELEET_NODE here, or stop the other worker first (it was not disturbed; pods of {node} on \
         this machine, if any, were left running)"
    )]
    NameTaken {
        node: NodeName,
        /// When the other worker registered, as in RFC 3339.
        since: String,
    },
    /// Another worker process registers whenever this one does.
    #[error(
        "another worker registered as {node}; two workers cannot share a name: give one of them another \
         KUBELEET_NODE (its pods were left running)"
    )]
    Replaced { node: NodeName },
    /// The panic message is in the log.
    #[error("worker {node} failed: one of its loops panicked, see the log; start the worker again")]
    Broken { node: NodeName },
}
