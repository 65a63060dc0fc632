//! `/pod`: pods of services, and pods pushed to a queue.

mod why;

use std::collections::BTreeMap;

use api_types::{List, PodView};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use model::ids::{NodeName, PodId, ServiceName};
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::pod::slot::Slot;
use model::service::Service;
use model::service::selector::LabelSelector;
use serde::Deserialize;
use store::{RedisKey, StopOutcome, StoreError};
use utoipa::IntoParams;

use crate::http::params::{InPath, Params, SelectorText, invalid_cursor, page_size, parse_selector};
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::routes::services::select_names;
use crate::state::AppState;
use crate::status::views;

pub(crate) use self::why::{__path_explain_pod, explain_pod};

const MAX_STOP_ATTEMPTS: usize = 5;
const CHUNK_SIZE: usize = 1000;

/// Selects pods.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PodQuery {
    /// Only pods of this service.
    service: Option<ServiceName>,
    /// Only pods on this node.
    node: Option<NodeName>,
    /// Only pods in this phase.
    phase: Option<Phase>,
    /// Only pods whose uuid begins with this text, or whose `<name>-<replica>` is this text.
    prefix: Option<String>,
    /// Only pods whose service this label selector selects. Pushed pods have no labels; they are listed if it
    /// selects objects without labels.
    #[param(inline, value_type = Option<SelectorText>)]
    label: Option<String>,
    /// Items on the page.
    #[param(minimum = 1, maximum = 10000, default = 1000)]
    limit: Option<u32>,
    /// The `next` of the previous page.
    #[param(pattern = r"^(s/[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[0-9]{1,9}s?|p/[!-~]{1,128})$")]
    after: Option<String>,
}

impl PodQuery {
    /// False only if the record need not be read. A pushed pod's name is known only from its record.
    fn may_match(&self, id: &PodId, replica_of: Option<(&ServiceName, u32)>) -> bool {
        let Some(prefix) = &self.prefix else { return true };
        id.as_str().starts_with(prefix)
            || replica_of.is_none_or(|(service, replica)| *prefix == format!("{service}-{replica}"))
    }

    fn matches(&self, record: &PodRecord) -> bool {
        let has_prefix = |prefix: &String| {
            record.id.as_str().starts_with(prefix) || *prefix == format!("{}-{}", record.name, record.replica)
        };
        self.node.as_ref().is_none_or(|node| record.node.as_ref() == Some(node))
            && self.phase.is_none_or(|phase| record.phase == phase)
            && self.prefix.as_ref().is_none_or(has_prefix)
    }
}

/// Lists pods: those of services by service and replica, then pushed pods by uuid.
///
/// A pod whose record cannot be read is left out: `GET /status` names it.
#[utoipa::path(get, path = "/pod", tag = "pod", params(PodQuery), responses(
    (status = 200, description = "Pods", body = List<PodView>),
))]
pub(crate) async fn list_pods(
    State(app): State<AppState>,
    Params(filter): Params<PodQuery>,
) -> Result<Json<List<PodView>>, ApiProblem> {
    let mut page = PodPage::new(&app, &filter)?;
    page.find().await?;
    Ok(Json(page.finish()))
}

/// Shows one pod, and, while it fits no node, the reasons.
#[utoipa::path(get, path = "/pod/{uuid}", tag = "pod", params(InPath<PodId>), responses(
    (status = 200, description = "The pod", body = PodView),
    (status = 404, description = "There is no such pod"),
))]
pub(crate) async fn get_pod(
    State(app): State<AppState>,
    InPath(id): InPath<PodId>,
) -> Result<Json<PodView>, ApiProblem> {
    Ok(Json(read_view(&app, &id).await?))
}

