//! `attach`.

use clap::Args;
use model::stream::channel::Purpose;

use super::channel_streams::{self, ChannelStreams};
use super::terminal;
use crate::commands::context::Context;
use crate::commands::error::CommandResult;

/// Arguments of `attach`.
#[derive(Debug, Args)]
#[command(
    after_help = "Ctrl-C leaves the container running; with -t it is a key as all others, and Ctrl-P Ctrl-Q \
    leaves.\nThe exit code is that of the container, if it ends."
)]
pub(crate) struct AttachArgs {
    /// Pod: uuid, beginning of one, or a name such as web-0; or a service, of which a pod is chosen.
    #[arg(value_name = "POD")]
    pod: String,
    /// Container of a pod with several; without this the first one.
    #[arg(long, short, value_name = "NAME")]
    container: Option<String>,
    /// Pass standard input on: of a container with `stdin_open`.
    #[arg(long, short = 'i')]
    stdin: bool,
    /// Connect this terminal with that of the container: of one with `tty`; with -i.
    #[arg(long, short = 't', requires = "stdin")]
    tty: bool,
}

pub(crate) async fn run(args: &AttachArgs, context: &mut Context<'_>) -> CommandResult {
    let (stdin, tty) = (args.stdin, args.tty);
    let purpose = Purpose::Attach { stdin, size: tty.then(terminal::size).flatten() };
    let streams = ChannelStreams { stdin, tty, forwards_interrupt: false };
    channel_streams::open(&args.pod, args.container.as_deref(), &purpose, &streams, context).await
}
