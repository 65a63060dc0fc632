//! Common parts of commands: the client, the output and the global options.

use client::Client;
use output::Output;

use super::error::CommandError;
use super::globals::Globals;
use super::wait::Waiter;
use crate::commands::apps::folder_app::FolderApp;

pub(super) struct Context<'a> {
    pub(super) client: Client,
    pub(super) output: Output,
    pub(super) globals: &'a Globals,
    pub(super) folder: FolderApp,
}

impl Context<'_> {
    /// Returns the full name of a service. In a folder with a Compose file, a name in that file means a
    /// service of its app.
    pub(super) async fn service_name(&self, typed: &str) -> Result<String, CommandError> {
        let of_app = self.folder.service(&self.client, typed).await?;
        Ok(of_app.unwrap_or_else(|| typed.to_owned()))
    }

    pub(super) fn waiter(&self) -> Waiter {
        Waiter::new(self.client.clone(), self.globals.timeout)
    }
}

/// Returns the subcommand, or the list that a type without a subcommand stands for.
///
/// # Errors
/// `Usage` if options of the list precede a subcommand, which would ignore them.
pub(super) fn subcommand_or_list<A: Default + PartialEq, C>(
    command: Option<C>,
    list_args: A,
    list: fn(A) -> C,
) -> Result<C, CommandError> {
    match command {
        None => Ok(list(list_args)),
        Some(command) if list_args == A::default() => Ok(command),
        Some(_) => Err(CommandError::Usage("write the options after the subcommand".to_owned())),
    }
}
