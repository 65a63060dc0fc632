//! When to check services whose pods are being replaced: a new pod publishes no hint when it runs. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use model::ids::ServiceName;

const FIRST_WAIT: Duration = Duration::from_millis(100);
/// A replacement may never finish.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// For a job.
const MIN_WAIT: Duration = Duration::from_millis(10);
/// Redis' clock differs from this process's; a full pass checks too.
const MAX_PLANNED_WAIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SeenService {
    pub(crate) is_replacing: bool,
    pub(crate) has_acted: bool,
    /// Without a hint: for times of a job, and for lost pods.
    pub(crate) look_again_in: Option<Duration>,
    /// There are void slots, or running pods without a slot.
    pub(crate) needs_pass: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Replacements {
    /// The last wait, and its end until that is taken.
    checks: HashMap<ServiceName, (Duration, Option<Instant>)>,
}

impl Replacements {
    pub(crate) fn note(&mut self, name: &ServiceName, seen: SeenService, now: Instant) {
        if let Some(wait) = seen.look_again_in {
            let wait = wait.clamp(MIN_WAIT, MAX_PLANNED_WAIT);
            self.checks.insert(name.clone(), (wait, Some(now + wait)));
            return;
        }
        if !seen.is_replacing {
            self.checks.remove(name);
            return;
        }
        let last = self.checks.get(name).filter(|_| !seen.has_acted);
        let wait = last.map_or(FIRST_WAIT, |(wait, _)| (*wait * 3 / 2).min(MAX_WAIT));
        self.checks.insert(name.clone(), (wait, Some(now + wait)));
    }

    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<ServiceName> {
        let due = self.checks.iter_mut().filter(|(_, (_, at))| at.is_some_and(|at| at <= now));
        due.map(|(name, (_, at))| {
            *at = None;
            name.clone()
        })
        .collect()
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.checks.values().filter_map(|(_, at)| *at).min()
    }

    pub(crate) fn retain(&mut self, exists: impl Fn(&ServiceName) -> bool) {
        self.checks.retain(|name, _| exists(name));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_replacement_is_looked_at_soon_after_each_step_and_less_often_while_it_does_not_go_on() {
        let (mut replacements, begin) = (Replacements::default(), Instant::now());
        let name = ServiceName::new("web").unwrap();
        let step =
            SeenService { is_replacing: true, has_acted: true, look_again_in: None, needs_pass: false };
        let nothing =
            SeenService { is_replacing: true, has_acted: false, look_again_in: None, needs_pass: false };
        let mut waits = Vec::new();
        for seen in [step, nothing, nothing, step] {
            replacements.note(&name, seen, begin);
            waits.push((replacements.next_due().unwrap() - begin).as_millis());
        }
        assert_eq!(waits, [100, 150, 225, 100]);
        (0..20).for_each(|_| replacements.note(&name, nothing, begin));
        assert_eq!(replacements.next_due(), Some(begin + MAX_WAIT));
        assert!(replacements.take_due(begin).is_empty());
        assert_eq!(replacements.take_due(begin + MAX_WAIT).len(), 1);
        assert_eq!((replacements.next_due(), replacements.take_due(begin + MAX_WAIT).len()), (None, 0));
        replacements.note(&name, SeenService::default(), begin);
        assert_eq!(replacements.next_due(), None);
    }
}
