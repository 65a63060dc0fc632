//! One file per type of object, and the table of what `get`, `describe`, `delete` and completion do with
//! each.

pub(crate) mod app;
pub(crate) mod cron;
pub(crate) mod edit_dead_letter;
pub(crate) mod find_pod;
pub(crate) mod job;
pub(crate) mod name_without_type;
pub(crate) mod node;
mod node_label;
pub(crate) mod object_name;
pub(crate) mod operation_first;
pub(crate) mod pod;
pub(crate) mod queue;
pub(crate) mod recent_events;
pub(crate) mod registry;
pub(crate) mod route;
pub(crate) mod secret_and_config;
pub(crate) mod volume;

use api_types::{NodeView, PodView, RegistryView, RouteView, VolumeView};
use clap::Subcommand;
use client::{Client, ClientError, PodFilter};
use model::value::ValueKind;
use output::objects::apps::AppSummary;
use output::objects::secrets_and_configs::ValueRow;
use output::objects::{pods, queues, services};
use output::{ListStyle, TableRow};

use super::context::Context;
use super::error::{CommandError, CommandResult};
use super::selector_args::SelectorArgs;
use super::services::service;
use super::type_args::LabelledListArgs;
use object_name::ObjectType;

/// More than anyone chooses from by TAB.
const MAX_NAMES: u32 = 1000;

/// The commands of the types.
#[derive(Debug, Subcommand)]
pub(crate) enum ObjectCommand {
    /// List, inspect, change and delete services.
    #[command(visible_aliases = ["svc", "services"])]
    Service(service::ServiceArgs),
    /// List jobs, and show the results of their indices.
    #[command(visible_alias = "jobs")]
    Job(job::JobArgs),
    /// List crons, run one now, suspend and resume.
    #[command(visible_alias = "crons")]
    Cron(cron::CronArgs),
    /// List, inspect and delete apps: the services of Compose files.
    #[command(visible_alias = "apps")]
    App(app::AppArgs),
    /// List, inspect and stop pods, and print their output.
    #[command(visible_aliases = ["po", "pods"])]
    Pod(pod::PodArgs),
    /// List, inspect, label, cordon, uncordon and remove nodes.
    #[command(visible_aliases = ["no", "nodes"])]
    Node(node::NodeArgs),
    /// List, inspect and remove persistent volumes.
    #[command(visible_aliases = ["vol", "volumes"])]
    Volume(volume::VolumeArgs),
    /// List the routes from outside, and explain where a request goes.
    #[command(visible_alias = "routes")]
    Route(route::RouteArgs),
    /// Create, rotate, list and remove secrets: encrypted values that containers get as files.
    #[command(visible_alias = "secrets")]
    Secret(secret_and_config::SecretArgs),
    /// Create, rotate, list and remove configs: values that containers get as files.
    #[command(visible_alias = "configs")]
    Config(secret_and_config::ConfigArgs),
    /// Log in to registries of images, list logins, log out.
    #[command(visible_alias = "registries")]
    Registry(registry::RegistryArgs),
    /// Inspect queues; requeue or drop dead letters.
    #[command(visible_alias = "queues")]
    Queue(queue::QueueArgs),
}

pub(crate) async fn run(command: ObjectCommand, context: &mut Context<'_>) -> CommandResult {
    match command {
        ObjectCommand::Service(args) => service::run(args, context).await,
        ObjectCommand::Job(args) => job::run(args, context).await,
        ObjectCommand::Cron(args) => cron::run(args, context).await,
        ObjectCommand::App(args) => app::run(args, context).await,
        ObjectCommand::Pod(args) => pod::run(args, context).await,
        ObjectCommand::Node(args) => node::run(args, context).await,
        ObjectCommand::Volume(args) => volume::run(args, context).await,
        ObjectCommand::Route(args) => route::run(args, context).await,
        ObjectCommand::Secret(args) => secret_and_config::secret(args, context).await,
        ObjectCommand::Config(args) => secret_and_config::config(args, context).await,
        ObjectCommand::Registry(args) => registry::run(args, context).await,
        ObjectCommand::Queue(args) => queue::run(args, context).await,
    }
}

/// Only services, pods and nodes have labels to select by.
pub(crate) async fn list(
    object_type: ObjectType,
    selector: SelectorArgs,
    style: ListStyle,
    context: &mut Context<'_>,
) -> CommandResult {
    match object_type {
        ObjectType::Service => service::list(&LabelledListArgs { selector, style }, context).await,
        ObjectType::Job => job::list(&job::ListArgs { style, cron: None }, context).await,
        ObjectType::Cron => cron::list(style, context).await,
        ObjectType::App => app::list(style, context).await,
        ObjectType::Pod => {
            pod::list(&pod::ListArgs { selector, style, ..pod::ListArgs::default() }, context).await
        }
        ObjectType::Node => node::list(&LabelledListArgs { selector, style }, context).await,
        ObjectType::Secret => secret_and_config::list(ValueKind::Secret, style, context).await,
        ObjectType::Config => secret_and_config::list(ValueKind::Config, style, context).await,
        ObjectType::Volume => volume::list(style, context).await,
        ObjectType::Registry => registry::list(style, context).await,
        ObjectType::Route => route::list(style, context).await,
        ObjectType::Queue => queue::list(&queue::ListArgs { style, all: false }, context).await,
        ObjectType::DeadLetter => queue::list_dead_letters(style, queue::DEFAULT_LIMIT, context).await,
    }
}

