//! Errors that keep a supervisor, or fencing without one, from starting or going on.

use std::io;
use std::path::PathBuf;

use model::ids::NodeName;

#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    #[error(
        "a worker of node {node} runs on this machine already: stop it first, or give this one another \
         KUBELEET_NODE"
    )]
    Taken { node: NodeName },
    #[error(
        "the supervisor of {node} cannot use {}: {source}; make the directory writable or set \
         KUBELEET_STATE_DIR",
        path.display()
    )]
    StateDir {
        node: NodeName,
        /// The lock file.
        path: PathBuf,
        source: io::Error,
    },
    #[error("the worker cannot be supervised: {0}")]
    System(#[from] io::Error),
}
