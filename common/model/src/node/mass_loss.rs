//! The mass-loss circuit breaker: if many nodes fall silent at once, the network has probably failed, not the
//! nodes. Pure.
//!
//! Moving their pods can overload the rest, and those with `on_disconnect: keep` would run twice. So no node
//! is declared dead until enough are back, or an operator gives them up by cordoning them. Then the others
//! get as much time again.

use std::time::Duration;

use crate::RedisMillis;

/// Fewer are no mass loss while another node is left.
const MIN_SILENT_NODES: usize = 3;
/// A single node may move to another machine.
const MIN_ALL_NODES: usize = 2;
const MAX_SILENT_PERCENT: usize = 30;
/// Nodes that fell silent further apart do not count together.
const WINDOW: Duration = Duration::from_secs(60);

/// Except those given up by an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilentNodes {
    /// Not dead, including silent ones.
    pub nodes: usize,
    pub last_beats: Vec<RedisMillis>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitBreaker {
    Closed,
    /// No node may be declared dead.
    Open {
        /// Number of nodes that fell silent together.
        silent: usize,
        nodes: usize,
    },
}

impl CircuitBreaker {
    pub fn evaluate(input: &SilentNodes) -> Self {
        let (all_silent, silent) = (input.last_beats.len(), max_within_window(&input.last_beats));
        let nodes = input.nodes.max(all_silent);
        if all_silent == nodes && nodes >= MIN_ALL_NODES {
            // Whenever they fell silent: a new master's clock says nothing about that.
            Self::Open { silent: all_silent, nodes }
        } else if silent >= MIN_SILENT_NODES && silent * 100 > nodes * MAX_SILENT_PERCENT {
            Self::Open { silent, nodes }
        } else {
            Self::Closed
        }
    }

    pub fn is_open(self) -> bool {
        matches!(self, Self::Open { .. })
    }
}

fn max_within_window(beats: &[RedisMillis]) -> usize {
    let mut beats = beats.to_vec();
    beats.sort_unstable();
    let window = WINDOW.as_millis() as u64;
    let mut first = 0;
    let mut max = 0;
    for (last, beat) in beats.iter().enumerate() {
        while beat - beats[first] > window {
            first += 1;
        }
        max = max.max(last - first + 1);
    }
    max
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_open(nodes: usize, seconds: &[u64]) -> bool {
        let last_beats = seconds.iter().map(|s| s * 1000).collect();
        CircuitBreaker::evaluate(&SilentNodes { nodes, last_beats }).is_open()
    }

    #[test]
    fn opens_only_if_many_nodes_fall_silent_together() {
        for (nodes, beats, expected, case) in [
            (1, &[0][..], false, "the only node may be declared dead"),
            (2, &[0, 0], true, "both"),
            (2, &[0, 1600], true, "both, one of them before the clock was another"),
            (3, &[0, 0], false, "two are no mass loss while a third one lives"),
            (3, &[0, 0, 0], true, "all three at once"),
            (10, &[0, 0, 0], false, "30 % is not more than 30 %"),
            (9, &[0, 0, 0], true, "33 % is"),
            (10, &[0, 1, 2, 3], true, "four of ten within seconds"),
            (10, &[0, 60, 60, 60], true, "a minute apart is within the window"),
            (10, &[0, 61, 122, 183], false, "one after the other"),
            (10, &[0, 0, 0, 61], false, "three of ten, and one later"),
            (1000, &[0; 300], false, "300 of 1,000"),
            (1000, &[0; 301], true, "301 of 1,000"),
            (2, &[0, 0, 0], true, "not counted at the same moment: more silent nodes than nodes"),
            (0, &[], false, "no nodes"),
        ] {
            assert_eq!(is_open(nodes, beats), expected, "{case}");
        }
    }

    proptest! {
        #[test]
        fn another_silent_node_never_closes_it(
            nodes in 1..50usize,
            beats in prop::collection::vec(0..200u64, 0..40),
            more in 0..200u64,
        ) {
            let before = is_open(nodes, &beats);
            let after = is_open(nodes, &[beats, vec![more]].concat());
            prop_assert!(!before || after);
        }

        #[test]
        fn the_order_of_heartbeats_does_not_matter(
            nodes in 1..50usize,
            mut beats in prop::collection::vec(0..200u64, 0..40),
        ) {
            let before = is_open(nodes, &beats);
            beats.reverse();
            prop_assert_eq!(is_open(nodes, &beats), before);
        }
    }
}
