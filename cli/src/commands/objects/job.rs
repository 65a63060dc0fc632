//! `job`: lists jobs and shows their results.

use api_types::IndexResultView;
use clap::{Args, Subcommand};
use client::{Client, ClientError, Method};
use model::spec::Kind;
use output::ListStyle;
use output::objects::jobs::JobRow;
use output::stderr;

use super::object_name;
use crate::commands::context::Context;
use crate::commands::error::CommandResult;
use crate::commands::lists;
use crate::commands::type_args::TypeArgs;
use crate::commands::wait::Goal;
use crate::exit::Exit;

pub(crate) type JobArgs = TypeArgs<ListArgs, JobCommand>;

/// Subcommands of `job`.
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// List jobs, those of crons among them.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Show the result of each index of a job: exit code, attempts, node, and the last line with `-o wide`.
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

pub(crate) async fn run(args: JobArgs, context: &mut Context<'_>) -> CommandResult {
    match args.or_list(JobCommand::Ls)? {
        JobCommand::Ls(args) => list(&args, context).await,
        JobCommand::Results { job } => {
            let job = context.service_name(&job).await?;
            let operation = format!("reading the results of job {job}");
            let call = context.client.call(Method::GET, &["service", &job, "results"], operation);
            let results: Vec<IndexResultView> = call.views().await?;
            context.output.print_list(&results, "no index of the job has ended yet")?;
            Ok(Exit::Ok)
        }
        JobCommand::Wait { job } => {
            let job = context.service_name(&job).await?;
            let service = context.client.service(&job).await?;
            let exit = context.waiter().wait_for(Goal::ready(&service)).await;
            if exit == Exit::TimedOut {
                stderr::note(&format!(
                    "the job goes on; to wait for longer: kubeleet job wait {job} --timeout 1h"
                ));
            }
            Ok(exit)
        }
    }
}

pub(crate) async fn list(args: &ListArgs, context: &mut Context<'_>) -> CommandResult {
    let none = "no jobs; `kubeleet apply -f` of a file with `kind: job` makes one";
    lists::show(args.style, none, async |client| jobs(client, args.cron.as_deref()).await, context).await
}

async fn jobs(client: &Client, of_cron: Option<&str>) -> Result<Vec<JobRow>, ClientError> {
    let mut services = client.services(None).await?;
    services.retain(|service| {
        let cron = service.job_status.as_ref().and_then(|job| job.cron.as_ref());
        service.pod.kind == Kind::Job && of_cron.is_none_or(|of| cron.is_some_and(|cron| cron.as_str() == of))
    });
    Ok(services.into_iter().map(JobRow).collect())
}
