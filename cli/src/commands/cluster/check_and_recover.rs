//! `cluster`: checks and repairs the state in Redis, and recovers lost state.

use api_types::{FindingView, RecoveryView};
use clap::{Args, Subcommand};
use client::Method;
use output::objects::recovery;
use output::stderr;

use crate::commands::context::Context;
use crate::commands::error::CommandResult;
use crate::commands::flag_values;
use crate::exit::Exit;

/// Subcommands of `cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Compare all keys in Redis with each other; exits with 1 if something is wrong.
    Check(CheckArgs),
    /// Write lost objects again from the saved state of the workers; no container is restarted.
    Recover(RecoverArgs),
}

/// Arguments of `cluster check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Repair the findings that can be repaired.
    #[arg(long)]
    repair: bool,
}

/// Arguments of `cluster recover`.
#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    /// Write the missing objects. Without it nothing is changed.
    #[arg(long)]
    yes: bool,
    /// How long to wait for the workers, at most 20s.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = flag_values::wait_seconds)]
    wait: u64,
    /// Id of the cluster, if workers of several clusters use this Redis.
    #[arg(long, value_name = "ID")]
    cluster: Option<String>,
    /// Also recover services that were deleted after they were saved.
    #[arg(long)]
    deleted: bool,
}

pub(crate) async fn run(command: ClusterCommand, context: &mut Context<'_>) -> CommandResult {
    match command {
        ClusterCommand::Check(args) => check(&args, context).await,
        ClusterCommand::Recover(args) => recover(&args, context).await,
    }
}

async fn recover(args: &RecoverArgs, context: &mut Context<'_>) -> CommandResult {
    let call = context.client.call(Method::POST, &["cluster", "recover"], "recovering the cluster");
    let call = call.query("apply", Some(args.yes)).query("wait_seconds", Some(args.wait));
    let call = call.query("cluster", args.cluster.as_deref());
    let view: RecoveryView = call.query("deleted", args.deleted.then_some(true)).view().await?;
    context.output.print_document(&view, || recovery::describe(&view))?;
    if !view.applied && recovery::has_work(&view) {
        let deleted = if args.deleted { " --deleted" } else { "" };
        stderr::note(&format!("nothing was changed; `kubeleet cluster recover --yes{deleted}` does this"));
    }
    Ok(Exit::Ok)
}

async fn check(args: &CheckArgs, context: &mut Context<'_>) -> CommandResult {
    let (method, path, operation) = match args.repair {
        true => (Method::POST, "repair", "repairing the cluster"),
        false => (Method::GET, "check", "checking the cluster"),
    };
    let findings: Vec<FindingView> =
        context.client.call(method, &["cluster", path], operation).views().await?;
    context.output.print_list(&findings, "nothing is wrong")?;
    let is_clean = findings.iter().all(|finding| finding.repaired);
    Ok(if is_clean { Exit::Ok } else { Exit::Error })
}
