//! `/pod/{uuid}/log`: output of a pod's container.
//!
//! Processes never call each other: requests and output go through Redis (see the logs of `store`).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use model::ids::{ContainerName, NodeName, PodId};
use serde::Deserialize;
use store::{LogChunk, LogRequest, Store, StoreError};
use utoipa::IntoParams;

use super::pods;
use crate::http::connections::ClientAddress;
use crate::http::params::{InPath, Params};
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;
use crate::streams::open_streams::StreamGuard;

const FIRST_CHUNK_TIMEOUT: Duration = Duration::from_secs(10);
/// A followed container may write nothing: an empty answer begins after this time.
const QUIET_START_TIMEOUT: Duration = Duration::from_secs(2);
/// A stream ends after Redis was unavailable for this time. The worker gives up a little later.
const REDIS_TIMEOUT: Duration = Duration::from_secs(20);
const POD_CHECK_INTERVAL: Duration = Duration::from_secs(5);
const DEFAULT_TAIL: u32 = 100;
const MAX_TAIL: u32 = 100_000;

/// What to read.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LogParameters {
    /// The number of last lines, at most 100000.
    #[param(value_type = Option<u64>, minimum = 0, maximum = 4294967295_u32, default = 100)]
    tail: Option<u32>,
    /// Whether to continue with what the container writes from now on.
    #[serde(default)]
    #[param(default = false, required = false)]
    follow: bool,
    /// The container, if the pod has several; without it the first one.
    container: Option<ContainerName>,
}

/// Reads the output of a pod as its container wrote it.
///
/// If the output ends early, the last line is `kubeleet: <reason>`.
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
    let mut reader = LogStreamReader::new(app.store.clone(), node.clone(), pod, &options, guard);
    app.store.request_logs(&node, &reader.request).await?;
    let timeout = if options.follow { QUIET_START_TIMEOUT } else { FIRST_CHUNK_TIMEOUT };
    if !reader.wait_for_first_chunk(timeout).await? && !options.follow {
        let seconds = timeout.as_secs();
        let detail = format!("node {node} did not answer within {seconds} s; check that its worker runs");
        return Err(ApiProblem::new(ProblemKind::NodeNotResponding, detail));
    }
    if let Some(LogChunk::End(why)) = reader.ready.front()
        && !why.is_empty()
    {
        let detail = format!("node {node} could not read the log: {why}");
        return Err(ApiProblem::new(ProblemKind::LogUnavailable, detail));
    }
    let output = reader.output().take_until(app.shutdown.clone().cancelled_owned());
    let output = output.map(Ok::<_, std::convert::Infallible>);
    Ok(([(CONTENT_TYPE, "text/plain; charset=utf-8")], Body::from_stream(output)).into_response())
}

struct LogStreamReader {
    store: Store,
    node: NodeName,
    request: LogRequest,
    last: String,
    ready: VecDeque<LogChunk>,
    ended: bool,
    /// Time of the last chunk, or of the last check that found the pod on its node.
    quiet_since: Instant,
    _guard: StreamGuard,
}

impl LogStreamReader {
    fn new(store: Store, node: NodeName, pod: PodId, options: &LogParameters, guard: StreamGuard) -> Self {
        let request = LogRequest {
            id: uuid::Uuid::new_v4().to_string(),
            pod,
            container: options.container.clone(),
            tail: options.tail.unwrap_or(DEFAULT_TAIL).min(MAX_TAIL) as usize,
            follow: options.follow,
        };
        Self {
            store,
            node,
            request,
            last: "0".to_owned(),
            ready: VecDeque::new(),
            ended: false,
            quiet_since: Instant::now(),
            _guard: guard,
        }
    }

    async fn poll(&mut self) -> Result<(), StoreError> {
        let (chunks, last) = self.store.read_log(&self.request.id, &self.last).await?;
        self.last = last;
        self.ready.extend(chunks);
        Ok(())
    }

    async fn wait_for_first_chunk(&mut self, timeout: Duration) -> Result<bool, StoreError> {
        let started = Instant::now();
        while self.ready.is_empty() {
            if started.elapsed() > timeout {
                return Ok(false);
            }
            tokio::time::sleep(Store::LOG_POLL).await;
            self.poll().await?;
        }
        Ok(true)
    }

    fn output(self) -> impl Stream<Item = Bytes> + Send {
        futures_util::stream::unfold(self, |mut reader| async move {
            let bytes = reader.next().await?;
            Some((bytes, reader))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        while !self.ended {
            match self.ready.pop_front() {
                Some(LogChunk::Output(bytes)) => return Some(bytes),
                Some(LogChunk::End(why)) => {
                    self.ended = true;
                    return (!why.is_empty()).then(|| last_line(&why));
                }
                None => {}
            }
            // This fails while Redis is unavailable, until the check below ends the stream.
            if self.poll().await.is_ok() && !self.ready.is_empty() {
                self.quiet_since = Instant::now();
                continue;
            }
            if let Some(why) = self.reason_to_stop().await {
                self.ended = true;
                return Some(last_line(&why));
            }
            tokio::time::sleep(Store::LOG_POLL).await;
        }
        None
    }

    async fn reason_to_stop(&mut self) -> Option<String> {
        let quiet = self.quiet_since.elapsed();
        if !self.request.follow {
            return (quiet > FIRST_CHUNK_TIMEOUT).then(|| format!("node {} stopped sending", self.node));
        }
        if quiet < POD_CHECK_INTERVAL {
            return None;
        }
        match self.store.pod(&self.request.pod).await {
            Ok(Some(record)) if record.node.as_ref() == Some(&self.node) && !record.phase.is_terminal() => {
                self.quiet_since = Instant::now();
                None
            }
            Ok(_) => Some(format!("the pod is no longer on node {}", self.node)),
            Err(error) => (quiet > REDIS_TIMEOUT).then(|| error.to_string()),
        }
    }
}

fn last_line(why: &str) -> Bytes {
    Bytes::from(format!("\nkubeleet: {why}\n"))
}

impl Drop for LogStreamReader {
    fn drop(&mut self) {
        let (store, id) = (self.store.clone(), self.request.id.clone());
        // Otherwise the worker notices only half a minute later.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { drop(store.end_log(&id).await) });
        }
    }
}
