//! `attach`: shows a running container's new output and forwards input.

use clap::Args;
use model::stream::channel::Purpose;

use super::channel_streams::{self, ChannelStreams};
use super::terminal::{self, RawTerminal};
use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::objects::find_pod;

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
    if tty && !terminal::is_interactive() {
        return Err(CommandError::Usage(terminal::NONE.to_owned()));
    }
    let pod = find_pod::running_pod(context, &args.pod).await?;
    let purpose = Purpose::Attach { stdin, size: tty.then(terminal::size).flatten() };
    let channel = context.client.open_channel(pod.uuid.as_str(), args.container.as_deref(), &purpose).await?;
    let _raw = tty.then(RawTerminal::enter).transpose()?;
    channel_streams::run(channel, &ChannelStreams { stdin, tty, forwards_interrupt: false }).await
}
