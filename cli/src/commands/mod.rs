//! The commands people type. Each subject has its file; this one says what there is and how a command ends.

mod apply;
mod events;
mod failure;
mod fields;
mod globals;
mod names;
mod node;
mod pod;
mod queue;
mod resolve;
mod run;
mod service;
mod shell;
mod status;
#[cfg(test)]
mod tests;
mod wait;

use std::process::ExitCode;

use clap::Subcommand;

use crate::client::Client;
use crate::exit::{self, Exit};
use crate::output::Output;
use failure::Failure;
pub(crate) use globals::Globals;
use wait::Waiter;

/// What a user can ask for.
#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Start a service from an image.
    Run(run::RunArgs),
    /// Make services as files say (YAML or JSON).
    Apply(apply::ApplyArgs),
    /// List, look at, scale and delete services.
    #[command(subcommand, visible_aliases = ["svc", "services"])]
    Service(service::ServiceCommand),
    /// List, look at and stop pods, and read their output.
    #[command(subcommand, visible_alias = "pods")]
    Pod(pod::PodCommand),
    /// List, look at, cordon and uncordon nodes.
    #[command(subcommand, visible_alias = "nodes")]
    Node(node::NodeCommand),
    /// Look into the queues, and decide about dead letters.
    #[command(subcommand, visible_alias = "queues")]
    Queue(queue::QueueCommand),
    /// Short for `pod ls`.
    Ps(pod::ListArgs),
    /// Short for `pod logs`.
    Logs(pod::LogArgs),
    /// What happened last, or happens now.
    Events(events::EventArgs),
    /// How the cluster is.
    Status,
    /// Completions for a shell, on standard output.
    Completions(shell::CompletionArgs),
    /// The manual: pages in a directory, or the first one on standard output.
    Man(shell::ManArgs),
}

/// What every command works with.
struct Context<'a> {
    client: Client,
    output: Output,
    globals: &'a Globals,
}

impl Context<'_> {
    /// Waits as `--timeout` says, counted from now.
    fn waiter(&self) -> Waiter {
        Waiter::new(self.client.clone(), self.globals.timeout)
    }
}

/// Carries a command out; `whole` is the command line itself, for completions and manual.
pub(crate) async fn run(command: UserCommand, globals: &Globals, whole: clap::Command) -> ExitCode {
    match carry_out(command, globals, whole, Output::stdout(globals.output)).await {
        Ok(exit) => exit.into(),
        // `kubeleet pod ls | head`: the reader has seen enough.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Ok.into(),
        Err(failure) => {
            exit::complain(&failure.to_string());
            failure.exit().into()
        }
    }
}

async fn carry_out(
    command: UserCommand,
    globals: &Globals,
    whole: clap::Command,
    output: Output,
) -> Result<Exit, Failure> {
    // These two work without a cluster, and with settings that can not be used.
    let command = match command {
        UserCommand::Completions(args) => return shell::completions(&args, whole, output),
        UserCommand::Man(args) => return shell::manual(&args, whole, output),
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
        UserCommand::Ps(args) => pod::list(&args, &mut context).await,
        UserCommand::Logs(args) => pod::logs(&args, &mut context).await,
        UserCommand::Events(args) => events::run(&args, &mut context).await,
        UserCommand::Status => status::run(&mut context).await,
        UserCommand::Completions(_) | UserCommand::Man(_) => Ok(Exit::Ok),
    }
}

/// Goes on after a failure, so that one wrong name among many does not keep the others from being done. The exit code
/// is that of the first failure.
struct Tally(Exit);

impl Tally {
    fn new() -> Self {
        Self(Exit::Ok)
    }

    fn add(&mut self, exit: Exit) {
        if self.0 == Exit::Ok {
            self.0 = exit;
        }
    }

    /// Tells a failure and goes on; a closed output ends all.
    fn take<T>(&mut self, result: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Failure::Output(error)) => Err(Failure::Output(error)),
            Err(failure) => {
                exit::complain(&failure.to_string());
                self.add(failure.exit());
                Ok(None)
            }
        }
    }
}
