//! The silence of nodes that a scheduler can prove (invariant 16). Pure.
//!
//! While Redis takes no writes, all nodes are silent. So silence counts only while this scheduler's own
//! writes succeed, all to the same cluster: after a SWAPDB it writes where no worker does. After an outage or
//! a mass loss, every silence begins anew.

use std::time::Duration;

use daemon::clock::BootInstant;
use model::RedisMillis;
use model::ids::ClusterId;
use store::{SilenceProof, StoreError};

/// How far Redis' clock may run ahead of this one. A larger step means that it was set, and heartbeats look
/// too old.
const MAX_CLOCK_STEP: Duration = Duration::from_secs(1);

/// Longer than any silence that must be proven.
const ALWAYS: Duration = Duration::from_secs(u32::MAX as u64);

/// Its clock counts during suspend.
#[derive(Debug)]
pub(crate) struct WriteWitness {
    max_gap: Duration,
    unbroken: Option<UnbrokenWrites>,
    /// When the brake of mass losses was first seen closed. A look belongs to the writes before it: nodes may
    /// return between the two.
    calm_since: Option<BootInstant>,
}

#[derive(Debug)]
struct UnbrokenWrites {
    since: BootInstant,
    sent: BootInstant,
    /// The time of the latest write.
    redis_time: RedisMillis,
    cluster: Option<ClusterId>,
}

impl WriteWitness {
    pub(crate) fn new(max_gap: Duration) -> Self {
        Self { max_gap, unbroken: None, calm_since: None }
    }

    /// `cluster` is that of the database which took the write.
    pub(crate) fn succeeded(
        &mut self,
        sent: BootInstant,
        replied: BootInstant,
        redis_time: RedisMillis,
        cluster: Option<&ClusterId>,
    ) {
        let former = self.unbroken.take().filter(|writes| {
            let gap = replied.since(writes.sent);
            let redis_gap = Duration::from_millis(redis_time.saturating_sub(writes.redis_time));
            gap <= self.max_gap && redis_gap <= gap + MAX_CLOCK_STEP && writes.cluster.as_ref() == cluster
        });
        let (since, cluster) = match former {
            Some(writes) => (writes.since, writes.cluster),
            None => {
                self.calm_since = None;
                (replied, cluster.cloned())
            }
        };
        self.unbroken = Some(UnbrokenWrites { since, sent, redis_time, cluster });
    }

    /// A broken connection says nothing about writes: the next comes soon, or is the first after a gap.
    pub(crate) fn failed(&mut self, error: &StoreError) {
        if !matches!(error, StoreError::Unreachable { .. }) {
            self.unbroken = None;
        }
    }

    pub(crate) fn breaker(&mut self, is_open: bool, now: BootInstant) {
        self.calm_since = if is_open { None } else { self.calm_since.or(Some(now)) };
    }

