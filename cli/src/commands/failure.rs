//! Why a command did not work, and with which code it ends.

use crate::client::ClientError;
use crate::exit::Exit;

/// A command did not work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A call of the API.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Standard output.
    #[error("writing the output: {0}")]
    Output(#[from] std::io::Error),
    /// What was typed.
    #[error("{0}")]
    Usage(String),
    /// What was named does not exist.
    #[error("{0}")]
    NotFound(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// How the command ends.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Client(error) => error.exit(),
            Self::Usage(_) => Exit::Usage,
            Self::NotFound(_) => Exit::NotFound,
            Self::Output(_) | Self::Other(_) => Exit::Error,
        }
    }
}
