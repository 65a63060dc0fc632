//! `node`: list, describe, cordon, uncordon.

use clap::{Args, Subcommand};
use common::event::ObjectKind;

use super::failure::Failure;
use super::service::{EVENTS_SEARCHED, EVENTS_SHOWN};
use super::{Context, Tally};
use crate::client::PodFilter;
use crate::exit::Exit;
use crate::output::{events, nodes};

/// What to do with nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// All nodes.
    #[command(visible_alias = "list")]
    Ls,
    /// Everything about one, with the pods it has.
    #[command(visible_aliases = ["show", "get"])]
    Describe {
        /// Which.
        #[arg(value_name = "NODE")]
        name: String,
    },
    /// Place nothing new on nodes. What runs there stays.
    Cordon(NodeNames),
    /// Place pods on nodes again.
    Uncordon(NodeNames),
}

/// Which nodes.
#[derive(Debug, Args)]
pub(crate) struct NodeNames {
    /// Which.
    #[arg(value_name = "NODE", required = true)]
    names: Vec<String>,
}

/// Carries it out.
pub(super) async fn run(command: NodeCommand, context: &mut Context<'_>) -> Result<Exit, Failure> {
    match command {
        NodeCommand::Ls => {
            let found = context.client.nodes().await?;
            context.output.list(&found, "no nodes; `kubeleet worker` on a machine makes it one")?;
            Ok(Exit::Ok)
        }
        NodeCommand::Describe { name } => describe(&name, context).await,
        NodeCommand::Cordon(nodes) => cordon(&nodes.names, true, context).await,
        NodeCommand::Uncordon(nodes) => cordon(&nodes.names, false, context).await,
    }
}

async fn describe(name: &str, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let node = context.client.node(name).await?;
    let filter = PodFilter { node: Some(name.to_owned()), ..PodFilter::default() };
    let has = context.client.pods(&filter).await?;
    let last = context.client.last_events(EVENTS_SEARCHED).await?;
    let last = events::about(last, ObjectKind::Node, name, EVENTS_SHOWN);
    let now = context.output.now();
    context.output.one(&node, || nodes::describe(&node, &has, &last, now))?;
    Ok(Exit::Ok)
}

async fn cordon(names: &[String], cordon: bool, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let mut tally = Tally::new();
    let done = if cordon { "cordoned" } else { "uncordoned" };
    for name in names {
        let result = context.client.cordon(name, cordon).await.map_err(Failure::from);
        if let Some(node) = tally.take(result)? {
            context.output.done(&node, done)?;
        }
    }
    Ok(tally.0)
}
