//! Errors of commands, and their exit codes.

use client::ClientError;

use crate::exit::{ErrorExit, Exit};

pub(crate) type CommandResult<T = Exit> = Result<T, CommandError>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot write the output: {0}")]
    Output(#[from] std::io::Error),
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    TimedOut(String),
    #[error("{0}")]
    Conflict(String),
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
