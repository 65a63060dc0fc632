//! `service`: list, describe, scale, delete.

use api::dto::{DurabilityState, PodView, ServiceView};
use clap::{Args, Subcommand};
use common::event::ObjectKind;
use common::lifecycle::Phase;

use super::failure::Failure;
use super::wait::Goal;
use super::{Context, Tally, fields};
use crate::client::PodFilter;
use crate::exit::{self, Exit};
use crate::output::{events, services, status};

/// How many events `describe` shows, and how many it looks through for them.
pub(super) const EVENTS_SHOWN: usize = 10;
pub(super) const EVENTS_SEARCHED: usize = 1000;
/// How many pods that are not well `describe` names, and how many of a phase it looks through for them.
const UNWELL_SHOWN: usize = 10;
const UNWELL_SEARCHED: usize = 1000;

/// What to do with services.
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// All services.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Everything about one.
    #[command(visible_aliases = ["show", "get"])]
    Describe {
        /// Which.
        #[arg(value_name = "SERVICE")]
        service: String,
    },
    /// Change how many pods it has.
    Scale(ScaleArgs),
    /// Delete services: their pods are stopped.
    #[command(visible_alias = "delete")]
    Rm(RemoveArgs),
}

/// Which services to list.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only those with this label; may be given again.
    #[arg(long = "label", short, value_name = "KEY=VALUE", value_parser = fields::label)]
    label: Vec<String>,
}

/// Which service, and how many pods.
#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    /// Which.
    #[arg(value_name = "SERVICE")]
    service: String,
    /// How many pods there shall be.
    replicas: u32,
    /// Wait until it is so.
    #[arg(long)]
    wait: bool,
}

/// Which services to delete.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Which.
    #[arg(value_name = "SERVICE", required = true)]
    services: Vec<String>,
    /// Wait until their last pods are gone.
    #[arg(long)]
    wait: bool,
}

/// Carries it out.
pub(super) async fn run(command: ServiceCommand, context: &mut Context<'_>) -> Result<Exit, Failure> {
    match command {
        ServiceCommand::Ls(args) => {
            let found = context.client.services(&args.label).await?;
            context.output.list(&found, "no services; `kubeleet run nginx` makes one")?;
            Ok(Exit::Ok)
        }
        ServiceCommand::Describe { service } => describe(&service, context).await,
        ServiceCommand::Scale(args) => scale(&args, context).await,
        ServiceCommand::Rm(args) => remove(&args, context).await,
    }
}

async fn describe(name: &str, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let service = context.client.service(name).await?;
    let unwell = unwell(&service, context).await?;
    let last = context.client.last_events(EVENTS_SEARCHED).await?;
    let last = events::about(last, ObjectKind::Service, name, EVENTS_SHOWN);
    let now = context.output.now();
    context.output.one(&service, || services::describe(&service, &unwell, &last, now))?;
    Ok(Exit::Ok)
}

/// Some of its pods that complain or failed. Looks at a bounded number of them in each phase.
async fn unwell(service: &ServiceView, context: &Context<'_>) -> Result<Vec<PodView>, Failure> {
    let status = &service.status;
    let complains = !status.message.is_empty();
    let phases = [
        (Phase::Failed, status.failed > 0),
        (Phase::Pending, complains && status.pending > 0),
        (Phase::Assigned, complains && status.assigned > 0),
        (Phase::Running, complains && status.running > 0),
    ];
    let mut found = Vec::new();
    for (phase, _) in phases.into_iter().filter(|(_, look)| *look) {
        let phase = Some(phase.to_string());
        let filter = PodFilter { service: Some(service.name.to_string()), phase, ..PodFilter::default() };
        let (pods, _) = context.client.some_pods(&filter, UNWELL_SEARCHED).await?;
        found.extend(pods.into_iter().filter(|pod| !pod.reason.is_empty() || pod.phase == Phase::Failed));
        if found.len() >= UNWELL_SHOWN {
            break;
        }
    }
    found.truncate(UNWELL_SHOWN);
    Ok(found)
}

async fn scale(args: &ScaleArgs, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let service = context.client.scale(&args.service, args.replicas).await?;
    warn_unless_confirmed(&service);
    context.output.done(&service, &format!("scaled to {}", args.replicas))?;
    if !args.wait {
        return Ok(Exit::Ok);
    }
    let goal = Goal::Ready { service: args.service.clone(), generation: service.generation };
    Ok(context.waiter().until(goal).await)
}

async fn remove(args: &RemoveArgs, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let mut tally = Tally::new();
    let mut goals = Vec::new();
    for name in &args.services {
        let deleted = context.client.delete_service(name).await.map_err(Failure::from);
        if tally.take(deleted)?.is_some() {
            context.output.done_by_name(&format!("service/{name}"), "is being deleted")?;
            goals.push(Goal::ServiceGone { service: name.clone() });
        }
    }
    if args.wait {
        tally.add(context.waiter().until_all(goals).await);
    }
    Ok(tally.0)
}

/// What is stored but not safe yet is said, and is no failure.
pub(super) fn warn_unless_confirmed(service: &ServiceView) {
    if let Some(durability) = &service.durability
        && durability.state == DurabilityState::Unconfirmed
    {
        exit::warn(&format!("service {}: {}", service.name, status::durability_words(durability)));
    }
}
