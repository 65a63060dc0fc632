//! Reads all nodes for decisions outside of the schedulers' queue: what is explained and what is planned see
//! the same cluster.

use model::RedisMillis;
use model::ids::PodId;
use model::node::Node;
use model::spec::PlacementProfile;
use placement::{ClusterSnapshot, PlacedPods, PlacementPolicy};
use store::{Store, StoreError};

use crate::intake::PendingPod;
use crate::needs::read_needs;

/// Returns Redis' time, and the nodes after `change`. `placed` is where the siblings of the pods are.
pub(crate) async fn read_snapshot(
    store: &Store,
    policy: &PlacementPolicy,
    pods: &[PendingPod],
    placed: PlacedPods,
    mut change: impl FnMut(&mut Node),
) -> Result<(RedisMillis, ClusterSnapshot), StoreError> {
    let names = store.node_names().await?;
    let (now, nodes) = (store.redis_now().await?, store.nodes(&names).await?.found());
    let mut snapshot = ClusterSnapshot::new(policy.weights);
    for mut node in nodes {
        let is_own = |pod: &PodId| pods.iter().any(|one| one.payload.id == *pod);
        if node.nominated(now).is_some_and(|nomination| !is_own(&nomination.pod)) {
            node.keep_room(now);
        }
        change(&mut node);
        snapshot.upsert(node);
    }
    snapshot.set_placed(placed);
    if pods.iter().any(|pod| pod.request.requirements.profile == PlacementProfile::Fragmentation) {
        snapshot.set_needs(read_needs(store).await?);
    }
    Ok((now, snapshot))
}
