//! How loaded a node is, as one number, and how that number came about. Lower is better.
//!
//! A load is the sum of [`Term`]s, each an observation times its weight. It never falls when a node gets a pod or
//! its pressure rises: placement relies on that.

use common::node::{Node, Psi, Resources};
use serde::Serialize;

use super::policy::{Policy, Weights};

/// Thousandths of a point; see [`Weights`].
pub type Load = u64;

/// What makes a node less attractive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Term {
    /// The share of its pod slots that is taken, in percent.
    PodShare,
    /// How many pods it has.
    PodCount,
    /// Some task waited for a CPU, in percent of time.
    CpuSome,
    /// Some task waited for memory, in percent of time.
    MemorySome,
    /// All tasks waited for memory, in percent of time.
    MemoryFull,
    /// Some task waited for I/O, in percent of time.
    IoSome,
    /// All tasks waited for I/O, in percent of time.
    IoFull,
}

/// One term of a node's load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Contribution {
    /// What was observed.
    pub term: Term,
    /// The observation as it was reported: percent, or a number of pods.
    pub value: f64,
    /// Thousandths of a point per percent or pod.
    pub weight: u32,
    /// What it adds to the load, thousandths of a point. Pressure was cut to whole steps before.
    pub points: Load,
}

/// The terms of a node's load, pods first. Their points add up to the load placement uses.
///
/// Pressure terms are left out where the node reports none: what is not known counts as nothing.
pub fn explain(node: &Node, policy: &Policy) -> Vec<Contribution> {
    let weights = &policy.weights;
    let Resources { pods: used, .. } = node.used;
    let slots = node.facts.capacity.pods;
    let mut terms = vec![
        Contribution {
            term: Term::PodShare,
            value: if slots == 0 { 100.0 } else { used as f64 * 100.0 / slots as f64 },
            weight: weights.pod_share,
            points: share_points(used, slots, weights),
        },
        Contribution {
            term: Term::PodCount,
            value: used as f64,
            weight: weights.pod_count,
            points: count_points(used, weights),
        },
    ];
    let pressures = node.psi.iter().flat_map(|psi| pressures(psi, weights));
    terms.extend(pressures.map(|(term, percent, weight)| {
        let points = pressure_points(percent, weight, weights);
        Contribution { term, value: f64::from(percent), weight, points }
    }));
    terms
}

/// The load that comes from pods: what changes while a batch is being placed.
pub(super) fn pod_load(used: u64, slots: u64, weights: &Weights) -> Load {
    share_points(used, slots, weights).saturating_add(count_points(used, weights))
}

/// The load that comes from pressure: the same until the node's next heartbeat.
pub(super) fn pressure_load(psi: Option<&Psi>, weights: &Weights) -> Load {
    psi.map_or(0, |psi| {
        pressures(psi, weights)
            .map(|(_, percent, weight)| pressure_points(percent, weight, weights))
            .iter()
            .sum()
    })
}

fn share_points(used: u64, slots: u64, weights: &Weights) -> Load {
    let full = u64::from(weights.pod_share) * 100;
    used.saturating_mul(full).checked_div(slots).unwrap_or(full)
}

fn count_points(used: u64, weights: &Weights) -> Load {
    used.saturating_mul(u64::from(weights.pod_count))
}

fn pressures(psi: &Psi, weights: &Weights) -> [(Term, f32, u32); 5] {
    [
        (Term::CpuSome, psi.cpu_some, weights.cpu_some),
        (Term::MemorySome, psi.memory_some, weights.memory_some),
        (Term::MemoryFull, psi.memory_full, weights.memory_full),
        (Term::IoSome, psi.io_some, weights.io_some),
        (Term::IoFull, psi.io_full, weights.io_full),
    ]
}

fn pressure_points(percent: f32, weight: u32, weights: &Weights) -> Load {
    let step = u64::from(weights.pressure_step.max(1));
    // The cast saturates, and makes 0 of not-a-number: what no kernel can mean counts as no pressure.
    let percent = (percent as u64).min(100);
    u64::from(weight) * (percent / step * step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::testing::node;

    fn points(node: &Node, term: Term) -> Load {
        explain(node, &Policy::default()).iter().find(|c| c.term == term).map_or(0, |c| c.points)
    }

    #[test]
    fn pods_count_by_share_and_by_number() {
        let mut node = node("a").pods(10, 100).build();
        assert_eq!((points(&node, Term::PodShare), points(&node, Term::PodCount)), (10_000, 1_000));
        node.facts.capacity.pods = 0;
        assert_eq!(points(&node, Term::PodShare), 100_000, "no slots at all is full");
    }

    #[test]
    fn pressure_counts_in_steps() {
        for (percent, points_expected) in [
            (0.0, 0),
            (4.99, 0),
            (5.0, 15_000),
            (9.9, 15_000),
            (100.0, 300_000),
            (1e9, 300_000),
            (-1.0, 0),
            (f32::NEG_INFINITY, 0),
            (f32::NAN, 0),
            (f32::INFINITY, 300_000),
        ] {
            let node = node("a").psi(|psi| psi.memory_full = percent).build();
            assert_eq!(points(&node, Term::MemoryFull), points_expected, "{percent}");
        }
    }

    #[test]
    fn memory_full_weighs_most() {
        let w = Weights::default();
        let others = [w.cpu_some, w.memory_some, w.io_some, w.io_full];
        assert!(others.iter().all(|other| *other < w.memory_full));
    }

    #[test]
    fn the_terms_add_up_to_the_load() {
        let policy = Policy::default();
        let built = node("a").pods(33, 110).psi(|psi| (psi.cpu_some, psi.io_full) = (37.0, 12.0)).build();
        for node in [built.clone(), Node { psi: None, ..built }] {
            let sum: Load = explain(&node, &policy).iter().map(|c| c.points).sum();
            let load = pod_load(node.used.pods, node.facts.capacity.pods, &policy.weights)
                + pressure_load(node.psi.as_ref(), &policy.weights);
            assert_eq!(sum, load);
        }
    }
}
