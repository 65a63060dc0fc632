//! `node`: list, describe, cordon, uncordon, leave, return, remove, purge.

use std::time::Duration;

use api_types::NodeView;
use clap::{Args, Subcommand};
use client::{Client, PodFilter};
use jiff::Timestamp;
use model::event::ObjectKind;
use model::node::NodeState;
use output::ListStyle;
use output::objects::nodes;
use output::stderr;

use super::object_name;
use super::recent_events;
use crate::commands::batch::BatchResult;
use crate::commands::cluster::node_leave;
use crate::commands::context::{self, Context};
use crate::commands::error::CommandError;
use crate::commands::flag_values;
use crate::commands::selector_args::SelectorArgs;
use crate::commands::watch_list;
use crate::exit::Exit;

/// Arguments of `node`: without a subcommand it lists.
#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    #[command(flatten)]
    list: ListArgs,
    #[command(subcommand)]
    command: Option<NodeCommand>,
}

impl NodeArgs {
    pub(crate) fn command(self) -> Result<NodeCommand, CommandError> {
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
        #[arg(value_name = "NODE", value_parser = object_name::node)]
        name: String,
    },
    /// Keep new pods off nodes; running pods stay.
    Cordon(NodeNames),
    /// Allow new pods on nodes again.
    Uncordon(NodeNames),
    /// Hand the pods of this machine's node over before the machine shuts down.
    Leave(node_leave::LeaveArgs),
    /// Allow new pods again on this machine's node, if it was `leave` that kept them off.
    Return(node_leave::LeaveArgs),
    /// Remove nodes that are dead and whose pods have been moved.
    #[command(visible_aliases = ["remove", "delete"])]
    Rm(RemoveArgs),
    /// Remove all nodes that have been dead for a while.
    #[command(visible_alias = "prune")]
    Purge(PurgeArgs),
}

/// Arguments of `node ls`.
#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) selector: SelectorArgs,
    #[command(flatten)]
    pub(crate) style: ListStyle,
}

/// Arguments of `rm`.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    nodes: NodeNames,
    /// Leave the nodes, and give up the volumes of machines that had their names before.
    #[arg(long)]
    former: bool,
}

/// Arguments of `cordon` and `uncordon`, and of `rm`.
#[derive(Debug, Args)]
pub(crate) struct NodeNames {
    /// Names of the nodes.
    #[arg(value_name = "NODE", required = true, value_parser = object_name::node)]
    names: Vec<String>,
}

/// Arguments of `node purge`.
#[derive(Debug, Args)]
#[command(
    after_help = "Everything about a removed node leaves Redis, also that it was cordoned. Its worker can \
                        register again at any time."
)]
pub(crate) struct PurgeArgs {
    /// Only nodes whose last heartbeat is older than this: 30m, 24h, 7d.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = flag_values::duration)]
    dead_for: Duration,
}

impl NodeCommand {
    pub(crate) fn remove(names: Vec<String>) -> Self {
        Self::Rm(RemoveArgs { nodes: NodeNames { names }, former: false })
    }
}

pub(crate) async fn run(command: NodeCommand, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    match command {
        NodeCommand::Ls(args) => list(&args, context).await,
        NodeCommand::Describe { name } => describe(&name, context).await,
        NodeCommand::Cordon(nodes) => cordon(&nodes.names, true, context).await,
        NodeCommand::Uncordon(nodes) => cordon(&nodes.names, false, context).await,
        NodeCommand::Leave(args) => node_leave::leave(&args, context).await,
        NodeCommand::Return(args) => node_leave::come_back(&args, context).await,
        NodeCommand::Rm(args) => remove(&args.nodes.names, args.former, context).await,
        NodeCommand::Purge(args) => purge(&args, context).await,
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
        return watch_list::run(read, context).await;
    }
    let nodes = read(&context.client).await?;
    let hint = match selector.is_empty() {
        true => "no nodes; `kubeleet worker` on a machine adds it as a node",
        false => "no nodes with these labels",
    };
    context.output.print_list(&nodes, hint)?;
    Ok(Exit::Ok)
}

async fn remove(names: &[String], is_former: bool, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let mut batch = BatchResult::new();
    for name in names {
        let result = context.client.remove_node(name, is_former).await.map_err(CommandError::from);
        if batch.accept(result)?.is_some() {
            let text = match is_former {
                true => format!("the volumes of machines that were node {name} before are given up"),
                false => format!("node {name} removed"),
            };
            context.output.print_named_result(&format!("node/{name}"), &text, "removed")?;
        }
    }
    Ok(batch.exit())
}

async fn purge(args: &PurgeArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let names = long_dead(&context.client.nodes().await?, context.output.now(), args.dead_for);
    if names.is_empty() {
        stderr::note(
            "no node has been dead for the time of --dead-for; `kubeleet node rm` removes one sooner",
        );
    }
    remove(&names, false, context).await
}

fn long_dead(nodes: &[NodeView], now: Timestamp, dead_for: Duration) -> Vec<String> {
    let is_long_dead = |node: &&NodeView| {
        let beat = node.last_heartbeat.parse::<Timestamp>();
        // A node without a heartbeat counts as old.
        let is_old =
            beat.map_or(true, |beat| now.duration_since(beat).unsigned_abs() >= dead_for && beat <= now);
        node.state == NodeState::Dead && is_old
    };
    nodes.iter().filter(is_long_dead).map(|node| node.name.to_string()).collect()
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
    let mut batch = BatchResult::new();
    for name in names {
        let result = context.client.cordon(name, cordon).await.map_err(CommandError::from);
        if let Some(node) = batch.accept(result)? {
            context.output.print_result(&node, if cordon { "cordoned" } else { "uncordoned" })?;
        }
    }
    Ok(batch.exit())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use testkit::api_fixtures as fixtures;

    use super::*;

    #[test]
    fn nodes_that_have_been_dead_for_long_enough_are_purged() {
        let now: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
        for (state, last_heartbeat, is_purged) in [
            (NodeState::Dead, "2026-01-31T11:00:00Z", true),
            (NodeState::Dead, "2026-01-31T11:00:01Z", false),
            (NodeState::Alive, "2026-01-30T11:00:00Z", false),
            (NodeState::Dead, "", true),
            // The API's clock was ahead.
            (NodeState::Dead, "2026-01-31T14:00:00Z", false),
        ] {
            let node = NodeView { state, last_heartbeat: last_heartbeat.to_owned(), ..fixtures::node("w1") };
            let found = long_dead(&[node], now, Duration::from_secs(3600));
            assert_eq!(!found.is_empty(), is_purged, "{state:?} {last_heartbeat}");
        }
    }
}
