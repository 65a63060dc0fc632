//! Global options.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command};
use client::{ApiUrl, Client, ClientError};
use model::value::secret::Secret;
use output::stderr;
use output::{OutputFormat, humanize};

use super::error::CommandResult;
use super::flag_values;
use crate::dev_token;

const DEFAULT_API: &str = "http://127.0.0.1:7070";

/// Options of all commands.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Globals {
    /// Address of the API.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "KUBELEET_API",
        default_value = DEFAULT_API
    )]
    api: String,
    /// Bearer token. Other users of this machine can see it in the process list: prefer --token-file.
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
    /// Output format.
    #[arg(short, long, global = true, value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) output: OutputFormat,
    /// Time limit of waiting: 90s, 2m, or a number of seconds.
    #[arg(long, global = true, value_name = "TIME", default_value = "2m", value_parser = flag_values::duration)]
    pub(crate) timeout: Duration,
}

impl Globals {
    /// Drops a token from the environment if a flag names a token file; refuses two flags.
    pub(crate) fn prefer_flags(
        &mut self,
        matches: &ArgMatches,
        command_line: impl FnOnce() -> Command,
    ) -> Result<(), clap::Error> {
        let is_flag = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        match (is_flag("token"), is_flag("token_file")) {
            (true, true) => Err(command_line().error(
                ErrorKind::ArgumentConflict,
                "--token and --token-file exclude each other: give one of them",
            )),
            (false, true) => {
                self.token = None;
                Ok(())
            }
            (_, false) => Ok(()),
        }
    }

    /// From flags or environment. Daemons use the same options.
    pub(crate) fn token_settings(&self) -> (Option<&Secret>, Option<&Path>) {
        (self.token.as_ref(), self.token_file.as_deref())
    }

    /// Without a token, uses one saved by this user's `dev`.
    pub(crate) fn client(&self) -> CommandResult<Client> {
        let api = if self.api.is_empty() { DEFAULT_API } else { &self.api };
        let endpoint = ApiUrl::parse(api)?;
        let token = self.read_token()?.or_else(|| dev_token::saved_for(&endpoint));
        // Only for people; in scripts the warning would repeat each time.
        if token.is_some() && !endpoint.is_loopback() && std::io::stderr().is_terminal() {
            stderr::warning(&format!(
                "the token goes to {endpoint} unencrypted; where others can read the network, use a tunnel: ssh -L \
                 7070:127.0.0.1:7070 HOST"
            ));
        }
        Ok(Client::new(api, token)?)
    }

    fn read_token(&self) -> Result<Option<Secret>, ClientError> {
        if let Some(token) = self.token.as_ref().filter(|token| !token.expose().is_empty()) {
            return Ok(Some(token.clone()));
        }
        let Some(path) = self.token_file.as_ref().filter(|path| !path.as_os_str().is_empty()) else {
            return Ok(None);
        };
        let text = std::fs::read_to_string(path).map_err(|e| {
            let reason = humanize::system_error(&e);
            ClientError::InvalidToken(format!("cannot read {}: {reason}", path.display()))
        })?;
        match text.trim() {
            "" => Err(ClientError::InvalidToken(format!("{} is empty", path.display()))),
            token => Ok(Some(Secret::new(token))),
        }
    }
}

fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use clap::FromArgMatches;
    use clap::builder::Resettable;

    use super::*;
    use crate::help;

    fn globals(line: &str, variable: Option<&'static str>) -> Result<Globals, clap::Error> {
        let command = help::command_line().mut_arg("token", |arg| match variable {
            Some(token) => arg.env(Resettable::Reset).default_value(token),
            None => arg.env(Resettable::Reset),
        });
        let matches = command.try_get_matches_from(line.split(' '))?;
        let mut globals = Globals::from_arg_matches(&matches)?;
        globals.prefer_flags(&matches, help::command_line)?;
        Ok(globals)
    }

    #[test]
    fn a_token_file_that_is_typed_wins_over_the_token_of_the_environment() {
        for line in ["kubeleet --token-file f status", "kubeleet status --token-file f"] {
            let found = globals(line, Some("of-the-environment")).unwrap();
            let (token, file) = found.token_settings();
            assert_eq!((token.is_none(), file), (true, Some(Path::new("f"))), "{line}");
        }
        let found = globals("kubeleet --token typed status", Some("of-the-environment")).unwrap();
        assert_eq!(found.token_settings().0.unwrap().expose(), "typed");
        let error = globals("kubeleet --token a --token-file f status", None).unwrap_err().to_string();
        assert!(error.contains("exclude each other"), "{error}");
    }
}
