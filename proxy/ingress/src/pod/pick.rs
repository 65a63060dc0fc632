//! Chooses a pod for a request, and sets failing pods aside. Pure.

use std::time::{Duration, Instant};

const FAILURES_IN_A_ROW: u32 = 5;
const FIRST_EJECTION: Duration = Duration::from_secs(5);
const LONGEST_EJECTION: Duration = Duration::from_secs(60);
const LATENCY_MEMORY: Duration = Duration::from_secs(10);
/// Smaller differences come from the kernel's scheduling, and would starve one of two fast pods.
const SHORTEST_LATENCY: Duration = Duration::from_millis(1);

/// Follows an increase at once and forgets it slowly (peak EWMA).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Latency {
    average: f64,
    measured: Option<Instant>,
}

impl Latency {
    pub(crate) fn record(&mut self, took: Duration, now: Instant) {
        let took = took.as_secs_f64();
        self.average = if took > self.average {
            took
        } else {
            let keep = self.kept(now);
            self.average * keep + took * (1.0 - keep)
        };
        self.measured = Some(now);
    }

    /// In seconds. Decays, so that a slow pod is tried again.
    pub(crate) fn at(&self, now: Instant) -> f64 {
        self.average * self.kept(now)
    }

    fn kept(&self, now: Instant) -> f64 {
        let since = self.measured.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        (-since.as_secs_f64() / LATENCY_MEMORY.as_secs_f64()).exp()
    }
}

/// Meaningful only in comparisons.
pub(crate) fn cost(latency: f64, in_flight: u32) -> f64 {
    latency.max(SHORTEST_LATENCY.as_secs_f64()) * (f64::from(in_flight) + 1.0)
}

pub(crate) fn better_of_two(count: usize, random: u64, cost: impl Fn(usize) -> f64) -> Option<usize> {
    let (first, second) = two_of(count, random)?;
    Some(if second != first && cost(second) < cost(first) { second } else { first })
}

/// Equal only if there is just one.
pub(crate) fn two_of(count: usize, random: u64) -> Option<(usize, usize)> {
    let (low, high) = (random as u32 as usize, (random >> 32) as usize);
    let first = low.checked_rem(count)?;
    let step = high.checked_rem(count - 1).map_or(0, |step| step + 1);
    Some((first, (first + step) % count))
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    in_a_row: u32,
    ejections: u32,
    until: Option<Instant>,
}

impl Failures {
    /// Returns the ejection, if this is one failure too many.
    pub(crate) fn failed(&mut self, now: Instant) -> Option<Duration> {
        self.in_a_row = self.in_a_row.saturating_add(1);
        if self.in_a_row < FAILURES_IN_A_ROW || self.until(now).is_some() {
            return None;
        }
        let doubled = FIRST_EJECTION.saturating_mul(1 << self.ejections.min(8));
        let ejection = doubled.min(LONGEST_EJECTION);
        self.ejections += 1;
        self.until = Some(now + ejection);
        Some(ejection)
    }

    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| *until > now)
    }
}

/// `until` has the end of each pod's exclusion. At most half stay excluded, those due back last.
pub(crate) fn not_set_aside(until: &[Option<Instant>]) -> Vec<usize> {
    let mut aside: Vec<usize> = (0..until.len()).filter(|&pod| until[pod].is_some()).collect();
    aside.sort_by_key(|&pod| std::cmp::Reverse(until[pod]));
    aside.truncate(until.len() / 2);
    let mut is_aside = vec![false; until.len()];
    for pod in aside {
        is_aside[pod] = true;
    }
    (0..until.len()).filter(|&pod| !is_aside[pod]).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_latency_follows_an_increase_at_once_and_forgets_it_slowly() {
        let start = Instant::now();
        let mut latency = Latency::default();
        latency.record(10 * MS, start);
        latency.record(100 * MS, start + MS);
        assert!((latency.at(start + MS) - 0.1).abs() < 1e-9);
        latency.record(10 * MS, start + 1000 * MS);
        let after_one_second = latency.at(start + 1000 * MS);
        assert!(after_one_second > 0.08 && after_one_second < 0.1, "{after_one_second}");
        assert!(latency.at(start + 60_000 * MS) < 0.001);
    }

    #[test]
    fn a_pod_is_set_aside_after_five_failures_in_a_row_and_longer_each_time() {
        let start = Instant::now();
        let mut failures = Failures::default();
        for _ in 0..4 {
            assert_eq!(failures.failed(start), None);
        }
        failures.succeeded();
        for _ in 0..4 {
            assert_eq!(failures.failed(start), None);
        }
        let mut now = start;
        for seconds in [5, 10, 20, 40, 60, 60] {
            let ejection = Duration::from_secs(seconds);
            assert_eq!(failures.failed(now), Some(ejection));
            assert_eq!(failures.failed(now), None);
            assert!(failures.until(now + ejection - MS).is_some());
            now += ejection;
            assert_eq!(failures.until(now), None);
        }
        failures.succeeded();
        assert_eq!(failures, Failures::default());
    }

    #[test]
    fn pods_that_all_answer_at_once_differ_in_their_requests_only() {
        assert_eq!(cost(0.000_02, 0), cost(0.000_9, 0));
        assert!(cost(0.000_9, 0) < cost(0.000_02, 1));
        assert!(cost(0.002, 0) > cost(0.000_02, 0));
    }

    proptest! {
        #[test]
        fn the_better_of_two_different_pods_is_chosen(
            costs in proptest::collection::vec(0.0..1e3_f64, 1..20), random: u64,
        ) {
            let chosen = better_of_two(costs.len(), random, |pod| costs[pod]).unwrap();
            let worst = costs.iter().cloned().fold(f64::MIN, f64::max);
            let ties = costs.iter().filter(|cost| **cost == worst).count();
            prop_assert!(costs.len() == 1 || costs[chosen] < worst || ties > 1);
        }

        #[test]
        fn every_pod_is_reached_when_all_cost_the_same(count in 1_usize..20, seed: u64) {
            let mut seen = vec![false; count];
            let mut random = seed;
            for _ in 0..4000 {
                // Knuth's linear congruential generator.
                random = random.wrapping_mul(6_364_136_223_846_793_005);
                random = random.wrapping_add(1_442_695_040_888_963_407);
                seen[better_of_two(count, random ^ (random >> 33), |_| 1.0).unwrap()] = true;
            }
            prop_assert!(seen.iter().all(|seen| *seen));
        }

        #[test]
        fn at_most_half_is_set_aside_and_never_a_pod_that_is_well(
            seconds in proptest::collection::vec(proptest::option::of(1_u64..100), 0..12),
        ) {
            let now = Instant::now();
            let until: Vec<_> =
                seconds.iter().map(|s| s.map(|s| now + Duration::from_secs(s))).collect();
            let taken = not_set_aside(&until);
            prop_assert!(taken.len() * 2 >= until.len());
            for (pod, until) in until.iter().enumerate() {
                prop_assert!(until.is_some() || taken.contains(&pod));
            }
            let failing = until.iter().filter(|until| until.is_some()).count();
            if failing * 2 <= until.len() {
                prop_assert_eq!(taken.len(), until.len() - failing);
            }
        }
    }
}
