//! When a pod of another host may be asked again after it let nothing in. Pure.
//!
//! Each question is a connection by TLS to the proxy of that host, and many requests may wait for one pod:
//! one of them asks for all, less often as time goes by.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long after the first refusal the pod is asked again.
const FIRST_WAIT: Duration = Duration::from_millis(20);
/// The longest such time: it doubles with each question.
const LONGEST_WAIT: Duration = Duration::from_millis(320);
/// A refusal after which no request asks is forgotten after this time.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(1);

/// What is known of the way to a pod: whether the last who asked was let in.
#[derive(Debug, Default)]
pub(crate) struct AskBackoff {
    /// By port.
    refused: HashMap<u16, Refused>,
}

#[derive(Debug)]
struct Refused {
    /// When one request may ask again, and the wait after that.
    next: Instant,
    wait: Duration,
    why: EntryRefusal,
}

/// Why nothing was let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryRefusal {
    /// By the gate.
    Gate,
    /// By the port, which accepts nothing.
    Port,
}

impl AskBackoff {
    /// Called before the pod is asked for a port.
    ///
    /// # Errors
    /// If the caller is not to ask: what the last who did was told.
    pub(crate) fn begin(&mut self, port: u16, now: Instant) -> Result<(), EntryRefusal> {
        let Some(refused) = self.refused.get_mut(&port) else { return Ok(()) };
        if now < refused.next {
            return Err(refused.why);
        }
        refused.next = now + refused.wait;
        refused.wait = (refused.wait * 2).min(LONGEST_WAIT);
        Ok(())
    }

    /// Takes in that the pod let nothing in.
    pub(crate) fn refused(&mut self, port: u16, why: EntryRefusal, now: Instant) {
        self.refused.retain(|_, refused| now < refused.next + FORGOTTEN_AFTER);
        let first = Refused { next: now + FIRST_WAIT, wait: FIRST_WAIT * 2, why };
        self.refused.entry(port).or_insert(first).why = why;
    }

    /// Takes in that the pod let a request in.
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
            // A hundred requests wait.
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
