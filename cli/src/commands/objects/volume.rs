//! `volume`: list, describe, choose a copy, remove.

use api_types::{BindVolumeInput, VolumeView};
use clap::Subcommand;
use client::{Client, Method};
use model::ids::NodeName;
use output::ListStyle;
use output::objects::volumes;

use super::object_name::ObjectType;
use crate::commands::batch;
use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::lists;
use crate::commands::type_args::TypeArgs;
use crate::exit::Exit;

pub(crate) type VolumeArgs = TypeArgs<ListStyle, VolumeCommand>;

/// Subcommands of `volume`.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// List persistent and shared volumes, also those whose service is gone.
    #[command(visible_alias = "list")]
    Ls(ListStyle),
    /// Show one volume in detail.
    #[command(visible_aliases = ["show", "get"])]
    Describe {
        /// Name of the volume.
        #[arg(value_name = "VOLUME", value_parser = ObjectType::Volume.names())]
        name: String,
    },
    /// Choose which of several copies of a persistent volume is the volume. The others stay where they are.
    Bind {
        /// Name of the volume.
        #[arg(value_name = "VOLUME", value_parser = ObjectType::Volume.names())]
        name: String,
        /// The node whose copy is to be the volume.
        #[arg(value_name = "NODE", value_parser = ObjectType::Node.names())]
        node: String,
    },
    /// Remove volumes that no service uses, with their data.
    #[command(visible_aliases = ["remove", "delete"])]
    Rm {
        /// Names of the volumes.
        #[arg(value_name = "VOLUME", required = true, value_parser = ObjectType::Volume.names())]
        names: Vec<String>,
        /// Remove only the copy that this node has, which is not the volume.
        #[arg(long, value_name = "NODE", value_parser = ObjectType::Node.names())]
        node: Option<String>,
    },
}

pub(crate) async fn run(args: VolumeArgs, context: &mut Context<'_>) -> CommandResult {
    match args.or_list(VolumeCommand::Ls)? {
        VolumeCommand::Ls(style) => list(style, context).await,
        VolumeCommand::Describe { name } => describe(&name, context).await,
        VolumeCommand::Bind { name, node } => bind(&name, &node, context).await,
        VolumeCommand::Rm { names, node } => remove(&names, node.as_deref(), context).await,
    }
}

pub(crate) async fn list(style: ListStyle, context: &mut Context<'_>) -> CommandResult {
    let none = "no volumes; `volumes: [data:/path]` of a service makes them";
    lists::show(style, none, async |client| client.list::<VolumeView>("volume").await, context).await
}

pub(crate) async fn describe(name: &str, context: &mut Context<'_>) -> CommandResult {
    let volume = context.client.get("volume", name).await?;
    context.output.print_object(&volume, |now| volumes::describe(&volume, now))?;
    Ok(Exit::Ok)
}

async fn bind(name: &str, node: &str, context: &mut Context<'_>) -> CommandResult {
    let chosen = NodeName::new(node).map_err(|error| CommandError::Usage(error.to_string()))?;
    let operation = format!("choosing a copy of volume {name}");
    let call = context.client.call(Method::POST, &["volume", name, "bind"], operation);
    call.json(&BindVolumeInput { node: chosen }).done().await?;
    let text = format!("volume {name} is the copy on {node}; other copies stay, and are listed as `former`");
    context.output.print_named_result(&format!("volume/{name}"), &text, "is bound")?;
    Ok(Exit::Ok)
}

/// With a node, only the copy there, which is not the volume.
pub(crate) async fn remove(names: &[String], node: Option<&str>, context: &mut Context<'_>) -> CommandResult {
    let remove = async |client: &Client, name: &str| {
        let call = client.call(Method::DELETE, &["volume", name], format!("removing volume {name}"));
        call.query("node", node).done().await?;
        Ok(match node {
            Some(node) => format!("the copy of volume {name} on {node} is being removed"),
            None => format!("volume {name} is being removed"),
        })
    };
    batch::for_each(ObjectType::Volume, names, "is being removed", remove, context).await
}