pub(crate) async fn describe(
    object_type: ObjectType,
    name: &str,
    context: &mut Context<'_>,
) -> CommandResult {
    match object_type {
        ObjectType::Service | ObjectType::Job | ObjectType::Cron => service::describe(name, context).await,
        ObjectType::App => app::describe(name, context).await,
        ObjectType::Pod => pod::describe(name, context).await,
        ObjectType::Node => node::describe(name, context).await,
        ObjectType::Secret => secret_and_config::describe(ValueKind::Secret, name, context).await,
        ObjectType::Config => secret_and_config::describe(ValueKind::Config, name, context).await,
        ObjectType::Volume => volume::describe(name, context).await,
        ObjectType::Registry => registry::describe(name, context).await,
        ObjectType::Route => route::explain(name.to_owned(), context).await,
        ObjectType::Queue => queue::peek(name, queue::DEFAULT_LIMIT, context).await,
        ObjectType::DeadLetter => Err(CommandError::Usage(
            "a dead letter has no description: `kubeleet queue peek dq` shows them".to_owned(),
        )),
    }
}

pub(crate) async fn delete(
    object_type: ObjectType,
    names: Vec<String>,
    selector: &SelectorArgs,
    wait: bool,
    context: &mut Context<'_>,
) -> CommandResult {
    match object_type {
        ObjectType::Service | ObjectType::Job | ObjectType::Cron => {
            service::remove(&names, selector, false, wait, context).await
        }
        ObjectType::App => app::remove(&names, wait, context).await,
        ObjectType::Pod => pod::stop(names, selector, wait, context).await,
        ObjectType::Node => node::remove(&names, false, context).await,
        ObjectType::Secret => secret_and_config::remove(ValueKind::Secret, &names, false, context).await,
        ObjectType::Config => secret_and_config::remove(ValueKind::Config, &names, false, context).await,
        ObjectType::Volume => volume::remove(&names, None, context).await,
        ObjectType::Registry => registry::logout(&names, false, context).await,
        ObjectType::DeadLetter => queue::drop_dead_letters(&names, context).await,
        ObjectType::Queue => Err(CommandError::Usage("a queue cannot be deleted".to_owned())),
        ObjectType::Route => Err(CommandError::Usage(
            "a route cannot be deleted: take it out of the `ingress` of its service".to_owned(),
        )),
    }
}

pub(crate) async fn names(
    object_type: ObjectType,
    client: &Client,
) -> Result<Vec<(String, String)>, ClientError> {
    let no_help = |_: &ValueRow| String::new();
    Ok(match object_type {
        ObjectType::Service | ObjectType::Job | ObjectType::Cron => {
            let mut services = client.services(None).await?;
            services.retain(|service| object_type.service_kind().is_none_or(|kind| service.pod.kind == kind));
            named(services, |service| services::status_word(service).to_owned())
        }
        ObjectType::App => {
            let apps = AppSummary::all(client.services(None).await?);
            named(apps, |app| app.status().to_owned())
        }
        ObjectType::Secret => named(secret_and_config::rows(ValueKind::Secret, client).await?, no_help),
        ObjectType::Config => named(secret_and_config::rows(ValueKind::Config, client).await?, no_help),
        ObjectType::Pod => {
            let (pods, _) = client.some_pods(&PodFilter::default(), MAX_NAMES as usize).await?;
            pods.iter().map(pod_name).collect()
        }
        ObjectType::Node => {
            let help = |node: &NodeView| if node.ready { "ready" } else { "not ready" }.to_owned();
            named(client.list("node").await?, help)
        }
        ObjectType::Volume => named(client.list("volume").await?, |volume: &VolumeView| {
            volume.node.as_ref().map_or_else(|| "shared".to_owned(), |node| format!("on {node}"))
        }),
        ObjectType::Registry => {
            let help = |registry: &RegistryView| format!("as {}", registry.user);
            named(client.list("registry").await?, help)
        }
        ObjectType::Route => {
            named(client.list("route").await?, |route: &RouteView| format!("of {}", route.service))
        }
        ObjectType::Queue => {
            named(queues::rows(&client.queues().await?, true), |queue| queue.holds.to_owned())
        }
        ObjectType::DeadLetter => {
            named(client.dead_letters(Some(MAX_NAMES)).await?, |dead_letter| dead_letter.reason.clone())
        }
    })
}

fn named<T: TableRow>(rows: Vec<T>, help: impl Fn(&T) -> String) -> Vec<(String, String)> {
    rows.iter().map(|row| (row.id(), help(row))).collect()
}

/// The uuid of a pushed pod: several may share a name.
fn pod_name(pod: &PodView) -> (String, String) {
    let text = match pod.service {
        Some(_) => pods::indexed_name(pod),
        None => pod.uuid.to_string(),
    };
    let node = pod.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
    (text, format!("{}{node}", pod.phase))
}
