//! Decides a container's health from the results of its probes. Pure.

use std::time::Duration;

use daemon::clock::BootInstant;
use model::pod::health::Health;
use model::spec::CheckTiming;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeOutcome {
    Passed,
    Failed(String),
    /// A reason outside the container: the engine does not answer, for example.
    Inconclusive(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckChange {
    Health,
    /// As many in a row as failures would decide. The health stays.
    Inconclusive,
    /// The first conclusive probe after that. The health stays.
    Conclusive,
    /// Twice as many failures as at the last report, and the container still has time.
    Failing,
}

/// Probes are due at fixed times, so checks stay spread. A long probe skips the due times that it overlaps.
#[derive(Debug, Clone)]
pub struct HealthJudge {
    timing: CheckTiming,
    started: BootInstant,
    pub(crate) health: Health,
    passed_in_row: u32,
    pub(crate) failed_in_row: u32,
    /// Including those during its start, which do not count.
    pub(crate) failed_since_start: u32,
    pub(crate) inconclusive_in_row: u32,
    pub(crate) due: BootInstant,
    pub(crate) last: Option<ProbeOutcome>,
}

impl HealthJudge {
    /// The first probe is due after a fraction `spread`, from 0 to 1, of the interval.
    pub fn new(
        timing: CheckTiming,
        started: BootInstant,
        health: Health,
        now: BootInstant,
        spread: f64,
    ) -> Self {
        let mut judge = Self {
            timing,
            started,
            health,
            passed_in_row: 0,
            failed_in_row: 0,
            failed_since_start: 0,
            inconclusive_in_row: 0,
            due: now,
            last: None,
        };
        judge.due = now.plus(judge.distance(now).mul_f64(spread.clamp(0.0, 1.0)));
        judge
    }

    pub fn observe(
        &mut self,
        outcome: ProbeOutcome,
        begun: BootInstant,
        ended: BootInstant,
    ) -> Option<CheckChange> {
        let (health, was_inconclusive) = (self.health, self.is_inconclusive());
        let has_failed = matches!(outcome, ProbeOutcome::Failed(_));
        match &outcome {
            ProbeOutcome::Passed => self.passed(),
            // As in Docker.
            ProbeOutcome::Failed(_) => self.failed(begun),
            ProbeOutcome::Inconclusive(_) => {}
        }
        self.inconclusive_in_row = match outcome {
            ProbeOutcome::Inconclusive(_) => self.inconclusive_in_row.saturating_add(1),
            ProbeOutcome::Passed | ProbeOutcome::Failed(_) => 0,
        };
        self.last = Some(outcome);
        self.due = self.next_due(ended);
        match (was_inconclusive, self.is_inconclusive()) {
            _ if self.health != health => Some(CheckChange::Health),
            (false, true) => Some(CheckChange::Inconclusive),
            (true, false) => Some(CheckChange::Conclusive),
            _ if has_failed && self.is_failing() => Some(CheckChange::Failing),
            _ => None,
        }
    }

    fn is_inconclusive(&self) -> bool {
        self.inconclusive_in_row >= self.timing.retries
    }

    /// A starting program refuses a probe or two.
    fn is_failing(&self) -> bool {
        let failures = self.failed_since_start;
        self.health == Health::Starting && failures > 1 && failures.is_power_of_two()
    }

    fn passed(&mut self) {
        self.failed_in_row = 0;
        self.passed_in_row = self.passed_in_row.saturating_add(1);
        if self.passed_in_row >= self.timing.healthy_threshold {
            self.health = Health::Healthy;
        }
    }

    fn failed(&mut self, begun: BootInstant) {
        self.passed_in_row = 0;
        self.failed_since_start = self.failed_since_start.saturating_add(1);
        if self.is_starting(begun) {
            return;
        }
        self.failed_in_row = self.failed_in_row.saturating_add(1);
        if self.failed_in_row >= self.timing.retries {
            self.health = Health::Unhealthy;
        }
    }

    /// Docker does not probe in the first interval at all; here such probes only serve to notice health soon.
    fn is_starting(&self, at: BootInstant) -> bool {
        self.health == Health::Starting && at.since(self.started) < self.protection()
    }

    fn protection(&self) -> Duration {
        self.timing.start_period.max(self.timing.interval)
    }

    fn distance(&self, at: BootInstant) -> Duration {
        match self.is_starting(at) {
            true => self.timing.start_interval.min(self.protection()),
            false => self.timing.interval,
        }
    }

    fn next_due(&self, ended: BootInstant) -> BootInstant {
        let distance = self.distance(ended).max(Duration::from_millis(1));
        let overlapped = ended.since(self.due).as_millis() / distance.as_millis();
        let distances = u32::try_from(overlapped).unwrap_or(u32::MAX).saturating_add(1);
        self.due.plus(distance.saturating_mul(distances))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn timing(interval: u64, start_period: u64, retries: u32, healthy_threshold: u32) -> CheckTiming {
        CheckTiming {
            interval: Duration::from_secs(interval),
            timeout: Duration::from_secs(1),
            start_period: Duration::from_secs(start_period),
            start_interval: Duration::from_secs(interval.min(5)),
            retries,
            healthy_threshold,
        }
    }

    fn at(seconds: f64) -> BootInstant {
        BootInstant { millis: 1_000_000 }.plus(Duration::from_secs_f64(seconds))
    }

    /// `+` passed, `-` failed, `?` inconclusive; `s`, `h` or `u`.
    fn healths(timing: CheckTiming, known: Health, results: &str) -> String {
        let mut judge = HealthJudge::new(timing, at(0.0), known, at(0.0), 0.5);
        let health = |result: char| {
            let outcome = match result {
                '+' => ProbeOutcome::Passed,
                '-' => ProbeOutcome::Failed("no".to_owned()),
                _ => ProbeOutcome::Inconclusive("?".to_owned()),
            };
            let (due, before) = (judge.due, judge.health);
            let change = judge.observe(outcome, due, due.plus(Duration::from_millis(10)));
            assert_eq!(change == Some(CheckChange::Health), judge.health != before);
            &judge.health.as_str()[..1]
        };
        results.chars().map(health).collect()
    }

    #[test]
    fn a_container_that_does_not_become_well_says_what_its_probes_find() {
        let mut judge = HealthJudge::new(timing(1, 60, 3, 1), at(0.0), Health::Starting, at(0.0), 0.5);
        let mut told = Vec::new();
        for _ in 0..20 {
            let due = judge.due;
            if judge.observe(ProbeOutcome::Failed("500".to_owned()), due, due) == Some(CheckChange::Failing) {
                told.push(judge.failed_since_start);
            }
        }
        assert_eq!(told, [2, 4, 8, 16]);
    }

    #[test]
    fn health_changes_exactly_at_the_threshold() {
        use Health::{Healthy, Starting, Unhealthy};
        let table = [
            // The first probe comes before the first interval is over.
            (timing(1, 0, 3, 1), Starting, "----", "sssu"),
            (timing(1, 0, 1, 1), Starting, "--", "su"),
            (timing(1, 0, 3, 1), Starting, "+---", "hhhu"),
            (timing(1, 0, 3, 1), Starting, "+--+--+---", "hhhhhhhhhu"),
            (timing(1, 0, 3, 1), Healthy, "---+", "hhuh"),
            (timing(1, 0, 3, 2), Unhealthy, "+-++", "uuuh"),
            (timing(1, 0, 2, 3), Starting, "++-+++", "sssssh"),
            (timing(1, 3, 2, 1), Starting, "-----", "ssssu"),
            (timing(1, 3, 2, 1), Starting, "+--", "hhu"),
            (timing(1, 3, 2, 2), Starting, "+----", "ssssu"),
            // An engine that does not answer clears no earlier result.
            (timing(1, 0, 2, 1), Healthy, "-?????-", "hhhhhhu"),
            (timing(1, 0, 2, 2), Starting, "+?+", "ssh"),
            // The first interval is over after six probes at start_interval.
            (timing(30, 0, 2, 1), Starting, "--------", "sssssssu"),
        ];
        for (timing, known, results, expected) in table {
            assert_eq!(healths(timing, known, results), expected, "{timing:?} {known:?} {results}");
        }
    }

    /// `H` another health, `I` inconclusive, `C` conclusive again, `F` failing.
    fn changes(known: Health, results: &str) -> String {
        let mut judge = HealthJudge::new(timing(1, 0, 3, 1), at(0.0), known, at(0.0), 0.5);
        let change = |result: char| {
            let outcome = match result {
                '+' => ProbeOutcome::Passed,
                '-' => ProbeOutcome::Failed("no".to_owned()),
                _ => ProbeOutcome::Inconclusive("?".to_owned()),
            };
            match judge.observe(outcome, judge.due, judge.due) {
                None => '.',
                Some(CheckChange::Health) => 'H',
                Some(CheckChange::Inconclusive) => 'I',
                Some(CheckChange::Conclusive) => 'C',
                Some(CheckChange::Failing) => 'F',
            }
        };
        results.chars().map(change).collect()
    }

    #[test]
    fn a_check_is_inconclusive_after_as_many_such_probes_in_a_row_as_failures_decide() {
        use Health::{Healthy, Starting, Unhealthy};
        for (known, results, expected) in [
            (Starting, "??????", "..I..."),
            (Starting, "???+???", "..IH..I"),
            (Healthy, "??+??-???", "........I"),
            (Healthy, "???+---", "..IC..H"),
            (Healthy, "???-???-???-", "..IC..IC..IH"),
            (Unhealthy, "???-???+", "..IC..IH"),
        ] {
            assert_eq!(changes(known, results), expected, "{known:?} {results}");
        }
    }

    #[test]
    fn probes_keep_their_distance_and_leave_out_what_a_long_one_overlaps() {
        let mut judge = HealthJudge::new(timing(10, 0, 3, 1), at(0.0), Health::Healthy, at(0.0), 0.3);
        assert_eq!(judge.due, at(3.0));
        for (begun, ended, due) in
            [(3.0, 3.2, 13.0), (13.4, 13.5, 23.0), (23.0, 43.0, 53.0), (53.0, 80.0, 83.0)]
        {
            judge.observe(ProbeOutcome::Passed, at(begun), at(ended));
            assert_eq!(judge.due, at(due), "{begun} {ended}");
        }
    }

    #[test]
    fn a_starting_container_is_probed_at_start_interval() {
        let mut judge = HealthJudge::new(timing(30, 12, 3, 1), at(0.0), Health::Starting, at(0.0), 1.0);
        let mut due = Vec::new();
        for _ in 0..8 {
            due.push(judge.due.since(at(0.0)).as_secs());
            judge.observe(ProbeOutcome::Failed(String::new()), judge.due, judge.due);
        }
        assert_eq!(due, [5, 10, 15, 20, 25, 30, 60, 90], "and the last three of these count");
        assert_eq!(judge.health, Health::Unhealthy);
        let mut judge = HealthJudge::new(timing(30, 12, 3, 1), at(0.0), Health::Starting, at(0.0), 1.0);
        judge.observe(ProbeOutcome::Passed, at(5.0), at(5.0));
        assert_eq!(judge.due, at(35.0), "once it is healthy, at interval");
    }

    proptest! {
        #[test]
        fn it_is_unhealthy_only_after_as_many_failures_as_the_threshold_says(
            results in prop::collection::vec(0u8..8, 0..60),
            retries in 1u32..5, healthy_threshold in 1u32..4, start_period in 0u64..20, spread in 0.0f64..1.0,
        ) {
            let timing = timing(2, start_period, retries, healthy_threshold);
            let mut judge = HealthJudge::new(timing, at(0.0), Health::Starting, at(0.0), spread);
            let (mut counted, mut health) = (Vec::new(), Health::Starting);
            let protected = Duration::from_secs(start_period.max(2));
            for result in results {
                let (begun, length) = (judge.due, Duration::from_millis(u64::from(result) * 700));
                let outcome = match result % 4 {
                    0 => ProbeOutcome::Inconclusive(String::new()),
                    1 => ProbeOutcome::Passed,
                    _ => ProbeOutcome::Failed(String::new()),
                };
                let is_early = health == Health::Starting && begun.since(at(0.0)) < protected;
                match outcome {
                    ProbeOutcome::Passed => counted.push(true),
                    ProbeOutcome::Failed(_) if !is_early => counted.push(false),
                    ProbeOutcome::Failed(_) => counted.clear(),
                    ProbeOutcome::Inconclusive(_) => {}
                }
                let row = |of: bool| counted.iter().rev().take_while(|passed| **passed == of).count() as u32;
                if row(false) >= retries {
                    health = Health::Unhealthy;
                } else if row(true) >= healthy_threshold {
                    health = Health::Healthy;
                }
                let ended = begun.plus(length);
                judge.observe(outcome, begun, ended);
                prop_assert_eq!(judge.health, health);
                prop_assert!(judge.due > ended && judge.due.since(ended) <= Duration::from_secs(2));
            }
        }
    }
}
