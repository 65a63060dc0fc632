//! `apply`: all files are parsed and checked before the first write.

use std::collections::{BTreeMap, BTreeSet};

use api_types::ServiceView;
use clap::Args;
use client::{Client, found};
use futures_util::StreamExt;
use jiff::Timestamp;
use model::ids::ServiceName;
use model::service::ServiceState;
use model::spec::ServiceInput;
use output::humanize;
use output::stderr;

use super::app_lock::AppLock;
use super::app_values::{self, ValueChange};
use super::desired_state::{self, Desired};
use super::diff::Comparison;
use super::effect_on_pods;
use super::file_args::FileArgs;
use super::lost_volumes;
use super::prune;
use super::service_form;
use crate::commands::batch::BatchResult;
use crate::commands::context::Context;
use crate::commands::durability_warning::warn_if_unconfirmed;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::wait::Goal;
use crate::exit::Exit;

const HELP: &str = "\
A file holds one service, or several separated by lines of `---`, or is a Compose file. `-f -` reads standard input.";

const TRIES: u32 = 5;

const MAX_CONCURRENT_WRITES: usize = 16;

const UNCHANGED: &str = "unchanged";

/// Arguments of `apply`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    files: FileArgs,
    /// If a service does not fit the cluster, start those of its pods that do; the others wait for resources.
    #[arg(long)]
    allow_partial: bool,
    /// Wait until all their pods run.
    #[arg(long)]
    wait: bool,
    /// Compose: delete services of the app that its files do not have any more.
    #[arg(long)]
    prune: bool,
    /// Apply even if volumes with data lose their services. The data stays.
    #[arg(long)]
    leave_volumes: bool,
    /// Print what would change, and change nothing. `kubeleet diff` shows the lines.
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
}

pub(crate) async fn run(args: &ApplyArgs, context: &mut Context<'_>) -> CommandResult {
    let mut desired = desired_state::read(&args.files, &context.client).await?;
    desired.leaves_volumes = args.leave_volumes;
    if args.prune && desired.app.is_none() {
        return Err(CommandError::Usage(
            "--prune is for Compose files: only these describe a whole app".to_owned(),
        ));
    }
    desired.print_notes();
    if args.dry_run {
        return dry_run(args, &desired, context).await;
    }
    let lock = match &desired.app {
        Some(app) => Some(AppLock::take(&context.client, &app.name, context.globals.timeout).await?),
        None => None,
    };
    let applied = apply(args, &desired, lock.as_ref(), context).await;
    if let Some(lock) = lock {
        lock.release().await;
    }
    let (mut batch, goals) = applied?;
    batch.record(context.wait_if(args.wait, goals).await);
    Ok(batch.exit())
}

/// Also returns the services that `--wait` waits for.
async fn apply(
    args: &ApplyArgs,
    desired: &Desired,
    lock: Option<&AppLock>,
    context: &mut Context<'_>,
) -> CommandResult<(BatchResult, Vec<Goal>)> {
    let client = context.client.allowing_partial(args.allow_partial);
    let mut batch = BatchResult::new();
    let mut goals = Vec::new();
    let mut changed = Vec::new();
    let mut known = BTreeMap::new();
    if let Some(app) = &desired.app {
        changed = app_values::apply(&desired.values, &app.name, &mut batch, context).await?;
        if batch.exit() != Exit::Ok {
            return Ok((batch, goals));
        }
        let services = client.services_of_app(app.name.as_str()).await?;
        known = services.into_iter().map(|service| (service.name.to_string(), service)).collect();
    }
    let (mut unchanged, mut written) = (Vec::new(), Vec::new());
    for at_once in written_at_once(&desired.services) {
        let writes: Vec<_> = at_once
            .iter()
            .map(|input| put(&client, desired, input, known.remove(input.name().as_str())))
            .collect();
        let mut writes = futures_util::stream::iter(writes).buffered(MAX_CONCURRENT_WRITES);
        while let Some(applied) = writes.next().await {
            let Some((service, result)) = batch.accept(applied)? else { continue };
            warn_if_unconfirmed(&service);
            context.output.print_result(&service, result)?;
            goals.push(Goal::ready(&service));
            written.push((service.name.to_string(), service.generation));
            if result == UNCHANGED {
                unchanged.push(service);
            }
            lock.map_or(Ok(()), AppLock::check)?;
        }
    }
    app_values::note_users(&changed, &unchanged);
    if let Some(app) = &desired.app {
        prune::run(app, args.prune, &mut batch, context).await?;
        let checked = check_alone(app.name.as_str(), &written, desired, &context.client).await;
        batch.accept(checked)?;
    }
    Ok((batch, goals))
}

