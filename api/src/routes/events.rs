//! `/event`: what happens, as it happens.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CACHE_CONTROL};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use common::event::{ClusterEvent, EventPlace};
use common::store::StoreError;
use futures_util::StreamExt;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::dto::{List, Problem};
use crate::problem::{ApiProblem, Kind};
use crate::query::{self, Params};
use crate::state::App;

/// Between two comments when nothing happens: shorter than what proxies and clients take for a dead connection.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const LAST_EVENT_ID: &str = "last-event-id";

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Options {
    /// Those after this id. `Last-Event-ID` goes before it; `0` means all that are kept.
    since: Option<String>,
    /// Without an id: the last so many before those to come; 0 unless said.
    tail: Option<usize>,
    /// `false` gives a list of what there is instead of a stream.
    follow: Option<bool>,
    /// Of a list: at most so many, 1000 unless said.
    limit: Option<usize>,
    /// Of a list: the `next` of the page before.
    after: Option<String>,
}

/// Streams events, or lists them.
///
/// A stream of server-sent events: `event` is the reason, `data` is a ClusterEvent. A list with `?follow=false` or
/// `Accept: application/json`.
#[utoipa::path(get, path = "/event", tag = "event", params(
    Options,
    ("Last-Event-ID" = Option<String>, Header, description = "Go on after this event"),
), responses(
    (status = 200, description = "A stream, or a list", content(
        (ClusterEvent = "text/event-stream"),
        (List<ClusterEvent> = "application/json"),
    )),
    (status = 400, description = "No such place in the stream", body = Problem),
))]
pub(crate) async fn events(
    State(app): State<App>,
    headers: HeaderMap,
    Params(options): Params<Options>,
) -> Result<Response, ApiProblem> {
    let tail = options.tail.unwrap_or(0).min(query::PAGE * 10);
    let place = place(&headers, &options)?;
    if options.follow == Some(false) || options.follow.is_none() && accepts_json_only(&headers) {
        return Ok(Json(list(&app, &options, place).await?).into_response());
    }
    let after = match place {
        Some(id) => id,
        None => before_the_last(&app, tail).await?,
    };
    let events = app.feed.after(after).await?;
    let frames = events.map(|event| Ok::<_, Infallible>(frame(&event)));
    let stream = Sse::new(frames).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    // Some proxies collect answers unless they are told not to.
    Ok(([(CACHE_CONTROL.as_str(), "no-cache"), ("x-accel-buffering", "no")], stream).into_response())
}

async fn list(app: &App, options: &Options, place: Option<String>) -> Result<List<ClusterEvent>, ApiProblem> {
    let limit = query::limit(options.limit)?;
    let from = match (&options.after, options.tail) {
        (Some(after), _) => Some(checked(after)?),
        (None, _) if place.is_some() => place,
        // The last ones are asked for, and a page would only hide them.
        (None, Some(tail)) => {
            let items = app.store.last_events(tail.min(query::PAGE * 10)).await?;
            return Ok(List { items, next: None });
        }
        (None, None) => None,
    };
    let from = from.unwrap_or_else(|| "0".to_owned());
    let mut items = app.store.events_after(&from, limit + 1).await?;
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|event| event.id.clone());
    Ok(List { items, next })
}

/// The id after which a stream with the last `tail` events begins.
async fn before_the_last(app: &App, tail: usize) -> Result<String, StoreError> {
    if tail == 0 {
        return app.feed.end().await;
    }
    let events = app.store.last_events(tail + 1).await?;
    Ok(match events.first() {
        Some(event) if events.len() > tail => event.id.clone(),
        _ => "0".to_owned(),
    })
}

fn frame(event: &ClusterEvent) -> Event {
    let data = serde_json::to_string(event).expect("an event of texts and numbers serializes");
    // A reason comes from Redis, where anybody can write; a line break would break the stream.
    let reason: String = event.reason.chars().filter(|c| !c.is_control()).collect();
    Event::default().id(&event.id).event(reason).data(data)
}

fn place(headers: &HeaderMap, options: &Options) -> Result<Option<String>, ApiProblem> {
    let resumed = headers.get(LAST_EVENT_ID).map(|value| value.to_str().unwrap_or_default());
    match resumed.filter(|id| !id.is_empty()).or(options.since.as_deref()) {
        Some(id) => checked(id).map(Some),
        None => Ok(None),
    }
}

fn checked(id: &str) -> Result<String, ApiProblem> {
    match EventPlace::parse(id) {
        Some(_) => Ok(id.to_owned()),
        None => {
            let detail =
                format!("{id:?} is no event's id: write 1700000000000-0, or 0 for all that are kept");
            Err(ApiProblem::new(Kind::InvalidQuery, detail))
        }
    }
}

fn accepts_json_only(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.contains("application/json") && !accept.contains("text/event-stream")
}
