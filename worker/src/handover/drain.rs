//! Decides how long a pod's stop waits for requests in flight, and its next step. Pure.

use std::time::Duration;

use crate::support::measure::ContainerStopReason;
use crate::support::text::seconds;

/// A proxy cuts at the limit and then answers at once.
pub(crate) const ANSWER_MARGIN: Duration = Duration::from_secs(2);
const FIRST_LOOK: Duration = Duration::from_secs(2);
/// Drain time of a container that may never answer requests; the pod's next steps wait for it.
const BRIEF: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkStatus {
    Off,
    Untried,
    /// It carries no traffic.
    Absent,
    Connected,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DrainProgress {
    Requested,
    Closed {
        in_flight: u64,
    },
    /// Nothing is in flight.
    Drained {
        in_flight: u64,
        after: Duration,
        cut: u64,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct StopFacts {
    pub(crate) reason: ContainerStopReason,
    pub(crate) drain: Duration,
    pub(crate) can_answer: bool,
    /// `on_disconnect: stop`.
    pub(crate) never_twice: bool,
    pub(crate) is_leased: bool,
}

impl StopFacts {
    pub(crate) fn has_no_time(&self) -> bool {
        match self.reason {
            // The fence stops the pod at this very moment.
            ContainerStopReason::Requested => self.never_twice && !self.is_leased,
            // It may run on its other node already.
            ContainerStopReason::NotAssigned => self.never_twice,
            ContainerStopReason::Ended | ContainerStopReason::Unhealthy => false,
            // See `crate::fencing::fence`.
            ContainerStopReason::Fenced => true,
        }
    }
}

pub(crate) fn limit(facts: &StopFacts) -> Duration {
    if !facts.can_answer || facts.has_no_time() {
        return Duration::ZERO;
    }
    match facts.reason {
        ContainerStopReason::Ended | ContainerStopReason::Unhealthy => facts.drain.min(BRIEF),
        ContainerStopReason::Requested | ContainerStopReason::NotAssigned | ContainerStopReason::Fenced => {
            facts.drain
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct DrainFacts {
    pub(crate) link: LinkStatus,
    pub(crate) progress: DrainProgress,
    pub(crate) waited: Duration,
    pub(crate) limit: Duration,
    /// A failover lost its stop request.
    pub(crate) is_revoked: bool,
    /// The next session finds the gate closed and continues.
    pub(crate) is_ending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DrainStep {
    /// Or until the proxy's next answer.
    Wait(Duration),
    Stop(DrainEnd),
    Leave,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DrainEnd {
    NoProxy,
    Drained {
        in_flight: u64,
        after: Duration,
        cut: u64,
    },
    /// The proxy did not answer in time.
    Unanswered {
        waited: Duration,
    },
}

pub(crate) fn step(facts: &DrainFacts) -> DrainStep {
    let DrainFacts { link, progress, waited, limit, is_revoked, is_ending } = *facts;
    if is_revoked {
        return DrainStep::Leave;
    }
    let wait_until = |end: Duration, otherwise: DrainEnd| match end.saturating_sub(waited) {
        Duration::ZERO => DrainStep::Stop(otherwise),
        _ if is_ending => DrainStep::Leave,
        rest => DrainStep::Wait(rest),
    };
    match (link, progress) {
        (_, DrainProgress::Drained { in_flight, after, cut }) => {
            DrainStep::Stop(DrainEnd::Drained { in_flight, after, cut })
        }
        (LinkStatus::Off | LinkStatus::Absent, _) => DrainStep::Stop(DrainEnd::NoProxy),
        (LinkStatus::Untried, _) => wait_until(FIRST_LOOK, DrainEnd::NoProxy),
        (LinkStatus::Connected, _) => {
            wait_until(limit.saturating_add(ANSWER_MARGIN), DrainEnd::Unanswered { waited })
        }
    }
}

impl DrainEnd {
    pub(crate) fn describe(self, limit: Duration) -> Option<String> {
        match self {
            DrainEnd::NoProxy | DrainEnd::Drained { in_flight: 0, .. } => None,
            DrainEnd::Drained { in_flight, after, cut: 0 } => Some(format!(
                "{} ended by themselves in {:.1} s after the gate was closed",
                requests(in_flight),
                after.as_secs_f64()
            )),
            DrainEnd::Drained { in_flight, cut, .. } => Some(format!(
                "{} in flight when the gate was closed; {cut} cut, because they took longer than {} (`drain`)",
                requests(in_flight),
                seconds(limit)
            )),
            DrainEnd::Unanswered { waited } => Some(format!(
                "the proxy of this host did not say within {} that nothing is in flight: stopped without it",
                seconds(waited)
            )),
        }
    }
}

fn requests(count: u64) -> String {
    if count == 1 {
        "1 request or connection".to_owned()
    } else {
        format!("{count} requests and connections")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAIN: Duration = Duration::from_secs(30);

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn each_reason_has_its_limit() {
        let facts = |reason, can_answer, never_twice, is_leased| StopFacts {
            reason,
            drain: DRAIN,
            can_answer,
            never_twice,
            is_leased,
        };
        use ContainerStopReason::{Ended, NotAssigned, Requested, Unhealthy};
        let table = [
            (Requested, true, false, true, DRAIN),
            (Requested, true, true, true, DRAIN),
            (Requested, true, false, false, DRAIN),
            (Requested, true, true, false, Duration::ZERO),
            (Requested, false, false, true, Duration::ZERO),
            (NotAssigned, true, false, true, DRAIN),
            (NotAssigned, true, true, true, Duration::ZERO),
            (NotAssigned, false, false, true, Duration::ZERO),
            (Ended, true, false, true, BRIEF),
            (Unhealthy, true, true, true, BRIEF),
        ];
        for (reason, can_answer, never_twice, is_leased, expected) in table {
            let facts = facts(reason, can_answer, never_twice, is_leased);
            assert_eq!(limit(&facts), expected, "{facts:?}");
        }
        let short = StopFacts { drain: secs(1), ..facts(Unhealthy, true, false, true) };
        assert_eq!(limit(&short), secs(1));
    }

    #[test]
    fn nothing_is_stopped_before_the_gate_has_let_go_or_the_proxy_has_failed() {
        use DrainProgress::{Closed, Requested};
        use LinkStatus::{Absent, Connected, Off, Untried};
        let drained = DrainProgress::Drained { in_flight: 3, after: secs(1), cut: 0 };
        let end = DrainEnd::Drained { in_flight: 3, after: secs(1), cut: 0 };
        let closed = Closed { in_flight: 3 };
        let (stop, wait) = (DrainStep::Stop, DrainStep::Wait);
        let table = [
            (Off, Requested, 0, stop(DrainEnd::NoProxy)),
            (Absent, Requested, 0, stop(DrainEnd::NoProxy)),
            (Absent, closed, 5, stop(DrainEnd::NoProxy)),
            (Absent, drained, 5, stop(end)),
            // The worker has just started, so it tries once first.
            (Untried, Requested, 0, wait(FIRST_LOOK)),
            (Untried, Requested, 2, stop(DrainEnd::NoProxy)),
            (Connected, Requested, 0, wait(secs(32))),
            (Connected, closed, 30, wait(secs(2))),
            (Connected, drained, 1, stop(end)),
            (Connected, Requested, 32, stop(DrainEnd::Unanswered { waited: secs(32) })),
            (Connected, closed, 33, stop(DrainEnd::Unanswered { waited: secs(33) })),
        ];
        for (link, progress, waited, expected) in table {
            let facts = DrainFacts {
                link,
                progress,
                waited: secs(waited),
                limit: DRAIN,
                is_revoked: false,
                is_ending: false,
            };
            assert_eq!(step(&facts), expected, "{facts:?}");
            assert_eq!(step(&DrainFacts { is_revoked: true, ..facts }), DrainStep::Leave, "{facts:?}");
            let at_end = if let DrainStep::Wait(_) = expected { DrainStep::Leave } else { expected };
            assert_eq!(step(&DrainFacts { is_ending: true, ..facts }), at_end, "{facts:?}");
        }
    }

    #[test]
    fn a_drain_is_told_if_something_was_in_flight() {
        let drained = |in_flight, cut| DrainEnd::Drained { in_flight, after: secs(30), cut };
        assert_eq!(DrainEnd::NoProxy.describe(DRAIN), None);
        assert_eq!(drained(0, 0).describe(DRAIN), None);
        let text = drained(1, 0).describe(DRAIN).unwrap();
        assert!(text.contains("1 request") && text.contains("30.0 s"), "{text}");
        let text = drained(3, 2).describe(DRAIN).unwrap();
        assert!(text.contains("3 requests") && text.contains("2 cut") && text.contains("30 s"), "{text}");
        let text = DrainEnd::Unanswered { waited: secs(32) }.describe(DRAIN).unwrap();
        assert!(text.contains("32 s"), "{text}");
    }
}