/// Groups for concurrent writes. A new one begins with a service that depends on one of the group, on which
/// one depends, or that may take over routes or names.
fn written_at_once(services: &[ServiceInput]) -> Vec<&[ServiceInput]> {
    let mut parts = Vec::new();
    let mut start = 0;
    let (mut names, mut awaited) = (BTreeSet::new(), BTreeSet::new());
    for (index, service) in services.iter().enumerate() {
        let depends_on: Vec<ServiceName> = service.fields.depends_on.services().collect();
        let takes_over = !service.fields.ingress.is_empty() || !service.fields.aliases.is_empty();
        let waits = takes_over
            || awaited.contains(service.name())
            || depends_on.iter().any(|name| names.contains(name));
        if waits && index > start {
            parts.push(&services[start..index]);
            start = index;
            names.clear();
            awaited.clear();
        }
        names.insert(service.name().clone());
        awaited.extend(depends_on);
    }
    parts.push(&services[start..]);
    parts
}

/// The last writer sees the other client's writes.
async fn check_alone(
    app: &str,
    written: &[(String, u64)],
    desired: &Desired,
    client: &Client,
) -> CommandResult<()> {
    let mut changed = overwritten(written, &client.services_of_app(app).await?);
    for value in &desired.values {
        if let Some(app) = &desired.app
            && app_values::compare(client, &app.name, value).await? != ValueChange::Unchanged
        {
            changed.push(app_values::title(value.kind, value.name.as_str()));
        }
    }
    if changed.is_empty() {
        return Ok(());
    }
    Err(CommandError::Conflict(format!(
        "app {app} was changed by another client while it was applied: {}; run `kubeleet apply` again, one at a time",
        changed.join(", ")
    )))
}

fn overwritten(written: &[(String, u64)], now: &[ServiceView]) -> Vec<String> {
    let is_other = |(name, generation): &&(String, u64)| {
        let stored = now.iter().find(|service| service.name.as_str() == name);
        stored.is_none_or(|service| service.generation != *generation)
    };
    written.iter().filter(is_other).map(|(name, _)| format!("service/{name}")).collect()
}

async fn dry_run(args: &ApplyArgs, desired: &Desired, context: &mut Context<'_>) -> CommandResult {
    let client = context.client.allowing_partial(args.allow_partial);
    let mut batch = BatchResult::new();
    if let Some(app) = &desired.app {
        for value in &desired.values {
            let compared = app_values::compare(&context.client, &app.name, value).await;
            if let Some(change) = batch.accept(compared)? {
                let name = app_values::title(value.kind, value.name.as_str());
                let result = format!("{} (dry run)", change.word());
                context.output.print_result_of(&name, &result)?;
            }
        }
    }
    for input in &desired.services {
        let compared = Comparison::read(&context.client, desired, input).await;
        if let Some(comparison) = batch.accept(compared)? {
            let name = format!("service/{}", input.name());
            let effect = comparison.effect().map(|effect| format!(": {effect}")).unwrap_or_default();
            let result = format!("{} (dry run){effect}", comparison.result());
            context.output.print_result_of(&name, &result)?;
            let checked = comparison.check(&client, desired.leaves_volumes).await;
            batch.accept(checked)?;
        }
    }
    if let Some(app) = &desired.app {
        prune::dry_run(app, args.prune, context).await?;
    }
    Ok(batch.exit())
}

