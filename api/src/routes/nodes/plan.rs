//! `/plan`: the effect of changes of the cluster, tried on a copy of it. `/rebalance` carries one out.

use std::time::{Duration, Instant};

use api_types::{
    NewNodeInput, PlanChange, PlanInput, PlanView, PlannedNodeView, PlannedPodView, RebalanceInput,
    StuckPodView,
};
use axum::Json;
use axum::extract::State;
use model::node::Resources;
use model::service::selector::{InvalidSelector, LabelSelector};
use model::spec::{DesiredService, MAX_REPLICAS, ServiceInput};
use pending::{
    ClusterState, InvalidChange, MAX_PLANNED_PODS, NewNodes, NodeSelection, PlanOutcome, PlannedChange,
    PlannedPod, StuckPod, begin_planned_moves,
};
use placement::PlacementPolicy;
use serde_json::Value;

use crate::admission::plan_gate::RunningPlan;
use crate::http::body::JsonOrYaml;
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;

const MAX_CHANGES: usize = 100;
const MAX_NEW_NODES: u32 = 1_000;
const MAX_MOVES: u32 = 10_000;
const DEFAULT_MOVES: u32 = 1_000;
/// Then a pod that could not move stays.
const REBALANCE_TIME: Duration = Duration::from_secs(3600);

/// Plans changes: which pods would move, start and stop, which fit nowhere, and the nodes before and after.
///
/// Nothing is changed. The code that drains nodes and places pods decides on a copy of the cluster.
#[utoipa::path(post, path = "/plan", tag = "cluster", request_body(description = "The changes", content(
    (PlanInput = "application/json", example = json!({"changes": [{"scale": {"web": 50}}]})),
    (PlanInput = "application/yaml", example = json!({"changes": [{"scale": {"web": 50}}]})),
)), responses(
    (status = 200, description = "The effect of the changes", body = PlanView),
    (status = 422, description = "A change names no object, or is invalid; or the cluster is too large"),
    (status = 429, description = "Another plan is being made"),
))]
pub(crate) async fn plan_changes(
    State(app): State<AppState>,
    JsonOrYaml(input): JsonOrYaml<PlanInput>,
) -> Result<Json<PlanView>, ApiProblem> {
    if input.changes.len() > MAX_CHANGES {
        return Err(invalid("/changes", &format!("a plan has at most {MAX_CHANGES} changes")));
    }
    let mut changes = Vec::new();
    for (index, change) in input.changes.iter().enumerate() {
        changes.extend(changes_of(change, &format!("/changes/{index}"))?);
    }
    let (pointers, changes): (Vec<String>, Vec<PlannedChange>) = changes.into_iter().unzip();
    let (running, state) = read_cluster(&app).await?;
    let planned = plan(&app, running, state, changes).await?;
    let outcome = planned.map_err(|refused| invalid(&pointers[refused.index], &refused.why))?;
    Ok(Json(view(outcome)))
}

/// Moves pods from fuller nodes to emptier ones, such as one that has joined: as few as it takes.
///
/// Each service goes at the pace of an update. Pods with data, ordinals or ports of their machine stay, and
/// so do those of services that are updated. Repeated when it is over, it moves nothing.
#[utoipa::path(post, path = "/rebalance", tag = "cluster", request_body(description = "How far", content(
    (RebalanceInput = "application/json", example = json!({"max_moves": 20})),
    (RebalanceInput = "application/yaml", example = json!({"max_moves": 20})),
)), responses(
    (status = 200, description = "The moves that begin, and the nodes before and after", body = PlanView),
    (status = 422, description = "The number of moves is invalid, or the cluster is too large"),
    (status = 429, description = "A plan is being made"),
    (status = 507, description = "Redis is too full to add this"),
))]
pub(crate) async fn rebalance_nodes(
    State(app): State<AppState>,
    JsonOrYaml(input): JsonOrYaml<RebalanceInput>,
) -> Result<Json<PlanView>, ApiProblem> {
    let max_moves = input.max_moves.unwrap_or(DEFAULT_MOVES);
    let change = rebalance(max_moves).map_err(|why| invalid("/max_moves", &why))?;
    let (running, state) = read_cluster(&app).await?;
    let until = state.now() + REBALANCE_TIME.as_millis() as u64;
    let planned = plan(&app, running, state, vec![change]).await?;
    let mut outcome = planned.map_err(|refused| invalid("/max_moves", &refused.why))?;
    begin_planned_moves(&app.store, &mut outcome, until, "the nodes are balanced").await?;
    Ok(Json(view(outcome)))
}

fn rebalance(max_moves: u32) -> Result<PlannedChange, String> {
    match max_moves {
        1..=MAX_MOVES => Ok(PlannedChange::Rebalance { max_moves: max_moves as usize }),
        _ => Err(format!("write a number from 1 to {MAX_MOVES}")),
    }
}

async fn read_cluster(app: &AppState) -> Result<(RunningPlan, ClusterState), ApiProblem> {
    let (running, wait) = RunningPlan::begin(&app.plan_gate, Instant::now())?;
    tokio::time::sleep(wait).await;
    let Some(state) = ClusterState::read(&app.store).await? else {
        let detail = format!("the cluster has more than {MAX_PLANNED_PODS} pods");
        return Err(ApiProblem::new(ProblemKind::PlanTooLarge, detail));
    };
    Ok((running, state))
}

