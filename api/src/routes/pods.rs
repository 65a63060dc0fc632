//! `/pod`: what there is of it.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use common::ids::{NodeName, PodId, ServiceName};
use common::lifecycle::Phase;
use common::pod::PodRecord;
use common::store::{StopOutcome, StoreError};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::dto::{List, PodView, Problem};
use crate::problem::{ApiProblem, Kind};
use crate::query::{self, Params, pod_id};
use crate::state::App;
use crate::views;

/// How often stopping is tried again when the pod moves meanwhile.
const TRIES: usize = 5;
/// Records read at a time.
const CHUNK: usize = 1000;

/// Which pods to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filter {
    /// Of this service.
    #[param(value_type = Option<String>)]
    service: Option<ServiceName>,
    /// On this node.
    #[param(value_type = Option<String>)]
    node: Option<NodeName>,
    /// In this phase.
    #[param(value_type = Option<String>)]
    phase: Option<Phase>,
    /// Whose uuid begins so, or whose `<name>-<replica>` this is.
    prefix: Option<String>,
    /// At most so many, 1000 unless said.
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

impl Filter {
    /// Before its record is read. A pushed pod's name is only known afterwards.
    fn may_take(&self, id: &PodId, of: Option<(&ServiceName, u32)>) -> bool {
        let Some(prefix) = &self.prefix else { return true };
        id.as_str().starts_with(prefix)
            || of.is_none_or(|(service, replica)| *prefix == format!("{service}-{replica}"))
    }

    fn takes(&self, record: &PodRecord) -> bool {
        let named = |prefix: &String| {
            record.id.as_str().starts_with(prefix) || *prefix == format!("{}-{}", record.name, record.replica)
        };
        self.node.as_ref().is_none_or(|node| record.node.as_ref() == Some(node))
            && self.phase.is_none_or(|phase| record.phase == phase)
            && self.prefix.as_ref().is_none_or(named)
    }
}

/// Lists pods: those of services by service and replica, then pushed ones by uuid.
#[utoipa::path(get, path = "/pod", tag = "pod", params(Filter), responses(
    (status = 200, body = List<PodView>),
    (status = 400, description = "The query can not be read", body = Problem),
))]
pub(crate) async fn list(
    State(app): State<App>,
    Params(filter): Params<Filter>,
) -> Result<Json<List<PodView>>, ApiProblem> {
    let mut page = Page::new(&app, &filter)?;
    page.read().await?;
    Ok(Json(page.finish()))
}

/// Shows one pod, and why it fits no node when it does not.
#[utoipa::path(get, path = "/pod/{uuid}", tag = "pod", responses(
    (status = 200, body = PodView),
    (status = 404, description = "There is no such pod", body = Problem),
))]
pub(crate) async fn get(
    State(app): State<App>,
    Path(uuid): Path<String>,
) -> Result<Json<PodView>, ApiProblem> {
    Ok(Json(view(&app, &pod_id(uuid)?).await?))
}

/// Stops a pod. A service's pod is replaced by a new one; a pushed pod is gone for good.
#[utoipa::path(delete, path = "/pod/{uuid}", tag = "pod", responses(
    (status = 202, description = "Its node will stop it, or it is stopped already", body = PodView),
    (status = 404, description = "There is no such pod", body = Problem),
    (status = 409, description = "It keeps moving between nodes", body = Problem),
))]
pub(crate) async fn stop(State(app): State<App>, Path(uuid): Path<String>) -> Result<Response, ApiProblem> {
    let id = pod_id(uuid)?;
    for _ in 0..TRIES {
        let record = app.store.pod(&id).await?.ok_or_else(|| missing(&id))?;
        let pods = [(id.clone(), record.node)];
        let outcomes =
            app.store.stop_pods(record.service.as_ref(), &pods, "Stopped", "a person stopped it").await?;
        match outcomes.first() {
            Some(StopOutcome::Moved) => {}
            _ => return Ok((StatusCode::ACCEPTED, Json(view(&app, &id).await?)).into_response()),
        }
    }
    Err(ApiProblem::new(Kind::ServiceBusy, format!("pod {id} keeps moving between nodes; try again")))
}

async fn view(app: &App, id: &PodId) -> Result<PodView, ApiProblem> {
    let record = app.store.pod(id).await?.ok_or_else(|| missing(id))?;
    let refusals = match record.phase {
        Phase::Pending => app.store.refusals(id).await?.unwrap_or_default(),
        _ => Vec::new(),
    };
    Ok(PodView { refusals, ..views::pod(record) })
}

