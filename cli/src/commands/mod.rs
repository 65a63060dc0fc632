//! The user commands. Each subject has its own file with its arguments.

mod apps;
mod batch;
mod cluster;
mod containers;
mod context;
mod durability_warning;
mod editor;
mod error;
mod flag_values;
mod globals;
mod lists;
mod objects;
mod selector_args;
mod services;
mod shell;
#[cfg(test)]
mod tests;
mod type_args;
mod wait;

use std::process::ExitCode;

use clap::Subcommand;
use output::stderr;
use output::{ListStyle, Output};

use crate::exit::Exit;
use apps::folder_app::FolderApp;
use apps::{apply, diff};
use cluster::{backup, check_and_recover, drain, events, gc, plan, status, top, version};
use containers::{attach, copy, exec, logs, port, port_forward, run};
use context::Context;
use error::{CommandError, CommandResult};
pub(crate) use globals::Globals;
use objects::secret_and_config::{self, SecretArgs, SecretCommand};
use objects::{ObjectCommand, node, operation_first, pod};
use services::{rollout, scale, set};
pub(crate) use shell::complete::answer as answer_shell;
use shell::{completions_and_man, explain};

/// A command that calls the API, or describes the command line itself.
#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Start a service from an image.
    Run(Box<run::RunArgs>),
    /// Create or update services from files: YAML, JSON or Compose.
    Apply(apply::ApplyArgs),
    /// Show what `apply` would change.
    Diff(diff::DiffArgs),
    #[command(flatten)]
    Object(ObjectCommand),
    /// List objects of a type, or show one.
    Get(operation_first::GetArgs),
    /// Show one object in detail.
    Describe(operation_first::DescribeArgs),
    /// Delete services, stop pods, remove dead nodes, drop dead letters.
    Delete(operation_first::DeleteArgs),
    /// Change the number of pods of services.
    Scale(scale::ScaleArgs),
    /// Change a service in an editor.
    Edit(operation_first::EditArgs),
    /// Replace the pods of services, step by step.
    Restart(operation_first::RestartArgs),
    /// Show the former generations of a service, undo a change, follow one.
    #[command(subcommand)]
    Rollout(rollout::RolloutCommand),
    /// Change one field of a service.
    #[command(subcommand)]
    Set(set::SetCommand),
    /// Keep new pods off nodes; running pods stay.
    Cordon(node::NodeNames),
    /// Allow new pods on nodes again.
    Uncordon(node::NodeNames),
    /// Move the pods of services away from a node, and keep new ones off.
    Drain(drain::DrainArgs),
    /// Show what draining, losing or adding nodes, or scaling services would do.
    Plan(plan::PlanArgs),
    /// Check and repair the state in Redis.
    #[command(subcommand)]
    Cluster(check_and_recover::ClusterCommand),
    /// Write services, pods and assignments to a file.
    Backup(backup::BackupArgs),
    /// Restore from a backup the objects that Redis has lost; the others stay.
    Restore(backup::RestoreArgs),
    /// Short for `pod ls`.
    Ps(pod::PsArgs),
    /// Print the output of pods.
    Logs(logs::LogArgs),
    /// Run a command in a container of a pod.
    Exec(exec::ExecArgs),
    /// Show the output of a container from now on.
    Attach(attach::AttachArgs),
    /// Show the published ports of a pod.
    Port(port::PortArgs),
    /// Reach a port of a pod from this machine.
    PortForward(port_forward::PortForwardArgs),
    /// Copy files to and from containers.
    #[command(name = "cp")]
    Copy(copy::CopyArgs),
    /// Show recent events, or follow new ones.
    Events(events::EventArgs),
    /// Remove images that no service needs from nodes, or list them.
    Gc(gc::GcArgs),
    /// Show the usage of pods and nodes: CPU, memory, I/O.
    Top(top::TopArgs),
    /// Show the state of the cluster, and problems that need a person.
    Status(status::StatusArgs),
    /// Show the versions of this command and of the API.
    Version,
    /// Describe a service's fields, `explain service.memory`, or where a pod could run, `explain pod web-0`.
    Explain(explain::ExplainArgs),
    /// Print the JSON Schema of a service's file, for editors.
    Schema,
    /// Print the script that completes commands and names of objects in a shell.
    #[command(visible_alias = "completion")]
    Completions(completions_and_man::CompletionArgs),
    /// Write man pages to a directory, or print the main page.
    Man(completions_and_man::ManArgs),
}

