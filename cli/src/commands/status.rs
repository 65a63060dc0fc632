//! `status`: the state of the cluster on one screen.

use super::context::Context;
use super::error::CommandError;
use crate::exit::Exit;
use crate::output::status::describe;

/// Prints the state of the cluster. Problems of the cluster are not failures of the command; without Redis
/// its state is unknown, and that is one.
pub(super) async fn run(context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let status = context.client.status().await?;
    context.output.print_document(&status, || describe(&status))?;
    Ok(if status.redis.connected { Exit::Ok } else { Exit::Unreachable })
}