/// Stops a pod. A pod of a service is replaced by a new one; a pushed pod is gone for good.
#[utoipa::path(delete, path = "/pod/{uuid}", tag = "pod", params(InPath<PodId>), responses(
    (status = 202, description = "The node will stop the pod, or it is stopped already", body = PodView),
    (status = 404, description = "There is no such pod"),
    (status = 409, description = "The pod keeps moving between nodes"),
))]
pub(crate) async fn stop_pod(
    State(app): State<AppState>,
    InPath(id): InPath<PodId>,
) -> Result<Response, ApiProblem> {
    for _ in 0..MAX_STOP_ATTEMPTS {
        let record = read(&app, &id).await?;
        let pods = [(id.clone(), record.node)];
        let message = "stopped by a user";
        let outcomes = app.store.stop_pods(record.service.as_ref(), &pods, "StopRequested", message).await?;
        match outcomes.first() {
            Some(StopOutcome::Moved) => {}
            _ => return Ok((StatusCode::ACCEPTED, Json(read_view(&app, &id).await?)).into_response()),
        }
    }
    let detail =
        format!("pod {id} moved between nodes during {MAX_STOP_ATTEMPTS} attempts to stop it; try again");
    Err(ApiProblem::new(ProblemKind::ConcurrentModification, detail))
}

async fn read_view(app: &AppState, id: &PodId) -> Result<PodView, ApiProblem> {
    let record = read(app, id).await?;
    let refusals = match record.phase {
        Phase::Pending => or_empty_if_broken(app.store.refusals(id).await.map(Option::unwrap_or_default))?,
        _ => Vec::new(),
    };
    // Lists leave out the former runs, which can be long.
    let runs = record.runs.clone();
    Ok(PodView { refusals, runs, ..views::pod(record) })
}

pub(super) async fn read(app: &AppState, id: &PodId) -> Result<PodRecord, ApiProblem> {
    let record = app.store.pod(id).await;
    let record = record.map_err(|error| ApiProblem::of_key(error, RedisKey::Pod(id)))?;
    record.ok_or_else(|| not_found(id))
}

fn not_found(id: &PodId) -> ApiProblem {
    let detail =
        format!("there is no pod {id}; the record of a stopped pod is kept for an hour. GET /pod lists them");
    ApiProblem::new(ProblemKind::PodNotFound, detail)
}

/// `GET /status` names the broken key.
fn or_empty_if_broken<T>(read: Result<Vec<T>, StoreError>) -> Result<Vec<T>, StoreError> {
    match read {
        Err(error) if error.is_broken_key() => Ok(Vec::new()),
        read => read,
    }
}

/// A replica's second pod. Elsewhere it is `+`, which means a space in a URL.
const SECOND: &str = "s";

/// `s/<service>/<replica>`, or `p/<uuid>` for a pushed pod. Variants and fields have the order of the list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Cursor {
    OfService(ServiceName, Slot),
    Pushed(PodId),
}

impl Cursor {
    fn parse(text: &str) -> Option<Self> {
        match text.split_once('/')? {
            ("s", rest) => {
                let (service, slot) = rest.split_once('/')?;
                let (replica, is_second) =
                    slot.strip_suffix(SECOND).map_or((slot, false), |slot| (slot, true));
                let slot = Slot { replica: replica.parse().ok()?, is_second };
                Some(Cursor::OfService(ServiceName::new(service).ok()?, slot))
            }
            ("p", id) => Some(Cursor::Pushed(PodId::new(id).ok()?)),
            _ => None,
        }
    }

    fn is_of(&self, record: &PodRecord) -> bool {
        match self {
            Cursor::OfService(service, slot) => record.is_of(service, *slot),
            Cursor::Pushed(_) => record.service.is_none(),
        }
    }

    fn write(&self) -> String {
        match self {
            Cursor::OfService(service, slot) => {
                let second = if slot.is_second { SECOND } else { "" };
                format!("s/{service}/{}{second}", slot.replica)
            }
            Cursor::Pushed(id) => format!("p/{id}"),
        }
    }
}

struct PodPage<'a> {
    app: &'a AppState,
    filter: &'a PodQuery,
    limit: usize,
    labels: LabelSelector,
    after: Option<Cursor>,
    found: Vec<(Cursor, PodRecord)>,
}

