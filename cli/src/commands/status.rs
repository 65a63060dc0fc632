//! `status`: the cluster on one screen.

use super::Context;
use super::failure::Failure;
use crate::exit::Exit;
use crate::output::status::tell;

/// Shows how the cluster is. That something is wrong with it is no failure of the command.
pub(super) async fn run(context: &mut Context<'_>) -> Result<Exit, Failure> {
    let status = context.client.status().await?;
    context.output.whole(&status, || tell(&status))?;
    Ok(Exit::Ok)
}
