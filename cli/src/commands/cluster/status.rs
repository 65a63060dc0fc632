//! `status`: the state of the cluster on one screen.

use output::objects::status::describe;

use crate::commands::context::Context;
use crate::commands::error::CommandResult;
use crate::exit::Exit;

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Exit with 1 if there are problems: for cron jobs and monitoring.
    #[arg(long)]
    check: bool,
}

/// Problems fail the command only on request. A write outage always does: the cluster stands still.
pub(crate) async fn run(context: &mut Context<'_>, args: &StatusArgs) -> CommandResult {
    let status = context.client.status().await?;
    context.output.print_document(&status, || describe(&status))?;
    Ok(match (status.redis.connected && status.redis.writable, args.check && !status.problems.is_empty()) {
        (false, _) => Exit::Unreachable,
        (true, true) => Exit::Error,
        (true, false) => Exit::Ok,
    })
}
