//! `node label`: labels that an operator gives a node.

use std::collections::BTreeMap;

use api_types::{NodeLabelsPatch, NodeView};
use clap::Args;
use model::node::labels;

use super::object_name::ObjectType;
use crate::commands::context::Context;
use crate::commands::error::CommandResult;
use crate::commands::flag_values;
use crate::exit::Exit;

/// Arguments of `node label`.
#[derive(Debug, Args)]
#[command(after_help = "They count before those of KUBELEET_LABELS of the node's worker.")]
pub(crate) struct LabelArgs {
    /// Name of the node.
    #[arg(value_name = "NODE", value_parser = ObjectType::Node.names())]
    name: String,
    /// Labels: KEY=VALUE sets one, KEY- removes one.
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = label_change)]
    changes: Vec<(String, Option<String>)>,
}

pub(super) async fn label(args: LabelArgs, context: &mut Context<'_>) -> CommandResult {
    let before = context.client.get("node", &args.name).await?;
    let changes = NodeLabelsPatch(args.changes.into_iter().collect());
    let after = context.client.label_node(&args.name, &changes).await?;
    context.output.print_result(&after, &result(&before, &after))?;
    Ok(Exit::Ok)
}

fn label_change(text: &str) -> Result<(String, Option<String>), String> {
    if let Some(key) = text.strip_suffix('-').filter(|key| !key.is_empty() && !key.contains('=')) {
        return Ok((key.to_owned(), None));
    }
    match flag_values::key_value(text) {
        Ok((key, value)) => Ok((key, Some(value))),
        Err(_) => {
            Err(format!("{text:?} is neither KEY=value, which sets a label, nor KEY-, which removes it"))
        }
    }
}

fn result(before: &NodeView, after: &NodeView) -> String {
    let keys = before.labels.keys().chain(after.labels.keys());
    let changed = keys.filter(|key| before.labels.get(*key) != after.labels.get(*key));
    let changes: BTreeMap<_, _> = changed.map(|key| (key.clone(), after.labels.get(key).cloned())).collect();
    match changes.is_empty() {
        true => "unchanged".to_owned(),
        false => format!("labelled: {}", labels::describe(&changes)),
    }
}
