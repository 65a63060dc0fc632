//! Stores which pods of a service move where. The reconcile loop carries it out, at the pace of the service.
//!
//! Tests: beside the code, scheduler::tests::draining

use model::RedisMillis;
use model::ids::{NodeName, PodId};
use model::service::Service;
use model::service::moves::{Move, Moves};
use store::{Store, StoreError};

const MAX_NAMES: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BegunMove {
    pub replica: u32,
    pub pod: PodId,
    pub to: NodeName,
}

/// Planned moves stay. Returns the number of new ones: 0 if the service has changed since it was read.
/// `until` is for moves that neither a drain nor a constraint asks for.
pub async fn begin_moves(
    store: &Store,
    service: &Service,
    pods: Vec<BegunMove>,
    until: Option<RedisMillis>,
    why: &str,
) -> Result<usize, StoreError> {
    let (moves, begun) = with_moves(service, pods, until);
    if begun.is_empty() {
        return Ok(0);
    }
    let more = begun.len().saturating_sub(MAX_NAMES);
    let mut news = begun[..begun.len().min(MAX_NAMES)].join(", ");
    if more > 0 {
        news = format!("{news} and {more} more");
    }
    let is_stored = store.put_moves(service, &moves, Some(&format!("{news}: {why}"))).await?;
    Ok(if is_stored { begun.len() } else { 0 })
}

/// Also returns the new ones in words.
fn with_moves(service: &Service, pods: Vec<BegunMove>, until: Option<RedisMillis>) -> (Moves, Vec<String>) {
    let mut moves = service.moves.by_replica().clone();
    let mut begun = Vec::new();
    for BegunMove { replica, pod, to } in pods {
        if service.moves.of_pod(replica, &pod).is_none() {
            begun.push(format!("{}-{replica} to {to}", service.name));
            moves.insert(replica, Move { pod, to, until });
        }
    }
    (Moves::of(moves), begun)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::collections::BTreeMap;

    use testkit::fixtures;

    use super::*;

    #[test]
    fn a_planned_move_stays_and_one_of_a_former_pod_is_replaced() {
        let id = |text: &str| PodId::new(text).unwrap();
        let to = |node: &str| NodeName::new(node).unwrap();
        let planned = |replica, pod: &str, node: &str| BegunMove { replica, pod: id(pod), to: to(node) };
        let known = |pod: &str, until| Move { pod: id(pod), to: to("w2"), until };
        let mut service = fixtures::service();
        service.moves = Moves::of(BTreeMap::from([(0, known("a", None)), (1, known("former", None))]));
        let pods = || vec![planned(0, "a", "w3"), planned(1, "b", "w2"), planned(2, "c", "w2")];
        let (moves, begun) = with_moves(&service, pods(), Some(7));
        assert_eq!(begun, ["web-1 to w2", "web-2 to w2"]);
        let expected = [(0, known("a", None)), (1, known("b", Some(7))), (2, known("c", Some(7)))];
        assert_eq!(moves, Moves::of(expected.into()));
        assert!(with_moves(&Service { moves, ..service }, pods(), None).1.is_empty());
    }
}
