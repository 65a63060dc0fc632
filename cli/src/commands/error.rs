//! Errors of commands, and their exit codes.

use std::fmt::Display;
use std::io;

use client::ClientError;
use output::humanize;

use crate::exit::{ErrorExit, Exit};

pub(crate) type CommandResult<T = Exit> = Result<T, CommandError>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
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
    pub(crate) fn unreadable(file: impl Display, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound(format!("{file}: no such file")),
            _ => Self::Other(format!("cannot read {file}: {}", humanize::system_error(error))),
        }
    }

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
