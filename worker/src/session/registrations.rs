//! Decides whether a failover of Redis or another worker replaced a worker's registration. Pure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use model::ids::Incarnation;

/// A process that replaces this worker twice within this time shares its name and holder id.
const SHARED_NAME_WINDOW: Duration = Duration::from_secs(60);
/// A failover loses seconds.
const MAX_REMEMBERED: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Registrations {
    own: VecDeque<Incarnation>,
    last_replaced: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replacement {
    /// A failover lost the last registration.
    Lost,
    /// Another worker registered, or a failover restored a registration of an earlier process.
    Another,
    /// Another worker takes the name whenever it finds it taken.
    AnotherAgain,
}

impl Registrations {
    pub(crate) fn note(&mut self, incarnation: &Incarnation) {
        self.own.push_back(incarnation.clone());
        if self.own.len() > MAX_REMEMBERED {
            self.own.pop_front();
        }
    }

    pub(crate) fn replaced(&mut self, found: Option<&Incarnation>, now: Instant) -> Replacement {
        if found.is_none_or(|found| self.own.contains(found)) {
            return Replacement::Lost;
        }
        let before = self.last_replaced.replace(now);
        match before.is_some_and(|before| now.duration_since(before) < SHARED_NAME_WINDOW) {
            true => Replacement::AnotherAgain,
            false => Replacement::Another,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_registrations_of_another_process_are_those_of_another_worker() {
        use Replacement::{Another, AnotherAgain, Lost};
        let begun = Instant::now();
        let other = Incarnation::random();
        let own = [Incarnation::random(), Incarnation::random()];
        let (none, first, last, other) = (None, Some(&own[0]), Some(&own[1]), Some(&other));
        for replacements in [
            &[(0, none, Lost), (1, first, Lost), (2, first, Lost), (3, last, Lost)][..],
            &[(0, other, Another), (59, other, AnotherAgain)],
            &[(0, other, Another), (60, other, Another), (119, other, AnotherAgain)],
            &[(0, first, Lost), (1, other, Another), (2, first, Lost), (3, other, AnotherAgain)],
        ] {
            let mut registrations = Registrations::default();
            own.iter().for_each(|incarnation| registrations.note(incarnation));
            for (seconds, found, expected) in replacements {
                let now = begun + Duration::from_secs(*seconds);
                assert_eq!(registrations.replaced(*found, now), *expected, "{replacements:?}");
            }
        }
    }
}
