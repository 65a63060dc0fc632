//! Judges all nodes for one pod, with the filters and scores that decide.

use model::node::Node;
use model::pod::PodRecord;
use model::spec::PlacementProfile;
use placement::{ClusterSnapshot, NodeEvaluation, PlacedPods, PlacementPolicy};
use store::{Store, StoreError};

use crate::intake::{Intake, PendingPod};
use crate::needs::read_needs;
use crate::services::read_services;

/// As of now.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeJudgements {
    Nodes {
        profile: PlacementProfile,
        /// In the order in which a scheduler would take them; nodes that cannot run the pod last.
        judged: Vec<NodeEvaluation>,
        /// See [`placement::suggest`].
        change: Option<String>,
    },
    /// No node is judged for it: why.
    Unreadable(String),
}

/// As if the pod were placed anew: its own node counts without it. `profile` is that of pods whose service
/// names none.
pub async fn judge(
    store: &Store,
    policy: &PlacementPolicy,
    profile: PlacementProfile,
    record: &PodRecord,
) -> Result<NodeJudgements, StoreError> {
    let Some(payload) = store.payload_of(record).await? else {
        return Ok(NodeJudgements::Unreadable("Redis has lost its payload".to_owned()));
    };
    let mut intake = Intake::read(store, vec![payload.raw]).await?;
    let mut placed = read_services(store, profile, &mut intake.pending).await?;
    let Some(pod) = intake.pending.first() else {
        let invalid = intake.invalid.into_iter().map(|pod| pod.reason);
        let reasons = invalid.chain(intake.without_spec.into_iter().map(|parked| parked.message));
        return Ok(NodeJudgements::Unreadable(reasons.collect::<Vec<_>>().join("; ")));
    };
    let names = store.node_names().await?;
    let (now, nodes) = (store.redis_now().await?, store.nodes(&names).await?.found());
    let mut snapshot = ClusterSnapshot::new(policy.weights);
    for mut node in nodes {
        if record.node.as_ref() == Some(&node.name) {
            take_out(&mut node, pod, &mut placed);
            record.resource_ids.keys().for_each(|id| drop(node.given_ids.remove(&id)));
        }
        snapshot.upsert(node);
    }
    snapshot.set_placed(placed);
    let profile = pod.request.requirements.profile;
    if profile == PlacementProfile::Fragmentation {
        snapshot.set_needs(read_needs(store).await?);
    }
    let judged = placement::explain(&snapshot, now, policy, &pod.request);
    let change = placement::suggest(&snapshot, now, policy, &pod.request);
    Ok(NodeJudgements::Nodes { profile, judged, change })
}

fn take_out(node: &mut Node, pod: &PendingPod, placed: &mut PlacedPods) {
    node.used = node.used.saturating_sub(pod.request.requirements.resources());
    let own = pod.request.name();
    let ports: Vec<&str> = pod.request.requirements.host_ports.iter().collect();
    node.host_ports.retain(|port, holder| holder != own || !ports.contains(&port.as_str()));
    if let Some(generation) = &pod.request.generation {
        placed.take_out(&node.name, generation);
    }
}
