//! The order in which the pods of a batch are decided about: the highest priority first, which rises with
//! each second of waiting.
//!
//! The queue has no order but its own: scripts take pods from its end. So a scheduler decides in another
//! order than the one in which it assigns. A batch has all that waits, unless that is very much.
//!
//! Tests: beside the code, scheduler::tests::priorities

use std::cmp::Reverse;
use std::collections::HashMap;

use model::RedisMillis;
use model::ids::PodId;
use model::spec::Priority;
use placement::{ClusterSnapshot, Decision, DecisionRecord, PlacementPolicy, PodRequest, decide_and_record};
use store::{Store, StoreError};

use crate::intake::PendingPod;

/// Reads since when the pods wait, if that changes their order. Until then they do not age: it matters only
/// if there is not enough room.
pub async fn read_waits(store: &Store, pods: &mut [PendingPod]) -> Result<(), StoreError> {
    if is_in_order(pods) || pods.iter().all(|pod| pod.since.is_some()) {
        return Ok(());
    }
    let ids: Vec<&PodId> = pods.iter().map(|pod| &pod.payload.id).collect();
    let since = store.pods_since(&ids).await?;
    pods.iter_mut().zip(since).for_each(|(pod, since)| pod.since = since);
    Ok(())
}

/// As [`decide_and_record`], but the most urgent pods choose first. Decisions are in the order of `pods`;
/// they and the records have the pods' indices in the order of deciding.
pub fn decide_by_priority(
    snapshot: &ClusterSnapshot,
    now: RedisMillis,
    policy: &PlacementPolicy,
    pods: &[PendingPod],
    recorded: &[usize],
) -> (Vec<Decision>, Vec<(usize, DecisionRecord)>) {
    if is_in_order(pods) {
        return decide_and_record(snapshot, now, policy, pods, recorded);
    }
    let order = order(pods, now);
    let requests: Vec<&PodRequest> = order.iter().map(|pod| &pods[*pod].request).collect();
    let (decisions, records) = decide_and_record(snapshot, now, policy, &requests, recorded);
    let mut in_queue_order: Vec<(usize, Decision)> = order.into_iter().zip(decisions).collect();
    in_queue_order.sort_unstable_by_key(|(pod, _)| *pod);
    (in_queue_order.into_iter().map(|(_, decision)| decision).collect(), records)
}

fn is_in_order(pods: &[PendingPod]) -> bool {
    pods.windows(2).all(|two| two[0].priority == two[1].priority) && !pods.iter().any(|pod| pod.has_room)
}

/// The pods of a service stay together and in their order, as some rules need it: the one that waits longest
/// counts for all. First of all are those that have room of their own, or another one would choose it.
fn order(pods: &[PendingPod], now: RedisMillis) -> Vec<usize> {
    let mut of_services: HashMap<&str, u64> = HashMap::new();
    for pod in pods {
        let waited = of_services.entry(pod.request.name()).or_default();
        *waited = (*waited).max(pod.since.map_or(0, |since| waited_seconds(since, now)));
    }
    let urgency_of = |pod: &PendingPod| {
        let waited = of_services.get(pod.request.name()).copied().unwrap_or(0);
        urgency(pod.priority, waited)
    };
    let mut order: Vec<usize> = (0..pods.len()).collect();
    order.sort_by_key(|pod| Reverse((pods[*pod].has_room, urgency_of(&pods[*pod]))));
    order
}

pub(crate) fn urgency(priority: Priority, waited_seconds: u64) -> i64 {
    i64::from(priority.get()).saturating_add_unsigned(waited_seconds)
}

