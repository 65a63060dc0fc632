//! Connections to pods: commands, forwarded ports and copied files. All data goes through Redis
//! ([`model::stream::channel`]).

mod attach;
mod command;
mod copy;
mod forward;

use engine::ContainerState;
use futures_util::FutureExt;
use model::stream::channel::{Frame, Purpose};
use store::{Channel, ConnectRequest};

use crate::answer::ends::{ChannelEnd, worker_stops};
use crate::answer::requested_container::container_of;
use crate::session::context::{MAX_CHANNELS, SessionContext};

pub(super) async fn serve(
    context: &SessionContext,
    request: &ConnectRequest,
    channel: &mut Channel,
) -> ChannelEnd {
    let node = &context.worker.node;
    if !context.worker.config.policy.exec {
        let why = format!(
            "the operator of node {node} allows no commands, copies and connections from outside: KUBELEET_EXEC is off there"
        );
        return Some(Frame::Failed(why));
    }
    let Ok(_permit) = context.channel_permits.try_acquire() else {
        let why = format!(
            "node {node} serves {MAX_CHANNELS} commands, copies and connections already; try again when one of them has ended"
        );
        return Some(Frame::Failed(why));
    };
    let begun =
        begin(context, request, channel).map(|end| end.unwrap_or_else(|why| Some(Frame::Failed(why))));
    if matches!(request.purpose, Purpose::Exec { .. }) {
        return begun.await;
    }
    tokio::select! {
        biased;
        () = context.tasks.stopping().cancelled() => Some(worker_stops(context)),
        end = begun => end,
    }
}

async fn begin(
    context: &SessionContext,
    request: &ConnectRequest,
    channel: &mut Channel,
) -> Result<ChannelEnd, String> {
    if let Some(problem) = request.purpose.problem() {
        return Err(problem);
    }
    if let Purpose::Forward { port } = request.purpose {
        return forward::serve(context, &request.pod, port, channel).await;
    }
    let container = container_of(context, &request.pod, request.container.as_ref()).await;
    let container = container.map_err(|error| error.to_string())?;
    // Output for a container's first client stays readable after its end.
    let needs_running =
        !matches!(request.purpose, Purpose::CopyFrom { .. } | Purpose::Attach { stdin: true, .. });
    if container.state != ContainerState::Running && needs_running {
        return Err(format!("the container of pod {} does not run", request.pod));
    }
    match &request.purpose {
        Purpose::Exec { .. } | Purpose::Attach { stdin: true, .. } => {
            command::serve(context, &container, &request.purpose, channel).await
        }
        Purpose::Attach { stdin: false, .. } => attach::serve(context, &container, channel).await,
        Purpose::CopyTo { directory } => copy::to_container(context, &container, directory, channel).await,
        Purpose::CopyFrom { path } => copy::from_container(context, &container, path, channel).await,
        Purpose::Forward { .. } => Ok(None),
    }
}
