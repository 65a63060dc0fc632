//! `diff` and `apply --dry-run`: write nothing.

use api_types::ServiceView;
use clap::Args;
use client::{Client, found};
use jiff::Timestamp;
use model::service::ServiceState;
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
    pub(crate) stored: Option<ServiceView>,
    before: Option<ServiceInput>,
    pub(crate) after: ServiceInput,
    /// Age of a manual change of its replicas.
    scaled: Option<String>,
}

impl Comparison {
    pub(crate) async fn read(
        client: &Client,
        desired: &Desired,
        input: &ServiceInput,
    ) -> CommandResult<Self> {
        Self::of(found(client.service(input.name().as_str()).await)?, desired, input)
    }

    /// `Usage` if the service has invalid values.
    pub(crate) fn of(
        stored: Option<ServiceView>,
        desired: &Desired,
        input: &ServiceInput,
    ) -> CommandResult<Self> {
        let before = stored.as_ref().map(service_form::stored);
        let scaled = stored.as_ref().and_then(|stored| stored.scaled_at.as_deref());
        let scaled = scaled.map(|at| humanize::age(at, Timestamp::now()));
        let input = desired.over(input, before.as_ref());
        let after = service_form::normal(&input).map_err(|violations| {
            let violations: Vec<String> = violations.iter().map(ToString::to_string).collect();
            CommandError::Usage(format!("service {}: {}", input.name(), violations.join("; ")))
        })?;
        Ok(Self { stored, before, after, scaled })
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

    /// Writes nothing.
    pub(crate) async fn check(&self, client: &Client, desired: &Desired) -> CommandResult<()> {
        if self.before.as_ref() == Some(&self.after) {
            return Ok(());
        }
        self.check_volumes(client, desired).await?;
        Ok(client.check_service(&desired.judged_alone(&self.after)).await?)
    }

    pub(crate) async fn check_volumes(&self, client: &Client, desired: &Desired) -> CommandResult<()> {
        match &self.before {
            Some(before) if !desired.leaves_volumes && !self.is_going() => {
                lost_volumes::check(client, before, &self.after).await
            }
            _ => Ok(()),
        }
    }

    /// A write is refused.
    pub(crate) fn is_going(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.state == ServiceState::Deleting)
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
