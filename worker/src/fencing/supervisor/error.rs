//! Errors that keep a supervisor from starting.

use std::io;
use std::path::PathBuf;

use model::ids::NodeName;

/// Errors that keep a supervisor from starting.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// Another supervisor of this node runs on this machine.
    #[error(
        "a worker of node {node} runs on this machine already: stop it first, or give this one another \
         KUBELEET_NODE"
    )]
    Taken {
        /// The node.
        node: NodeName,
    },
    /// Its lock file cannot be used.
    #[error(
        "the supervisor of {node} cannot use {}: {source}; make the directory writable or set \
         KUBELEET_STATE_DIR",
        path.display()
    )]
    StateDir {
        /// The node.
        node: NodeName,
        /// The lock file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A system call failed.
    #[error("the worker cannot be supervised: {0}")]
    System(#[from] io::Error),
}
