//! `cron`: lists, runs, suspends and resumes crons.

use clap::{Args, Subcommand};
use client::{Client, ClientError};
use model::spec::Kind;
use output::ListStyle;
use output::objects::jobs::CronRow;
use serde_json::json;

use super::object_name;
use crate::commands::context::{self, Context};
use crate::commands::durability_warning::warn_if_unconfirmed;
use crate::commands::error::CommandError;
use crate::commands::wait::Goal;
use crate::commands::watch_list;
use crate::exit::Exit;

/// Arguments of `cron`: without a subcommand it lists.
#[derive(Debug, Args)]
pub(crate) struct CronArgs {
    #[command(flatten)]
    list: ListArgs,
    #[command(subcommand)]
    command: Option<CronCommand>,
}

impl CronArgs {
    pub(crate) fn command(self) -> Result<CronCommand, CommandError> {
        context::subcommand_or_list(self.command, self.list, CronCommand::Ls)
    }
}

/// Subcommands of `cron`.
#[derive(Debug, Subcommand)]
pub(crate) enum CronCommand {
    /// List crons, with the last and the next time of each.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Create a job of a cron now, whatever its schedule says.
    Run(RunArgs),
    /// Create no more jobs at the times of the schedule, until `cron resume`. Jobs that run go on, and `cron
    /// run` creates one all the same; what is missed meanwhile is not made up.
    Suspend(CronNames),
    /// Create jobs again at the times of the schedule, from the next one on.
    Resume(CronNames),
}

/// Arguments of `cron ls`.
#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) style: ListStyle,
}

/// Arguments of `cron run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Name of the cron.
    #[arg(value_name = "CRON", value_parser = object_name::service)]
    cron: String,
    /// Name of the job; by default that of the cron with a random ending.
    #[arg(long, value_name = "JOB", value_parser = object_name::service)]
    job: Option<String>,
    /// Wait until the job is complete, or has failed: exit code 1.
    #[arg(long)]
    wait: bool,
}

/// The names of some crons.
#[derive(Debug, Args)]
pub(crate) struct CronNames {
    /// Names of crons.
    #[arg(value_name = "CRON", required = true, value_parser = object_name::service)]
    crons: Vec<String>,
}

pub(crate) async fn run(command: CronCommand, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    match command {
        CronCommand::Ls(args) => list(&args, context).await,
        CronCommand::Run(args) => run_now(args, context).await,
        CronCommand::Suspend(names) => set_suspended(&names, true, context).await,
        CronCommand::Resume(names) => set_suspended(&names, false, context).await,
    }
}

async fn list(args: &ListArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    context.output.list_style = args.style;
    if args.style.watch {
        return watch_list::run(async |client: &Client| crons(client).await, context).await;
    }
    let rows = crons(&context.client).await?;
    context
        .output
        .print_list(&rows, "no crons; `kubeleet apply -f` of a file with `kind: cron` makes one")?;
    Ok(Exit::Ok)
}

async fn crons(client: &Client) -> Result<Vec<CronRow>, ClientError> {
    let mut services = client.services(None).await?;
    services.retain(|service| service.pod.kind == Kind::Cron);
    Ok(services.into_iter().map(CronRow).collect())
}

async fn run_now(args: RunArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let job = context.client.run_cron(&args.cron, args.job.as_deref()).await?;
    warn_if_unconfirmed(&job);
    context.output.print_result(&job, &format!("created by cron {}", args.cron))?;
    if !args.wait {
        return Ok(Exit::Ok);
    }
    let goal = Goal::Ready { service: job.name.to_string(), generation: job.generation };
    Ok(context.waiter().wait_for(goal).await)
}

async fn set_suspended(
    names: &CronNames,
    suspend: bool,
    context: &mut Context<'_>,
) -> Result<Exit, CommandError> {
    for name in &names.crons {
        let service = context.client.service(name).await?;
        if service.pod.kind != Kind::Cron {
            let kind = service.pod.kind;
            return Err(CommandError::Other(format!("{name} is a {kind}: only a cron can be suspended")));
        }
        let after = context.client.patch_service(name, &json!({"cron": {"suspend": suspend}})).await?;
        warn_if_unconfirmed(&after);
        context.output.print_result(&after, if suspend { "suspended" } else { "resumed" })?;
    }
    Ok(Exit::Ok)
}
