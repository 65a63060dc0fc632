//! The mass-loss brake: when much of the cluster falls silent at once, it is rather the network than the nodes.
//!
//! Moving the pods of a third of all nodes onto the rest can take the rest down too, and if it was the network, every
//! moved pod with `on_disconnect: keep` runs twice. So nobody is declared dead until the nodes are back, or a person
//! says that they are not coming: a node that is cordoned while it is silent is taken as given up.
//!
//! Pure.

use std::time::Duration;

use common::RedisMillis;

/// Fewer silent nodes are never a mass loss.
const LEAST: usize = 3;
/// More than this share of the nodes, in percent, is.
const PERCENT: usize = 30;
/// Only nodes that fell silent within so long of each other count together.
const WINDOW: Duration = Duration::from_secs(60);

/// What the brake looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Silence {
    /// Nodes not declared dead, silent ones included, those given up by a person left out.
    pub(crate) nodes: usize,
    /// The last heartbeat of each that has been silent for suspiciously long, those given up left out. Any order.
    pub(crate) last_beats: Vec<RedisMillis>,
}

/// What the brake says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Brake {
    /// Silent nodes may be declared dead.
    Released,
    /// Nobody may be declared dead.
    Held {
        /// So many fell silent together.
        silent: usize,
        /// Of so many.
        nodes: usize,
    },
}

/// Judges.
pub(crate) fn judge(silence: &Silence) -> Brake {
    let silent = most_at_once(&silence.last_beats);
    let nodes = silence.nodes.max(silent);
    if silent >= LEAST && silent * 100 > nodes * PERCENT {
        Brake::Held { silent, nodes }
    } else {
        Brake::Released
    }
}

/// How many lie within one window at most.
fn most_at_once(beats: &[RedisMillis]) -> usize {
    let mut beats = beats.to_vec();
    beats.sort_unstable();
    let window = WINDOW.as_millis() as u64;
    let mut first = 0;
    let mut most = 0;
    for (last, beat) in beats.iter().enumerate() {
        while beat - beats[first] > window {
            first += 1;
        }
        most = most.max(last - first + 1);
    }
    most
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn held(nodes: usize, seconds: &[u64]) -> bool {
        let last_beats = seconds.iter().map(|s| s * 1000).collect();
        judge(&Silence { nodes, last_beats }) != Brake::Released
    }

    #[test]
    fn the_table() {
        for (nodes, beats, expected, why) in [
            (1, &[0][..], false, "the only node may die"),
            (2, &[0, 0], false, "two are never a mass"),
            (3, &[0, 0, 0], true, "all three at once"),
            (10, &[0, 0, 0], false, "30 % is not more than 30 %"),
            (9, &[0, 0, 0], true, "33 % is"),
            (10, &[0, 1, 2, 3], true, "four of ten within seconds"),
            (10, &[0, 60, 60, 60], true, "a minute apart is within a minute"),
            (10, &[0, 61, 122, 183], false, "one after the other"),
            (10, &[0, 0, 0, 61], false, "three of ten, and one later"),
            (1000, &[0; 300], false, "300 of 1,000"),
            (1000, &[0; 301], true, "301 of 1,000"),
            (2, &[0, 0, 0], true, "counted a moment apart: more silent than there are"),
            (0, &[], false, "no nodes"),
        ] {
            assert_eq!(held(nodes, beats), expected, "{why}");
        }
    }

    proptest! {
        #[test]
        fn more_silence_never_releases(nodes in 1..50usize, beats in prop::collection::vec(0..200u64, 0..40), more in 0..200u64) {
            let before = held(nodes, &beats);
            let after = held(nodes, &[beats, vec![more]].concat());
            prop_assert!(!before || after);
        }

        #[test]
        fn the_order_does_not_matter(nodes in 1..50usize, mut beats in prop::collection::vec(0..200u64, 0..40)) {
            let before = held(nodes, &beats);
            beats.reverse();
            prop_assert_eq!(held(nodes, &beats), before);
        }
    }
}
