//! The load of a node, lower is better: a sum of observations times weights.
//!
//! It never decreases when a node gets a pod or its pressure rises; batches depend on that.

use model::node::{Node, Psi};

use crate::policy::{PlacementPolicy, Weights};

/// In thousandths of a point; see [`Weights`].
pub type LoadScore = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoadTerm {
    PodShare,
    PodCount,
    CpuSome,
    MemorySome,
    MemoryFull,
    IoSome,
    IoFull,
    /// The median of the others, for a node without reported pressure.
    TypicalPressure,
    /// Pods of the same generation on the node.
    NodeSiblings,
    /// Pods of the same generation in the zone, if there are several zones.
    ZoneSiblings,
    /// Pods of the same generation in the domain of a rule `spread`.
    DomainSiblings,
    /// Pods that should be elsewhere, in the same domain.
    AntiAffinity,
    /// No pod of the service in the domain, near which it should be.
    Affinity,
    /// A preference that the node does not satisfy.
    Preference,
    /// The sum of all pressure, where other terms come first.
    Pressure,
    FreeCpu,
    FreeMemory,
    FreeDisk,
    UsedCpu,
    UsedMemory,
    /// Between CPU and memory.
    Imbalance,
    CpuCost,
    MemoryCost,
    PodCost,
    /// Uses by `round-robin` since the node that was used longest ago.
    LastUse,
    /// Room that the placement takes from other pods.
    LostRoom,
    /// As `pack` counts it, in small part.
    FreeRoom,
}

