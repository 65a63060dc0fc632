//! What the guard does next. Pure: how the lease and the worker stand -> what to do.

use std::time::Duration;

use common::config::Timing;

use crate::pulse;

/// How long a new process may take until its first sign of life while the guard does not look at containers itself: it
/// is about to, and the guard has just looked.
const NEWBORN: Duration = Duration::from_secs(3);
/// How long a new process may take until its first sign of life at all.
const STILLBORN: Duration = Duration::from_secs(10);
/// How long the worker may take to end once it was asked to; it promises ten seconds.
const FAREWELL: Duration = Duration::from_secs(12);
/// Between two looks at the containers while the lease is out and no worker holds the fence: what an engine was asked for
/// by a worker that died may still appear.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The same when nothing has appeared for [`LONG_OUT`].
const LOOK_SELDOM: Duration = Duration::from_secs(5);
const LONG_OUT: Duration = Duration::from_secs(60);
/// Longest time between two looks at lease and worker: the sleeping clock stands still while the machine sleeps.
const GLANCE: Duration = Duration::from_secs(1);

/// How the worker process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Child {
    /// There was none yet.
    Never,
    /// It runs, and was heard of so long ago, or never.
    Up {
        /// How old it is.
        age: Duration,
        /// Since its last sign of life.
        silent: Option<Duration>,
        /// The lease had run out before it was started.
        born_out: bool,
    },
    /// It has ended. It may be started again after so long.
    Down(Duration),
}

/// All that the decision depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    /// For how long the lease is good still; none when it is out, or there is none.
    pub(super) lease: Option<Duration>,
    /// How long it has been out, as far as this guard saw.
    pub(super) out: Duration,
    /// Since the last look since then that found nothing to stop.
    pub(super) clean: Option<Duration>,
    /// A look is under way.
    pub(super) looking: bool,
    /// The worker process.
    pub(super) child: Child,
    /// Since the guard was asked to end.
    pub(super) ending: Option<Duration>,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Step {
    /// SIGKILL to the worker: it hangs.
    pub(super) kill: bool,
    /// Look at the containers, and stop what must not run without a lease.
    pub(super) look: bool,
    /// Start the worker.
    pub(super) start: bool,
    /// Nothing is left to do.
    pub(super) end: bool,
}

/// After so long without a sign of life nobody holds the fence.
pub(super) fn silence(timing: &Timing) -> Duration {
    pulse::period(timing) * 3
}

/// After so long without a sign of life a worker hangs, also while its lease is good: soon enough that another one can
/// renew the lease.
fn hangs_after(timing: &Timing) -> Duration {
    (timing.fence_after / 2).max(silence(timing))
}

/// How long to wait before deciding again, if nothing happens.
pub(super) fn rest(timing: &Timing, facts: &Facts) -> Duration {
    let until_out = facts.lease.unwrap_or(GLANCE);
    pulse::period(timing).min(GLANCE).min(until_out.max(Duration::from_millis(1)))
}

