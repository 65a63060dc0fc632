//! `apply`: creates or updates services from files. All files are parsed and checked before the first write.

use std::collections::BTreeSet;
use std::io::Read;

use clap::Args;
use common::api::ServiceView;
use common::spec::ServiceInput;

use super::batch::Batch;
use super::context::Context;
use super::diff::Comparison;
use super::durability::warn_if_unconfirmed;
use super::error::CommandError;
use super::service_file::{self, display_name};
use super::service_files::{self, FileArgs};
use super::wait::Goal;
use crate::client::Client;
use crate::exit::Exit;
use crate::output::humanize;

/// Arguments of `apply`.
#[derive(Debug, Args)]
#[command(after_help = "A file holds one service, or several separated by lines of `---`. \
                  `-f -` reads standard input.")]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    files: FileArgs,
    /// If a service does not fit the cluster, start those of its pods that do; the others wait for resources.
    #[arg(long, conflicts_with = "dry_run")]
    allow_partial: bool,
    /// Wait until all their pods run.
    #[arg(long)]
    wait: bool,
    /// Print what would change, and change nothing. `kubeleet diff` shows the lines.
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
}

/// Applies the services in the order of the files.
pub(super) async fn run(args: &ApplyArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let services = read_services(&args.files.files)?;
    if args.dry_run {
        return dry_run(&services, context).await;
    }
    let client = context.client.allowing_partial(args.allow_partial);
    let mut batch = Batch::new();
    let mut goals = Vec::new();
    for input in &services {
        let Some((service, result)) = batch.accept(put(&client, input).await)? else { continue };
        warn_if_unconfirmed(&service);
        context.output.print_result(&service, result)?;
        goals.push(Goal::Ready { service: service.name.to_string(), generation: service.generation });
    }
    if args.wait {
        batch.record(context.waiter().wait_for_all(goals).await);
    }
    Ok(batch.exit())
}

/// Reads and checks the services of all files.
pub(super) fn read_services(files: &[String]) -> Result<Vec<ServiceInput>, CommandError> {
    let (mut services, mut mistakes) = (Vec::new(), Vec::new());
    for file in service_files::expand(files)? {
        match service_file::parse(&file, &read(&file)?) {
            Ok(parsed) => services.extend(parsed),
            Err(found) => mistakes.extend(found),
        }
    }
    if !mistakes.is_empty() {
        return Err(CommandError::Usage(mistakes.join("\n")));
    }
    check_names(&services)?;
    Ok(services)
}

async fn dry_run(services: &[ServiceInput], context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let mut batch = Batch::new();
    for input in services {
        let compared = Comparison::read(&context.client, input).await;
        if let Some(comparison) = batch.accept(compared)? {
            let name = format!("service/{}", input.name());
            let result = format!("{} (dry run)", comparison.result());
            context.output.print_named_result(&name, &format!("{name} {result}"), &result)?;
        }
    }
    Ok(batch.exit())
}

/// Writes a service. Also returns `created`, `configured` or `unchanged`.
async fn put(client: &Client, input: &ServiceInput) -> Result<(ServiceView, &'static str), CommandError> {
    let before = match client.service(input.name().as_str()).await {
        Ok(service) => Some(service),
        Err(error) if error.status() == Some(404) => None,
        Err(error) => return Err(error.into()),
    };
    let after = client.put_service(input, None).await?;
    let result = match before {
        None => "created",
        // A write that changes nothing keeps the time of the last change.
        Some(before) if before.updated_at == after.updated_at => "unchanged",
        Some(_) => "configured",
    };
    Ok((after, result))
}

fn read(file: &str) -> Result<String, CommandError> {
    let mut text = String::new();
    let result = match file {
        "-" => std::io::stdin().read_to_string(&mut text).map(drop),
        path => std::fs::read_to_string(path).map(|content| text = content),
    };
    match result {
        Ok(()) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(CommandError::NotFound(format!("{file}: no such file")))
        }
        Err(error) => {
            let reason = humanize::system_error(&error);
            Err(CommandError::Other(format!("cannot read {}: {reason}", display_name(file))))
        }
    }
}

fn check_names(services: &[ServiceInput]) -> Result<(), CommandError> {
    let mut seen = BTreeSet::new();
    match services.iter().find(|service| !seen.insert(service.name().as_str())) {
        None => Ok(()),
        Some(service) => Err(CommandError::Usage(format!(
            "service {} is defined twice in these files; nothing was applied",
            service.name()
        ))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_service_must_not_be_defined_twice() {
        let services = service_file::parse("-", "name: a\nimage: x\n---\nname: a\nimage: y\n").unwrap();
        assert!(check_names(&services).unwrap_err().to_string().contains("twice"));
    }
}
