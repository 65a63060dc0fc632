//! `rollout`: changes to a service's pods.

use api_types::{GenerationView, ServiceView};
use clap::{Args, Subcommand};
use client::{ClientError, Method};
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
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::objects::object_name;
use crate::commands::wait::Goal;
use crate::exit::Exit;

/// Subcommands of `rollout`.
#[derive(Debug, Subcommand)]
pub(crate) enum RolloutCommand {
    /// Show the last ten specifications of a service.
    History(OneService),
    /// Replace the pods of a service by pods of a former specification, step by step.
    Undo(UndoArgs),
    /// Wait until all pods of a service are of its current generation and ready.
    Status(OneService),
    /// Replace no further pod of a service, until it is resumed or undone: if nothing is replaced now, the
    /// next change waits.
    Pause(OneService),
    /// Go on with an update that was paused, by `rollout pause` or because new pods are bad, in spite of
    /// these. Returns at once; `rollout status` waits.
    Resume(OneService),
    /// Go on with an update that waits after its first pods, because its policy has a `canary`: the others
    /// are replaced step by step. Returns at once; `rollout status` waits.
    Promote(OneService),
    /// Replace the pods of services, step by step.
    Restart(RestartArgs),
}

/// Arguments of most subcommands.
#[derive(Debug, Args)]
pub(crate) struct OneService {
    /// Name of the service.
    #[arg(value_name = "SERVICE", value_parser = object_name::service)]
    service: String,
}

/// Arguments of `rollout undo`.
#[derive(Debug, Args)]
#[command(after_help = "Only the pods change: replicas, labels, dependencies and ingress stay as they are. \
                        Typed twice, it undoes itself; it never goes back to a generation that was bad.")]
pub(crate) struct UndoArgs {
    #[command(flatten)]
    service: OneService,
    /// The generation to go back to, as `rollout history` names it; by default the last one that was good,
    /// or, if none is known to be good, the last one that has not failed.
    #[arg(long, visible_alias = "to-revision", value_name = "GENERATION")]
    to: Option<u64>,
    /// Only show what would change.
    #[arg(long)]
    dry_run: bool,
    /// Wait until all pods are replaced.
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
}

pub(crate) async fn run(command: RolloutCommand, context: &mut Context<'_>) -> CommandResult {
    match command {
        RolloutCommand::History(args) => history(&args.full_name(context).await?, context).await,
        RolloutCommand::Undo(args) => undo(args, context).await,
        RolloutCommand::Status(args) => {
            let service = args.full_name(context).await?;
            let service = context.client.service(&service).await?;
            Ok(context.waiter().wait_for(Goal::ready(&service)).await)
        }
        RolloutCommand::Pause(args) => mark(args, "pause", context).await,
        RolloutCommand::Resume(args) => mark(args, "resume", context).await,
        RolloutCommand::Promote(args) => mark(args, "promote", context).await,
        RolloutCommand::Restart(args) => restart::run(&args, context).await,
    }
}

impl OneService {
    async fn full_name(&self, context: &Context<'_>) -> CommandResult<String> {
        context.service_name(&self.service).await
    }
}

async fn mark(args: OneService, what: &str, context: &mut Context<'_>) -> CommandResult {
    let name = &args.full_name(context).await?;
    let operation = format!("{what} of the rollout of service {name}");
    let call = context.client.call(Method::POST, &["service", name, what], operation);
    let after: ServiceView = call.view().await?;
    let result = match what {
        "pause" if after.status.updated < after.status.desired => "paused",
        "pause" => "paused: its next change waits for `rollout resume`",
        "resume" => "resumed",
        _ => "promoted",
    };
    context.output.print_result(&after, result)?;
    Ok(Exit::Ok)
}

async fn history(name: &str, context: &mut Context<'_>) -> CommandResult {
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

async fn undo(args: UndoArgs, context: &mut Context<'_>) -> CommandResult {
    let UndoArgs { service, to, dry_run, wait } = args;
    let name = service.full_name(context).await?;
    let service = context.client.service(&name).await?;
    let views = generations_of(&name, context).await?;
    let mut former = views.iter().filter(|view| view.until.is_some());
    let view = match to {
        Some(to) => former.find(|view| view.generation == to),
        None => former.find(|view| view.undo_target),
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
    Ok(context.wait_if(wait, vec![Goal::ready(&after)]).await)
}

/// An undo skips later generations that were bad.
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

async fn generations_of(name: &str, context: &Context<'_>) -> CommandResult<Vec<GenerationView>> {
    // The service exists, so it is the route that is missing.
    let too_old = |error: ClientError| match error.status() {
        Some(404) => CommandError::Other(format!(
            "service {name} has no history: the API is too old, it must be upgraded first"
        )),
        _ => error.into(),
    };
    let operation = format!("reading the history of service {name}");
    let call = context.client.call(Method::GET, &["service", name, "history"], operation);
    call.views().await.map_err(too_old)
}

fn with_pods(service: &ServiceView, view: &GenerationView) -> ServiceView {
    let GenerationView { on_disconnect, stop_grace_period, drain, stateful, resources, containers, .. } =
        view.clone();
    let PodSpec { kind, mode, .. } = service.pod;
    let pod =
        PodSpec { kind, mode, on_disconnect, stop_grace_period, drain, stateful, resources, containers };
    ServiceView { pod, ..service.clone() }
}

fn difference(service: &ServiceView, view: &GenerationView) -> CommandResult<String> {
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