/// What to do.
pub(super) fn step(timing: &Timing, facts: &Facts) -> Step {
    let out = facts.lease.is_none();
    let mut step = Step::default();
    let mut nobody_fences = false;
    match facts.child {
        Child::Never => step.start = facts.ending.is_none(),
        Child::Up { age, silent: None, born_out } => {
            nobody_fences = !born_out || age > NEWBORN;
            step.kill = age > STILLBORN;
        }
        Child::Up { silent: Some(silent), .. } => {
            nobody_fences = silent > self::silence(timing);
            step.kill = (out && nobody_fences) || silent > hangs_after(timing);
        }
        Child::Down(wait) => {
            nobody_fences = true;
            step.end = facts.ending.is_some();
            step.start = !step.end && wait.is_zero() && (!out || facts.clean.is_some());
        }
    }
    let again = if facts.out > LONG_OUT { LOOK_SELDOM } else { LOOK_AGAIN };
    step.look =
        out && nobody_fences && !step.end && !facts.looking && facts.clean.is_none_or(|clean| clean >= again);
    step.kill |= facts.ending.is_some_and(|ending| ending > FAREWELL);
    step
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn up(age: u64, silent_ms: Option<u64>, born_out: bool) -> Child {
        Child::Up { age: S(age), silent: silent_ms.map(Duration::from_millis), born_out }
    }

    fn facts(lease: Option<u64>, child: Child) -> Facts {
        Facts { lease: lease.map(S), out: S(0), clean: None, looking: false, child, ending: None }
    }

    fn words(facts: &Facts) -> String {
        let step = step(&Timing::default(), facts);
        let words = [(step.kill, "kill"), (step.look, "look"), (step.start, "start"), (step.end, "end")];
        words.iter().filter(|(does, _)| *does).map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
    }

    /// Defaults: fence after 15 s, a beat each 625 ms, silent after 1.875 s, hung after 7.5 s.
    #[test]
    fn what_is_done_about_a_worker() {
        let table = [
            ("the first is started at once", facts(None, Child::Never), "start"),
            ("a healthy one is left alone", facts(Some(9), up(60, Some(600), false)), ""),
            ("also when the lease is out: it holds the fence", facts(None, up(60, Some(600), false)), ""),
            ("silent with a lease: wait", facts(Some(9), up(60, Some(7_000), false)), ""),
            ("silent for long: it hangs", facts(Some(4), up(60, Some(8_000), false)), "kill"),
            ("silent without a lease", facts(None, up(60, Some(2_000), false)), "kill look"),
            ("new, and the guard has looked before", facts(None, up(1, None, true)), ""),
            ("new and silent for too long", facts(None, up(4, None, true)), "look"),
            ("new, and the lease ran out meanwhile", facts(None, up(1, None, false)), "look"),
            ("never comes to life", facts(Some(4), up(11, None, false)), "kill"),
            ("dead with a lease: again", facts(Some(9), Child::Down(S(0))), "start"),
            ("… but not at once", facts(Some(9), Child::Down(S(2))), ""),
            ("dead without a lease: first the fence", facts(None, Child::Down(S(0))), "look"),
        ];
        for (name, facts, expected) in table {
            assert_eq!(words(&facts), expected, "{name}");
        }
    }

    #[test]
    fn it_looks_until_nothing_is_found_and_then_again_and_again() {
        let down = facts(None, Child::Down(S(1)));
        let looked = |clean: u64| Facts { clean: Some(Duration::from_millis(clean)), ..down };
        assert_eq!(words(&Facts { looking: true, ..down }), "");
        assert_eq!(words(&looked(900)), "");
        assert_eq!(words(&looked(1_000)), "look");
        assert_eq!(words(&Facts { out: S(61), ..looked(1_000) }), "");
        assert_eq!(words(&Facts { out: S(61), ..looked(5_000) }), "look");
        assert_eq!(words(&Facts { child: Child::Down(S(0)), ..looked(10) }), "start");
    }

    #[test]
    fn asked_to_end_it_starts_nothing_and_waits_for_the_worker() {
        let ending = |child, seconds| Facts { ending: Some(S(seconds)), ..facts(Some(9), child) };
        assert_eq!(words(&ending(up(60, Some(600), false), 5)), "");
        assert_eq!(words(&ending(up(60, Some(600), false), 13)), "kill");
        assert_eq!(words(&ending(Child::Down(S(0)), 1)), "end");
        assert_eq!(words(&ending(Child::Never, 0)), "");
    }

    #[test]
    fn it_sleeps_no_longer_than_the_lease() {
        let timing = Timing::default();
        let healthy = |lease| facts(lease, up(60, Some(0), false));
        assert_eq!(rest(&timing, &healthy(Some(9))), Duration::from_millis(625));
        let nearly = Facts { lease: Some(Duration::from_millis(40)), ..healthy(None) };
        assert_eq!(rest(&timing, &nearly), Duration::from_millis(40));
        assert_eq!(rest(&timing, &healthy(None)), Duration::from_millis(625));
    }
}
