//! `gc`: unused data on the disks of nodes.

use api_types::NodeView;
use clap::Args;
use client::Method;
use model::node::NodeState;
use model::node::usage::GarbageView;
use output::stderr;

use crate::commands::batch::BatchResult;
use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::objects::object_name::ObjectType;

/// Arguments of `gc`.
#[derive(Debug, Args)]
#[command(
    after_help = "Images go that a node's worker has used, not in the last ten minutes, that no pod there uses, \
                        and to which no service can be undone. Workers do this by themselves when a disk is filling \
                        up, after the logs of removed containers."
)]
pub(crate) struct GcArgs {
    /// Nodes; without a name all that are alive.
    #[arg(value_name = "NODE", value_parser = ObjectType::Node.names())]
    nodes: Vec<String>,
    /// Only list them, and remove nothing.
    #[arg(long)]
    dry_run: bool,
}

/// In turn. A node that does not answer does not block the others.
pub(crate) async fn run(args: &GcArgs, context: &mut Context<'_>) -> CommandResult {
    let nodes = match args.nodes.is_empty() {
        false => args.nodes.clone(),
        true => {
            let nodes = context.client.list::<NodeView>("node").await?.into_iter();
            nodes.filter(|node| node.state == NodeState::Alive).map(|node| node.name.to_string()).collect()
        }
    };
    let (mut batch, mut rows) = (BatchResult::new(), Vec::new());
    for node in &nodes {
        let operation = format!("collecting garbage on node {node}");
        let call = context.client.call(Method::POST, &["node", node, "gc"], operation);
        let asked = call.query("dry_run", Some(args.dry_run)).view::<GarbageView>().await;
        rows.extend(batch.accept(asked.map_err(CommandError::from))?);
    }
    context.output.print_list(&rows, "no nodes")?;
    let count = |of: fn(&GarbageView) -> usize| rows.iter().map(of).sum::<usize>();
    match args.dry_run {
        true => stderr::note(&format!("{} images would be removed", count(|row| row.images.len()))),
        false => stderr::note(&format!("{} images removed", count(|row| row.removed.len()))),
    }
    Ok(batch.exit())
}