/// A time in the future counts as now.
pub(crate) fn waited_seconds(since: RedisMillis, now: RedisMillis) -> u64 {
    now.saturating_sub(since) / 1000
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use bytes::Bytes;
    use model::node::Resources;
    use model::pod::payload::Payload;
    use placement::{Outcome, Weights};
    use testkit::fixtures;

    use super::*;
    use crate::intake::pushed_pod;

    const NOW: RedisMillis = 10_000_000;

    /// A pod of 60 MiB. `waited` is in seconds.
    fn pod(id: &str, priority: i16, waited: Option<u64>) -> PendingPod {
        let json = format!(r#"{{"name":"{id}","uuid":"{id}","image":"i","replica":0,"memory":"60MiB"}}"#);
        let payload = Payload::parse(Bytes::from(json)).unwrap();
        let mut pod = pushed_pod(payload).unwrap();
        pod.priority = Priority::new(priority).unwrap();
        pod.since = waited.map(|waited| NOW - waited * 1000);
        pod
    }

    fn placed(pods: &[PendingPod], rooms: u64) -> Vec<String> {
        let capacity = Resources { memory_bytes: (60 << 20) * rooms, pods: 100, ..Resources::default() };
        let mut snapshot = ClusterSnapshot::new(Weights::default());
        snapshot.upsert(model::node::Node { beat: NOW, ..fixtures::node("w1", capacity) });
        let (decisions, _) = decide_by_priority(&snapshot, NOW, &PlacementPolicy::default(), pods, &[]);
        let placed = pods.iter().zip(decisions).filter(|(_, one)| matches!(one.outcome, Outcome::Place(_)));
        placed.map(|(pod, _)| pod.payload.id.to_string()).collect()
    }

    #[test]
    fn the_highest_priority_is_placed_first_and_waiting_counts_a_point_a_second() {
        for (pods, expected, case) in [
            (vec![pod("a", 0, None), pod("b", 10, None), pod("c", -1, None)], ["a", "b"], "by priority"),
            (vec![pod("c", -1, None), pod("a", 0, None), pod("b", 0, None)], ["a", "b"], "below 0 is last"),
            (vec![pod("a", 5, None), pod("b", 5, None), pod("c", 5, Some(9))], ["a", "b"], "the queue's"),
            (vec![pod("a", 5, Some(0)), pod("b", 0, Some(6)), pod("c", 0, Some(4))], ["a", "b"], "ageing"),
            (
                vec![pod("c", 1000, Some(0)), pod("a", -1000, Some(2001)), pod("b", 1000, Some(1))],
                ["a", "b"],
                "2,000 s come before all",
            ),
        ] {
            assert_eq!(placed(&pods, 2), expected, "{case}");
        }
        let with_room = PendingPod { has_room: true, ..pod("b", -9, None) };
        assert_eq!(placed(&[pod("a", 0, None), with_room], 1), ["b"], "who has room of its own comes first");
        let future = PendingPod { since: Some(NOW + 9_000_000), ..pod("a", 0, None) };
        assert_eq!(placed(&[future, pod("b", 1, Some(0))], 1), ["b"], "a time in the future counts as now");
    }

    #[test]
    fn decisions_keep_the_order_of_the_queue_and_each_has_its_own_index() {
        let pods: Vec<PendingPod> =
            (0..50).map(|n| pod(&format!("p{n}"), (n * 7 % 5) as i16, None)).collect();
        let snapshot = ClusterSnapshot::new(Weights::default());
        let (decisions, _) = decide_by_priority(&snapshot, NOW, &PlacementPolicy::default(), &pods, &[]);
        let order = order(&pods, NOW);
        for (pod, decision) in decisions.iter().enumerate() {
            assert_eq!(order[decision.pod], pod);
        }
        assert!(order.windows(2).all(|two| {
            let [a, b] = [two[0], two[1]];
            (Reverse(pods[a].priority), a) < (Reverse(pods[b].priority), b)
        }));
    }

    #[test]
    fn the_pods_of_a_service_stay_in_their_order() {
        let of_web = |id: &str, waited| {
            let mut pod = pod(id, 0, Some(waited));
            pod.request.generation = Some(placement::Generation {
                service: model::ids::ServiceName::new("web").unwrap(),
                spec: model::ids::SpecId::new("s").unwrap(),
            });
            pod
        };
        let pods = [of_web("web-0", 1), pod("a", 5, Some(0)), of_web("web-1", 9), of_web("web-2", 0)];
        assert_eq!(order(&pods, NOW), [0, 2, 3, 1]);
    }
}