pub(crate) async fn run(command: UserCommand, globals: &Globals, command_line: clap::Command) -> ExitCode {
    let folder = FolderApp::of_this_directory();
    match dispatch(command, globals, folder, command_line, Output::stdout(globals.output)).await {
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
    folder: FolderApp,
    command_line: clap::Command,
    mut output: Output,
) -> CommandResult {
    // These need no cluster, and work with invalid global options.
    let command = match command {
        UserCommand::Completions(args) => return completions_and_man::completions(&args, output),
        UserCommand::Man(args) => return completions_and_man::manual(&args, command_line, output),
        UserCommand::Explain(args) if args.pod.is_none() => return explain::run(&args, output),
        UserCommand::Schema => return explain::schema(output),
        UserCommand::Object(ObjectCommand::Secret(SecretArgs {
            list,
            command: Some(SecretCommand::Key),
        })) if list == ListStyle::default() => {
            return secret_and_config::print_key(&mut output);
        }
        other => other,
    };
    let mut context = Context { client: globals.client()?, output, globals, folder };
    match command {
        UserCommand::Run(args) => run::run(&args, &mut context).await,
        UserCommand::Apply(args) => apply::run(&args, &mut context).await,
        UserCommand::Diff(args) => diff::run(&args, &mut context).await,
        UserCommand::Object(command) => objects::run(command, &mut context).await,
        UserCommand::Get(args) => operation_first::get(args, &mut context).await,
        UserCommand::Describe(args) => operation_first::describe(args, &mut context).await,
        UserCommand::Delete(args) => operation_first::delete(args, &mut context).await,
        UserCommand::Scale(args) => scale::run(&args, &mut context).await,
        UserCommand::Edit(args) => operation_first::edit(args, &mut context).await,
        UserCommand::Restart(args) => operation_first::restart(args, &mut context).await,
        UserCommand::Rollout(command) => rollout::run(command, &mut context).await,
        UserCommand::Set(command) => set::run(command, &mut context).await,
        UserCommand::Cordon(nodes) => node::cordon(&nodes, true, &mut context).await,
        UserCommand::Drain(args) => drain::run(&args, &mut context).await,
        UserCommand::Plan(args) => plan::run(args, &mut context).await,
        UserCommand::Uncordon(nodes) => node::cordon(&nodes, false, &mut context).await,
        UserCommand::Cluster(command) => check_and_recover::run(command, &mut context).await,
        UserCommand::Backup(args) => backup::backup(&args, &mut context).await,
        UserCommand::Restore(args) => backup::restore(&args, &mut context).await,
        UserCommand::Ps(args) => pod::ps(args, &mut context).await,
        UserCommand::Logs(args) => logs::run(&args, &mut context).await,
        UserCommand::Exec(args) => exec::run(&args, &mut context).await,
        UserCommand::Attach(args) => attach::run(&args, &mut context).await,
        UserCommand::Port(args) => port::run(&args, &mut context).await,
        UserCommand::PortForward(args) => port_forward::run(&args, &mut context).await,
        UserCommand::Copy(args) => copy::run(&args, &mut context).await,
        UserCommand::Events(args) => events::run(&args, &mut context).await,
        UserCommand::Gc(args) => gc::run(&args, &mut context).await,
        UserCommand::Top(args) => top::run(&args, &mut context).await,
        UserCommand::Status(args) => status::run(&mut context, &args).await,
        UserCommand::Version => version::run(&mut context).await,
        UserCommand::Explain(args) => explain::pod(&args, &mut context).await,
        UserCommand::Completions(_) | UserCommand::Man(_) | UserCommand::Schema => Ok(Exit::Ok),
    }
}