async fn plan(
    app: &AppState,
    running: RunningPlan,
    state: ClusterState,
    changes: Vec<PlannedChange>,
) -> Result<Result<PlanOutcome, InvalidChange>, ApiProblem> {
    let policy = PlacementPolicy { dead_after: app.config.timing.dead_after, ..PlacementPolicy::default() };
    let profile = app.config.placement_profile;
    let planned = tokio::task::spawn_blocking(move || {
        let planned = pending::plan(state, &policy, profile, &changes);
        drop(running);
        planned
    });
    planned.await.map_err(|error| {
        tracing::error!(%error, "a plan panicked");
        ApiProblem::new(ProblemKind::Internal, "the plan failed: this is a bug in kubeleet")
    })
}

fn invalid(pointer: &str, why: &str) -> ApiProblem {
    ApiProblem::new(ProblemKind::InvalidPlan, format!("{pointer}: {why}")).at(pointer, why)
}

/// Each with the place that a refusal names. Before the cluster is read: a mistake costs nothing.
fn changes_of(change: &PlanChange, pointer: &str) -> Result<Vec<(String, PlannedChange)>, ApiProblem> {
    let PlanChange { drain, lose, add_node, scale, put, rebalance: max_moves } = change;
    let mut changes = Vec::new();
    let mut add = |pointer: &str, change| changes.push((pointer.to_owned(), change));
    if let Some(node) = drain {
        add(pointer, PlannedChange::Drain(node.clone()));
    }
    if let Some(text) = lose {
        let pointer = format!("{pointer}/lose");
        let selector: LabelSelector =
            text.parse().map_err(|why: InvalidSelector| invalid(&pointer, &why.to_string()))?;
        add(&pointer, PlannedChange::LoseSelected(NodeSelection { text: text.clone(), selector }));
    }
    if let Some(new) = add_node {
        let new = new_nodes(new).map_err(|why| invalid(&format!("{pointer}/add_node"), &why))?;
        add(pointer, PlannedChange::AddNodes(new));
    }
    if scale.values().any(|replicas| *replicas > MAX_REPLICAS) {
        return Err(invalid(&format!("{pointer}/scale"), &format!("at most {MAX_REPLICAS} replicas")));
    }
    if !scale.is_empty() {
        add(pointer, PlannedChange::Scale(scale.clone()));
    }
    if let Some(service) = put {
        let desired = desired_service(service).map_err(|why| invalid(&format!("{pointer}/put"), &why))?;
        add(pointer, PlannedChange::Put(Box::new(desired)));
    }
    if let Some(max_moves) = max_moves {
        let change = rebalance(*max_moves).map_err(|why| invalid(&format!("{pointer}/rebalance"), &why))?;
        add(pointer, change);
    }
    Ok(changes)
}

fn desired_service(service: &Value) -> Result<DesiredService, String> {
    fn in_words(mistakes: &[impl ToString]) -> String {
        mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
    let input = ServiceInput::from_value(service).map_err(|mistakes| in_words(&mistakes))?;
    input.normalize().map_err(|violations| in_words(&violations))
}

fn new_nodes(new: &NewNodeInput) -> Result<NewNodes, String> {
    let NewNodeInput { cpus, memory, disk, pods, labels, count } = new;
    if !(1..=MAX_NEW_NODES).contains(count) {
        return Err(format!("a plan adds 1 to {MAX_NEW_NODES} nodes at once"));
    }
    let capacity = Resources {
        cpu_millis: cpus.millis(),
        memory_bytes: memory.bytes(),
        disk_bytes: disk.map_or(0, |disk| disk.bytes()),
        pods: pods.unwrap_or(0).into(),
        pids: 0,
    };
    Ok(NewNodes { capacity, labels: labels.clone(), count: *count })
}

fn view(outcome: PlanOutcome) -> PlanView {
    let fits = outcome.fits();
    let PlanOutcome { moves, starts, stops, stuck, nodes, notes } = outcome;
    let views = |pods: Vec<PlannedPod>| pods.into_iter().map(pod_view).collect();
    let (bound, stuck): (Vec<StuckPod>, Vec<StuckPod>) = stuck.into_iter().partition(|stuck| stuck.is_bound);
    PlanView {
        fits,
        moves: views(moves),
        starts: views(starts),
        stops: views(stops),
        stuck: stuck.into_iter().map(stuck_view).collect(),
        waits_for_data: bound.into_iter().map(stuck_view).collect(),
        nodes: nodes
            .into_iter()
            .map(|node| PlannedNodeView {
                node: node.name,
                capacity: node.capacity,
                before: node.before,
                after: node.after,
                is_lost: node.is_lost,
            })
            .collect(),
        notes,
    }
}

fn pod_view(pod: PlannedPod) -> PlannedPodView {
    let PlannedPod { id, name, service, replica, from, to } = pod;
    PlannedPodView { uuid: id, name, service, replica, from, to }
}

fn stuck_view(StuckPod { pod, why, change, .. }: StuckPod) -> StuckPodView {
    StuckPodView { pod: pod_view(pod), why, change: change.unwrap_or_default() }
}
