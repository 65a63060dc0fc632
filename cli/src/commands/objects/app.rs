//! `app`: lists, describes and deletes the apps of Compose files.

use clap::{Args, Subcommand};
use client::Client;
use model::ids::AppName;
use output::ListStyle;
use output::objects::apps::{self, AppSummary};

use super::object_name::ObjectType;
use crate::commands::apps::app_lock::AppLock;
use crate::commands::apps::app_values;
use crate::commands::batch::BatchResult;
use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::lists;
use crate::commands::services::service;
use crate::commands::type_args::TypeArgs;
use crate::exit::Exit;

pub(crate) type AppArgs = TypeArgs<ListStyle, AppCommand>;

/// Subcommands of `app`.
#[derive(Debug, Subcommand)]
pub(crate) enum AppCommand {
    /// List apps.
    #[command(visible_alias = "list")]
    Ls(ListStyle),
    /// Show the services of one app.
    #[command(visible_aliases = ["show", "get"])]
    Describe {
        /// Name of the app.
        #[arg(value_name = "APP", value_parser = ObjectType::App.names())]
        app: String,
    },
    /// Delete the services of apps and stop their pods, and delete the secrets and configs that came with
    /// them.
    #[command(visible_alias = "delete")]
    Rm(RemoveArgs),
}

/// Arguments of `app rm`.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Names of the apps.
    #[arg(value_name = "APP", required_unless_present = "here", value_parser = ObjectType::App.names())]
    apps: Vec<String>,
    /// The app of the Compose file of this folder.
    #[arg(long, conflicts_with = "apps")]
    here: bool,
    /// Wait until their last pods are gone.
    #[arg(long)]
    wait: bool,
}

pub(crate) async fn run(args: AppArgs, context: &mut Context<'_>) -> CommandResult {
    match args.or_list(AppCommand::Ls)? {
        AppCommand::Ls(style) => list(style, context).await,
        AppCommand::Describe { app } => describe(&app, context).await,
        AppCommand::Rm(RemoveArgs { here: true, wait, .. }) => {
            remove(&[context.folder.name()?.to_string()], wait, context).await
        }
        AppCommand::Rm(args) => remove(&args.apps, args.wait, context).await,
    }
}

pub(crate) async fn list(style: ListStyle, context: &mut Context<'_>) -> CommandResult {
    let none = "no apps; `kubeleet apply -f docker-compose.yml` makes one";
    let read = async |client: &Client| Ok(AppSummary::all(client.services(None).await?));
    lists::show(style, none, read, context).await
}

pub(crate) async fn describe(name: &str, context: &mut Context<'_>) -> CommandResult {
    let app = read(name, &context.client).await?;
    context.output.print_object(&app, |_| apps::describe(&app))?;
    Ok(Exit::Ok)
}

/// Requests all deletions before the first wait.
pub(crate) async fn remove(apps: &[String], wait: bool, context: &mut Context<'_>) -> CommandResult {
    let mut batch = BatchResult::new();
    let mut services = Vec::new();
    let mut locks = Vec::new();
    for app in apps {
        let name = AppName::new(app.clone()).map_err(|error| CommandError::Usage(error.to_string()))?;
        locks.push(AppLock::take(&context.client, &name, context.globals.timeout).await?);
        let found = services_to_remove(app, &context.client).await;
        services.extend(batch.accept(found)?.into_iter().flatten());
    }
    let removed = remove_locked(apps, &services, wait, &mut batch, context).await;
    for lock in locks {
        lock.release().await;
    }
    removed?;
    Ok(batch.exit())
}

async fn remove_locked(
    apps: &[String],
    services: &[String],
    wait: bool,
    batch: &mut BatchResult,
    context: &mut Context<'_>,
) -> CommandResult<()> {
    if !services.is_empty() {
        let exit = service::delete(services, true, false, wait, context).await?;
        batch.record(exit);
    }
    for app in apps {
        app_values::remove_all(app, batch, context).await?;
    }
    Ok(())
}

/// Empty if only secrets and configs remain.
async fn services_to_remove(app: &str, client: &Client) -> CommandResult<Vec<String>> {
    match read(app, client).await {
        Ok(app) => Ok(app.service_names()),
        Err(CommandError::NotFound(_)) if !app_values::of_app(client, app).await?.is_empty() => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

async fn read(name: &str, client: &Client) -> CommandResult<AppSummary> {
    let services = client.services_of_app(name).await?;
    AppSummary::all(services)
        .into_iter()
        .find(|app| app.has_name(name))
        .ok_or_else(|| CommandError::NotFound(format!("there is no app {name}: no service belongs to it")))
}
