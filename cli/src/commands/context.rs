//! Common parts of commands.

use api_types::ServiceView;
use client::Client;
use output::Output;

use super::error::{CommandError, CommandResult};
use super::globals::Globals;
use super::wait::{Goal, Waiter};
use crate::commands::apps::folder_app::FolderApp;
use crate::exit::Exit;

pub(super) struct Context<'a> {
    pub(super) client: Client,
    pub(super) output: Output,
    pub(super) globals: &'a Globals,
    pub(super) folder: FolderApp,
}

impl Context<'_> {
    /// In a folder with a Compose file, a name in that file means a service of its app.
    pub(super) async fn service_name(&self, typed: &str) -> CommandResult<String> {
        let of_app = self.folder.service(&self.client, typed).await?;
        Ok(of_app.unwrap_or_else(|| typed.to_owned()))
    }

    /// `NotFound` if there are none.
    pub(super) async fn services_of_app(&self, app: &str) -> CommandResult<Vec<ServiceView>> {
        let services = self.client.services_of_app(app).await?;
        if services.is_empty() {
            return Err(CommandError::NotFound(format!("there is no app {app}")));
        }
        Ok(services)
    }

    /// Returns the first exit code that is not `Ok`.
    pub(super) async fn wait_if(&self, wait: bool, goals: Vec<Goal>) -> Exit {
        if wait { self.waiter().wait_for_all(goals).await } else { Exit::Ok }
    }

    pub(super) fn waiter(&self) -> Waiter {
        Waiter::new(self.client.clone(), self.globals.timeout)
    }
}
