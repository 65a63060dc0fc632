//! `cron`: lists, runs, suspends and resumes crons.

use api_types::ServiceView;
use clap::{Args, Subcommand};
use client::{Client, ClientError, Method};
use model::spec::Kind;
use output::ListStyle;
use output::objects::jobs::CronRow;
use serde_json::json;

use super::object_name;
use crate::commands::context::Context;
use crate::commands::durability_warning::warn_if_unconfirmed;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::lists;
use crate::commands::type_args::TypeArgs;
use crate::commands::wait::Goal;
use crate::exit::Exit;

pub(crate) type CronArgs = TypeArgs<ListStyle, CronCommand>;

/// Subcommands of `cron`.
#[derive(Debug, Subcommand)]
pub(crate) enum CronCommand {
    /// List crons, with the last and the next time of each.
    #[command(visible_alias = "list")]
    Ls(ListStyle),
    /// Create a job of a cron now, whatever its schedule says.
    Run(RunArgs),
    /// Create no more jobs at the times of the schedule, until `cron resume`. Jobs that run go on, and `cron
    /// run` creates one all the same; missed times are not made up.
    Suspend(CronNames),
    /// Create jobs again at the times of the schedule, from the next one on.
    Resume(CronNames),
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

pub(crate) async fn run(args: CronArgs, context: &mut Context<'_>) -> CommandResult {
    match args.or_list(CronCommand::Ls)? {
        CronCommand::Ls(style) => list(style, context).await,
        CronCommand::Run(args) => run_now(args, context).await,
        CronCommand::Suspend(names) => set_suspended(&names, true, context).await,
        CronCommand::Resume(names) => set_suspended(&names, false, context).await,
    }
}

pub(crate) async fn list(style: ListStyle, context: &mut Context<'_>) -> CommandResult {
    let none = "no crons; `kubeleet apply -f` of a file with `kind: cron` makes one";
    lists::show(style, none, crons, context).await
}

async fn crons(client: &Client) -> Result<Vec<CronRow>, ClientError> {
    let mut services = client.services(None).await?;
    services.retain(|service| service.pod.kind == Kind::Cron);
    Ok(services.into_iter().map(CronRow).collect())
}

async fn run_now(args: RunArgs, context: &mut Context<'_>) -> CommandResult {
    let operation = format!("running cron {}", args.cron);
    let call = context.client.call(Method::POST, &["service", &args.cron, "run"], operation);
    let job: ServiceView = call.query("job", args.job.as_deref()).view().await?;
    warn_if_unconfirmed(&job);
    context.output.print_result(&job, &format!("created by cron {}", args.cron))?;
    Ok(context.wait_if(args.wait, vec![Goal::ready(&job)]).await)
}

async fn set_suspended(names: &CronNames, suspend: bool, context: &mut Context<'_>) -> CommandResult {
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
