//! `attach`: shows what a running container writes from now on.

use clap::Args;
use common::channel::Purpose;

use super::context::Context;
use super::error::CommandError;
use super::resolve;
use super::streaming::{self, ChannelStreams};
use crate::exit::Exit;

/// Arguments of `attach`.
#[derive(Debug, Args)]
#[command(
    after_help = "Ctrl-C leaves the container running. Containers of kubeleet have no standard input: \
    use `exec -i`.\nThe exit code is that of the container, if it ends."
)]
pub(crate) struct AttachArgs {
    /// Pod: uuid, beginning of one, or a name such as web-0; or a service, of which a pod is chosen.
    #[arg(value_name = "POD")]
    pod: String,
    /// Container of a pod with several; without this the first one.
    #[arg(long, short, value_name = "NAME")]
    container: Option<String>,
}

/// Shows the output until the container ends.
pub(super) async fn run(args: &AttachArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let pod = resolve::running_pod(context, &args.pod).await?;
    let container = args.container.as_deref();
    let channel = context.client.open_channel(pod.uuid.as_str(), container, &Purpose::Attach {}).await?;
    streaming::run(channel, &ChannelStreams { stdin: false, tty: false, forwards_interrupt: false }).await
}