/// Also returns `created`, `configured` or `unchanged`.
async fn put(
    client: &Client,
    desired: &Desired,
    input: &ServiceInput,
    mut known: Option<ServiceView>,
) -> CommandResult<(ServiceView, &'static str)> {
    let mut tries = 1;
    loop {
        match put_over_stored(client, desired, input, known.take()).await {
            // Another client changed it after it was read: its additions are kept too.
            Err(CommandError::Client(error)) if error.status() == Some(412) && tries < TRIES => tries += 1,
            result => return result,
        }
    }
}

async fn put_over_stored(
    client: &Client,
    desired: &Desired,
    input: &ServiceInput,
    known: Option<ServiceView>,
) -> CommandResult<(ServiceView, &'static str)> {
    let before = match (known, input.name().as_str()) {
        (Some(service), _) => Some(service),
        (None, name) => found(client.service(name).await)?,
    };
    // The write is refused, so its effect is not printed.
    let is_going = before.as_ref().is_some_and(|before| before.state == ServiceState::Deleting);
    let stored = before.as_ref().map(service_form::stored);
    let input = desired.over(input, stored.as_ref());
    if let (Some(stored), Ok(after)) = (&stored, service_form::normal(&input))
        && *stored != after
        && !is_going
    {
        if !desired.leaves_volumes {
            lost_volumes::check(client, stored, &after).await?;
        }
        let scaled = before.as_ref().and_then(|before| before.scaled_at.as_deref());
        let scaled = scaled.map(|at| humanize::age(at, Timestamp::now()));
        let effect = effect_on_pods::of_change(stored, &after, scaled.as_deref());
        stderr::note(&format!("service/{}: {effect}", after.name()));
    }
    let after = client.put_service(&input, before.as_ref()).await?;
    let result = match before {
        None => "created",
        // A write that changes nothing keeps the time of the last change.
        Some(before) if before.updated_at == after.updated_at => UNCHANGED,
        Some(_) => "configured",
    };
    Ok((after, result))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use testkit::api_fixtures as fixtures;

    use super::*;

    #[test]
    fn services_that_need_an_order_are_not_written_at_once() {
        let service = |yaml: &str| {
            let text = format!("image: x\n{yaml}");
            ServiceInput::read(&document::yaml(&text).0[0]).into_result().unwrap()
        };
        for (services, expected) in [
            (&["name: a", "name: b", "name: c"][..], "abc"),
            (&["name: a", "name: b\ndepends_on: [a]", "name: c"], "a bc"),
            (&["name: a\ndepends_on: [b]", "name: b\ndepends_on: [a]"], "a b"),
            (&["name: a", "name: b\ningress: [{host: web.example, port: 80}]", "name: c"], "a bc"),
            (&["name: a\naliases: [x]\napp: s", "name: b", "name: c\naliases: [y]\napp: s"], "ab c"),
            (&[], ""),
        ] {
            let services: Vec<ServiceInput> = services.iter().map(|yaml| service(yaml)).collect();
            let parts = written_at_once(&services).into_iter();
            let parts = parts.map(|part| part.iter().map(|one| one.name().as_str()).collect::<String>());
            assert_eq!(parts.collect::<Vec<_>>().join(" "), expected);
        }
    }

    #[test]
    fn what_another_client_has_written_meanwhile_is_found() {
        let now: Vec<ServiceView> = ["a", "b"].map(fixtures::service).into();
        let generation = now[0].generation;
        let written = |others: u64| [("a".to_owned(), generation), ("b".to_owned(), others)];
        assert_eq!(overwritten(&written(now[1].generation), &now), [""; 0]);
        assert_eq!(overwritten(&written(now[1].generation + 1), &now), ["service/b"]);
        let gone = [("c".to_owned(), 1)];
        assert_eq!(overwritten(&gone, &now), ["service/c"]);
    }
}
