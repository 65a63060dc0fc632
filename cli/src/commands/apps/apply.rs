//! `apply`: all files are parsed, and all services checked, before the first write.

use std::collections::BTreeMap;

use api_types::ServiceView;
use clap::Args;
use client::Client;
use futures_util::StreamExt;
use model::ids::ServiceName;
use model::spec::ServiceInput;
use output::stderr;

use super::app_lock::AppLock;
use super::app_values::{self, ValueChange};
use super::desired_state::{self, Desired};
use super::diff::Comparison;
use super::file_args::FileArgs;
use super::prune;
use super::write_order::{self, NotWritten};
use crate::commands::batch::BatchResult;
use crate::commands::context::Context;
use crate::commands::durability_warning::warn_if_unconfirmed;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::wait::Goal;
use crate::exit::Exit;

const HELP: &str = "\
A file holds one service, or several separated by lines of `---`, or is a Compose file. `-f -` reads standard input.";

const TRIES: u32 = 5;

const MAX_CONCURRENT_REQUESTS: usize = 16;

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
    let comparisons = compare(&client, desired, &mut batch).await?;
    if batch.exit() != Exit::Ok {
        stderr::note("none of these services was applied: apply again when that is mended");
        return Ok((batch, Vec::new()));
    }
    let mut changed = Vec::new();
    if let Some(app) = &desired.app {
        changed = app_values::apply(&desired.values, &app.name, &mut batch, context).await?;
        if batch.exit() != Exit::Ok {
            return Ok((batch, Vec::new()));
        }
    }
    let written = write(&client, desired, comparisons, lock, &mut batch, context).await?;
    app_values::note_users(&changed, &written.unchanged);
    if let Some(app) = &desired.app {
        prune::run(app, args.prune, &mut batch, context).await?;
        let checked = check_alone(app.name.as_str(), &written.generations, desired, &context.client).await;
        batch.accept(checked)?;
    }
    Ok((batch, written.goals))
}

type Comparisons = BTreeMap<ServiceName, Comparison>;

/// Finds, before the first write, what can be known to be refused.
async fn compare(client: &Client, desired: &Desired, batch: &mut BatchResult) -> CommandResult<Comparisons> {
    let mut known = BTreeMap::new();
    if let Some(app) = &desired.app {
        let services = client.services_of_app(app.name.as_str()).await?;
        known.extend(services.into_iter().map(|service| (service.name.clone(), service)));
    }
    let services = desired.services.iter();
    let checks: Vec<_> =
        services.map(|input| checked(client, desired, input, known.remove(input.name()))).collect();
    let mut checks = futures_util::stream::iter(checks).buffered(MAX_CONCURRENT_REQUESTS);
    let mut comparisons = BTreeMap::new();
    while let Some(checked) = checks.next().await {
        let comparison = batch.accept(checked)?;
        comparisons.extend(comparison.map(|comparison| (comparison.after.name().clone(), comparison)));
    }
    Ok(comparisons)
}

async fn checked(
    client: &Client,
    desired: &Desired,
    input: &ServiceInput,
    stored: Option<ServiceView>,
) -> CommandResult<Comparison> {
    let comparison = match stored {
        None => Comparison::read(client, desired, input).await?,
        stored => Comparison::of(stored, desired, input)?,
    };
    // The write of a single object changes all or nothing by itself.
    if desired.services.len() + desired.values.len() == 1 {
        return Ok(comparison);
    }
    match comparison.check(client, desired).await {
        Err(error) if is_final(&error) => Err(error),
        _ => Ok(comparison),
    }
}

/// A shortage and an API that is away may be over when the service is written.
fn is_final(error: &CommandError) -> bool {
    match error {
        CommandError::Client(error) => !error.is_shortage() && !error.is_transient(),
        _ => true,
    }
}

#[derive(Default)]
struct Written {
    goals: Vec<Goal>,
    generations: Vec<(String, u64)>,
    unchanged: Vec<ServiceView>,
}

/// After a refusal the services that depend on the refused one stay as they are.
async fn write(
    client: &Client,
    desired: &Desired,
    mut comparisons: Comparisons,
    lock: Option<&AppLock>,
    batch: &mut BatchResult,
    context: &mut Context<'_>,
) -> CommandResult<Written> {
    let (mut written, mut not_written) = (Written::default(), NotWritten::default());
    for at_once in write_order::written_at_once(&desired.services) {
        let mut writes = Vec::new();
        for input in at_once {
            if let Some(needed) = not_written.needed_by(input) {
                let name = input.name();
                stderr::note(&format!(
                    "service/{name}: not changed, because it depends on {needed}, which was not applied"
                ));
                not_written.add(input);
            } else if let Some(comparison) = comparisons.remove(input.name()) {
                writes.push(async move { (input, put(client, desired, input, comparison).await) });
            }
        }
        let mut writes = futures_util::stream::iter(writes).buffered(MAX_CONCURRENT_REQUESTS);
        while let Some((input, applied)) = writes.next().await {
            let Some((service, result)) = batch.accept(applied)? else {
                not_written.add(input);
                continue;
            };
            warn_if_unconfirmed(&service);
            context.output.print_result(&service, result)?;
            written.goals.push(Goal::ready(&service));
            written.generations.push((service.name.to_string(), service.generation));
            if result == UNCHANGED {
                written.unchanged.push(service);
            }
            lock.map_or(Ok(()), AppLock::check)?;
        }
    }
    Ok(written)
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
            let checked = comparison.check(&client, desired).await;
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
    mut comparison: Comparison,
) -> CommandResult<(ServiceView, &'static str)> {
    let mut tries = 1;
    loop {
        match put_over_stored(client, desired, &comparison).await {
            // Another client changed it after it was read: its additions are kept too.
            Err(CommandError::Client(error)) if error.status() == Some(412) && tries < TRIES => tries += 1,
            result => return result,
        }
        comparison = Comparison::read(client, desired, input).await?;
    }
}

async fn put_over_stored(
    client: &Client,
    desired: &Desired,
    comparison: &Comparison,
) -> CommandResult<(ServiceView, &'static str)> {
    comparison.check_volumes(client, desired).await?;
    // The write of one that is being deleted is refused, so its effect is not printed.
    if let Some(effect) = comparison.effect().filter(|_| !comparison.is_going()) {
        stderr::note(&format!("service/{}: {effect}", comparison.after.name()));
    }
    let before = comparison.stored.as_ref();
    let after = client.put_service(&comparison.after, before).await?;
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
