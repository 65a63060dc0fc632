//! `/log`: logs of several pods, merged by time.

use std::time::Duration;

use api_types::LogItemView;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use jiff::Timestamp;
use model::duration::HumanDuration;
use model::ids::{AppName, ContainerName, PodId, ServiceName};
use model::service::Service;
use serde::Deserialize;
use store::LinesRequest;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::http::connections::ClientAddress;
use crate::http::params::{Params, SelectorText, parse_selector, string_schema};
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;
use crate::streams::merged_logs::{LogSelection, MergedItem, MergedLogs};

const DEFAULT_TAIL: u32 = 100;
/// With `previous`, further nodes are not asked.
const MAX_NODES: usize = 500;

/// The part of the logs to read.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct MergedLogOptions {
    /// Uuids of pods, separated by commas.
    #[param(inline, value_type = Option<PodList>)]
    pod: Option<String>,
    /// Names of services, separated by commas: all their pods, with `follow` also those that start later.
    #[param(inline, value_type = Option<ServiceList>)]
    service: Option<String>,
    /// All services of this app.
    #[param(inline)]
    app: Option<AppName>,
    /// All services that this label selector selects.
    #[param(inline, value_type = Option<SelectorText>)]
    label: Option<String>,
    /// The container of pods with several; without it all of them.
    container: Option<ContainerName>,
    /// The number of last lines of each container. Without it 100, with `since` all.
    #[param(value_type = Option<u64>, minimum = 0, maximum = 4294967295_u32)]
    tail: Option<u32>,
    /// Whether to continue with new lines.
    #[serde(default)]
    #[param(default = false, required = false)]
    follow: bool,
    /// Only lines after this time: RFC 3339, or how long ago (`10m`).
    #[param(inline, value_type = Option<TimeText>)]
    since: Option<String>,
    /// Only lines before this time, likewise.
    #[param(inline, value_type = Option<TimeText>)]
    until: Option<String>,
    /// Only lines that contain this text.
    grep: Option<String>,
    /// Whether to read logs of containers that were removed, which workers keep for a while.
    #[serde(default)]
    #[param(default = false, required = false)]
    previous: bool,
}

struct PodList;

impl PartialSchema for PodList {
    fn schema() -> RefOr<Schema> {
        let id = r"[^\s\x00-\x1f\x7f-\x9f,]{1,128}";
        let example = "5cf3b8a1-7c0e-4c1f-9d2a-3f0d1f6f2b11";
        string_schema(&format!("^{id}(,{id})*$"), "Uuids of pods, separated by commas", example)
    }
}

impl ToSchema for PodList {}

struct ServiceList;

impl PartialSchema for ServiceList {
    fn schema() -> RefOr<Schema> {
        let name = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?";
        string_schema(&format!("^{name}(,{name})*$"), "Names of services, separated by commas", "web,db")
    }
}

impl ToSchema for ServiceList {}

/// As [`time`] parses it.
struct TimeText;

impl PartialSchema for TimeText {
    fn schema() -> RefOr<Schema> {
        let moment =
            "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})";
        let ago = "[0-9]{1,8}(ms|s|m|h|d)?";
        let description = "A moment as RFC 3339 writes it, or how long ago it was";
        string_schema(&format!("^({moment}|{ago})$"), description, "10m")
    }
}

impl ToSchema for TimeText {}

/// Reads the lines of several pods in order of time.
///
/// Each line of the answer is a JSON object: a line of a log, or a `mark` that names missing lines. Times are
/// those of the nodes' clocks. Pods without a record are left out; with `previous`, what
/// nodes have kept of them is found by their service.
#[utoipa::path(get, path = "/log", tag = "pod", params(MergedLogOptions), responses(
    (status = 200, description = "The lines", body = LogItemView, content_type = "application/x-ndjson"),
    (status = 400, description = "A parameter is invalid, or nothing is selected"),
    (status = 404, description = "A service does not exist"),
))]
pub(crate) async fn get_merged_log(
    State(app): State<AppState>,
    client: Option<Extension<ClientAddress>>,
    Params(options): Params<MergedLogOptions>,
) -> Result<Response, ApiProblem> {
    let guard = app.streams.begin(client.map(|Extension(client)| client))?;
    let selection = select(&app, &options).await?;
    let now = Timestamp::now();
    let after = options.since.as_deref().map(|text| time(text, now, "since")).transpose()?;
    let tail = options.tail.or((after.is_none() && !options.previous).then_some(DEFAULT_TAIL));
    let request = LinesRequest {
        services: selection.services.clone(),
        container: options.container.clone(),
        tail: tail.map(|lines| lines as usize),
        follow: options.follow && !options.previous,
        until: options.until.as_deref().map(|text| time(text, now, "until")).transpose()?,
        after,
        grep: options.grep.clone(),
        previous: options.previous,
        ..LinesRequest::default()
    };
    let logs = MergedLogs::open(app.store.clone(), selection, request).await?;
    let items = futures_util::stream::unfold((logs, guard), |(mut logs, guard)| async move {
        let items = logs.next().await?;
        Some((items, (logs, guard)))
    });
    let text = items.map(|items| {
        let lines = items.into_iter().map(|item| json_line(&view(item)));
        Ok::<_, std::convert::Infallible>(lines.collect::<String>())
    });
    let text = text.take_until(app.shutdown.clone().cancelled_owned());
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(text)).into_response())
}

