//! `service`: the commands of a service.

use api_types::{NodeView, PodView, ServiceView, VolumeView};
use clap::{Args, Subcommand};
use client::{Client, PodFilter, found};
use model::event::ObjectKind;
use model::node::NodeInfo;
use model::pod::lifecycle::Phase;
use output::objects::services;
use output::stderr;

use super::edit::{self, EditArgs};
use super::restart::{self, RestartArgs};
use super::scale::{self, ScaleArgs};
use crate::commands::batch::BatchResult;
use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::lists;
use crate::commands::objects::object_name;
use crate::commands::objects::recent_events;
use crate::commands::selector_args::SelectorArgs;
use crate::commands::type_args::{LabelledListArgs, TypeArgs};
use crate::commands::wait::Goal;
use crate::exit::Exit;

const MAX_UNHEALTHY_SHOWN: usize = 10;
/// Counted for each phase.
const MAX_UNHEALTHY_SEARCHED: usize = 1000;

pub(crate) type ServiceArgs = TypeArgs<LabelledListArgs, ServiceCommand>;

const NONE_SELECTED: &str = "no services with these labels";

/// Subcommands of `service`.
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// List services.
    #[command(visible_alias = "list")]
    Ls(LabelledListArgs),
    /// Show one service in detail.
    #[command(visible_aliases = ["show", "get"])]
    Describe {
        /// Name of the service.
        #[arg(value_name = "SERVICE", value_parser = object_name::service)]
        service: String,
    },
    /// Change the number of pods of services.
    Scale(ScaleArgs),
    /// Change a service in an editor.
    Edit(EditArgs),
    /// Replace the pods of services, step by step.
    Restart(RestartArgs),
    /// Delete services and stop their pods.
    #[command(visible_alias = "delete")]
    Rm(RemoveArgs),
}

/// Arguments of `service rm`.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Names of the services.
    #[arg(
        value_name = "SERVICE",
        required_unless_present = "label",
        conflicts_with = "label",
        value_parser = object_name::service
    )]
    services: Vec<String>,
    #[command(flatten)]
    selector: SelectorArgs,
    /// Remove their persistent volumes as well, with the data; requires --yes.
    #[arg(long, requires = "yes")]
    volumes: bool,
    /// Confirms --volumes.
    #[arg(long)]
    yes: bool,
    /// Wait until their last pods are gone.
    #[arg(long)]
    wait: bool,
}

pub(crate) async fn run(args: ServiceArgs, context: &mut Context<'_>) -> CommandResult {
    match args.or_list(ServiceCommand::Ls)? {
        ServiceCommand::Ls(args) => list(&args, context).await,
        ServiceCommand::Describe { service } => describe(&service, context).await,
        ServiceCommand::Scale(args) => scale::run(&args, context).await,
        ServiceCommand::Edit(args) => edit::run(&args, context).await,
        ServiceCommand::Restart(args) => restart::run(&args, context).await,
        ServiceCommand::Rm(RemoveArgs { services, selector, volumes, wait, .. }) => {
            remove(&services, &selector, volumes, wait, context).await
        }
    }
}

pub(crate) async fn list(args: &LabelledListArgs, context: &mut Context<'_>) -> CommandResult {
    let none = match args.selector.is_empty() {
        true => "no services; `kubeleet run nginx` starts one",
        false => NONE_SELECTED,
    };
    let read = async |client: &Client| client.services(args.selector.text()).await;
    lists::show(args.style, none, read, context).await
}

pub(crate) async fn describe(name: &str, context: &mut Context<'_>) -> CommandResult {
    let name = &context.service_name(name).await?;
    let service = context.client.service(name).await?;
    let unhealthy = unhealthy_pods(&service, context).await?;
    // One missing line of the description is not an error.
    let with_machine_ports = has_machine_ports(&service, context).await.unwrap_or(false);
    let events = recent_events::about(&context.client, ObjectKind::Service, name).await?;
    context.output.print_object(&service, |now| {
        services::describe(&service, with_machine_ports, &unhealthy, &events, now)
    })?;
    Ok(Exit::Ok)
}