    /// For a node that an operator `gave_up`, silence counts even during a mass loss.
    pub(crate) fn proof(&self, gave_up: bool) -> SilenceProof {
        let Some(UnbrokenWrites { since, sent, redis_time, .. }) = self.unbroken else {
            return SilenceProof::default();
        };
        let writable = sent.since(since);
        let calm = match self.calm_since {
            _ if gave_up => ALWAYS,
            None => Duration::ZERO,
            Some(closed_at) => sent.since(closed_at),
        };
        SilenceProof { until: redis_time, writable, calm }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Step {
        /// Takes 2 ms.
        Write,
        /// To another database.
        WriteElsewhere,
        Refused,
        Unreachable,
        Breaker {
            is_open: bool,
        },
    }
    use Step::{Breaker, Refused, Unreachable, Write, WriteElsewhere};

    fn writes(from: u64, to: u64) -> Vec<(u64, Step)> {
        (from..=to).step_by(1000).map(|at| (at, Write)).collect()
    }

    fn proof_after(steps: impl IntoIterator<Item = (u64, Step)>, gave_up: bool) -> (u64, u64) {
        let mut witness = WriteWitness::new(Duration::from_secs(5));
        let cluster = ClusterId::random();
        for (at, step) in steps {
            match step {
                Write | WriteElsewhere => {
                    let (sent, replied) = (BootInstant { millis: at }, BootInstant { millis: at + 2 });
                    let cluster = matches!(step, Write).then_some(&cluster);
                    witness.succeeded(sent, replied, at + 1, cluster);
                }
                Refused => witness.failed(&StoreError::Refused("NOREPLICAS".to_owned())),
                Unreachable => {
                    let (what, why) = ("SET".to_owned(), "connection reset".to_owned());
                    witness.failed(&StoreError::Unreachable { what, why });
                }
                Breaker { is_open } => witness.breaker(is_open, BootInstant { millis: at }),
            }
        }
        let proof = witness.proof(gave_up);
        (proof.writable.as_millis() as u64, proof.calm.min(proof.writable).as_millis() as u64)
    }

    #[test]
    fn only_silence_during_which_the_scheduler_could_write_counts() {
        let with = |more: Vec<(u64, Step)>| writes(0, 20_000).into_iter().chain(more);
        for (steps, expected, case) in [
            (vec![], 0, "a scheduler that has just started"),
            (writes(0, 0), 0, "one write proves no time"),
            (writes(0, 20_000), 19_998, "from the first reply to the last request"),
            (with(vec![(21_000, Refused)]).collect(), 0, "a refused write"),
            (with(vec![(21_000, Refused), (22_000, Write)]).collect(), 0, "the first write after an outage"),
            (with(vec![(21_000, Unreachable), (22_000, Write)]).collect(), 21_998, "a connection that broke"),
            (with(writes(24_998, 26_998)).collect(), 26_996, "a gap that is as long as a heartbeat"),
            (with(writes(24_999, 26_999)).collect(), 1_998, "a longer one, as when the process stood still"),
            (with(vec![(21_000, WriteElsewhere)]).collect(), 0, "another database"),
            (
                with(vec![(21_000, WriteElsewhere), (22_000, Write), (23_000, Write)]).collect(),
                998,
                "back again",
            ),
        ] {
            assert_eq!(proof_after(steps, false).0, expected, "{case}");
        }
    }

    #[test]
    fn a_mass_loss_begins_every_silence_anew_but_that_of_nodes_that_were_given_up() {
        // Seconds at which the breaker is open.
        let with_open_at = |open_at: &[u64]| {
            let with_breaker = |(at, write)| {
                let is_open = open_at.contains(&(at / 1000));
                [(at, write), (at + 10, Breaker { is_open })]
            };
            writes(0, 40_000).into_iter().flat_map(with_breaker).collect::<Vec<_>>()
        };
        for (open_at, calm, case) in [
            (&[][..], 39_990, "never: since it was first looked at"),
            (&[0, 1, 2], 36_990, "since it was seen closed"),
            (&[5, 10, 20, 30], 8_990, "it flaps: since it closed last"),
            (&[30, 40], 0, "it is open"),
        ] {
            assert_eq!(proof_after(with_open_at(open_at), false), (39_998, calm), "{case}");
            assert_eq!(proof_after(with_open_at(open_at), true), (39_998, 39_998), "{case}, given up");
        }
        let mut after_an_outage = with_open_at(&[5]);
        after_an_outage.extend([(41_000, Refused), (42_000, Write), (43_000, Write)]);
        assert_eq!(proof_after(after_an_outage, false).0, 998, "both count");
    }

    /// The nodes of a restored Redis returned while the look at them was delayed.
    #[test]
    fn a_late_look_at_the_brake_says_nothing_of_the_time_before() {
        let mut steps: Vec<_> = writes(0, 1_000);
        steps.extend([(1_010, Breaker { is_open: false }), (2_000, WriteElsewhere), (3_000, Write)]);
        steps.extend([(7_000, Breaker { is_open: false }), (7_500, Write)]);
        assert_eq!(proof_after(steps, false), (4_498, 500));
    }

    #[test]
    fn a_clock_of_redis_that_was_set_forward_begins_every_silence_anew() {
        let at = |millis| BootInstant { millis };
        let mut witness = WriteWitness::new(Duration::from_secs(5));
        witness.succeeded(at(0), at(2), 1_000_000, None);
        witness.succeeded(at(1_000), at(1_002), 1_001_900, None);
        assert_eq!(witness.proof(false).writable, Duration::from_millis(998), "clocks differ a little");
        witness.succeeded(at(2_000), at(2_002), 4_602_000, None);
        assert_eq!(witness.proof(false).writable, Duration::ZERO, "set forward by an hour");
        witness.succeeded(at(3_000), at(3_002), 1_003_000, None);
        assert_eq!(
            witness.proof(false).writable,
            Duration::from_millis(998),
            "set back: silences are shorter"
        );
    }
}
