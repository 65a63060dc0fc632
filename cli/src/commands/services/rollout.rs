//! `rollout`: history, undo and progress of changes to a service's pods.

use api_types::{GenerationView, ServiceView};
use clap::{Args, Subcommand};
use client::ClientError;
use model::pod::image::{self, ImageContent};
use model::spec::{PodSpec, ServiceInput};
use output::humanize;
use output::line_diff::line_diff;
use output::objects::generations;
use output::stderr;

use super::restart::{self, RestartArgs};
use crate::commands::apps::effect_on_pods;
use crate::commands::apps::service_form;
use crate::commands::context::Context;
use crate::commands::durability_warning::warn_if_unconfirmed;
use crate::commands::error::CommandError;
use crate::commands::objects::object_name;
use crate::commands::wait::Goal;
use crate::exit::Exit;

/// Subcommands of `rollout`.
#[derive(Debug, Subcommand)]
pub(crate) enum RolloutCommand {
    /// Show what a service was before: its last ten specifications.
    History(HistoryArgs),
    /// Replace the pods of a service by pods of a former specification, step by step.
    Undo(UndoArgs),
    /// Wait until all pods of a service are of its current generation and ready.
    Status {
        /// Name of the service.
        #[arg(value_name = "SERVICE", value_parser = object_name::service)]
        service: String,
    },
    /// Replace no further pod of a service, until it is resumed or undone: if nothing is replaced now, the
    /// next change waits.
    Pause {
        /// Name of the service.
        #[arg(value_name = "SERVICE", value_parser = object_name::service)]
        service: String,
    },
    /// Go on with an update that was paused, by `rollout pause` or because new pods are bad, in spite of
    /// these. Returns at once; `rollout status` waits.
    Resume {
        /// Name of the service.
        #[arg(value_name = "SERVICE", value_parser = object_name::service)]
        service: String,
    },
    /// Go on with an update that waits after its first pods, because its policy has a `canary`: the others
    /// are replaced step by step. Returns at once; `rollout status` waits.
    Promote {
        /// Name of the service.
        #[arg(value_name = "SERVICE", value_parser = object_name::service)]
        service: String,
    },
    /// Replace the pods of services, step by step.
    Restart(RestartArgs),
}

/// Arguments of `rollout history`.
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Name of the service.
    #[arg(value_name = "SERVICE", value_parser = object_name::service)]
    service: String,
}

/// Arguments of `rollout undo`.
#[derive(Debug, Args)]
#[command(after_help = "Only the pods change: replicas, labels, dependencies and ingress stay as they are. \
                        Typed twice, it undoes itself; it never goes back to a generation that was bad.")]
pub(crate) struct UndoArgs {
    /// Name of the service.
    #[arg(value_name = "SERVICE", value_parser = object_name::service)]
    service: String,
    /// The generation to go back to, as `rollout history` names it; by default the last one that was good.
    #[arg(long, visible_alias = "to-revision", value_name = "GENERATION")]
    to: Option<u64>,
    /// Only show what would change.
    #[arg(long)]
    dry_run: bool,
    /// Wait until all pods are replaced.
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
}

impl RolloutCommand {
    fn service(&mut self) -> Option<&mut String> {
        match self {
            Self::History(HistoryArgs { service }) | Self::Undo(UndoArgs { service, .. }) => Some(service),
            Self::Status { service }
            | Self::Pause { service }
            | Self::Resume { service }
            | Self::Promote { service } => Some(service),
            Self::Restart(_) => None,
        }
    }
}

pub(crate) async fn run(
    mut command: RolloutCommand,
    context: &mut Context<'_>,
) -> Result<Exit, CommandError> {
    if let Some(service) = command.service() {
        *service = context.service_name(service).await?;
    }
    match command {
        RolloutCommand::History(args) => history(&args.service, context).await,
        RolloutCommand::Undo(args) => undo(args, context).await,
        RolloutCommand::Status { service } => {
            let generation = context.client.service(&service).await?.generation;
            Ok(context.waiter().wait_for(Goal::Ready { service, generation }).await)
        }
        RolloutCommand::Pause { service } => {
            let after = context.client.mark_rollout(&service, "pause").await?;
            let is_replacing = after.status.updated < after.status.desired;
            let what =
                if is_replacing { "paused" } else { "paused: its next change waits for `rollout resume`" };
            context.output.print_result(&after, what)?;
            Ok(Exit::Ok)
        }
        RolloutCommand::Resume { service } => {
            let after = context.client.mark_rollout(&service, "resume").await?;
            context.output.print_result(&after, "resumed")?;
            Ok(Exit::Ok)
        }
        RolloutCommand::Promote { service } => {
            let after = context.client.mark_rollout(&service, "promote").await?;
            context.output.print_result(&after, "promoted")?;
            Ok(Exit::Ok)
        }
        RolloutCommand::Restart(args) => restart::run(&args, context).await,
    }
}