impl<'a> PodPage<'a> {
    fn new(app: &'a AppState, filter: &'a PodQuery) -> Result<Self, ApiProblem> {
        let after = match filter.after.as_deref() {
            None => None,
            Some(text) => Some(Cursor::parse(text).ok_or_else(invalid_cursor)?),
        };
        let labels = filter.label.as_deref().map(parse_selector).transpose()?.unwrap_or_default();
        Ok(Self { app, filter, limit: page_size(filter.limit)?, labels, after, found: Vec::new() })
    }

    fn has_next(&self) -> bool {
        self.found.len() > self.limit
    }

    async fn find(&mut self) -> Result<(), StoreError> {
        let services = match &self.filter.service {
            Some(service) => vec![service.clone()],
            None => or_empty_if_broken(self.app.store.service_names().await)?,
        };
        let services = if self.labels.is_empty() {
            services
        } else {
            let has_labels = |service: &Service| self.labels.matches(&service.fields.labels);
            select_names(self.app, &services, has_labels).await?
        };
        for service in services {
            if matches!(&self.after, Some(Cursor::OfService(last, _)) if *last > service)
                || matches!(&self.after, Some(Cursor::Pushed(_)))
            {
                continue;
            }
            let slots = or_empty_if_broken(self.app.store.slots(&service).await)?;
            let pods = slots
                .into_iter()
                .filter(|(slot, id)| self.filter.may_match(id, Some((&service, slot.replica))))
                .map(|(slot, id)| (Cursor::OfService(service.clone(), slot), id));
            self.add(pods.collect()).await?;
            if self.has_next() {
                return Ok(());
            }
        }
        let selects_no_labels = self.labels.matches(&BTreeMap::new());
        if self.filter.service.is_some() || !selects_no_labels {
            return Ok(());
        }
        let mut pushed = or_empty_if_broken(self.app.store.pushed_pods().await)?;
        pushed.sort_unstable();
        let pods = pushed.into_iter().filter(|id| self.filter.may_match(id, None));
        self.add(pods.map(|id| (Cursor::Pushed(id.clone()), id)).collect()).await
    }

    async fn add(&mut self, mut pods: Vec<(Cursor, PodId)>) -> Result<(), StoreError> {
        pods.retain(|(cursor, _)| self.after.as_ref().is_none_or(|after| cursor > after));
        for chunk in pods.chunks(CHUNK_SIZE) {
            let ids: Vec<PodId> = chunk.iter().map(|(_, id)| id.clone()).collect();
            let records = self.app.store.pods(&ids).await?;
            for ((cursor, _), record) in chunk.iter().zip(records) {
                match record {
                    // A void slot names a pod of another slot, which is listed there.
                    Ok(Some(record)) if cursor.is_of(&record) && self.filter.matches(&record) => {
                        self.found.push((cursor.clone(), record))
                    }
                    _ => {}
                }
            }
            if self.has_next() {
                break;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> List<PodView> {
        let more = self.has_next();
        self.found.truncate(self.limit);
        let next = self.found.last().filter(|_| more).map(|(cursor, _)| cursor.write());
        List { items: self.found.into_iter().map(|(_, record)| views::pod(record)).collect(), next }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_cursor_round_trips_and_keeps_the_order() {
        let of = |name: &str, slot| Cursor::OfService(ServiceName::new(name).unwrap(), slot);
        let (first, second) = (Slot::first, Slot::second);
        let all = [
            of("a", first(2)),
            of("a", second(2)),
            of("a", first(10)),
            of("b", first(0)),
            Cursor::Pushed(PodId::new("a/b").unwrap()),
        ];
        assert!(all.is_sorted());
        for cursor in all {
            assert_eq!(Cursor::parse(&cursor.write()), Some(cursor));
        }
        for bad in ["", "s", "s/web", "s/web/x", "s/Web/1", "p/", "x/y"] {
            assert_eq!(Cursor::parse(bad), None, "{bad}");
        }
    }
}
