//! Limits how often a pod of another host is asked again after a refusal. Pure.
//!
//! A question is a TLS connection, and many requests may wait. So one asks for all.

use std::collections::HashMap;
use std::time::{Duration, Instant};

const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_millis(320);
const FORGOTTEN_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct AskBackoff {
    refused: HashMap<u16, Refused>,
}

#[derive(Debug)]
struct Refused {
    next: Instant,
    wait: Duration,
    why: EntryRefusal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryRefusal {
    Gate,
    Port,
}

impl AskBackoff {
    /// # Errors
    /// The last refusal, if the caller must not ask.
    pub(crate) fn begin(&mut self, port: u16, now: Instant) -> Result<(), EntryRefusal> {
        let Some(refused) = self.refused.get_mut(&port) else { return Ok(()) };
        if now < refused.next {
            return Err(refused.why);
        }
        refused.next = now + refused.wait;
        refused.wait = (refused.wait * 2).min(LONGEST_WAIT);
        Ok(())
    }

    pub(crate) fn refused(&mut self, port: u16, why: EntryRefusal, now: Instant) {
        self.refused.retain(|_, refused| now < refused.next + FORGOTTEN_AFTER);
        let first = Refused { next: now + FIRST_WAIT, wait: FIRST_WAIT * 2, why };
        self.refused.entry(port).or_insert(first).why = why;
    }

    pub(crate) fn let_in(&mut self, port: u16) {
        self.refused.remove(&port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_those_that_wait_one_asks_and_less_often_as_time_goes_by() {
        let (start, mut asking) = (Instant::now(), AskBackoff::default());
        assert_eq!(asking.begin(80, start), Ok(()));
        assert_eq!(asking.begin(80, start), Ok(()), "nothing is known yet");
        asking.refused(80, EntryRefusal::Gate, start);
        asking.refused(80, EntryRefusal::Gate, start);
        assert_eq!(asking.begin(81, start), Ok(()), "another port");
        let asked = (0..2000).filter(|ms| {
            let now = start + Duration::from_millis(*ms);
            let asking_now = (0..100).filter(|_| asking.begin(80, now).is_ok()).count();
            assert!(asking_now <= 1);
            if asking_now > 0 {
                asking.refused(80, EntryRefusal::Port, now);
            }
            asking_now > 0
        });
        assert_eq!(asked.collect::<Vec<_>>(), [20, 60, 140, 300, 620, 940, 1260, 1580, 1900]);
        let now = start + Duration::from_millis(1901);
        assert_eq!(asking.begin(80, now), Err(EntryRefusal::Port));
        asking.let_in(80);
        assert_eq!(asking.begin(80, now), Ok(()));
        asking.refused(80, EntryRefusal::Gate, now);
        asking.refused(81, EntryRefusal::Gate, now + Duration::from_millis(1019));
        assert_eq!(asking.refused.len(), 2);
        asking.refused(81, EntryRefusal::Gate, now + Duration::from_millis(1020));
        assert_eq!(asking.refused.len(), 1);
    }
}
