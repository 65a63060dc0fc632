//! `rebalance`: moves pods from fuller nodes to emptier ones.

use api_types::{PlanChange, PlanInput, RebalanceInput};
use clap::Args;
use output::objects::plans;

use crate::commands::context::Context;
use crate::commands::error::CommandResult;
use crate::exit::Exit;

/// Arguments of `rebalance`.
#[derive(Debug, Args)]
#[command(
    after_help = "The cluster moves them, each service at the pace of an update, and Ctrl-C ends nothing. Pods with \
                        data, ordinals or ports of their machine stay, and so do those of services that are updated. \
                        A second run moves nothing."
)]
pub(crate) struct RebalanceArgs {
    /// Pods that move at most: those whose move is worth most.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_moves: u32,
    /// Show which pods would move, and move none.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(args: &RebalanceArgs, context: &mut Context<'_>) -> CommandResult {
    let max_moves = Some(args.max_moves);
    let plan = match args.dry_run {
        true => {
            let change = PlanChange { rebalance: max_moves, ..PlanChange::default() };
            context.client.plan(&PlanInput { changes: vec![change] }).await?
        }
        false => context.client.rebalance(&RebalanceInput { max_moves }).await?,
    };
    context.output.print_document(&plan, || plans::describe(&plan))?;
    Ok(Exit::Ok)
}
