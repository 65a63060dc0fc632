//! Channels to pods: interactive commands, forwarded ports and copied files. Requests and all data go through
//! Redis ([`model::stream::channel`]).

mod attach;
mod command;
mod copy;
mod ends;
mod forward;

use std::sync::Arc;
use std::time::Duration;

use engine::ContainerState;
use model::stream::channel::{ChannelRequest, Frame, Purpose};
use store::{Channel, StoreError};
use tokio::time::Instant;

use self::ends::{ChannelEnd, worker_stops};
use crate::answer::requested_container::container_of;
use crate::session::context::{MAX_CHANNELS, SessionContext};

/// The last frame must reach Redis within this time.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn serve(context: &Arc<SessionContext>) {
    let task_context = context.clone();
    context.tasks.spawn(async move {
        match task_context.worker.store.take_channel_requests(&task_context.worker.node).await {
            Ok(requests) => requests.into_iter().for_each(|request| serve_one(&task_context, request)),
            // The client is told that the worker does not answer.
            Err(error) => tracing::debug!(%error, "requests for channels could not be read"),
        }
    });
}

fn serve_one(context: &Arc<SessionContext>, request: ChannelRequest) {
    let task_context = context.clone();
    context.tasks.spawn(async move {
        if let Err(error) = run(&task_context, &request).await {
            tracing::debug!(pod = %request.pod, %error, "a channel ended early");
        }
    });
}

async fn run(context: &SessionContext, request: &ChannelRequest) -> Result<(), StoreError> {
    let store = &context.worker.store;
    // Nothing starts without a client.
    let Some(mut channel) = store.accept_channel(&request.id).await? else { return Ok(()) };
    let begun = Instant::now();
    let ended = serve_channel(context, request, &mut channel).await;
    let how = match &ended {
        Some(last) => {
            let finished = channel.writer.finish(last.clone());
            let _too_late = tokio::time::timeout(FINISH_TIMEOUT, finished).await;
            request.purpose.describe_end(last)
        }
        None => "its client has left".to_owned(),
    };
    drop(channel);
    let message =
        format!("{} ended after {} s: {how}", request.purpose.describe(), begun.elapsed().as_secs());
    store.close_channel(&request.id, &request.pod, true, &message).await
}

async fn serve_channel(
    context: &SessionContext,
    request: &ChannelRequest,
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
    // A command is ended first, and waited for.
    if matches!(request.purpose, Purpose::Exec { .. }) {
        return begin(context, request, channel).await.unwrap_or_else(|why| Some(Frame::Failed(why)));
    }
    tokio::select! {
        biased;
        () = context.tasks.stopping().cancelled() => Some(worker_stops(context)),
        ended = begin(context, request, channel) => match ended {
            Ok(ended) => ended,
            Err(why) => Some(Frame::Failed(why)),
        },
    }
}

async fn begin(
    context: &SessionContext,
    request: &ChannelRequest,
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
