//! `/queue`: payloads in Redis, and dead letters.

use api_types::{DeadLetterView, List, QueueItem, QueueView, QueuesView};
use axum::Json;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use model::ids::{NodeName, SchedulerId};
use model::pod::payload::MAX_PAYLOAD_BYTES;
use serde::Deserialize;
use store::{DeadLetter, DeadLetterRequeue, EditedPayload, QueueName, RedisKey};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{IntoParams, PartialSchema};

use crate::http::body::read_bytes;
use crate::http::params::{InPath, Params, PathName, invalid_cursor, page_size, string_schema};
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;
use crate::status::views;

const CHUNK_SIZE: usize = 500;

/// Any but `dq`.
pub(crate) struct QueueKey {
    text: String,
    /// `None` for `uq`, which is not a list.
    queue: Option<QueueName>,
}

impl PartialSchema for QueueKey {
    fn schema() -> RefOr<Schema> {
        string_schema(
            "^(sq|uq|(pq|rq|cs):[A-Za-z0-9][A-Za-z0-9._-]{0,62}|fq:[!-~]{1,64})$",
            "`sq`, `uq`, `pq:<node>`, `rq:<node>`, `cs:<node>` or `fq:<scheduler>`",
            "pq:worker1",
        )
    }
}

impl PathName for QueueKey {
    const PARAMETER: &str = "key";

    fn parse(text: String) -> Result<Self, ApiProblem> {
        if text == "uq" {
            return Ok(Self { text, queue: None });
        }
        let queue = queue_name(&text).ok_or_else(|| {
            let detail = "the queues are sq, uq, dq, and with a name after the colon pq:, rq:, cs: and fq:";
            ApiProblem::new(ProblemKind::QueueNotFound, format!("there is no queue {text:.80}; {detail}"))
        })?;
        Ok(Self { text, queue: Some(queue) })
    }
}

impl QueueKey {
    fn node(&self) -> Option<&NodeName> {
        match self.queue.as_ref()? {
            QueueName::Pending(node) | QueueName::Starting(node) | QueueName::Running(node) => Some(node),
            QueueName::Waiting | QueueName::InFlight(_) => None,
        }
    }
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

pub(crate) struct DeadLetterId(String);

impl PartialSchema for DeadLetterId {
    fn schema() -> RefOr<Schema> {
        string_schema("^[0-9a-f]{12}$", "The `id` of a dead letter", "0f1e2d3c4b5a")
    }
}

impl PathName for DeadLetterId {
    const PARAMETER: &str = "id";

    fn parse(text: String) -> Result<Self, ApiProblem> {
        Ok(Self(text))
    }
}

/// How much of a queue to read.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PeekOptions {
    /// Payloads to read.
    #[param(minimum = 1, maximum = 10000, default = 1000)]
    limit: Option<u32>,
}

/// Selects a page of dead letters.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeadLetterPaging {
    /// Items on the page.
    #[param(minimum = 1, maximum = 10000, default = 1000)]
    limit: Option<u32>,
    /// The `next` of the previous page: how many newer dead letters to pass over. If some of those were
    /// requeued or dropped meanwhile, the page misses as many; if there are new ones, it repeats as many.
    #[param(pattern = "^[0-9]{1,9}$")]
    after: Option<String>,
}

/// Shows the length of each queue.
#[utoipa::path(get, path = "/queue", tag = "queue", responses(
    (status = 200, description = "The lengths of all queues", body = QueuesView),
))]
pub(crate) async fn list_queues(State(app): State<AppState>) -> Result<Json<QueuesView>, ApiProblem> {
    let own = app.store.queue_lengths().await?;
    let names = app.store.node_names().await;
    let names = names.map_err(|error| ApiProblem::of_key(error, RedisKey::Nodes))?;
    // A queue that cannot be read counts as empty here; `/status` names its key.
    let (queues, _broken) = app.store.node_queues(&names).await?;
    let nodes = names.into_iter().zip(queues).map(|(node, queues)| views::queues_of(node, queues)).collect();
    Ok(Json(QueuesView {
        waiting: own.waiting,
        in_flight: own.in_flight,
        unschedulable: own.unschedulable,
        dead: own.dead,
        nodes,
    }))
}

