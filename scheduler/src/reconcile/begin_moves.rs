//! Stores which pods of a service move where. The reconcile loop carries it out, at the pace of the service.
//!
//! Tests: beside the code, tests::draining

use model::ids::NodeName;
use model::service::Service;
use model::service::moves::{Move, Moves};
use pending::{LeavingPod, Place};
use store::{Store, StoreError};

const MAX_NAMES: usize = 5;

/// Pods without a place stay. If the service has changed since it was read, the next look plans again.
pub(crate) async fn begin_moves<'a>(
    store: &Store,
    service: &Service,
    pods: impl Iterator<Item = &'a LeavingPod>,
    why: &str,
) -> Result<(), StoreError> {
    let (moves, begun) = with_moves(&service.moves, pods);
    if begun.is_empty() {
        return Ok(());
    }
    let more = begun.len().saturating_sub(MAX_NAMES);
    let mut news = begun[..begun.len().min(MAX_NAMES)].join(", ");
    if more > 0 {
        news = format!("{news} and {more} more");
    }
    store.put_moves(service, &moves, Some(&format!("{news}: {why}"))).await.map(drop)
}

/// Those that are planned stay. Also returns the new ones in words.
fn with_moves<'a>(known: &Moves, pods: impl Iterator<Item = &'a LeavingPod>) -> (Moves, Vec<String>) {
    let mut moves = known.by_replica().clone();
    let mut begun = Vec::new();
    let placed = |pod: &'a LeavingPod| match &pod.place {
        Place::On(to) => Some((&pod.record, to)),
        Place::Nowhere(_) | Place::Pushed | Place::Stays(_) => None,
    };
    for (pod, to) in pods.filter_map(placed) {
        if moves.get(&pod.replica).is_some_and(|one| one.pod == pod.id) {
            continue;
        }
        begun.push(format!("{}-{} to {to}", pod.name, pod.replica));
        moves.insert(pod.replica, Move { pod: pod.id.clone(), to: NodeName::clone(to), until: None });
    }
    (Moves::of(moves), begun)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::collections::BTreeMap;

    use model::ids::PodId;
    use model::pod::PodRecord;
    use model::pod::lifecycle::Phase;
    use testkit::fixtures;

    use super::*;

    #[test]
    fn a_planned_move_stays_and_one_of_a_former_pod_is_replaced() {
        let id = |text: &str| PodId::new(text).unwrap();
        let leaving = |replica, uuid: &str, place| {
            let record = PodRecord { id: id(uuid), ..fixtures::pod_record("web", replica, Phase::Running) };
            LeavingPod { record, place, is_bound: false }
        };
        let to = |node: &str| Place::On(NodeName::new(node).unwrap());
        let planned = [
            leaving(0, "a", to("w3")),
            leaving(1, "b", to("w2")),
            leaving(2, "c", to("w2")),
            leaving(3, "d", Place::Nowhere(Vec::new())),
        ];
        let known = |uuid: &str| Move { pod: id(uuid), to: NodeName::new("w2").unwrap(), until: None };
        let before = Moves::of(BTreeMap::from([(0, known("a")), (1, known("former"))]));
        let (moves, begun) = with_moves(&before, planned.iter());
        assert_eq!(begun, ["web-1 to w2", "web-2 to w2"]);
        let expected = [(0, known("a")), (1, known("b")), (2, known("c"))];
        assert_eq!(moves, Moves::of(expected.into()));
        assert!(with_moves(&moves, planned.iter()).1.is_empty());
    }
}
