//! `/pod/{uuid}/log`: output of a pod's container.
//!
//! Requests and output go through Redis (see the channels of `store`).

use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use model::ids::{ContainerName, NodeName, PodId};
use model::stream::channel::Frame;
use serde::Deserialize;
use store::{ChannelError, LogRequest, NodeAnswer, NodeQuestion, PEER_TIMEOUT, Store, StoreError};
use utoipa::IntoParams;

use super::pods;
use crate::http::connections::ClientAddress;
use crate::http::params::{InPath, Params};
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;
use crate::streams::open_streams::StreamGuard;

/// For each chunk of a log that is not followed.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(10);
/// A followed container may write nothing: an empty answer begins after this time.
const QUIET_START_TIMEOUT: Duration = Duration::from_secs(2);
/// The worker gives up after the same time.
const REDIS_TIMEOUT: Duration = PEER_TIMEOUT;
const POD_CHECK_INTERVAL: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const DEFAULT_TAIL: u32 = 100;
const MAX_TAIL: u32 = 100_000;
const GAP: &str = "a part of the output may be missing";

/// The part of the logs to read.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LogParameters {
    /// The number of last lines, at most 100000.
    #[param(value_type = Option<u64>, minimum = 0, maximum = 4294967295_u32, default = 100)]
    tail: Option<u32>,
    /// Whether to continue with new lines as the container writes them.
    #[serde(default)]
    #[param(default = false, required = false)]
    follow: bool,
    /// The container, if the pod has several; without it the first one.
    container: Option<ContainerName>,
}

/// Reads the output of a pod as its container wrote it.
///
/// If the output ends early, the last line is `kubeleet: <reason>`. In a log that is
/// followed, a line says where a part of the output may be missing.
#[utoipa::path(get, path = "/pod/{uuid}/log", tag = "pod", params(InPath<PodId>, LogParameters), responses(
    (status = 200, description = "The output", body = String, content_type = "text/plain"),
    (status = 404, description = "There is no such pod"),
    (status = 409, description = "The pod is not on a node"),
    (status = 502, description = "The node could not read the log"),
    (status = 504, description = "The node does not respond"),
))]
pub(crate) async fn get_pod_log(
    State(app): State<AppState>,
    client: Option<Extension<ClientAddress>>,
    InPath(pod): InPath<PodId>,
    Params(options): Params<LogParameters>,
) -> Result<Response, ApiProblem> {
    let guard = app.streams.begin(client.map(|Extension(client)| client))?;
    let record = pods::read(&app, &pod).await?;
    let Some(node) = record.node else {
        let detail = format!("pod {pod} is {} and not on a node, so it has no log", record.phase);
        return Err(ApiProblem::new(ProblemKind::PodNotAssigned, detail));
    };
    let request = LogRequest {
        pod,
        container: options.container,
        tail: options.tail.unwrap_or(DEFAULT_TAIL).min(MAX_TAIL) as usize,
        follow: options.follow,
    };
    let mut answer = app.store.ask(&node, NodeQuestion::Output(request.clone())).await?;
    let timeout = if options.follow { QUIET_START_TIMEOUT } else { CHUNK_TIMEOUT };
    let first = match first_frame(&mut answer, timeout).await? {
        None if !options.follow => {
            let seconds = timeout.as_secs();
            let detail = format!(
                "node {node} did not answer within {seconds} s, or its answer was lost; try again, and check that its \
                 worker runs"
            );
            return Err(ApiProblem::new(ProblemKind::NodeNotResponding, detail));
        }
        Some(Frame::Failed(why)) => {
            let detail = format!("node {node} could not read the log: {why}");
            return Err(ApiProblem::new(ProblemKind::LogUnavailable, detail));
        }
        first => first,
    };
    let store = app.store.clone();
    let reader = LogStreamReader {
        store,
        node,
        request,
        answer,
        first,
        has_ended: false,
        has_gap: false,
        quiet_since: Instant::now(),
        _guard: guard,
    };
    let output = reader.output().take_until(app.shutdown.clone().cancelled_owned());
    let output = output.map(Ok::<_, std::convert::Infallible>);
    Ok(([(CONTENT_TYPE, "text/plain; charset=utf-8")], Body::from_stream(output)).into_response())
}

async fn first_frame(answer: &mut NodeAnswer, timeout: Duration) -> Result<Option<Frame>, StoreError> {
    match tokio::time::timeout(timeout, answer.next()).await {
        Ok(Ok(frame)) => Ok(Some(frame)),
        Ok(Err(ChannelError::Store(error))) => Err(error),
        Ok(Err(_)) | Err(_) => Ok(None),
    }
}

struct LogStreamReader {
    store: Store,
    node: NodeName,
    request: LogRequest,
    answer: NodeAnswer,
    first: Option<Frame>,
    has_ended: bool,
    /// Output may be missing, and the client has not been told yet.
    has_gap: bool,
    /// The time of the last frame, or of the last check that the pod is on its node.
    quiet_since: Instant,
    _guard: StreamGuard,
}

impl LogStreamReader {
    fn output(self) -> impl Stream<Item = Bytes> + Send {
        futures_util::stream::unfold(self, |mut reader| async move {
            let bytes = reader.next().await?;
            Some((bytes, reader))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        while !self.has_ended {
            let limit = if self.request.follow { POD_CHECK_INTERVAL } else { CHUNK_TIMEOUT };
            let frame = match self.first.take() {
                Some(first) => Ok(Ok(first)),
                None => tokio::time::timeout(limit, self.answer.next()).await,
            };
            let why = match frame {
                Ok(Ok(Frame::Output(bytes))) => {
                    self.quiet_since = Instant::now();
                    // A repeated question would send these lines again.
                    self.request.tail = 0;
                    return Some(match std::mem::take(&mut self.has_gap) {
                        true => [own_line(GAP).as_bytes(), &bytes].concat().into(),
                        false => bytes,
                    });
                }
                Ok(Ok(Frame::Exit(_))) => Some(if self.has_gap { GAP.to_owned() } else { String::new() }),
                Ok(Ok(Frame::Failed(why))) => Some(why),
                Ok(Ok(_)) => None,
                _ if !self.request.follow => Some(format!("node {} stopped sending", self.node)),
                Ok(Err(_)) => {
                    self.ask_again().await;
                    self.reason_to_stop().await
                }
                Err(_) => self.reason_to_stop().await,
            };
            if let Some(why) = why {
                self.has_ended = true;
                return (!why.is_empty()).then(|| own_line(&why).into());
            }
        }
        None
    }

    async fn reason_to_stop(&mut self) -> Option<String> {
        match self.store.pod(&self.request.pod).await {
            Ok(Some(record)) if record.node.as_ref() == Some(&self.node) => {
                self.quiet_since = Instant::now();
                record.phase.is_terminal().then(|| format!("the pod has ended: it is {}", record.phase))
            }
            Ok(_) => Some(format!("the pod is no longer on node {}", self.node)),
            Err(error) => (self.quiet_since.elapsed() > REDIS_TIMEOUT).then(|| error.to_string()),
        }
    }

    /// After a failover that lost frames, or with a restarted worker. Without a tail, the output between the
    /// two answers is missing.
    async fn ask_again(&mut self) {
        tokio::time::sleep(RETRY_INTERVAL).await;
        let question = NodeQuestion::Output(self.request.clone());
        if let Ok(answer) = self.store.ask(&self.node, question).await {
            self.answer = answer;
            self.has_gap = self.request.tail == 0;
        }
    }
}

fn own_line(text: &str) -> String {
    format!("\nkubeleet: {text}\n")
}
