//! `app`: lists, describes and deletes the apps of Compose files.

use clap::{Args, Subcommand};
use client::{Client, ClientError};
use model::ids::AppName;
use output::ListStyle;
use output::objects::apps::{self, AppSummary};

use super::object_name;
use crate::commands::apps::app_lock::AppLock;
use crate::commands::apps::app_values;
use crate::commands::batch::BatchResult;
use crate::commands::context::{self, Context};
use crate::commands::error::CommandError;
use crate::commands::services::service;
use crate::exit::Exit;

/// Arguments of `app`: without a subcommand it lists.
#[derive(Debug, Args)]
pub(crate) struct AppArgs {
    #[command(flatten)]
    list: ListArgs,
    #[command(subcommand)]
    command: Option<AppCommand>,
}

impl AppArgs {
    pub(crate) fn command(self) -> Result<AppCommand, CommandError> {
        context::subcommand_or_list(self.command, self.list, AppCommand::Ls)
    }
}

/// Subcommands of `app`.
#[derive(Debug, Subcommand)]
pub(crate) enum AppCommand {
    /// List apps.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Show the services of one app.
    #[command(visible_aliases = ["show", "get"])]
    Describe {
        /// Name of the app.
        #[arg(value_name = "APP", value_parser = object_name::app)]
        app: String,
    },
    /// Delete the services of apps and stop their pods, and delete the secrets and configs that came with
    /// them.
    #[command(visible_alias = "delete")]
    Rm(RemoveArgs),
}

/// Arguments of `app ls`.
#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) style: ListStyle,
}

/// Arguments of `app rm`.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Names of the apps.
    #[arg(value_name = "APP", required_unless_present = "here", value_parser = object_name::app)]
    apps: Vec<String>,
    /// The app of the Compose file of this folder.
    #[arg(long, conflicts_with = "apps")]
    here: bool,
    /// Wait until their last pods are gone.
    #[arg(long)]
    wait: bool,
}

impl AppCommand {
    pub(crate) fn remove(apps: Vec<String>, wait: bool) -> Self {
        Self::Rm(RemoveArgs { apps, here: false, wait })
    }
}

pub(crate) async fn run(command: AppCommand, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    match command {
        AppCommand::Ls(args) => list(&args, context).await,
        AppCommand::Describe { app } => describe(&app, context).await,
        AppCommand::Rm(args) => remove(&args, context).await,
    }
}

async fn list(args: &ListArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    context.output.list_style = args.style;
    let read = async |client: &Client| Ok::<_, ClientError>(AppSummary::all(client.services(None).await?));
    if args.style.watch {
        return crate::commands::watch_list::run(read, context).await;
    }
    let apps = read(&context.client).await?;
    context.output.print_list(&apps, "no apps; `kubeleet apply -f docker-compose.yml` makes one")?;
    Ok(Exit::Ok)
}

async fn describe(name: &str, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let app = read(name, &context.client).await?;
    context.output.print_object(&app, || apps::describe(&app))?;
    Ok(Exit::Ok)
}

/// Deletes the services of each app, then its secrets and configs. Requests all deletions before the first
/// wait.
async fn remove(args: &RemoveArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let mut batch = BatchResult::new();
    let mut services = Vec::new();
    let apps = match args.here {
        true => vec![context.folder.name()?.to_string()],
        false => args.apps.clone(),
    };
    let mut locks = Vec::new();
    for app in &apps {
        let name = AppName::new(app.clone()).map_err(|error| CommandError::Usage(error.to_string()))?;
        locks.push(AppLock::take(&context.client, &name, context.globals.timeout).await?);
        let found = services_to_remove(app, &context.client).await;
        services.extend(batch.accept(found)?.into_iter().flatten());
    }
    let removed = remove_locked(&apps, &services, args.wait, &mut batch, context).await;
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
) -> Result<(), CommandError> {
    if !services.is_empty() {
        let exit = service::delete(services, true, false, wait, context).await?;
        batch.record(exit);
    }
    for app in apps {
        app_values::remove_all(app, batch, context).await?;
    }
    Ok(())
}

/// Returns the names of an app's services; empty if only secrets and configs remain.
async fn services_to_remove(app: &str, client: &Client) -> Result<Vec<String>, CommandError> {
    match read(app, client).await {
        Ok(app) => Ok(app.service_names()),
        Err(CommandError::NotFound(_)) if !app_values::of_app(client, app).await?.is_empty() => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

async fn read(name: &str, client: &Client) -> Result<AppSummary, CommandError> {
    let services = client.services_of_app(name).await?;
    AppSummary::all(services)
        .into_iter()
        .find(|app| app.has_name(name))
        .ok_or_else(|| CommandError::NotFound(format!("there is no app {name}: no service belongs to it")))
}
