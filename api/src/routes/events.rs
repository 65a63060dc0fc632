//! `/event`: events of the cluster, as a stream or a list.

use std::convert::Infallible;
use std::time::Duration;

use api_types::List;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CACHE_CONTROL};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::StreamExt;
use model::event::{ClusterEvent, EventPosition};
use serde::Deserialize;
use store::StoreError;
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterIn};

use crate::http::connections::ClientAddress;
use crate::http::params::{MAX_PAGE_SIZE, Params, optional_header, page_size, string_schema};
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

/// Shorter than the idle timeouts of proxies and clients.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const LAST_EVENT_ID: &str = "Last-Event-ID";
/// With as many digits as always fit. Empty means absent.
const LAST_EVENT_ID_PATTERN: &str = r"^([0-9]{1,19}(-[0-9]{1,19}(\.[0-9]{1,19})?)?)?$";
const BEFORE_ALL: &str = "0";

/// Selects events.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventOptions {
    /// Only events after this id; `0` for all that are kept. The header `Last-Event-ID` takes precedence.
    #[param(pattern = r"^[0-9]{1,19}(-[0-9]{1,19}(\.[0-9]{1,19})?)?$", example = "1700000000000-0")]
    since: Option<String>,
    /// Without an id: this many of the latest events come before new ones, at most 10000.
    #[param(value_type = Option<u64>, minimum = 0, maximum = 4294967295_u32, default = 0)]
    tail: Option<u32>,
    /// `false` for a list instead of a stream.
    #[param(default = true)]
    follow: Option<bool>,
    /// Items in a list.
    #[param(minimum = 1, maximum = 10000, default = 1000)]
    limit: Option<u32>,
    /// Only for a list: the `next` of the previous page.
    #[param(pattern = r"^[0-9]{1,19}(-[0-9]{1,19}(\.[0-9]{1,19})?)?$")]
    after: Option<String>,
}

/// SSE clients send it when they reconnect.
pub(crate) struct LastEventId;

impl IntoParams for LastEventId {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let schema = string_schema(LAST_EVENT_ID_PATTERN, "The id of an event", "1700000000000-0");
        vec![optional_header(LAST_EVENT_ID, "Only events after this id", schema)]
    }
}

/// Streams events, or lists them.
///
/// The stream consists of server-sent events: `event` is the reason, `data` is a ClusterEvent. With
/// `?follow=false` or `Accept: application/json` the answer is a list.
#[utoipa::path(get, path = "/event", tag = "event", params(EventOptions, LastEventId), responses(
    (status = 200, description = "A stream, or a list", content(
        (ClusterEvent = "text/event-stream"),
        (List<ClusterEvent> = "application/json"),
    )),
))]
pub(crate) async fn get_events(
    State(app): State<AppState>,
    client: Option<Extension<ClientAddress>>,
    headers: HeaderMap,
    Params(options): Params<EventOptions>,
) -> Result<Response, ApiProblem> {
    let start = start_position(&headers, &options)?;
    if options.follow == Some(false) || options.follow.is_none() && accepts_json_only(&headers) {
        return Ok(Json(list(&app, &options, start).await?).into_response());
    }
    let guard = app.streams.begin(client.map(|Extension(client)| client))?;
    let after = match start {
        Some(id) => id,
        None => id_before_last(&app, tail_size(options.tail.unwrap_or(0))).await?,
    };
    let events = app.feed.after(after).await?;
    let frames = events.map(move |event| {
        let _until_the_stream_ends = &guard;
        Ok::<_, Infallible>(frame(&event))
    });
    let stream = Sse::new(frames).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL));
    // Some proxies buffer responses without this header.
    Ok(([(CACHE_CONTROL.as_str(), "no-cache"), ("x-accel-buffering", "no")], stream).into_response())
}

async fn list(
    app: &AppState,
    options: &EventOptions,
    start: Option<String>,
) -> Result<List<ClusterEvent>, ApiProblem> {
    let limit = page_size(options.limit)?;
    let from = match (&options.after, options.tail) {
        (Some(after), _) => Some(checked(after)?),
        (None, _) if start.is_some() => start,
        // The first page would not have the latest events.
        (None, Some(tail)) => {
            let items = app.store.last_events(tail_size(tail)).await?;
            return Ok(List { items, next: None });
        }
        (None, None) => None,
    };
    let from = from.unwrap_or_else(|| BEFORE_ALL.to_owned());
    let mut items = app.store.events_after(&from, limit + 1).await?;
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|event| event.id.clone());
    Ok(List { items, next })
}

fn tail_size(tail: u32) -> usize {
    (tail as usize).min(MAX_PAGE_SIZE)
}

async fn id_before_last(app: &AppState, tail: usize) -> Result<String, StoreError> {
    if tail == 0 {
        return app.feed.end().await;
    }
    let events = app.store.last_events(tail + 1).await?;
    Ok(match events.first() {
        Some(event) if events.len() > tail => event.id.clone(),
        _ => BEFORE_ALL.to_owned(),
    })
}

fn frame(event: &ClusterEvent) -> Event {
    let data = serde_json::to_string(event).expect("an event of strings and numbers serializes");
    // Any program can write events to Redis, and a line break in a reason would break the stream.
    let reason: String = event.reason.chars().filter(|c| !c.is_control()).collect();
    Event::default().id(&event.id).event(reason).data(data)
}

fn start_position(headers: &HeaderMap, options: &EventOptions) -> Result<Option<String>, ApiProblem> {
    let last_event_id = headers.get(LAST_EVENT_ID).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let resumed = last_event_id.filter(|id| !id.is_empty()).map(|id| checked(&id)).transpose()?;
    let since = options.since.as_deref().map(checked).transpose()?;
    Ok(resumed.or(since))
}

fn checked(id: &str) -> Result<String, ApiProblem> {
    match EventPosition::parse(id) {
        Some(_) => Ok(id.to_owned()),
        None => {
            let detail =
                format!("{id:?} is not the id of an event: write 1700000000000-0, or 0 for all events");
            Err(ApiProblem::new(ProblemKind::InvalidQuery, detail))
        }
    }
}

fn accepts_json_only(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.contains("application/json") && !accept.contains("text/event-stream")
}
