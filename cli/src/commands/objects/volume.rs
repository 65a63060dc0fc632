//! `volume`: list, describe, choose a copy, remove.

use api_types::BindVolumeInput;
use clap::{Args, Subcommand};
use client::Client;
use model::ids::NodeName;
use output::ListStyle;
use output::objects::volumes;

use super::object_name;
use crate::commands::batch::BatchResult;
use crate::commands::context::{self, Context};
use crate::commands::error::CommandError;
use crate::commands::watch_list;
use crate::exit::Exit;

/// Arguments of `volume`: without a subcommand it lists.
#[derive(Debug, Args)]
pub(crate) struct VolumeArgs {
    #[command(flatten)]
    list: ListArgs,
    #[command(subcommand)]
    command: Option<VolumeCommand>,
}

impl VolumeArgs {
    pub(crate) fn command(self) -> Result<VolumeCommand, CommandError> {
        context::subcommand_or_list(self.command, self.list, VolumeCommand::Ls)
    }
}

/// Subcommands of `volume`.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// List persistent and shared volumes, also those whose service is gone.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Show one volume in detail.
    #[command(visible_aliases = ["show", "get"])]
    Describe {
        /// Name of the volume.
        #[arg(value_name = "VOLUME", value_parser = object_name::volume)]
        name: String,
    },
    /// Choose which of several copies of a persistent volume is the volume. The others stay where they are.
    Bind {
        /// Name of the volume.
        #[arg(value_name = "VOLUME", value_parser = object_name::volume)]
        name: String,
        /// The node whose copy is to be the volume.
        #[arg(value_name = "NODE", value_parser = object_name::node)]
        node: String,
    },
    /// Remove volumes that no service uses, with their data.
    #[command(visible_aliases = ["remove", "delete"])]
    Rm {
        /// Names of the volumes.
        #[arg(value_name = "VOLUME", required = true, value_parser = object_name::volume)]
        names: Vec<String>,
        /// Remove only the copy that this node has, which is not the volume.
        #[arg(long, value_name = "NODE", value_parser = object_name::node)]
        node: Option<String>,
    },
}

/// Arguments of `volume ls`.
#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) style: ListStyle,
}

pub(crate) async fn run(command: VolumeCommand, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    match command {
        VolumeCommand::Ls(args) => list(&args, context).await,
        VolumeCommand::Describe { name } => describe(&name, context).await,
        VolumeCommand::Bind { name, node } => bind(&name, &node, context).await,
        VolumeCommand::Rm { names, node } => remove(&names, node.as_deref(), context).await,
    }
}

async fn list(args: &ListArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    context.output.list_style = args.style;
    if args.style.watch {
        let read = async |client: &Client| client.volumes().await;
        return watch_list::run(read, context).await;
    }
    let volumes = context.client.volumes().await?;
    context.output.print_list(&volumes, "no volumes; `volumes: [data:/path]` of a service makes them")?;
    Ok(Exit::Ok)
}

async fn describe(name: &str, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let volume = context.client.volume(name).await?;
    let now = context.output.now();
    context.output.print_object(&volume, || volumes::describe(&volume, now))?;
    Ok(Exit::Ok)
}

async fn bind(name: &str, node: &str, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let chosen = NodeName::new(node).map_err(|error| CommandError::Usage(error.to_string()))?;
    context.client.bind_volume(name, &BindVolumeInput { node: chosen }).await?;
    let text = format!("volume {name} is the copy on {node}; other copies stay, and are listed as `former`");
    context.output.print_named_result(&format!("volume/{name}"), &text, "is bound")?;
    Ok(Exit::Ok)
}

async fn remove(
    names: &[String],
    node: Option<&str>,
    context: &mut Context<'_>,
) -> Result<Exit, CommandError> {
    let mut batch = BatchResult::new();
    for name in names {
        let result = context.client.remove_volume(name, node).await.map_err(CommandError::from);
        if batch.accept(result)?.is_some() {
            let text = match node {
                Some(node) => format!("the copy of volume {name} on {node} is being removed"),
                None => format!("volume {name} is being removed"),
            };
            context.output.print_named_result(&format!("volume/{name}"), &text, "is being removed")?;
        }
    }
    Ok(batch.exit())
}
