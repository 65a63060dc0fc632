//! Counts how many waiting pods fit now.

use std::sync::Arc;

use model::RedisMillis;
use model::pod::Refusal;

use crate::decision::{Outcome, decide};
use crate::policy::PlacementPolicy;
use crate::requirements::PodRequest;
use crate::snapshot::ClusterSnapshot;

/// Takes a pod of each class and the number of its pods, the most urgent class first, and returns how many of
/// them fit, all at the same time, or why none does. Each class that fits gets one before another one gets
/// its second. It makes at most one decision for each class, then another for each class that fits, and
/// `max` more. Pure.
pub fn count_fitting(
    snapshot: &ClusterSnapshot,
    now: RedisMillis,
    policy: &PlacementPolicy,
    classes: &[(&PodRequest, usize)],
    max: usize,
) -> Vec<Result<usize, Arc<[Refusal]>>> {
    let all: Vec<usize> = (0..classes.len()).collect();
    let one_each = place(snapshot, now, policy, classes, &all);
    let mut pods: Vec<usize> = all.into_iter().filter(|class| one_each[*class].is_ok()).collect();
    let mut more: Vec<usize> = Vec::new();
    for known in 1.. {
        let left = max - more.len();
        let with_more = pods.iter().filter(|class| classes[**class].1 > known);
        let before = more.len();
        more.extend(with_more.take(left));
        if more.len() == before {
            break;
        }
    }
    if more.is_empty() {
        return one_each;
    }
    pods.extend(more);
    let together = place(snapshot, now, policy, classes, &pods);
    together.into_iter().zip(one_each).map(|(together, one)| one.and(together)).collect()
}

/// `pods` are indices of classes. Returns how many of each are placed, or why the first one is not.
fn place(
    snapshot: &ClusterSnapshot,
    now: RedisMillis,
    policy: &PlacementPolicy,
    classes: &[(&PodRequest, usize)],
    pods: &[usize],
) -> Vec<Result<usize, Arc<[Refusal]>>> {
    let requests: Vec<&PodRequest> = pods.iter().map(|class| classes[*class].0).collect();
    let mut placed = vec![Ok(0); classes.len()];
    for decision in decide(snapshot, now, policy, &requests) {
        let of_class = &mut placed[pods[decision.pod]];
        match (decision.outcome, of_class.as_mut()) {
            (Outcome::Place(_), Ok(count)) => *count += 1,
            (Outcome::Unschedulable { refusals }, Ok(0)) => *of_class = Err(refusals),
            (Outcome::Place(_) | Outcome::Unschedulable { .. }, _) => {}
        }
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Weights;
    use crate::testing::{NOW, node, pod};

    fn count(slots: &[u64], classes: &[(u64, usize)], max: usize) -> Vec<usize> {
        let mut snapshot = ClusterSnapshot::new(Weights::default());
        for (index, slots) in slots.iter().enumerate() {
            snapshot.upsert(node(&format!("w{index}")).pods(0, *slots).cpu(0, 4_000).build());
        }
        let pods: Vec<_> =
            classes.iter().enumerate().map(|(id, (cpu, count))| (pod(id, *cpu, 0), *count)).collect();
        let classes: Vec<_> = pods.iter().map(|(pod, count)| (pod, *count)).collect();
        let counts = count_fitting(&snapshot, NOW, &PlacementPolicy::default(), &classes, max);
        counts.into_iter().map(|count| count.unwrap_or(0)).collect()
    }

    #[test]
    fn as_many_pods_are_counted_as_fit_together_and_some_of_each_class() {
        for (slots, classes, max, expected) in [
            (&[][..], &[(1, 5)][..], 10, &[0][..]),
            (&[4], &[(5_000, 10_000), (1_000, 3)], 10, &[0, 3]),
            (&[4], &[(2_000, 10_000), (1_000, 3)], 10, &[1, 2]),
            (&[3, 3], &[(1, 10_000), (2, 1), (3, 2)], 100, &[3, 1, 2]),
            (&[2], &[(1, 5), (2, 5), (3, 5)], 100, &[1, 1, 0]),
            // No more than `max`, beside one of each.
            (&[100], &[(1, 90), (1, 90)], 10, &[6, 6]),
            (&[100], &[(1, 90), (1, 90), (1, 1)], 1, &[2, 1, 1]),
        ] {
            assert_eq!(count(slots, classes, max), expected, "{slots:?} {classes:?} {max}");
        }
    }
}
