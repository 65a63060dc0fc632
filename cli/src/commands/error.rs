//! Errors of commands, and their exit codes.

use client::ClientError;

use crate::exit::{ErrorExit, Exit};

/// Failure of a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// An API call failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Standard output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] std::io::Error),
    /// The arguments are invalid.
    #[error("{0}")]
    Usage(String),
    /// A named object or file does not exist.
    #[error("{0}")]
    NotFound(String),
    /// An operation took longer than `--timeout`.
    #[error("{0}")]
    TimedOut(String),
    /// Another client has changed the same object.
    #[error("{0}")]
    Conflict(String),
    /// Any other error.
    #[error("{0}")]
    Other(String),
}

impl CommandError {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Client(error) => error.exit(),
            Self::Usage(_) => Exit::Usage,
            Self::NotFound(_) => Exit::NotFound,
            Self::TimedOut(_) => Exit::TimedOut,
            Self::Conflict(_) => Exit::Conflict,
            Self::Output(_) | Self::Other(_) => Exit::Error,
        }
    }
}
