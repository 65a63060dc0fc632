//! `/queue`: what waits where, and what could not be a pod.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use common::ids::{NodeName, SchedulerId};
use common::store::{Letter, QueueName};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::dto::{LetterView, List, Problem, QueueView, QueuesView};
use crate::problem::{ApiProblem, Kind};
use crate::query::{self, Params};
use crate::state::App;
use crate::views;

/// Dead letters looked at in one go, when one of them is searched.
const CHUNK: usize = 500;

/// Which part of a queue.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Part {
    /// At most so many, 1000 unless said.
    limit: Option<usize>,
    /// Dead letters only: the `next` of the page before.
    after: Option<String>,
}

/// Shows how much stands in each queue.
#[utoipa::path(get, path = "/queue", tag = "queue", responses((status = 200, body = QueuesView)))]
pub(crate) async fn lengths(State(app): State<App>) -> Result<Json<QueuesView>, ApiProblem> {
    let own = app.store.queue_lengths().await?;
    let names = app.store.node_names().await?;
    let queues = app.store.node_queues(&names).await?;
    let nodes = names.into_iter().zip(queues).map(|(node, queues)| views::queues_of(node, queues)).collect();
    Ok(Json(QueuesView {
        waiting: own.waiting,
        in_flight: own.in_flight,
        unschedulable: own.unschedulable,
        dead: own.dead,
        nodes,
    }))
}

/// Looks into one queue.
///
/// `sq`, `fq:<scheduler>`, `pq:<node>`, `rq:<node>`, `cs:<node>`; `dq` gives the dead letters, newest first.
#[utoipa::path(get, path = "/queue/{key}", tag = "queue", params(Part), responses(
    (status = 200, description = "A QueueView; for `dq` a list of dead letters", content(
        (QueueView = "application/json"),
        (List<LetterView> = "application/json; queue=dq"),
    )),
    (status = 404, description = "There is no such queue", body = Problem),
))]
pub(crate) async fn peek(
    State(app): State<App>,
    Path(key): Path<String>,
    Params(part): Params<Part>,
) -> Result<Response, ApiProblem> {
    let limit = query::limit(part.limit)?;
    if key == "dq" {
        return Ok(Json(letters(&app, limit, part.after.as_deref()).await?).into_response());
    }
    let queue = queue_name(&key).ok_or_else(|| {
        let detail = "the queues are sq, dq, and with a name after the colon pq:, rq:, cs: and fq:";
        ApiProblem::new(Kind::QueueNotFound, format!("{key:.80}: {detail}"))
    })?;
    let payloads = app.store.peek(&queue, limit).await?;
    let items = payloads.into_iter().map(views::item).collect();
    Ok(Json(QueueView { queue: key, items }).into_response())
}

/// Gives a dead letter another try: its payload goes back to the queue it came through.
#[utoipa::path(post, path = "/queue/dq/{id}/requeue", tag = "queue", responses(
    (status = 204, description = "Queued again"),
    (status = 404, description = "There is no such dead letter", body = Problem),
))]
pub(crate) async fn requeue(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    let letter = find(&app, &id).await?;
    done(app.store.requeue_letter(&letter).await?, &id)
}

/// Throws a dead letter away.
#[utoipa::path(delete, path = "/queue/dq/{id}", tag = "queue", responses(
    (status = 204, description = "Thrown away"),
    (status = 404, description = "There is no such dead letter", body = Problem),
))]
pub(crate) async fn discard(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    let letter = find(&app, &id).await?;
    done(app.store.drop_letter(&letter).await?, &id)
}

fn done(was_there: bool, id: &str) -> Result<StatusCode, ApiProblem> {
    if was_there { Ok(StatusCode::NO_CONTENT) } else { Err(missing(id)) }
}

async fn letters(app: &App, limit: usize, after: Option<&str>) -> Result<List<LetterView>, ApiProblem> {
    let offset = match after {
        None => 0,
        Some(text) => {
            let small = text.parse().ok().filter(|offset| *offset < u32::MAX as usize);
            small.ok_or_else(|| {
                ApiProblem::new(Kind::InvalidQuery, "after: give the `next` of the page before")
            })?
        }
    };
    let mut found = app.store.letters(offset, limit + 1).await?;
    let next = (found.len() > limit).then(|| (offset + limit).to_string());
    found.truncate(limit);
    Ok(List { items: found.into_iter().map(views::letter).collect(), next })
}

async fn find(app: &App, id: &str) -> Result<Letter, ApiProblem> {
    for offset in (0..).step_by(CHUNK) {
        let page = app.store.letters(offset, CHUNK).await?;
        let last = page.len() < CHUNK;
        match page.into_iter().find(|letter| letter.id == id) {
            Some(letter) => return Ok(letter),
            None if last => break,
            None => {}
        }
    }
    Err(missing(id))
}

fn missing(id: &str) -> ApiProblem {
    let detail = format!("there is no dead letter {id:.80}; GET /queue/dq lists them");
    ApiProblem::new(Kind::LetterNotFound, detail)
}

fn queue_name(key: &str) -> Option<QueueName> {
    if key == "sq" {
        return Some(QueueName::Waiting);
    }
    let (prefix, name) = key.split_once(':')?;
    let node = || NodeName::new(name).ok();
    match prefix {
        "pq" => node().map(QueueName::Pending),
        "rq" => node().map(QueueName::Starting),
        "cs" => node().map(QueueName::Running),
        "fq" => SchedulerId::new(name).ok().map(QueueName::InFlight),
        _ => None,
    }
}