async fn history(name: &str, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let service = context.client.service(name).await?;
    let views = generations_of(name, context).await?;
    let forms: Vec<ServiceInput> =
        views.iter().map(|view| service_form::stored(&with_pods(&service, view))).collect();
    let changed = |index: usize| match forms.get(index + 1) {
        Some(before) => {
            let mut changed = effect_on_pods::changed_fields(before, &forms[index]);
            if image::differing(&views[index].images, &views[index + 1].images).is_some() {
                changed.push("image content".to_owned());
            }
            changed
        }
        None => Vec::new(),
    };
    let changed: Vec<_> = (0..views.len()).map(changed).collect();
    let rows: Vec<_> =
        views.into_iter().zip(changed).map(|(view, changed)| generations::row(view, changed)).collect();
    context.output.print_list(&rows, "")?;
    Ok(Exit::Ok)
}

async fn undo(args: UndoArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let UndoArgs { service: name, to, dry_run, wait } = args;
    let service = context.client.service(&name).await?;
    let views = generations_of(&name, context).await?;
    let mut former = views.iter().filter(|view| view.until.is_some());
    let view = match to {
        Some(to) => former.find(|view| view.generation == to),
        // An API of the previous version sends no target, and restores the latest generation.
        None => former.find(|view| view.undo_target.unwrap_or(true)),
    };
    let Some(view) = view else { return Err(nothing_to_undo(&service, &views, to)) };
    if to.is_none() {
        print_skipped(&views, view.generation);
    }
    if dry_run {
        context.output.print_bytes(difference(&service, view)?.as_bytes())?;
        context.client.check_undo(&name, view.generation).await?;
        return Ok(Exit::Ok);
    }
    // Undoes what was read: refused if another client changed the service since.
    let after = context.client.undo(&service, view.generation).await?;
    warn_if_unconfirmed(&after);
    let result = format!("undone: generation {} is as {} was", after.generation, view.generation);
    context.output.print_result(&after, &result)?;
    if !wait {
        return Ok(Exit::Ok);
    }
    let goal = Goal::Ready { service: name, generation: after.generation };
    Ok(context.waiter().wait_for(goal).await)
}

/// Notes the later generations that an undo skips because they were bad.
fn print_skipped(views: &[GenerationView], target: u64) {
    for view in views.iter().filter(|view| view.until.is_some() && view.generation > target) {
        if !view.message.is_empty() {
            stderr::note(&format!("generation {} was bad: {}", view.generation, view.message));
        }
    }
}

fn nothing_to_undo(service: &ServiceView, views: &[GenerationView], to: Option<u64>) -> CommandError {
    let name = &service.name;
    match to {
        Some(to) if to == service.generation => {
            CommandError::Other(format!("generation {to} of service {name} is the current one"))
        }
        None if views.len() > 1 => {
            let current = service.generation;
            let bad = views.iter().find(|view| view.until.is_some() && !view.message.is_empty());
            let why = bad.map_or_else(
                || format!("service {name} has no former generation that differs from generation {current}"),
                |view| {
                    let (former, message) = (view.generation, &view.message);
                    format!(
                        "service {name} has no former generation that was good: generation {former} was bad: {message}"
                    )
                },
            );
            CommandError::Other(format!(
                "{why}; nothing was changed; `kubeleet rollout undo {name} --to N` goes to another one of \
                 `kubeleet rollout history {name}`"
            ))
        }
        Some(to) if views.len() > 1 => CommandError::NotFound(format!(
            "service {name} has no former generation {to}; `kubeleet rollout history {name}` lists them"
        )),
        _ => CommandError::NotFound(format!(
            "service {name} has no former generation: its pods never had another specification"
        )),
    }
}

async fn generations_of(name: &str, context: &Context<'_>) -> Result<Vec<GenerationView>, CommandError> {
    // The service exists, so it is the route that is missing.
    let too_old = |error: ClientError| match error.status() {
        Some(404) => CommandError::Other(format!(
            "service {name} has no history: the API is too old, it must be upgraded first"
        )),
        _ => error.into(),
    };
    context.client.history(name).await.map_err(too_old)
}

fn with_pods(service: &ServiceView, view: &GenerationView) -> ServiceView {
    let GenerationView { on_disconnect, stop_grace_period, drain, containers, .. } = view.clone();
    let pod = PodSpec { kind: service.pod.kind, on_disconnect, stop_grace_period, drain, containers };
    ServiceView { pod, ..service.clone() }
}

fn difference(service: &ServiceView, view: &GenerationView) -> Result<String, CommandError> {
    let before = service_form::yaml(&service_form::stored(service))?;
    let after = service_form::yaml(&service_form::stored(&with_pods(service, view)))?;
    let (name, current) = (&service.name, service.generation);
    let lines = line_diff(&before, &after);
    let pods = humanize::count(u64::from(service.replicas), "pod");
    let content = |sign: char, one: &ImageContent| format!("{sign}# {} is {}\n", one.image, one.identity());
    let contents = match image::differing(&view.images, &service.images) {
        Some(other) => {
            let current = service.images.iter().filter(|one| one.image == other.image);
            current.map(|one| content('-', one)).chain([content('+', other)]).collect()
        }
        None => String::new(),
    };
    let head = format!(
        "--- service/{name} (generation {current}, current)\n+++ service/{name} (generation {})\n",
        view.generation
    );
    Ok(format!("{head}{lines}{contents}# {pods} would be replaced\n"))
}
