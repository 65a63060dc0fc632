//! `exec`: runs a command in a container of a pod.

use clap::Args;
use model::stream::channel::Purpose;

use super::channel_streams::{self, ChannelStreams};
use super::terminal;
use crate::commands::context::Context;
use crate::commands::error::CommandResult;

/// Arguments of `exec`.
#[derive(Debug, Args)]
#[command(after_help = "The exit code is that of the command; 126 and 127 if it could not be started.\n\
    Options of `exec` stand before the command; `--` before it is not needed.")]
pub(crate) struct ExecArgs {
    /// Pod: uuid, beginning of one, or a name such as web-0; or a service, of which a pod is chosen.
    #[arg(value_name = "POD")]
    pod: String,
    /// Container of a pod with several; without this the first one.
    #[arg(long, short, value_name = "NAME")]
    container: Option<String>,
    /// Pass standard input on.
    #[arg(long, short = 'i')]
    stdin: bool,
    /// Give the command a terminal.
    #[arg(long, short = 't')]
    tty: bool,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) async fn run(args: &ExecArgs, context: &mut Context<'_>) -> CommandResult {
    let purpose = Purpose::Exec {
        command: args.command.clone(),
        tty: args.tty,
        stdin: args.stdin,
        size: args.tty.then(terminal::size).flatten(),
    };
    let streams = ChannelStreams { stdin: args.stdin, tty: args.tty, forwards_interrupt: !args.tty };
    channel_streams::open(&args.pod, args.container.as_deref(), &purpose, &streams, context).await
}
