//! Decides whether a request is sent again to another pod. Pure.

use std::time::{Duration, Instant};

use hyper::Method;

/// Pods that may have seen a request.
pub(crate) const MOST_PODS: u32 = 3;
const WINDOW: Duration = Duration::from_secs(10);
const PARTS: usize = 10;
/// However few requests there are.
const ALWAYS_ALLOWED: u64 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum NoAnswer {
    /// Nothing was sent, at no cost to the pod.
    Refused,
    /// No connection, or it closed before the request was written.
    NotConnected,
    Unanswered,
    /// The pod may have seen a part of a body that is not kept.
    BodySent,
}

/// `pods` counts pods that may have seen the request, or timed out.
pub(crate) fn may_repeat(
    why: NoAnswer,
    method: &Method,
    pods: u32,
    has_budget: impl FnOnce() -> bool,
) -> bool {
    match why {
        NoAnswer::Refused => true,
        NoAnswer::NotConnected => pods < MOST_PODS && has_budget(),
        NoAnswer::Unanswered => method.is_idempotent() && pods < MOST_PODS && has_budget(),
        NoAnswer::BodySent => false,
    }
}

/// Allows a fifth of the requests of the last 10 s: retrying everything would kill overloaded pods.
#[derive(Debug, Clone)]
pub(crate) struct RetryBudget {
    started: Instant,
    newest: u64,
    requests: [u64; PARTS],
    repeats: [u64; PARTS],
}

impl RetryBudget {
    pub(crate) fn new(now: Instant) -> Self {
        Self { started: now, newest: 0, requests: [0; PARTS], repeats: [0; PARTS] }
    }

    pub(crate) fn add_requests(&mut self, requests: u64, now: Instant) {
        let part = self.forget(now);
        self.requests[part] += requests;
    }

    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let part = self.forget(now);
        let (requests, repeats) = (self.requests.iter().sum::<u64>(), self.repeats.iter().sum::<u64>());
        let is_allowed = repeats < (requests / 5).max(ALWAYS_ALLOWED);
        self.repeats[part] += u64::from(is_allowed);
        is_allowed
    }

    fn forget(&mut self, now: Instant) -> usize {
        let part_length = WINDOW.as_millis() as u64 / PARTS as u64;
        let newest = now.saturating_duration_since(self.started).as_millis() as u64 / part_length;
        for part in (self.newest + 1..=newest).take(PARTS) {
            let index = part as usize % PARTS;
            (self.requests[index], self.repeats[index]) = (0, 0);
        }
        // A caller's time may be older than the newest one.
        self.newest = self.newest.max(newest);
        self.newest as usize % PARTS
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_what_no_pod_can_have_acted_on_is_repeated() {
        use NoAnswer::{BodySent, NotConnected, Refused, Unanswered};
        for (why, method, pods, budget, expected) in [
            (Refused, Method::POST, 9, false, true),
            (NotConnected, Method::POST, 1, true, true),
            (NotConnected, Method::POST, 1, false, false),
            (NotConnected, Method::POST, 3, true, false),
            (Unanswered, Method::GET, 1, true, true),
            (Unanswered, Method::PUT, 2, true, true),
            (Unanswered, Method::DELETE, 3, true, false),
            (Unanswered, Method::GET, 1, false, false),
            (Unanswered, Method::POST, 1, true, false),
            (Unanswered, Method::PATCH, 1, true, false),
            (BodySent, Method::GET, 1, true, false),
            (BodySent, Method::PUT, 1, true, false),
        ] {
            assert_eq!(
                may_repeat(why, &method, pods, || budget),
                expected,
                "{why:?} {method} {pods} {budget}"
            );
        }
    }

    proptest! {
        #[test]
        fn repetitions_stay_below_a_fifth_of_the_requests(
            steps in proptest::collection::vec((0_u64..2000, 0_u64..50, 0_u64..50), 1..200),
        ) {
            let start = Instant::now();
            let (mut now, mut budget) = (start, RetryBudget::new(start));
            let mut log = Vec::new();
            for (wait_ms, requests, repeats) in steps {
                now += Duration::from_millis(wait_ms);
                budget.add_requests(requests, now);
                let taken = (0..repeats).filter(|_| budget.take(now)).count() as u64;
                log.push((now, requests, taken));
                let within = |window: Duration| {
                    let recent = log.iter().filter(move |(at, ..)| now.duration_since(*at) <= window);
                    recent.fold((0, 0), |(r, t), (_, requests, taken)| (r + requests, t + taken))
                };
                // The window ends somewhere within its oldest part.
                let (_, repeated) = within(WINDOW - WINDOW / PARTS as u32);
                let (requested, _) = within(WINDOW);
                prop_assert!(taken == 0 || repeated <= (requested / 5).max(ALWAYS_ALLOWED));
            }
        }
    }

    #[test]
    fn the_budget_recovers_when_the_window_has_passed() {
        let start = Instant::now();
        let mut budget = RetryBudget::new(start);
        assert_eq!((0..20).filter(|_| budget.take(start)).count(), 10);
        budget.add_requests(100, start);
        assert_eq!((0..20).filter(|_| budget.take(start)).count(), 10);
        assert!(!budget.take(start + Duration::from_secs(9)));
        assert!(budget.take(start + Duration::from_secs(11)));
    }
}
