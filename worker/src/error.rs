//! Errors that keep a worker from starting or continuing.

use std::path::PathBuf;

use engine::RuntimeError;
use model::ids::{InvalidName, NodeName};

/// Errors that keep a worker from starting or continuing.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The directory of the lease file cannot be written.
    #[error(
        "the lease of {node} cannot be written to {}: {source}; make the directory writable or set \
         KUBELEET_STATE_DIR",
        path.display()
    )]
    StateDir {
        /// The worker's node.
        node: NodeName,
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The process runtime provides no isolation, so the operator must allow it explicitly.
    #[error(
        "the process runtime runs pods as plain processes of this machine, without isolation; set \
         KUBELEET_ALLOW_PROCESSES=true to allow that, or use KUBELEET_RUNTIME=docker"
    )]
    ProcessesNotAllowed,
    /// The container engine's address is invalid.
    #[error("invalid container engine: {0}; check DOCKER_HOST")]
    Runtime(#[from] RuntimeError),
    /// The node name of one of several simulated workers is invalid.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Another live worker has the node name.
    #[error(
        "another worker has been node {node} since {since} and is alive; two workers cannot share a name: set \
         another KUBELEET_NODE here, or stop the other worker first (it was not disturbed; pods of {node} on \
         this machine, if any, were left running)"
    )]
    NameTaken {
        /// The node name.
        node: NodeName,
        /// When the other worker registered, as in RFC 3339.
        since: String,
    },
    /// Another worker process registers under the same node name whenever this one does.
    #[error(
        "another worker registered as {node}; two workers cannot share a name: give one of them another \
         KUBELEET_NODE (its pods were left running)"
    )]
    Replaced {
        /// The node name.
        node: NodeName,
    },
    /// A loop of the worker panicked; the panic message is in the log.
    #[error("worker {node} failed: one of its loops panicked, see the log; start the worker again")]
    Broken {
        /// The worker's node.
        node: NodeName,
    },
}
