//! `/pod/{uuid}/log`: what a pod's container wrote. No process calls another: the request and the answer go through
//! Redis (see `common::store`, logs).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use common::ids::{NodeName, PodId};
use common::store::{LogChunk, LogRequest, Store, StoreError};
use futures_util::{Stream, StreamExt};
use serde::Deserialize;
use utoipa::IntoParams;

use super::pods::missing;
use crate::dto::Problem;
use crate::problem::{ApiProblem, Kind};
use crate::query::{Params, pod_id};
use crate::state::App;

/// How long a worker may take to say the first word.
const FIRST_WORD_WITHIN: Duration = Duration::from_secs(10);
/// A container that is followed may be quiet: after this long, nothing is an answer too.
const QUIET_AFTER: Duration = Duration::from_secs(2);
/// How long Redis may be away before a stream gives up. The worker gives up a little later.
const PATIENCE: Duration = Duration::from_secs(20);
/// A followed container may be quiet for ever; this often it is checked that its pod still is where it is read.
const CHECKED_EVERY: Duration = Duration::from_secs(5);
/// The most last lines there can be asked for.
const LONGEST_TAIL: usize = 100_000;

/// What to read.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Options {
    /// How many of the last lines, 100 unless said.
    tail: Option<usize>,
    /// Whether to go on with what comes after.
    #[serde(default)]
    follow: bool,
}

/// Reads a pod's output, as the container wrote it.
///
/// When the reading ends early, the last line says `kubeleet: <why>`.
#[utoipa::path(get, path = "/pod/{uuid}/log", tag = "pod", params(Options), responses(
    (status = 200, description = "The output", body = String, content_type = "text/plain"),
    (status = 404, description = "There is no such pod", body = Problem),
    (status = 409, description = "It is on no node", body = Problem),
    (status = 502, description = "The node could not read it", body = Problem),
    (status = 504, description = "The node does not answer", body = Problem),
))]
pub(crate) async fn read(
    State(app): State<App>,
    Path(uuid): Path<String>,
    Params(options): Params<Options>,
) -> Result<Response, ApiProblem> {
    let pod = pod_id(uuid)?;
    let record = app.store.pod(&pod).await?.ok_or_else(|| missing(&pod))?;
    let Some(node) = record.node else {
        let detail =
            format!("pod {pod} is {} and on no node: there is no container to read from", record.phase);
        return Err(ApiProblem::new(Kind::PodOnNoNode, detail));
    };
    let mut reading = Reading::new(app.store.clone(), node.clone(), pod, &options);
    app.store.request_logs(&node, &reading.request).await?;
    let within = if options.follow { QUIET_AFTER } else { FIRST_WORD_WITHIN };
    if !reading.first_word(within).await? && !options.follow {
        let detail = format!("node {node} did not answer within {} s; is its worker up?", within.as_secs());
        return Err(ApiProblem::new(Kind::NodeSilent, detail));
    }
    if let Some(LogChunk::End(why)) = reading.ready.front()
        && !why.is_empty()
    {
        return Err(ApiProblem::new(Kind::LogUnavailable, format!("node {node} says: {why}")));
    }
    let output = reading.output().take_until(app.shutdown.clone().cancelled_owned());
    let output = output.map(Ok::<_, std::convert::Infallible>);
    Ok(([(CONTENT_TYPE, "text/plain; charset=utf-8")], Body::from_stream(output)).into_response())
}

/// One reading. Dropping it tells the worker that nobody reads any more.
struct Reading {
    store: Store,
    node: NodeName,
    request: LogRequest,
    last: String,
    ready: VecDeque<LogChunk>,
    ended: bool,
    /// Since when nothing has come, or all was checked to be well.
    quiet_since: Instant,
}

impl Reading {
    fn new(store: Store, node: NodeName, pod: PodId, options: &Options) -> Self {
        let request = LogRequest {
            id: uuid::Uuid::new_v4().to_string(),
            pod,
            tail: options.tail.unwrap_or(100).min(LONGEST_TAIL),
            follow: options.follow,
        };
        let (last, quiet_since) = ("0".to_owned(), Instant::now());
        Self { store, node, request, last, ready: VecDeque::new(), ended: false, quiet_since }
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        let (chunks, last) = self.store.read_log(&self.request.id, &self.last).await?;
        self.last = last;
        self.ready.extend(chunks);
        Ok(())
    }

    /// Whether anything came in time.
    async fn first_word(&mut self, within: Duration) -> Result<bool, StoreError> {
        let started = Instant::now();
        while self.ready.is_empty() {
            if started.elapsed() > within {
                return Ok(false);
            }
            tokio::time::sleep(Store::LOG_POLL).await;
            self.look().await?;
        }
        Ok(true)
    }

    fn output(self) -> impl Stream<Item = Bytes> + Send {
        futures_util::stream::unfold(self, |mut reading| async move {
            let bytes = reading.next().await?;
            Some((bytes, reading))
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
            // While Redis is away this fails, and the quiet grows until the check below gives up.
            if self.look().await.is_ok() && !self.ready.is_empty() {
                self.quiet_since = Instant::now();
                continue;
            }
            if let Some(why) = self.given_up().await {
                self.ended = true;
                return Some(last_line(&why));
            }
            tokio::time::sleep(Store::LOG_POLL).await;
        }
        None
    }

    /// Why nothing can be expected any more, after a while without a word.
    async fn given_up(&mut self) -> Option<String> {
        let quiet = self.quiet_since.elapsed();
        if !self.request.follow {
            return (quiet > FIRST_WORD_WITHIN).then(|| format!("node {} fell silent", self.node));
        }
        if quiet < CHECKED_EVERY {
            return None;
        }
        match self.store.pod(&self.request.pod).await {
            Ok(Some(record)) if record.node.as_ref() == Some(&self.node) && !record.phase.is_terminal() => {
                self.quiet_since = Instant::now();
                None
            }
            Ok(_) => Some(format!("the pod is not on node {} any more", self.node)),
            Err(error) => (quiet > PATIENCE).then(|| error.to_string()),
        }
    }
}

fn last_line(why: &str) -> Bytes {
    Bytes::from(format!("\nkubeleet: {why}\n"))
}

impl Drop for Reading {
    fn drop(&mut self) {
        let (store, id) = (self.store.clone(), self.request.id.clone());
        // Without this the worker finds out by itself, half a minute later.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { drop(store.end_log(&id).await) });
        }
    }
}
