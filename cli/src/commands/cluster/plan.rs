//! `plan`: what changes of the cluster would do. Changes nothing.

use std::collections::BTreeMap;

use api_types::{NewNodeInput, PlanChange, PlanInput};
use clap::{Args, Subcommand};
use document::Vocabulary;
use model::ids::NodeName;
use model::spec::{Cpus, Memory};
use output::objects::plans;

use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::objects::object_name::ObjectType;
use crate::exit::Exit;

/// Arguments of `plan`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true,
    after_help = "The code that drains nodes and places pods decides on a copy of the cluster; nothing is changed. A \
                  file has several changes, which are planned in their order, as `POST /plan` takes them:\n\n    \
                  changes:\n      - drain: w1\n      - lose: zone=a\n      - add_node: {cpus: 8, memory: 32GiB}\n      \
                  - scale: {web: 50}\n      - put: {name: db, image: postgres}\n\nThe exit code is 5 if a pod fits \
                  nowhere for another reason than its data."
)]
pub(crate) struct PlanArgs {
    /// File with the changes, YAML or JSON; - for standard input.
    #[arg(long, short, value_name = "FILE", required = true)]
    file: Option<String>,
    #[command(subcommand)]
    command: Option<PlanCommand>,
}

/// One change.
#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Move the pods of nodes to others.
    Drain {
        /// Names of nodes.
        #[arg(value_name = "NODE", required = true, value_parser = ObjectType::Node.names())]
        nodes: Vec<String>,
    },
    /// Lose nodes at once: one by its name, or several by their labels.
    Lose {
        /// Name of a node, or a selector such as zone=a.
        #[arg(value_name = "NODE|SELECTOR")]
        nodes: String,
    },
    /// Add nodes that are alike.
    AddNode(AddNodeArgs),
    /// Change the number of pods of services.
    Scale {
        /// Services and their numbers of pods, such as web=50.
        #[arg(value_name = "SERVICE=REPLICAS", required = true, value_parser = replicas)]
        services: Vec<(String, u32)>,
    },
}

/// Arguments of `plan add-node`.
#[derive(Debug, Args)]
pub(crate) struct AddNodeArgs {
    /// Cores that each offers to pods.
    #[arg(long)]
    cpus: Cpus,
    /// Memory that each offers to pods, such as 32G.
    #[arg(long)]
    memory: Memory,
    /// Disk that each offers to volumes with a space.
    #[arg(long)]
    disk: Option<Memory>,
    /// Pods that each can have; by default as many as the largest node.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pods: Option<u32>,
    /// Label of each; repeatable.
    #[arg(long = "label", short, value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// How many.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    count: u32,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write a label as key=value")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn replicas(text: &str) -> Result<(String, u32), String> {
    let (service, count) = text.split_once('=').ok_or("write service=replicas, such as web=50")?;
    Ok((service.to_owned(), count.parse().map_err(|_| format!("{count:?} is not a number of pods"))?))
}

pub(crate) async fn run(args: PlanArgs, context: &mut Context<'_>) -> CommandResult {
    let input = match (args.command, args.file) {
        (Some(command), _) => PlanInput { changes: changes(command, context).await? },
        (None, Some(file)) => read(&file)?,
        (None, None) => return Err(CommandError::Usage("name a file or a change".to_owned())),
    };
    let plan = context.client.plan(&input).await?;
    context.output.print_document(&plan, || plans::describe(&plan))?;
    Ok(if plan.fits { Exit::Ok } else { Exit::Unschedulable })
}

async fn changes(command: PlanCommand, context: &Context<'_>) -> CommandResult<Vec<PlanChange>> {
    let none = PlanChange::default;
    match command {
        PlanCommand::Drain { nodes } => {
            let of = |name: &String| name.parse::<NodeName>().map_err(|e| CommandError::Usage(e.to_string()));
            let drain = |name: &String| Ok(PlanChange { drain: Some(of(name)?), ..none() });
            nodes.iter().map(drain).collect()
        }
        PlanCommand::Lose { nodes } => Ok(vec![PlanChange { lose: Some(nodes), ..none() }]),
        PlanCommand::AddNode(AddNodeArgs { cpus, memory, disk, pods, labels, count }) => {
            let labels = labels.into_iter().collect();
            let new = NewNodeInput { cpus, memory, disk, pods, labels, count };
            Ok(vec![PlanChange { add_node: Some(new), ..none() }])
        }
        PlanCommand::Scale { services } => {
            let mut scale = BTreeMap::new();
            for (typed, replicas) in services {
                let name = context.service_name(&typed).await?;
                let name = name.parse().map_err(|_| CommandError::NotFound(format!("no service {name}")))?;
                scale.insert(name, replicas);
            }
            Ok(vec![PlanChange { scale, ..none() }])
        }
    }
}

fn read(file: &str) -> CommandResult<PlanInput> {
    let wrong = |why: String| CommandError::Usage(format!("{file}: {why}"));
    let text = match file {
        "-" => std::io::read_to_string(std::io::stdin()),
        path => std::fs::read_to_string(path),
    };
    let text = text.map_err(|error| wrong(error.to_string()))?;
    let (documents, mistakes) = document::yaml(&text);
    if let Some(mistake) = mistakes.first() {
        return Err(wrong(mistake.to_string()));
    }
    let [document] = &documents[..] else { return Err(wrong("is not one document".to_owned())) };
    document::read(document, Vocabulary::Fields)
        .into_result()
        .map_err(|mistakes| wrong(mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")))
}
