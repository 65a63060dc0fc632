//! The app of the Compose file of this folder or one around it: commands accept short names of its services.

use client::Client;
use model::ids::AppName;
use output::stderr;
use tokio::sync::OnceCell;

use super::desired_state;
use crate::commands::error::{CommandError, CommandResult};

#[derive(Debug, Default)]
pub(crate) struct FolderApp {
    name: Option<AppName>,
    services: OnceCell<Vec<(String, String)>>,
}

impl FolderApp {
    pub(crate) fn of_this_directory() -> Self {
        Self { name: desired_state::app_of_this_folder(), services: OnceCell::new() }
    }

    pub(crate) fn name(&self) -> CommandResult<&AppName> {
        self.name.as_ref().ok_or_else(|| {
            CommandError::Usage(
                "name the app: neither this folder nor one around it has a Compose file; `kubeleet app` lists apps"
                    .to_owned(),
            )
        })
    }

    /// The full name, if the cluster has the service. A note on stderr says so.
    pub(crate) async fn service(&self, client: &Client, short: &str) -> CommandResult<Option<String>> {
        let Some(app) = &self.name else { return Ok(None) };
        let read = async || {
            let services = client.services_of_app(app.as_str()).await?;
            let pair =
                |name: &model::ids::ServiceName| Some((app.short_name(name)?.to_owned(), name.to_string()));
            Ok::<_, CommandError>(services.iter().filter_map(|service| pair(&service.name)).collect())
        };
        let services: &Vec<(String, String)> = self.services.get_or_try_init(read).await?;
        let found = services.iter().find(|(own, _)| own == short).map(|(_, whole)| whole.clone());
        if let Some(whole) = &found {
            stderr::note(&format!(
                "{short} is {whole} here: app {app} of the Compose file of this folder or one around it"
            ));
        }
        Ok(found)
    }

    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        Self { name: AppName::new(name).ok(), services: OnceCell::new() }
    }
}
