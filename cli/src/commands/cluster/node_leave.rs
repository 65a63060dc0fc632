//! `node leave` and `node return`, for the unit `kubeleet-handover`. A marker file records that `leave`
//! drains the node, and whether it was cordoned before: an operator's own cordon outlives a restart.

use std::io;
use std::path::{Path, PathBuf};

use api_types::NodeView;
use clap::Args;
use output::stderr;

use super::drain;
use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::objects::object_name::ObjectType;
use crate::exit::Exit;
use crate::settings;

const CORDONED_HERE: &str = "cordoned by `kubeleet node leave`\n";
const CORDONED_BEFORE: &str = "drained by `kubeleet node leave`, and cordoned before\n";

/// Arguments of `node leave` and `node return`.
#[derive(Debug, Args)]
pub(crate) struct LeaveArgs {
    /// Name of the node [default: the host name]
    #[arg(value_name = "NODE", env = "KUBELEET_NODE", value_parser = ObjectType::Node.names())]
    node: Option<String>,
    /// File that tells `return` that the node is to be uncordoned.
    #[arg(long, value_name = "FILE")]
    marker: PathBuf,
}

impl LeaveArgs {
    fn node(&self) -> String {
        self.node.clone().unwrap_or_else(settings::host_name)
    }
}

pub(crate) async fn leave(args: &LeaveArgs, context: &mut Context<'_>) -> CommandResult {
    let (name, nodes) = (args.node(), context.client.list::<NodeView>("node").await?);
    let Some(node) = nodes.iter().find(|node| node.name.as_str() == name) else {
        stderr::note(&format!("the cluster has no node {name}: nothing to hand over"));
        return Ok(Exit::Ok);
    };
    if !nodes.iter().any(|other| other.name != node.name && takes_pods(other)) {
        stderr::note("no other node takes pods: those of this one end with the machine, and start with it");
        return Ok(Exit::Ok);
    }
    if node.drain.is_none() {
        // Before the drain: a marker without one does no harm.
        write_marker(&args.marker, if node.cordoned { CORDONED_BEFORE } else { CORDONED_HERE })?;
    }
    context.client.drain(&name, None, false).await?;
    context.output.print_result(node, "cordoned")?;
    let left = drain::follow(&name, context).await?;
    if left.is_empty() {
        return Ok(Exit::Ok);
    }
    let names: Vec<String> = left.iter().map(drain::indexed).collect();
    stderr::note(&format!(
        "no replacement was ready within --timeout for {}: they end with the machine. A pod with a persistent \
         volume waits for this node",
        names.join(", ")
    ));
    Ok(Exit::TimedOut)
}

pub(crate) async fn come_back(args: &LeaveArgs, context: &mut Context<'_>) -> CommandResult {
    if !args.marker.exists() {
        return Ok(Exit::Ok);
    }
    let text =
        std::fs::read_to_string(&args.marker).map_err(|error| unusable(&args.marker, "read", &error))?;
    // Either ends the drain.
    let stays_cordoned = text == CORDONED_BEFORE;
    let node = context.client.cordon(&args.node(), stays_cordoned).await?;
    context.output.print_result(&node, if stays_cordoned { "cordoned" } else { "uncordoned" })?;
    std::fs::remove_file(&args.marker).map_err(|error| unusable(&args.marker, "removed", &error))?;
    Ok(Exit::Ok)
}

fn takes_pods(node: &NodeView) -> bool {
    node.ready && !node.cordoned
}

fn write_marker(marker: &Path, text: &str) -> CommandResult<()> {
    std::fs::write(marker, text).map_err(|error| unusable(marker, "written", &error))
}

fn unusable(marker: &Path, what: &str, error: &io::Error) -> CommandError {
    CommandError::Other(format!("the marker {} cannot be {what}: {error}", marker.display()))
}