/// True on nodes whose pods share the machine's ports.
async fn has_machine_ports(service: &ServiceView, context: &Context<'_>) -> CommandResult<bool> {
    let mut nodes: Vec<NodeView> = context.client.list("node").await?;
    nodes.retain(|node| NodeInfo::runtime_has_machine_ports(&node.runtime));
    if nodes.is_empty() {
        return Ok(false);
    }
    let filter = PodFilter { service: Some(service.name.to_string()), ..PodFilter::default() };
    let (pods, _) = context.client.some_pods(&filter, MAX_UNHEALTHY_SEARCHED).await?;
    let is_there = |pod: &PodView| nodes.iter().any(|node| Some(&node.name) == pod.node.as_ref());
    Ok(pods.iter().any(is_there))
}

async fn unhealthy_pods(service: &ServiceView, context: &Context<'_>) -> CommandResult<Vec<PodView>> {
    let status = &service.status;
    let has_problem = !status.message.is_empty();
    let phases = [
        (Phase::Failed, status.failed > 0),
        (Phase::Pending, has_problem && status.pending > 0),
        (Phase::Assigned, has_problem && status.assigned > 0),
        (Phase::Running, has_problem && status.running > 0),
    ];
    let mut unhealthy = Vec::new();
    for (phase, _) in phases.into_iter().filter(|(_, is_searched)| *is_searched) {
        let phase = Some(phase.to_string());
        let filter = PodFilter { service: Some(service.name.to_string()), phase, ..PodFilter::default() };
        let (pods, _) = context.client.some_pods(&filter, MAX_UNHEALTHY_SEARCHED).await?;
        unhealthy.extend(pods.into_iter().filter(|pod| !pod.reason.is_empty() || pod.phase == Phase::Failed));
        if unhealthy.len() >= MAX_UNHEALTHY_SHOWN {
            break;
        }
    }
    unhealthy.truncate(MAX_UNHEALTHY_SHOWN);
    Ok(unhealthy)
}

pub(crate) async fn remove(
    named: &[String],
    selector: &SelectorArgs,
    volumes: bool,
    wait: bool,
    context: &mut Context<'_>,
) -> CommandResult {
    let mut services = Vec::new();
    let Some(selector) = selector.text() else {
        for name in named {
            services.push(context.service_name(name).await?);
        }
        return delete(&services, false, volumes, wait, context).await;
    };
    let selected = context.client.services(Some(selector)).await?;
    if selected.is_empty() {
        stderr::note(NONE_SELECTED);
    }
    services.extend(selected.into_iter().map(|service| service.name.to_string()));
    delete(&services, true, volumes, wait, context).await
}

pub(crate) async fn delete(
    services: &[String],
    are_listed: bool,
    volumes: bool,
    wait: bool,
    context: &mut Context<'_>,
) -> CommandResult {
    let mut batch = BatchResult::new();
    let mut goals = Vec::new();
    for service in services {
        let deleted = match are_listed {
            true => delete_listed(service, volumes, &context.client).await,
            false => context
                .client
                .delete_service(service, volumes)
                .await
                .map(|()| true)
                .map_err(CommandError::from),
        };
        if batch.accept(deleted)? == Some(true) {
            context.output.print_result_of(&format!("service/{service}"), "is being deleted")?;
            goals.push(Goal::ServiceGone { service: service.clone() });
        }
    }
    if !volumes && !goals.is_empty() {
        note_volumes(&goals, &context.client).await;
    }
    batch.record(context.wait_if(wait, goals).await);
    Ok(batch.exit())
}

async fn note_volumes(deleted: &[Goal], client: &Client) {
    // Without an answer none are named: the services are deleted anyway.
    let volumes: Vec<VolumeView> = client.list("volume").await.unwrap_or_default();
    let is_left = |volume: &&VolumeView| {
        deleted
            .iter()
            .any(|goal| matches!(goal, Goal::ServiceGone { service } if volume.service.as_str() == service))
    };
    let names: Vec<String> = volumes.iter().filter(is_left).map(|volume| volume.name.to_string()).collect();
    if !names.is_empty() {
        let names = names.join(" ");
        stderr::note(&format!("volumes stay, with their data; to remove them: kubeleet volume rm {names}"));
    }
}

/// False if the service is already gone, which is fine.
pub(crate) async fn delete_listed(service: &str, volumes: bool, client: &Client) -> CommandResult<bool> {
    Ok(found(client.delete_service(service, volumes).await)?.is_some())
}
