//! Asks the API for names. Any failure yields no names: a user who is typing wants no errors.

use std::time::Duration;

use api_types::{NodeView, PodView, RegistryView, RouteView, ServiceView, VolumeView};
use clap::FromArgMatches;
use client::{Client, ClientError, PodFilter};
use model::value::ValueKind;
use output::objects::apps::AppSummary;
use output::objects::{pods, queues};

use super::candidates::{ListRequest, Name};
use crate::commands::globals::Globals;
use crate::commands::objects::object_name::ObjectType;
use crate::help;

/// A TAB that takes longer than half a second feels broken; this leaves time to start the program.
const TIME_LIMIT: Duration = Duration::from_millis(400);
/// Maximum pods and dead letters read: more than anyone chooses from by TAB.
const LIMIT: usize = 1000;

/// Returns the API's list, or nothing without a timely answer. Address and token come from the typed words or
/// the environment.
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
        ListRequest::Names(object_type) => names(client, object_type).await,
        ListRequest::Labels { of_nodes: true } => {
            let nodes = client.nodes().await?;
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

async fn names(client: &Client, object_type: ObjectType) -> Result<Vec<Name>, ClientError> {
    Ok(match object_type {
        ObjectType::Service | ObjectType::Job | ObjectType::Cron => {
            let mut services = client.services(None).await?;
            services.retain(|service| object_type.service_kind().is_none_or(|kind| service.pod.kind == kind));
            let name = |service: &ServiceView| Name {
                text: service.name.to_string(),
                help: service.status.summary(service.state).to_owned(),
            };
            services.iter().map(name).collect()
        }
        ObjectType::App => {
            let name = |app: AppSummary| Name { text: app.name().to_string(), help: app.status().to_owned() };
            AppSummary::all(client.services(None).await?).into_iter().map(name).collect()
        }
        ObjectType::Secret => values(client, ValueKind::Secret).await?,
        ObjectType::Config => values(client, ValueKind::Config).await?,
        ObjectType::Pod => {
            let (pods, _) = client.some_pods(&PodFilter::default(), LIMIT).await?;
            pods.iter().map(pod_name).collect()
        }
        ObjectType::Node => {
            let nodes = client.nodes().await?;
            let name = |node: &NodeView| Name {
                text: node.name.to_string(),
                help: if node.ready { "ready" } else { "not ready" }.to_owned(),
            };
            nodes.iter().map(name).collect()
        }
        ObjectType::Volume => {
            let name = |volume: VolumeView| Name {
                text: volume.name.to_string(),
                help: volume.node.map_or_else(|| "shared".to_owned(), |node| format!("on {node}")),
            };
            client.volumes().await?.into_iter().map(name).collect()
        }
        ObjectType::Registry => {
            let name = |registry: RegistryView| Name {
                text: registry.host.to_string(),
                help: format!("as {}", registry.user),
            };
            client.registries().await?.into_iter().map(name).collect()
        }
        ObjectType::Route => {
            let name = |route: RouteView| Name { text: route.route, help: format!("of {}", route.service) };
            client.routes().await?.into_iter().map(name).collect()
        }
        ObjectType::Queue => {
            let queues = queues::rows(&client.queues().await?, true);
            let name = |row: queues::QueueRow| Name { text: row.queue, help: row.holds.to_owned() };
            queues.into_iter().map(name).collect()
        }
        ObjectType::DeadLetter => {
            let dead_letters = client.dead_letters(LIMIT).await?.items;
            dead_letters.into_iter().map(|dead| Name { text: dead.id, help: dead.reason }).collect()
        }
    })
}

async fn values(client: &Client, kind: ValueKind) -> Result<Vec<Name>, ClientError> {
    let values = client.values(kind).await?;
    Ok(values.into_iter().map(|value| Name { text: value.name.to_string(), help: String::new() }).collect())
}

/// Returns the name of a service's pod, `web-0`, or another pod's uuid: several pods may share its name.
fn pod_name(pod: &PodView) -> Name {
    let text = match pod.service {
        Some(_) => pods::indexed_name(pod),
        None => pod.uuid.to_string(),
    };
    let node = pod.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
    Name { text, help: format!("{}{node}", pod.phase) }
}
