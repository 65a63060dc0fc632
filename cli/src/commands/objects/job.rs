//! `job`: lists jobs and shows their results. Other commands treat a job like any service.

use clap::{Args, Subcommand};
use client::{Client, ClientError};
use model::spec::Kind;
use output::ListStyle;
use output::objects::jobs::JobRow;
use output::stderr;

use super::object_name;
use crate::commands::context::{self, Context};
use crate::commands::error::CommandError;
use crate::commands::wait::Goal;
use crate::commands::watch_list;
use crate::exit::Exit;

/// Arguments of `job`: without a subcommand it lists.
#[derive(Debug, Args)]
pub(crate) struct JobArgs {
    #[command(flatten)]
    list: ListArgs,
    #[command(subcommand)]
    command: Option<JobCommand>,
}

impl JobArgs {
    pub(crate) fn command(self) -> Result<JobCommand, CommandError> {
        context::subcommand_or_list(self.command, self.list, JobCommand::Ls)
    }
}

/// Subcommands of `job`.
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// List jobs, those of crons among them.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Show what has become of each index of a job: exit code, attempts, node, and the last line with `-o
    /// wide`.
    Results {
        /// Name of the job.
        #[arg(value_name = "JOB", value_parser = object_name::service)]
        job: String,
    },
    /// Wait until a job is complete, or has failed: exit code 1. After --timeout the exit code is 6, and the
    /// job goes on.
    Wait {
        /// Name of the job.
        #[arg(value_name = "JOB", value_parser = object_name::service)]
        job: String,
    },
}

/// Arguments of `job ls`.
#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct ListArgs {
    /// Only the jobs of this cron.
    #[arg(long, value_name = "CRON", value_parser = object_name::service)]
    pub(crate) cron: Option<String>,
    #[command(flatten)]
    pub(crate) style: ListStyle,
}

pub(crate) async fn run(command: JobCommand, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    match command {
        JobCommand::Ls(args) => list(&args, context).await,
        JobCommand::Results { job } => {
            let job = context.service_name(&job).await?;
            let results = context.client.job_results(&job).await?;
            context.output.print_list(&results, "no index of the job has ended yet")?;
            Ok(Exit::Ok)
        }
        JobCommand::Wait { job } => {
            let job = context.service_name(&job).await?;
            let generation = context.client.service(&job).await?.generation;
            let goal = Goal::Ready { service: job.clone(), generation };
            let exit = context.waiter().wait_for(goal).await;
            if exit == Exit::TimedOut {
                stderr::note(&format!(
                    "the job goes on; to wait for longer: kubeleet job wait {job} --timeout 1h"
                ));
            }
            Ok(exit)
        }
    }
}

async fn list(args: &ListArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    context.output.list_style = args.style;
    if args.style.watch {
        let cron = args.cron.clone();
        let read = async move |client: &Client| jobs(client, cron.as_deref()).await;
        return watch_list::run(read, context).await;
    }
    let rows = jobs(&context.client, args.cron.as_deref()).await?;
    context.output.print_list(&rows, "no jobs; `kubeleet apply -f` of a file with `kind: job` makes one")?;
    Ok(Exit::Ok)
}

async fn jobs(client: &Client, of_cron: Option<&str>) -> Result<Vec<JobRow>, ClientError> {
    let mut services = client.services(None).await?;
    services.retain(|service| {
        let cron = service.job_status.as_ref().and_then(|job| job.cron.as_ref());
        service.pod.kind == Kind::Job && of_cron.is_none_or(|of| cron.is_some_and(|cron| cron.as_str() == of))
    });
    Ok(services.into_iter().map(JobRow).collect())
}
