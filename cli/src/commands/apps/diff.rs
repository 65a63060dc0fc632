//! `diff` and `apply --dry-run`: write nothing.

use clap::Args;
use client::{Client, found};
use jiff::Timestamp;
use model::spec::ServiceInput;
use output::humanize;
use output::line_diff::line_diff;

use super::app_values::{self, ValueChange};
use super::desired_state::{self, Desired};
use super::effect_on_pods;
use super::file_args::FileArgs;
use super::lost_volumes;
use super::service_form;
use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::exit::Exit;

/// Arguments of `diff`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 nothing would change, 1 something would change, 2 and above an error. \
                        The output contains the values of environment variables, and no contents of secrets and configs."
)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    files: FileArgs,
}

pub(crate) struct Comparison {
    before: Option<ServiceInput>,
    after: ServiceInput,
    /// Age of a manual change of its replicas.
    scaled: Option<String>,
}

impl Comparison {
    pub(crate) async fn read(
        client: &Client,
        desired: &Desired,
        input: &ServiceInput,
    ) -> CommandResult<Self> {
        let view = found(client.service(input.name().as_str()).await)?;
        let before = view.as_ref().map(service_form::stored);
        let scaled = view.and_then(|view| view.scaled_at).map(|at| humanize::age(&at, Timestamp::now()));
        let input = desired.over(input, before.as_ref());
        let after = service_form::normal(&input).map_err(|violations| {
            let violations: Vec<String> = violations.iter().map(ToString::to_string).collect();
            CommandError::Usage(format!("service {}: {}", input.name(), violations.join("; ")))
        })?;
        Ok(Self { before, after, scaled })
    }

    pub(crate) fn result(&self) -> &'static str {
        match &self.before {
            None => "created",
            Some(before) if *before == self.after => "unchanged",
            Some(_) => "configured",
        }
    }

    fn text(&self) -> CommandResult<String> {
        if self.before.as_ref() == Some(&self.after) {
            return Ok(String::new());
        }
        let before = self.before.as_ref().map(service_form::yaml).transpose()?.unwrap_or_default();
        let lines = line_diff(&before, &service_form::yaml(&self.after)?);
        let name = self.after.name();
        let effect = self.effect().map(|effect| format!("# {effect}\n")).unwrap_or_default();
        Ok(format!("--- service/{name} (stored)\n+++ service/{name} (file)\n{lines}{effect}"))
    }

    pub(crate) async fn check(&self, client: &Client, leaves_volumes: bool) -> CommandResult<()> {
        match &self.before {
            Some(before) if *before == self.after => return Ok(()),
            Some(before) if !leaves_volumes => lost_volumes::check(client, before, &self.after).await?,
            _ => {}
        }
        Ok(client.check_service(&self.after).await?)
    }

    pub(crate) fn effect(&self) -> Option<String> {
        let before = self.before.as_ref().filter(|before| **before != self.after)?;
        Some(effect_on_pods::of_change(before, &self.after, self.scaled.as_deref()))
    }
}

/// Errors never have the exit code of a difference.
pub(crate) async fn run(args: &DiffArgs, context: &mut Context<'_>) -> CommandResult {
    match differences(&args.files, context).await {
        Err(error) if error.exit() == Exit::Error && !matches!(error, CommandError::Output(_)) => {
            Err(CommandError::Usage(error.to_string()))
        }
        other => other,
    }
}

async fn differences(files: &FileArgs, context: &mut Context<'_>) -> CommandResult {
    let mut exit = Exit::Ok;
    let desired = desired_state::read(files, &context.client).await?;
    desired.print_notes();
    if let Some(app) = &desired.app {
        for value in &desired.values {
            let change = app_values::compare(&context.client, &app.name, value).await?;
            if change != ValueChange::Unchanged {
                let name = app_values::title(value.kind, value.name.as_str());
                let text = format!(
                    "--- {name} (stored)\n+++ {name} (file)\n# would be {}; contents are not shown\n",
                    change.word()
                );
                context.output.print_bytes(text.as_bytes())?;
                exit = Exit::Error;
            }
        }
    }
    for input in &desired.services {
        let text = Comparison::read(&context.client, &desired, input).await?.text()?;
        if !text.is_empty() {
            context.output.print_bytes(text.as_bytes())?;
            exit = Exit::Error;
        }
    }
    Ok(exit)
}
