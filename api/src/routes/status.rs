//! `/status`: the cluster at a glance, and what a person should look at.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use common::node::NodeState;
use common::store::QueueLengths;

use crate::dto::{NodeCounts, RedisView, StatusView};
use crate::overview::{self, Overview};
use crate::problem::ApiProblem;
use crate::state::App;
use crate::views;

/// More sentences than this help nobody.
const MOST_PROBLEMS: usize = 20;

/// Shows the cluster at a glance. Answers when Redis is away, too: with that as the problem.
#[utoipa::path(get, path = "/status", tag = "cluster", responses((status = 200, body = StatusView)))]
pub(crate) async fn status(State(app): State<App>) -> Result<Json<StatusView>, ApiProblem> {
    let overview = match Overview::read(&app).await {
        Ok(overview) => overview,
        Err(error) if error.is_transient() => return Ok(Json(away(&app, error.to_string()))),
        Err(error) => return Err(error.into()),
    };
    let fresh = app.config.timing.fence_after;
    Ok(Json(StatusView {
        redis: RedisView {
            connected: true,
            master: overview::link(&app).unwrap_or_default(),
            detail: String::new(),
        },
        durability: app.durability_now().await?,
        unconfirmed_writes: overview.unconfirmed_writes,
        nodes: overview.node_counts(fresh),
        services: overview.services,
        problems: problems(&overview, fresh),
        pods: overview.pods,
        queues: overview.queues,
        schedulers: overview.schedulers,
    }))
}

fn away(app: &App, error: String) -> StatusView {
    let detail = overview::link(app).err().filter(|why| !why.is_empty()).unwrap_or_else(|| error.clone());
    StatusView {
        redis: RedisView { connected: false, master: String::new(), detail },
        durability: app.durability(),
        unconfirmed_writes: 0,
        nodes: NodeCounts::default(),
        services: 0,
        pods: Default::default(),
        queues: QueueLengths::default(),
        schedulers: 0,
        problems: vec![format!("{error}; everything else is unknown until it is back")],
    }
}

fn problems(overview: &Overview, fresh: Duration) -> Vec<String> {
    let mut problems = Vec::new();
    if overview.schedulers == 0 {
        problems.push("no scheduler is alive: nothing new is placed; start `kubeleet scheduler`".to_owned());
    }
    if overview.nodes.is_empty() {
        problems.push("there are no nodes: start `kubeleet worker` where containers shall run".to_owned());
    }
    let queues = &overview.queues;
    if queues.unschedulable > 0 {
        let count = queues.unschedulable;
        problems.push(format!("{count} pods fit no node right now; GET /pod/<uuid> of one says why"));
    }
    if overview.unconfirmed_writes > 0 {
        let count = overview.unconfirmed_writes;
        problems.push(format!(
            "what is wanted of {count} services is not yet confirmed by all replicas of Redis: an event WriteConfirmed of \
             each says when it is, and until then a failover might lose it"
        ));
    }
    if queues.dead > 0 {
        problems.push(format!("{} dead letters wait for a person: GET /queue/dq", queues.dead));
    }
    problems.extend(overview.nodes.iter().filter_map(|node| {
        let (name, silence) = (&node.name, views::silence(node, overview.now));
        match (node.state, &node.engine_problem) {
            (NodeState::Dead, _) => Some(format!("node {name} is dead since about {} s", silence.as_secs())),
            (NodeState::Alive, _) if silence > fresh => {
                Some(format!("node {name} has been silent for {} s", silence.as_secs()))
            }
            (NodeState::Alive, Some(problem)) => Some(format!("the engine of node {name} is ill: {problem}")),
            (NodeState::Alive, None) => None,
        }
    }));
    if problems.len() > MOST_PROBLEMS {
        let more = problems.len() - MOST_PROBLEMS;
        problems.truncate(MOST_PROBLEMS);
        problems.push(format!("and {more} more nodes: GET /node"));
    }
    problems
}
