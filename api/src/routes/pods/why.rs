//! `/pod/{uuid}/why`: how each node looks for a pod, by the code that decides, and why it was placed where it
//! is.

use api_types::{DecisionView, JudgedNode, LoadTermView, NodeObjection, PodPlacementView};
use axum::Json;
use axum::extract::State;
use model::ids::PodId;
use model::pod::PodRecord;
use model::time::rfc3339;
use pending::NodeJudgements;
use placement::{DecisionRecord, NodeEvaluation, PlacementPolicy};

use super::read;
use crate::http::params::InPath;
use crate::http::problem::ApiProblem;
use crate::state::AppState;

const MAX_SHOWN: usize = 100;
/// Scores are in thousandths of a point.
const POINT: f64 = 1_000.0;

/// Explains where a pod could run, and why it was placed where it is.
///
/// Each node is shown with its load and its objections, as if the pod were placed now. The decision that has
/// placed the pod is shown as it was, if it is kept.
#[utoipa::path(get, path = "/pod/{uuid}/why", tag = "pod", params(InPath<PodId>), responses(
    (status = 200, description = "The nodes", body = PodPlacementView),
    (status = 404, description = "There is no such pod"),
))]
pub(crate) async fn explain_pod(
    State(app): State<AppState>,
    InPath(id): InPath<PodId>,
) -> Result<Json<PodPlacementView>, ApiProblem> {
    let record = read(&app, &id).await?;
    let policy = PlacementPolicy { dead_after: app.config.timing.dead_after, ..PlacementPolicy::default() };
    let default = app.config.placement_profile;
    let (profile, judged, change, message) =
        match pending::judge(&app.store, &policy, default, &record).await? {
            NodeJudgements::Nodes { profile, judged, change } => {
                (profile, judged, change, record.message.clone())
            }
            NodeJudgements::Unreadable(why) => (default, Vec::new(), None, why),
        };
    let decision = decision(&app, &record).await;
    let fitting = judged.iter().filter(|node| node.is_feasible()).count() as u64;
    Ok(Json(PodPlacementView {
        uuid: record.id,
        name: record.name,
        replica: record.replica,
        phase: record.phase,
        node: record.node,
        message,
        profile,
        change: change.unwrap_or_default(),
        node_count: judged.len() as u64,
        fitting,
        nodes: judged.into_iter().take(MAX_SHOWN).map(view).collect(),
        decision,
    }))
}

/// The stream only informs: an unreadable one is as none.
async fn decision(app: &AppState, pod: &PodRecord) -> Option<DecisionView> {
    let node = pod.node.as_ref()?;
    let stored = app.store.decision_about(&pod.id, pod.created_at).await.unwrap_or_else(|error| {
        tracing::debug!(%error, "the decisions cannot be read");
        None
    });
    // Another one has placed it there since.
    let record = DecisionRecord::parse(&stored?).filter(|record| record.node == *node)?;
    Some(DecisionView {
        at: rfc3339(record.at),
        profile: record.profile(),
        node_count: record.node_count,
        fitting: record.fitting,
        nodes: record.explain().into_iter().map(view).collect(),
        is_same_now: record.replay().as_ref() == Some(node),
        refused: record.refused,
    })
}

fn view(judged: NodeEvaluation) -> JudgedNode {
    let term = |term: placement::score::TermScore| LoadTermView {
        term: term.term.as_str().to_owned(),
        value: term.value,
        points: term.points as f64 / POINT,
    };
    let objection = |refusal: placement::FilterRefusal| NodeObjection {
        reason: refusal.reason.to_string(),
        detail: refusal.detail,
    };
    JudgedNode {
        node: judged.node,
        load: judged.load as f64 / POINT,
        terms: judged.terms.into_iter().filter(|term| term.points > 0).map(term).collect(),
        objections: judged.refusals.into_iter().map(objection).collect(),
    }
}