fn json_line(view: &LogItemView) -> String {
    serde_json::to_string(view).map(|json| json + "\n").unwrap_or_default()
}

fn view(item: MergedItem) -> LogItemView {
    match item {
        MergedItem::Mark(mark) => LogItemView { mark: Some(mark), ..LogItemView::default() },
        MergedItem::Line(node, line) => LogItemView {
            time: Timestamp::from_nanosecond(line.time.into())
                .map(|time| time.to_string())
                .unwrap_or_default(),
            pod: line.name,
            uuid: Some(line.pod),
            container: line.container,
            node: Some(node),
            text: String::from_utf8_lossy(&line.text).into_owned(),
            mark: None,
        },
    }
}

async fn select(app: &AppState, options: &MergedLogOptions) -> Result<LogSelection, ApiProblem> {
    let mut selection = LogSelection::default();
    for name in words(options.service.as_ref()) {
        let service = ServiceName::new(name).map_err(|error| invalid("service", &error.to_string()))?;
        super::services::read(app, &service).await?;
        selection.services.push(service);
    }
    for id in words(options.pod.as_ref()) {
        selection.pods.push(PodId::new(id).map_err(|error| invalid("pod", &error.to_string()))?);
    }
    selection.services.extend(services_of(app, options).await?);
    let is_named = !selection.services.is_empty() || !selection.pods.is_empty();
    if !is_named && options.app.is_none() && options.label.is_none() {
        let detail = "name what to read: pod, service, app or label";
        return Err(ApiProblem::new(ProblemKind::InvalidQuery, detail));
    }
    if options.previous {
        let nodes = app.store.beats_since(0).await?;
        selection.nodes = nodes.into_iter().map(|(node, _)| node).take(MAX_NODES).collect();
    }
    Ok(selection)
}

async fn services_of(app: &AppState, options: &MergedLogOptions) -> Result<Vec<ServiceName>, ApiProblem> {
    if options.app.is_none() && options.label.is_none() {
        return Ok(Vec::new());
    }
    let labels = options.label.as_deref().map(parse_selector).transpose()?.unwrap_or_default();
    let names = app.store.service_names().await?;
    let is_selected = |service: &Service| {
        let is_of_app = options.app.is_none() || service.fields.app == options.app;
        is_of_app && labels.matches(&service.fields.labels)
    };
    Ok(super::services::select_names(app, &names, is_selected).await?)
}

fn words(text: Option<&String>) -> impl Iterator<Item = &str> {
    text.into_iter().flat_map(|text| text.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

/// Returns nanoseconds since the Unix epoch.
fn time(text: &str, now: Timestamp, parameter: &str) -> Result<u64, ApiProblem> {
    let ago = |ago: HumanDuration| {
        let ago: Duration = ago.get();
        u64::try_from(now.as_nanosecond()).unwrap_or(0).saturating_sub(ago.as_nanos() as u64)
    };
    match (text.parse::<Timestamp>(), text.parse::<HumanDuration>()) {
        (Ok(time), _) => Ok(u64::try_from(time.as_nanosecond()).unwrap_or(0)),
        (Err(_), Ok(duration)) => Ok(ago(duration)),
        (Err(_), Err(_)) => Err(invalid(
            parameter,
            &format!("{text:?} is no time: write 2026-01-31T12:00:00Z, or how long ago: 10m, 2h"),
        )),
    }
}

fn invalid(parameter: &str, detail: &str) -> ApiProblem {
    ApiProblem::new(ProblemKind::InvalidQuery, format!("{parameter}: {detail}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_time_is_a_moment_or_how_long_ago_it_was() {
        let now: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
        let nanos = |text: &str| time(text, now, "since").map_err(|problem| problem.detail);
        assert_eq!(nanos("2026-01-31T11:50:00Z"), nanos("10m"));
        assert_eq!(nanos("0").unwrap(), now.as_nanosecond() as u64);
        assert!(nanos("yesterday").unwrap_err().contains("since"));
    }
}
