//! Takes the requests that wait for this node. Each is answered by a task of its own.

use std::sync::Arc;
use std::time::Duration;

use model::stream::channel::Frame;
use serde::Serialize;
use store::{Channel, ChannelError, ChannelReader, NodeQuestion, NodeRequest, StoreError};
use tokio::time::Instant;

use crate::answer::ends::{ChannelEnd, broken, until_left};
use crate::answer::log_writer::{LogWriter, MAX_READERS};
use crate::answer::{connect, lines, login_check, output, pull_ahead};
use crate::node::garbage;
use crate::session::context::SessionContext;

/// For the last frame to reach Redis.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn serve(context: &Arc<SessionContext>) {
    let task_context = context.clone();
    context.tasks.spawn(async move {
        match task_context.worker.store.take_requests(&task_context.worker.node).await {
            Ok(requests) => requests.into_iter().for_each(|request| answer(&task_context, request)),
            // Clients ask again.
            Err(error) => tracing::debug!(%error, "requests could not be read"),
        }
    });
}

fn answer(context: &Arc<SessionContext>, request: NodeRequest) {
    let task_context = context.clone();
    context.tasks.spawn(async move {
        if let Err(error) = try_answer(&task_context, &request).await {
            tracing::debug!(id = %request.id, %error, "an answer ended early");
        }
    });
}

async fn try_answer(context: &SessionContext, request: &NodeRequest) -> Result<(), StoreError> {
    if let NodeQuestion::Prepare { spec, service } = &request.question {
        return pull_ahead::answer(context, spec, service).await;
    }
    let store = &context.worker.store;
    let Some(mut channel) = store.accept_channel(request).await? else { return Ok(()) };
    let begun = Instant::now();
    let ended = begin(context, &request.question, &mut channel).await;
    if let Some(last) = &ended {
        let finished = channel.writer.finish(last.clone());
        let _too_late = tokio::time::timeout(FINISH_TIMEOUT, finished).await;
    }
    drop(channel);
    let NodeQuestion::Connect(wanted) = &request.question else { return store.end_answer(&request.id).await };
    let how =
        ended.map_or_else(|| "its client has left".to_owned(), |last| wanted.purpose.describe_end(&last));
    let message = format!("{} ended after {} s: {how}", wanted.purpose.describe(), begun.elapsed().as_secs());
    store.close_channel(&request.id, &wanted.pod, true, &message).await
}

async fn begin(context: &SessionContext, question: &NodeQuestion, channel: &mut Channel) -> ChannelEnd {
    let Channel { writer, reader } = channel;
    match question {
        NodeQuestion::Connect(request) => connect::serve(context, request, channel).await,
        NodeQuestion::Output(request) => {
            let copying =
                output::copy(context, request, LogWriter { writer, throttle: &context.log_throttle });
            while_read(context, reader, copying).await
        }
        NodeQuestion::Lines(request) => {
            let copying =
                lines::copy(context, request, LogWriter { writer, throttle: &context.log_throttle });
            while_read(context, reader, copying).await
        }
        NodeQuestion::Garbage { removes } => {
            send_json(channel, garbage::answer::collect(context, *removes).await).await
        }
        NodeQuestion::CheckLogin(login) => {
            send_json(channel, Ok(login_check::verdict(&context.worker, login).await)).await
        }
        NodeQuestion::Prepare { .. } => None,
    }
}

async fn while_read(
    context: &SessionContext,
    reader: &mut ChannelReader,
    copying: impl Future<Output = Result<ChannelEnd, ChannelError>>,
) -> ChannelEnd {
    let Ok(_permit) = context.log_permits.try_acquire() else {
        let node = &context.worker.node;
        return Some(Frame::Failed(format!(
            "{node} answers {MAX_READERS} log requests already; try again when one of them has ended"
        )));
    };
    tokio::select! {
        // The client asks again after this worker has restarted.
        () = context.tasks.stopping().cancelled() => None,
        copied = copying => copied.unwrap_or_else(|error| broken(&error)),
        left = until_left(reader) => left,
    }
}

async fn send_json(channel: &mut Channel, found: Result<impl Serialize, StoreError>) -> ChannelEnd {
    let json = match found {
        Ok(found) => serde_json::to_vec(&found).unwrap_or_default(),
        Err(error) => return Some(Frame::Failed(error.to_string())),
    };
    match channel.writer.send_data(json.into(), Frame::Output).await {
        Ok(()) => Some(Frame::Exit(0)),
        Err(error) => broken(&error),
    }
}
