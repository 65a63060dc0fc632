//! `node`: list, describe, label, cordon, uncordon, leave, return, remove, purge.

use std::time::Duration;

use api_types::{DrainView, NodeView, VolumeView};
use clap::{Args, Subcommand};
use client::{Client, Method, PodFilter};
use jiff::Timestamp;
use model::event::ObjectKind;
use model::node::NodeState;
use output::objects::nodes;
use output::stderr;

use super::node_label;
use super::object_name::ObjectType;
use super::recent_events;
use crate::commands::batch::{self, BatchResult};
use crate::commands::cluster::node_leave;
use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::flag_values;
use crate::commands::lists;
use crate::commands::type_args::{LabelledListArgs, TypeArgs};
use crate::exit::Exit;

pub(crate) type NodeArgs = TypeArgs<NodeListArgs, NodeCommand>;

/// Arguments of `ls`.
#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct NodeListArgs {
    #[command(flatten)]
    list: LabelledListArgs,
    /// Only nodes that could go now: the others have room for all their pods, and no volume is on them.
    #[arg(long)]
    removable: bool,
}

/// Subcommands of `node`.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// List nodes.
    #[command(visible_alias = "list")]
    Ls(NodeListArgs),
    /// Show one node in detail, with its pods.
    #[command(visible_aliases = ["show", "get"])]
    Describe {
        /// Name of the node.
        #[arg(value_name = "NODE", value_parser = ObjectType::Node.names())]
        name: String,
    },
    /// Set and remove labels of a node; running pods stay.
    Label(node_label::LabelArgs),
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
    #[arg(value_name = "NODE", required = true, value_parser = ObjectType::Node.names())]
    names: Vec<String>,
}

/// Arguments of `node purge`.
#[derive(Debug, Args)]
#[command(
    after_help = "Everything about a removed node leaves Redis, also that it was cordoned. Its worker can \
                        register again at any time, with the labels of `node label`, which it has saved."
)]
pub(crate) struct PurgeArgs {
    /// Only nodes whose last heartbeat is older than this: 30m, 24h, 7d.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = flag_values::duration)]
    dead_for: Duration,
}

pub(crate) async fn run(args: NodeArgs, context: &mut Context<'_>) -> CommandResult {
    match args.or_list(NodeCommand::Ls)? {
        NodeCommand::Ls(args) if args.removable => list_removable(&args.list, context).await,
        NodeCommand::Ls(args) => list(&args.list, context).await,
        NodeCommand::Describe { name } => describe(&name, context).await,
        NodeCommand::Label(args) => node_label::label(args, context).await,
        NodeCommand::Cordon(nodes) => cordon(&nodes, true, context).await,
        NodeCommand::Uncordon(nodes) => cordon(&nodes, false, context).await,
        NodeCommand::Leave(args) => node_leave::leave(&args, context).await,
        NodeCommand::Return(args) => node_leave::come_back(&args, context).await,
        NodeCommand::Rm(args) => remove(&args.nodes.names, args.former, context).await,
        NodeCommand::Purge(args) => purge(&args, context).await,
    }
}

pub(crate) async fn list(args: &LabelledListArgs, context: &mut Context<'_>) -> CommandResult {
    let selector = args.selector.selector();
    let read = async |client: &Client| {
        let mut nodes: Vec<NodeView> = client.list("node").await?;
        nodes.retain(|node| selector.matches(&node.labels));
        Ok(nodes)
    };
    let none = match selector.is_empty() {
        true => "no nodes; `kubeleet worker` on a machine adds it as a node",
        false => "no nodes with these labels",
    };
    lists::show(args.style, none, read, context).await
}

async fn list_removable(args: &LabelledListArgs, context: &mut Context<'_>) -> CommandResult {
    let selector = args.selector.selector();
    let read = async |client: &Client| {
        let nodes: Vec<NodeView> = client.list("node").await?;
        let volumes: Vec<VolumeView> = client.list("volume").await?;
        let mut removable = Vec::new();
        for node in nodes.into_iter().filter(|node| selector.matches(&node.labels)) {
            let has_volume = volumes.iter().any(|volume| volume.node.as_ref() == Some(&node.name));
            if !has_volume && may_go(&client.drain_plan(node.name.as_str()).await?) {
                removable.push(node);
            }
        }
        Ok(removable)
    };
    lists::show(args.style, "no node could go: `kubeleet drain NODE --dry-run` says why", read, context).await
}

fn may_go(plan: &DrainView) -> bool {
    plan.pods.iter().all(|pod| pod.to.is_some() || pod.is_global)
}

/// With `is_former`, only leftovers of earlier machines of their names.
pub(crate) async fn remove(names: &[String], is_former: bool, context: &mut Context<'_>) -> CommandResult {
    let remove = async |client: &Client, name: &str| {
        let call = client.call(Method::DELETE, &["node", name], format!("removing node {name}"));
        call.query("former", is_former.then_some(true)).done().await?;
        Ok(match is_former {
            true => format!("the volumes of machines that were node {name} before are given up"),
            false => format!("node {name} removed"),
        })
    };
    batch::for_each(ObjectType::Node, names, "removed", remove, context).await
}

async fn purge(args: &PurgeArgs, context: &mut Context<'_>) -> CommandResult {
    let names =
        long_dead(&context.client.list::<NodeView>("node").await?, context.output.now(), args.dead_for);
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

pub(crate) async fn describe(name: &str, context: &mut Context<'_>) -> CommandResult {
    let node = context.client.get("node", name).await?;
    let filter = PodFilter { node: Some(name.to_owned()), ..PodFilter::default() };
    let pods = context.client.pods(&filter).await?;
    let events = recent_events::about(&context.client, ObjectKind::Node, name).await?;
    context.output.print_object(&node, |now| nodes::describe(&node, &pods, &events, now))?;
    Ok(Exit::Ok)
}

pub(crate) async fn cordon(nodes: &NodeNames, cordon: bool, context: &mut Context<'_>) -> CommandResult {
    let mut batch = BatchResult::new();
    for name in &nodes.names {
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