/// The problem of a pod that does not exist.
pub(crate) fn missing(id: &PodId) -> ApiProblem {
    let detail =
        format!("there is no pod {id}; a stopped one is forgotten after an hour. GET /pod lists them");
    ApiProblem::new(Kind::PodNotFound, detail)
}

/// Where a page ends: `s/<service>/<replica>`, or `p/<uuid>` for a pushed pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Cursor {
    OfService(ServiceName, u32),
    Pushed(PodId),
}

impl Cursor {
    fn read(text: &str) -> Option<Self> {
        match text.split_once('/')? {
            ("s", rest) => {
                let (service, replica) = rest.split_once('/')?;
                Some(Cursor::OfService(ServiceName::new(service).ok()?, replica.parse().ok()?))
            }
            ("p", id) => Some(Cursor::Pushed(PodId::new(id).ok()?)),
            _ => None,
        }
    }

    fn write(&self) -> String {
        match self {
            Cursor::OfService(service, replica) => format!("s/{service}/{replica}"),
            Cursor::Pushed(id) => format!("p/{id}"),
        }
    }
}

/// A page being put together.
struct Page<'a> {
    app: &'a App,
    filter: &'a Filter,
    limit: usize,
    after: Option<Cursor>,
    found: Vec<(Cursor, PodRecord)>,
}

impl<'a> Page<'a> {
    fn new(app: &'a App, filter: &'a Filter) -> Result<Self, ApiProblem> {
        let after = match filter.after.as_deref() {
            None => None,
            Some(text) => Some(Cursor::read(text).ok_or_else(|| {
                ApiProblem::new(Kind::InvalidQuery, "after: give the `next` of the page before")
            })?),
        };
        Ok(Self { app, filter, limit: query::limit(filter.limit)?, after, found: Vec::new() })
    }

    fn is_full(&self) -> bool {
        self.found.len() > self.limit
    }

    async fn read(&mut self) -> Result<(), StoreError> {
        let services = match &self.filter.service {
            Some(service) => vec![service.clone()],
            None => self.app.store.service_names().await?,
        };
        for service in services {
            if matches!(&self.after, Some(Cursor::OfService(last, _)) if *last > service)
                || matches!(&self.after, Some(Cursor::Pushed(_)))
            {
                continue;
            }
            let slots = self.app.store.slots(&service).await?;
            let pods = slots
                .into_iter()
                .filter(|(replica, id)| self.filter.may_take(id, Some((&service, *replica))))
                .map(|(replica, id)| (Cursor::OfService(service.clone(), replica), id));
            self.take(pods.collect()).await?;
            if self.is_full() {
                return Ok(());
            }
        }
        if self.filter.service.is_some() {
            return Ok(());
        }
        let mut pushed = self.app.store.pushed_pods().await?;
        pushed.sort_unstable();
        let pods = pushed.into_iter().filter(|id| self.filter.may_take(id, None));
        self.take(pods.map(|id| (Cursor::Pushed(id.clone()), id)).collect()).await
    }

    /// Takes those that come after the page before, until there is one more than the page holds.
    async fn take(&mut self, mut pods: Vec<(Cursor, PodId)>) -> Result<(), StoreError> {
        pods.retain(|(cursor, _)| self.after.as_ref().is_none_or(|after| cursor > after));
        for chunk in pods.chunks(CHUNK) {
            let ids: Vec<PodId> = chunk.iter().map(|(_, id)| id.clone()).collect();
            let records = self.app.store.pods(&ids).await?;
            for ((cursor, _), record) in chunk.iter().zip(records) {
                match record {
                    Some(record) if self.filter.takes(&record) => self.found.push((cursor.clone(), record)),
                    _ => {}
                }
            }
            if self.is_full() {
                break;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> List<PodView> {
        let more = self.is_full();
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
    fn cursors_round_trip_and_keep_the_order() {
        let of = |name: &str, replica| Cursor::OfService(ServiceName::new(name).unwrap(), replica);
        let all = [of("a", 2), of("a", 10), of("b", 0), Cursor::Pushed(PodId::new("a/b").unwrap())];
        assert!(all.is_sorted());
        for cursor in all {
            assert_eq!(Cursor::read(&cursor.write()), Some(cursor));
        }
        for bad in ["", "s", "s/web", "s/web/x", "s/Web/1", "p/", "x/y"] {
            assert_eq!(Cursor::read(bad), None, "{bad}");
        }
    }
}
