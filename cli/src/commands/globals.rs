//! Options of every user command: where the API is, who asks, and how the answer looks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use common::config::Secret;

use super::failure::Failure;
use crate::client::{Client, ClientError};
use crate::output::Format;

/// Options of the user commands.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of the user commands")]
pub(crate) struct Globals {
    /// Where the API is.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "KUBELEET_API",
        default_value = "http://127.0.0.1:7070"
    )]
    api: String,
    /// Bearer token; other users of this machine can see it here: prefer --token-file.
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "KUBELEET_TOKEN",
        hide_env_values = true,
        value_parser = secret
    )]
    token: Option<Secret>,
    /// File with the bearer token.
    #[arg(long, global = true, value_name = "FILE", env = "KUBELEET_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// How the answer looks.
    #[arg(short, long, global = true, value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) output: Format,
    /// How long `--wait` waits: 90s, 2m, or seconds.
    #[arg(long, global = true, value_name = "TIME", default_value = "2m", value_parser = super::fields::duration)]
    pub(crate) timeout: Duration,
}

impl Globals {
    /// The token given as a flag or in the environment, and the file it may be in: daemons read them too.
    pub(crate) fn token_settings(&self) -> (Option<&Secret>, Option<&Path>) {
        (self.token.as_ref(), self.token_file.as_deref())
    }

    /// A client for this API with this token.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Ok(Client::new(&self.api, self.read_token()?)?)
    }

    fn read_token(&self) -> Result<Option<Secret>, ClientError> {
        // An empty variable is an unset one, as for the daemons.
        if let Some(token) = self.token.as_ref().filter(|token| !token.expose().is_empty()) {
            return Ok(Some(token.clone()));
        }
        let Some(path) = self.token_file.as_ref().filter(|path| !path.as_os_str().is_empty()) else {
            return Ok(None);
        };
        let text = std::fs::read_to_string(path)
            .map_err(|e| ClientError::BadToken(format!("{}: {e}", path.display())))?;
        match text.trim() {
            "" => Err(ClientError::BadToken(format!("{} is empty", path.display()))),
            token => Ok(Some(Secret::new(token))),
        }
    }
}

fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}