/// Shows the payloads of one queue without taking them.
///
/// The queues are `sq`, `uq` (pods that fit no node, with the reason), `fq:<scheduler>`, `pq:<node>`,
/// `rq:<node>` and `cs:<node>`.
#[utoipa::path(get, path = "/queue/{key}", tag = "queue", params(InPath<QueueKey>, PeekOptions), responses(
    (status = 200, description = "The first payloads of the queue, at most 4 MiB", body = QueueView),
    (status = 404, description = "There is no such queue, or it is empty and there is no such node"),
))]
pub(crate) async fn peek_queue(
    State(app): State<AppState>,
    InPath(key): InPath<QueueKey>,
    Params(options): Params<PeekOptions>,
) -> Result<Json<QueueView>, ApiProblem> {
    let limit = page_size(options.limit)?;
    let (items, left_out): (Vec<QueueItem>, u64) = match &key.queue {
        Some(queue) => {
            let found = app.store.peek(queue, limit).await?;
            (found.items.into_iter().map(views::item).collect(), found.left_out)
        }
        None => {
            let found = app.store.unschedulable_pods(limit).await?;
            (found.items.into_iter().map(views::unschedulable).collect(), found.left_out)
        }
    };
    let view = QueueView { items, left_out, queue: key.text.clone() };
    if view.items.is_empty()
        && view.left_out == 0
        && let Some(node) = key.node()
    {
        check_node(&app, node, &key.text).await?;
    }
    Ok(Json(view))
}

/// An unknown node was probably mistyped. With a broken list of nodes, the empty queue is shown.
async fn check_node(app: &AppState, node: &NodeName, queue: &str) -> Result<(), ApiProblem> {
    match app.store.node_names().await {
        Ok(names) if !names.contains(node) => {
            let detail = format!("there is no node {node}, and {queue} is empty; GET /node lists the nodes");
            Err(ApiProblem::new(ProblemKind::NodeNotFound, detail))
        }
        Ok(_) => Ok(()),
        Err(error) if error.is_broken_key() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Lists dead letters, newest first.
#[utoipa::path(get, path = "/queue/dq", tag = "queue", params(DeadLetterPaging), responses(
    (status = 200, description = "Dead letters", body = List<DeadLetterView>),
))]
pub(crate) async fn list_dead_letters(
    State(app): State<AppState>,
    Params(paging): Params<DeadLetterPaging>,
) -> Result<Json<List<DeadLetterView>>, ApiProblem> {
    let limit = page_size(paging.limit)?;
    let offset = match paging.after.as_deref() {
        None => 0,
        Some(text) => {
            let offset = text.parse().ok().filter(|offset| *offset < u32::MAX as usize);
            offset.ok_or_else(invalid_cursor)?
        }
    };
    let (mut found, mut has_more) = app.store.dead_letter_page(offset, limit + 1).await?;
    if found.len() > limit {
        found.truncate(limit);
        has_more = true;
    }
    // A page of large ones is shorter than `limit`, yet has a next page.
    let next = has_more.then(|| (offset + found.len()).to_string());
    Ok(Json(List { items: found.into_iter().map(views::dead_letter).collect(), next }))
}

