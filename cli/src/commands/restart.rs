//! `service restart`: replaces the pods of a service one after the other. The service needs no change for it: a
//! stopped pod is replaced by a new one.

use clap::Args;
use common::api::ServiceView;

use super::context::Context;
use super::error::CommandError;
use super::object;
use super::wait::Goal;
use crate::client::PodFilter;
use crate::exit::Exit;

/// Arguments of `service restart`.
#[derive(Debug, Args)]
#[command(
    after_help = "Each pod is stopped once all others run, and replaced by a new one. If a new pod does \
                        not run within --timeout, the remaining pods are left as they are."
)]
pub(crate) struct RestartArgs {
    /// Names of the services.
    #[arg(value_name = "SERVICE", required = true, value_parser = object::service)]
    pub(super) services: Vec<String>,
}

/// Restarts services, one after the other. Ends at the first that does not become ready.
pub(super) async fn run(args: &RestartArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    for name in &args.services {
        let service = context.client.service(name).await?;
        let exit = replace_pods(&service, context).await?;
        if exit != Exit::Ok {
            return Ok(exit);
        }
        context.output.print_result(&service, "restarted")?;
    }
    Ok(Exit::Ok)
}

async fn replace_pods(service: &ServiceView, context: &Context<'_>) -> Result<Exit, CommandError> {
    let filter = PodFilter { service: Some(service.name.to_string()), ..PodFilter::default() };
    for pod in context.client.pods(&filter).await? {
        if pod.phase.is_terminal() {
            continue;
        }
        context.client.stop_pod(pod.uuid.as_str()).await?;
        let goal = Goal::Ready { service: service.name.to_string(), generation: service.generation };
        let exit = context.waiter().wait_for(goal).await;
        if exit != Exit::Ok {
            return Ok(exit);
        }
    }
    Ok(Exit::Ok)
}
