//! `node`: list, describe, cordon, uncordon, remove.

use clap::{Args, Subcommand};
use common::event::ObjectKind;

use super::batch::Batch;
use super::context::{self, Context};
use super::error::CommandError;
use super::selector_args::SelectorArgs;
use super::{object, recent_events, watch};
use crate::client::{Client, PodFilter};
use crate::exit::Exit;
use crate::output::{ListStyle, nodes};

/// Arguments of `node`: without a subcommand it lists.
#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    #[command(flatten)]
    list: ListArgs,
    #[command(subcommand)]
    command: Option<NodeCommand>,
}

impl NodeArgs {
    /// Returns the subcommand, or `ls`.
    pub(super) fn command(self) -> Result<NodeCommand, CommandError> {
        context::subcommand_or_list(self.command, self.list, NodeCommand::Ls)
    }
}

/// Subcommands of `node`.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// List nodes.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Show one node in detail, with its pods.
    #[command(visible_aliases = ["show", "get"])]
    Describe {
        /// Name of the node.
        #[arg(value_name = "NODE", value_parser = object::node)]
        name: String,
    },
    /// Keep new pods off nodes; running pods stay.
    Cordon(NodeNames),
    /// Allow new pods on nodes again.
    Uncordon(NodeNames),
    /// Remove nodes that are dead and whose pods have been moved.
    #[command(visible_aliases = ["remove", "delete"])]
    Rm(NodeNames),
}

/// Arguments of `node ls`.
#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(super) selector: SelectorArgs,
    #[command(flatten)]
    pub(super) style: ListStyle,
}

/// Arguments of `cordon`, `uncordon` and `rm`.
#[derive(Debug, Args)]
pub(crate) struct NodeNames {
    /// Names of the nodes.
    #[arg(value_name = "NODE", required = true, value_parser = object::node)]
    names: Vec<String>,
}

impl NodeCommand {
    /// Returns `rm`.
    pub(super) fn remove(names: Vec<String>) -> Self {
        Self::Rm(NodeNames { names })
    }
}

/// Runs a subcommand.
pub(super) async fn run(command: NodeCommand, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    match command {
        NodeCommand::Ls(args) => list(&args, context).await,
        NodeCommand::Describe { name } => describe(&name, context).await,
        NodeCommand::Cordon(nodes) => cordon(&nodes.names, true, context).await,
        NodeCommand::Uncordon(nodes) => cordon(&nodes.names, false, context).await,
        NodeCommand::Rm(nodes) => remove(&nodes.names, context).await,
    }
}

async fn list(args: &ListArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let selector = args.selector.selector();
    let read = async |client: &Client| {
        let mut nodes = client.nodes().await?;
        nodes.retain(|node| selector.matches(&node.labels));
        Ok(nodes)
    };
    context.output.list_style = args.style;
    if args.style.watch {
        return watch::run(read, context).await;
    }
    let nodes = read(&context.client).await?;
    let hint = match selector.is_empty() {
        true => "no nodes; `kubeleet worker` on a machine adds it as a node",
        false => "no nodes with these labels",
    };
    context.output.print_list(&nodes, hint)?;
    Ok(Exit::Ok)
}

async fn remove(names: &[String], context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let mut batch = Batch::new();
    for name in names {
        let result = context.client.remove_node(name).await.map_err(CommandError::from);
        if batch.accept(result)?.is_some() {
            let text = format!("node {name} removed");
            context.output.print_named_result(&format!("node/{name}"), &text, "removed")?;
        }
    }
    Ok(batch.exit())
}

async fn describe(name: &str, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let node = context.client.node(name).await?;
    let filter = PodFilter { node: Some(name.to_owned()), ..PodFilter::default() };
    let pods = context.client.pods(&filter).await?;
    let events = recent_events::about(&context.client, ObjectKind::Node, name).await?;
    let now = context.output.now();
    context.output.print_object(&node, || nodes::describe(&node, &pods, &events, now))?;
    Ok(Exit::Ok)
}

async fn cordon(names: &[String], cordon: bool, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let mut batch = Batch::new();
    for name in names {
        let result = context.client.cordon(name, cordon).await.map_err(CommandError::from);
        if let Some(node) = batch.accept(result)? {
            context.output.print_result(&node, if cordon { "cordoned" } else { "uncordoned" })?;
        }
    }
    Ok(batch.exit())
}
