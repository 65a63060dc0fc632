//! Asks the API for names. A failure yields none: a user who is typing wants no errors.

use std::time::Duration;

use api_types::NodeView;
use clap::FromArgMatches;
use client::{Client, ClientError};

use super::candidates::{ListRequest, Name};
use crate::commands::globals::Globals;
use crate::commands::objects;
use crate::help;

/// A TAB that takes longer than half a second feels broken; this leaves time to start the program.
const TIME_LIMIT: Duration = Duration::from_millis(400);

/// Address and token come from the typed words or the environment.
pub(super) fn ask(words: &[String], list: ListRequest) -> Vec<Name> {
    let answer = || {
        let client = globals(words)?.client().ok()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let names = runtime.block_on(async { tokio::time::timeout(TIME_LIMIT, read(&client, list)).await });
        // A host name look-up cannot be cancelled; do not wait for it.
        runtime.shutdown_background();
        names.ok()?.ok()
    };
    answer().unwrap_or_default()
}

pub(super) fn globals(words: &[String]) -> Option<Globals> {
    let line = help::command_line().ignore_errors(true);
    Globals::from_arg_matches(&line.try_get_matches_from(words).ok()?).ok()
}

async fn read(client: &Client, list: ListRequest) -> Result<Vec<Name>, ClientError> {
    match list {
        ListRequest::Names(object_type) => {
            let names = objects::names(object_type, client).await?;
            Ok(names.into_iter().map(|(text, help)| Name { text, help }).collect())
        }
        ListRequest::Labels { of_nodes: true } => {
            let nodes: Vec<NodeView> = client.list("node").await?;
            Ok(labels(nodes.iter().flat_map(|node| &node.labels)))
        }
        ListRequest::Labels { of_nodes: false } => {
            let services = client.services(None).await?;
            Ok(labels(services.iter().flat_map(|service| &service.fields.labels)))
        }
    }
}

fn labels<'a>(labels: impl Iterator<Item = (&'a String, &'a String)>) -> Vec<Name> {
    labels.map(|(key, value)| Name { text: format!("{key}={value}"), help: String::new() }).collect()
}
