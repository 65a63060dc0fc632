//! Counts how many waiting pods fit now.

use model::RedisMillis;

use crate::decision::{Outcome, decide};
use crate::policy::PlacementPolicy;
use crate::requirements::PodRequest;
use crate::snapshot::ClusterSnapshot;

/// Takes a pod of each class and the number of its pods, the most urgent class first, and returns how many of
/// them fit, all at the same time. Each class that fits gets one before another one gets its second. It makes
/// at most one decision for each class, and then one for each class that fits and `max` more. Pure.
pub fn count_fitting(
    snapshot: &ClusterSnapshot,
    now: RedisMillis,
    policy: &PlacementPolicy,
    classes: &[(&PodRequest, usize)],
    max: usize,
) -> Vec<usize> {
    let all: Vec<usize> = (0..classes.len()).collect();
    let one_each = place(snapshot, now, policy, classes, &all);
    let mut pods: Vec<usize> = all.into_iter().filter(|class| one_each[*class] > 0).collect();
    let share = max / pods.len().max(1);
    let more: Vec<usize> = pods
        .iter()
        .flat_map(|class| std::iter::repeat_n(*class, share.min(classes[*class].1.saturating_sub(1))))
        .collect();
    if more.is_empty() {
        return one_each;
    }
    pods.extend(more);
    place(snapshot, now, policy, classes, &pods)
}

/// `pods` are indices of classes. Returns how many of each are placed.
fn place(
    snapshot: &ClusterSnapshot,
    now: RedisMillis,
    policy: &PlacementPolicy,
    classes: &[(&PodRequest, usize)],
    pods: &[usize],
) -> Vec<usize> {
    let requests: Vec<&PodRequest> = pods.iter().map(|class| classes[*class].0).collect();
    let mut placed = vec![0; classes.len()];
    for decision in decide(snapshot, now, policy, &requests) {
        if matches!(decision.outcome, Outcome::Place(_)) {
            placed[pods[decision.pod]] += 1;
        }
    }
    placed
}
