//! `service restart`: the schedulers replace the pods, even after this command has ended.

use api_types::ServiceView;
use clap::Args;
use client::Method;

use crate::commands::batch::BatchResult;
use crate::commands::context::Context;
use crate::commands::durability_warning::warn_if_unconfirmed;
use crate::commands::error::CommandResult;
use crate::commands::objects::object_name;
use crate::commands::wait::Goal;

/// Arguments of `service restart`.
#[derive(Debug, Args)]
#[command(
    after_help = "The pods are replaced step by step, as after a change: at most a quarter of them at a time, \
                        and the next ones once the new ones are ready. `service ls -w` shows it."
)]
pub(crate) struct RestartArgs {
    /// Names of the services.
    #[arg(value_name = "SERVICE", required = true, value_parser = object_name::service)]
    pub(crate) services: Vec<String>,
    /// Wait until all pods are replaced.
    #[arg(long)]
    pub(crate) wait: bool,
}

pub(crate) async fn run(args: &RestartArgs, context: &mut Context<'_>) -> CommandResult {
    let mut batch = BatchResult::new();
    let mut goals = Vec::new();
    for typed in &args.services {
        let name = &context.service_name(typed).await?;
        let Some(service) = batch.accept(restart(name, context).await)? else { continue };
        warn_if_unconfirmed(&service);
        context.output.print_result(&service, "restarted")?;
        goals.push(Goal::ready(&service));
    }
    batch.record(context.wait_if(args.wait, goals).await);
    Ok(batch.exit())
}

async fn restart(name: &str, context: &Context<'_>) -> CommandResult<ServiceView> {
    let operation = format!("restarting service {name}");
    Ok(context.client.call(Method::POST, &["service", name, "restart"], operation).view().await?)
}