impl LoadTerm {
    /// Its word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PodShare => "pod_share",
            Self::PodCount => "pod_count",
            Self::CpuSome => "cpu_some",
            Self::MemorySome => "memory_some",
            Self::MemoryFull => "memory_full",
            Self::IoSome => "io_some",
            Self::IoFull => "io_full",
            Self::TypicalPressure => "typical_pressure",
            Self::NodeSiblings => "node_siblings",
            Self::ZoneSiblings => "zone_siblings",
            Self::DomainSiblings => "domain_siblings",
            Self::AntiAffinity => "anti_affinity",
            Self::Affinity => "affinity",
            Self::Preference => "preference",
            Self::Pressure => "pressure",
            Self::FreeCpu => "free_cpu",
            Self::FreeMemory => "free_memory",
            Self::FreeDisk => "free_disk",
            Self::UsedCpu => "used_cpu",
            Self::UsedMemory => "used_memory",
            Self::Imbalance => "imbalance",
            Self::CpuCost => "cpu_cost",
            Self::MemoryCost => "memory_cost",
            Self::PodCost => "pod_cost",
            Self::LastUse => "last_use",
            Self::LostRoom => "lost_room",
            Self::FreeRoom => "free_room",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct TermScore {
    pub term: LoadTerm,
    /// Percent, pods or uses.
    pub value: f64,
    pub weight: u32,
    /// The weighted points of the rounded pressure.
    pub points: LoadScore,
}

/// Without PSI, as on external workers, a node counts with `typical_pressure`: as an idle one it would get
/// every pod beside a busy one.
pub fn explain(node: &Node, policy: &PlacementPolicy, typical_pressure: LoadScore) -> Vec<TermScore> {
    let weights = &policy.weights;
    let used = node.used.pods;
    let slots = node.facts.capacity.pods;
    let mut terms = vec![
        TermScore {
            term: LoadTerm::PodShare,
            value: if slots == 0 { 100.0 } else { used as f64 * 100.0 / slots as f64 },
            weight: weights.pod_share,
            points: share_points(used, slots, weights),
        },
        TermScore {
            term: LoadTerm::PodCount,
            value: used as f64,
            weight: weights.pod_count,
            points: count_points(used, weights),
        },
    ];
    match &node.psi {
        Some(psi) => terms.extend(pressures(psi, weights).map(|(term, percent, weight)| {
            let points = pressure_points(percent, weight, weights);
            TermScore { term, value: f64::from(percent), weight, points }
        })),
        None => terms.push(TermScore {
            term: LoadTerm::TypicalPressure,
            value: typical_pressure as f64,
            weight: 1,
            points: typical_pressure,
        }),
    }
    terms
}

/// Changes within a batch.
pub(crate) fn pod_load(used: u64, slots: u64, weights: &Weights) -> LoadScore {
    share_points(used, slots, weights).saturating_add(count_points(used, weights))
}

/// More siblings are as bad: load decides about the other pods of a large service.
const MAX_COUNTED_SIBLINGS: u64 = 8;

/// Of the node, or of its zone.
pub(crate) fn sibling_load(siblings: u64, weights: &Weights) -> LoadScore {
    siblings.min(MAX_COUNTED_SIBLINGS) * u64::from(weights.sibling)
}

pub(crate) fn explain_siblings(term: LoadTerm, siblings: u64, weights: &Weights) -> TermScore {
    let points = sibling_load(siblings, weights);
    TermScore { term, value: siblings as f64, weight: weights.sibling, points }
}

/// In a domain of a rule with this weight: that of a zone for 50.
pub(crate) fn domain_load(siblings: u64, weight: u32, weights: &Weights) -> LoadScore {
    sibling_load(siblings, weights).saturating_mul(weight.into()) / 50
}

/// Ten make one pod on a node with 100 slots, by the default weights.
pub(crate) fn preference_load(weight: u32) -> LoadScore {
    u64::from(weight) * 110
}

pub(crate) fn explain_preference(weight: u32) -> TermScore {
    TermScore { term: LoadTerm::Preference, value: 1.0, weight, points: preference_load(weight) }
}

/// Constant until the node's next heartbeat.
pub(crate) fn pressure_load(psi: &Psi, weights: &Weights) -> LoadScore {
    let points =
        pressures(psi, weights).map(|(_, percent, weight)| pressure_points(percent, weight, weights));
    points.iter().sum()
}

fn share_points(used: u64, slots: u64, weights: &Weights) -> LoadScore {
    let full = u64::from(weights.pod_share) * 100;
    used.saturating_mul(full).checked_div(slots).unwrap_or(full)
}

fn count_points(used: u64, weights: &Weights) -> LoadScore {
    used.saturating_mul(u64::from(weights.pod_count))
}

fn pressures(psi: &Psi, weights: &Weights) -> [(LoadTerm, f32, u32); 5] {
    [
        (LoadTerm::CpuSome, psi.cpu_some, weights.cpu_some),
        (LoadTerm::MemorySome, psi.memory_some, weights.memory_some),
        (LoadTerm::MemoryFull, psi.memory_full, weights.memory_full),
        (LoadTerm::IoSome, psi.io_some, weights.io_some),
        (LoadTerm::IoFull, psi.io_full, weights.io_full),
    ]
}

fn pressure_points(percent: f32, weight: u32, weights: &Weights) -> LoadScore {
    let step = u64::from(weights.pressure_step.max(1));
    // The cast saturates and turns NaN into 0.
    let percent = (percent as u64).min(100);
    u64::from(weight) * (percent / step * step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::node;

    fn points(node: &Node, term: LoadTerm) -> LoadScore {
        explain(node, &PlacementPolicy::default(), 0).iter().find(|c| c.term == term).map_or(0, |c| c.points)
    }

    #[test]
    fn pods_count_by_share_of_slots_and_by_number() {
        let mut node = node("a").pods(10, 100).build();
        assert_eq!((points(&node, LoadTerm::PodShare), points(&node, LoadTerm::PodCount)), (10_000, 1_000));
        node.facts.capacity.pods = 0;
        assert_eq!(points(&node, LoadTerm::PodShare), 100_000, "a node without slots is full");
    }

    #[test]
    fn pressure_is_rounded_down_to_steps() {
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
            assert_eq!(points(&node, LoadTerm::MemoryFull), points_expected, "{percent}");
        }
    }

    #[test]
    fn memory_full_has_the_highest_weight() {
        let w = Weights::default();
        let others = [w.cpu_some, w.memory_some, w.io_some, w.io_full];
        assert!(others.iter().all(|other| *other < w.memory_full));
    }

    #[test]
    fn the_terms_add_up_to_the_load() {
        let policy = PlacementPolicy::default();
        let built = node("a").pods(33, 110).psi(|psi| (psi.cpu_some, psi.io_full) = (37.0, 12.0)).build();
        for node in [built.clone(), Node { psi: None, ..built }] {
            let sum: LoadScore = explain(&node, &policy, 7_000).iter().map(|c| c.points).sum();
            let pressure = node.psi.as_ref().map_or(7_000, |psi| pressure_load(psi, &policy.weights));
            let pods = pod_load(node.used.pods, node.facts.capacity.pods, &policy.weights);
            assert_eq!(sum, pods + pressure);
        }
    }
}
