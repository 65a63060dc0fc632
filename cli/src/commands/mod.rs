//! The user commands. Each subject has its own file with its arguments; this file lists the commands and runs
//! them.

mod apply;
mod backup;
mod batch;
mod cluster;
mod context;
mod durability;
mod edit_dead_letter;
mod error;
mod events;
mod globals;
mod node;
mod pod;
mod queue;
mod recent_events;
mod resolve;
mod run;
mod service;
mod service_file;
mod service_name;
mod shell;
mod status;
#[cfg(test)]
mod tests;
mod values;
mod wait;

use std::process::ExitCode;

use clap::Subcommand;

use crate::exit::Exit;
use crate::output::Output;
use crate::stderr;
use context::Context;
use error::CommandError;
pub(crate) use globals::Globals;

/// A command that calls the API, or describes the command line itself.
#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Start a service from an image.
    Run(run::RunArgs),
    /// Create or update services from files (YAML or JSON).
    Apply(apply::ApplyArgs),
    /// List, inspect, scale and delete services.
    #[command(subcommand, visible_aliases = ["svc", "services"])]
    Service(service::ServiceCommand),
    /// List, inspect and stop pods, and print their output.
    #[command(subcommand, visible_alias = "pods")]
    Pod(pod::PodCommand),
    /// List, inspect, cordon, uncordon and remove nodes.
    #[command(subcommand, visible_alias = "nodes")]
    Node(node::NodeCommand),
    /// Inspect queues; requeue or drop dead letters.
    #[command(subcommand, visible_alias = "queues")]
    Queue(queue::QueueCommand),
    /// Check and repair the state in Redis.
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Write services, pods and assignments to a file.
    Backup(backup::BackupArgs),
    /// Write again from a backup what Redis has lost; what it has stays.
    Restore(backup::RestoreArgs),
    /// Short for `pod ls`.
    Ps(pod::ListArgs),
    /// Short for `pod logs`.
    Logs(pod::LogArgs),
    /// Show recent events, or follow new ones.
    Events(events::EventArgs),
    /// Show the state of the cluster.
    Status,
    /// Print shell completions.
    Completions(shell::CompletionArgs),
    /// Write man pages to a directory, or print the main page.
    Man(shell::ManArgs),
}

/// Runs a command and reports its error. `command_line` is the definition that completions and man pages
/// describe.
pub(crate) async fn run(command: UserCommand, globals: &Globals, command_line: clap::Command) -> ExitCode {
    match dispatch(command, globals, command_line, Output::stdout(globals.output)).await {
        Ok(exit) => exit.into(),
        // `kubeleet pod ls | head`: the reader has seen enough.
        Err(CommandError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Ok.into(),
        Err(error) => {
            stderr::error(&error.to_string());
            error.exit().into()
        }
    }
}

async fn dispatch(
    command: UserCommand,
    globals: &Globals,
    command_line: clap::Command,
    output: Output,
) -> Result<Exit, CommandError> {
    // These two need no cluster, and work with invalid global options.
    let command = match command {
        UserCommand::Completions(args) => return shell::completions(&args, command_line, output),
        UserCommand::Man(args) => return shell::manual(&args, command_line, output),
        other => other,
    };
    let mut context = Context { client: globals.client()?, output, globals };
    match command {
        UserCommand::Run(args) => run::run(&args, &mut context).await,
        UserCommand::Apply(args) => apply::run(&args, &mut context).await,
        UserCommand::Service(command) => service::run(command, &mut context).await,
        UserCommand::Pod(command) => pod::run(command, &mut context).await,
        UserCommand::Node(command) => node::run(command, &mut context).await,
        UserCommand::Queue(command) => queue::run(command, &mut context).await,
        UserCommand::Cluster(command) => cluster::run(command, &mut context).await,
        UserCommand::Backup(args) => backup::backup(&args, &mut context).await,
        UserCommand::Restore(args) => backup::restore(&args, &mut context).await,
        UserCommand::Ps(args) => pod::list(&args, &mut context).await,
        UserCommand::Logs(args) => pod::logs(&args, &mut context).await,
        UserCommand::Events(args) => events::run(&args, &mut context).await,
        UserCommand::Status => status::run(&mut context).await,
        UserCommand::Completions(_) | UserCommand::Man(_) => Ok(Exit::Ok),
    }
}