/// Requeues a dead letter: its payload returns to the queue it came from.
///
/// If that is the queue of a node that is gone, the payload returns to `sq`. A body replaces the payload: its
/// bytes are queued as they are. A payload that would start no pod, because its pod exists or has ended, is
/// refused, and the dead letter stays.
#[utoipa::path(
    post, path = "/queue/dq/{id}/requeue", tag = "queue", params(InPath<DeadLetterId>),
    request_body(content = Option<String>, content_type = "application/octet-stream",
        description = "The edited payload; none to requeue the payload as it is"),
    responses(
        (status = 204, description = "The payload is queued again"),
        (status = 404, description = "There is no such dead letter, or it came through no queue of kubeleet"),
        (status = 409, description = "The pod has ended, exists, or belongs to a service, or of its payload only the \
         first KiB was kept"),
        (status = 422, description = "The body cannot be a pod"),
    )
)]
pub(crate) async fn requeue_dead_letter(
    State(app): State<AppState>,
    InPath(DeadLetterId(id)): InPath<DeadLetterId>,
    EditedBody(edited): EditedBody,
) -> Result<StatusCode, ApiProblem> {
    let dead_letter = find(&app, &id).await?;
    if !dead_letter.can_be_requeued() {
        let detail = format!(
            "dead letter {id} names {:.80?}, which is neither sq nor the pq: of a node; push its payload to sq, or \
             drop it",
            dead_letter.queue
        );
        return Err(ApiProblem::new(ProblemKind::QueueNotFound, detail));
    }
    let pod = match &edited {
        Some(edited) => format!("pod {}", edited.pod()),
        None => "its pod".to_owned(),
    };
    let conflict = |detail: String| {
        let detail = format!("dead letter {id} was not requeued: {detail}");
        Err(ApiProblem::new(ProblemKind::DeadLetterConflict, detail))
    };
    match app.store.requeue_dead_letter(&dead_letter, edited.as_ref()).await? {
        DeadLetterRequeue::Queued => Ok(StatusCode::NO_CONTENT),
        DeadLetterRequeue::Gone => Err(not_found(&id)),
        DeadLetterRequeue::PodEnded => conflict(format!(
            "{pod} has ended, and its uuid cannot be used again for an hour; drop the dead letter, or edit it \
             and change the uuid"
        )),
        DeadLetterRequeue::PodExists => {
            conflict(format!("{pod} exists already and has not ended; change the uuid"))
        }
        DeadLetterRequeue::PodOfService => {
            conflict(format!("{pod} belongs to a service; change the service instead, or change the uuid"))
        }
        DeadLetterRequeue::Truncated => {
            let limit = MAX_PAYLOAD_BYTES / 1024;
            conflict(format!(
                "only its first KiB was kept, because it was too large: send the payload as the body, with at most \
                 {limit} KiB, or drop the dead letter"
            ))
        }
    }
}

pub(crate) struct EditedBody(Option<EditedPayload>);

impl<S: Send + Sync> FromRequest<S> for EditedBody {
    type Rejection = ApiProblem;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiProblem> {
        let bytes = read_bytes(request, state, "a body is at most 1 MiB").await?;
        if bytes.is_empty() {
            return Ok(Self(None));
        }
        let edited = EditedPayload::parse(bytes);
        edited.map(|edited| Self(Some(edited))).map_err(|invalid| {
            let detail = format!("the dead letter was not requeued: {invalid}");
            ApiProblem::new(ProblemKind::InvalidPayload, detail)
        })
    }
}

/// Drops a dead letter for good.
#[utoipa::path(
    delete, path = "/queue/dq/{id}", tag = "queue", params(InPath<DeadLetterId>),
    responses(
        (status = 204, description = "The dead letter is dropped"),
        (status = 404, description = "There is no such dead letter"),
    )
)]
pub(crate) async fn discard_dead_letter(
    State(app): State<AppState>,
    InPath(DeadLetterId(id)): InPath<DeadLetterId>,
) -> Result<StatusCode, ApiProblem> {
    let dead_letter = find(&app, &id).await?;
    let existed = app.store.discard_dead_letter(&dead_letter).await?;
    if existed { Ok(StatusCode::NO_CONTENT) } else { Err(not_found(&id)) }
}

async fn find(app: &AppState, id: &str) -> Result<DeadLetter, ApiProblem> {
    // Removals between two pages can move the dead letter to a page already read.
    for _ in 0..2 {
        if let Some(dead_letter) = search(app, id).await? {
            return Ok(dead_letter);
        }
    }
    Err(not_found(id))
}

async fn search(app: &AppState, id: &str) -> Result<Option<DeadLetter>, ApiProblem> {
    let mut offset = 0;
    loop {
        let (page, has_more) = app.store.dead_letter_page(offset, CHUNK_SIZE).await?;
        offset += page.len();
        let found = page.into_iter().find(|dead_letter| dead_letter.id == id);
        if found.is_some() || !has_more {
            return Ok(found);
        }
    }
}

fn not_found(id: &str) -> ApiProblem {
    let detail = format!("there is no dead letter {id:.80}; GET /queue/dq lists them");
    ApiProblem::new(ProblemKind::DeadLetterNotFound, detail)
}
