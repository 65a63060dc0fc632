//! The hosts whose proxy does not answer.
//!
//! One request finds out, and waits for the timeout. After that none does whose service has a pod elsewhere,
//! while a task probes the host. Pure, apart from the lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::peers::Peer;

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(32);
/// A host that answers for this long loses its earlier silences.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Silent, or recently so.
#[derive(Default)]
pub(super) struct SilentHosts {
    /// Mostly 0, and then no request takes the lock.
    silent: AtomicUsize,
    hosts: Mutex<HashMap<Peer, HostSilence>>,
}

struct HostSilence {
    silences: u32,
    answered: Option<Instant>,
    is_asked: bool,
}

impl SilentHosts {
    pub(super) fn contains(&self, peer: &Peer) -> bool {
        self.has_some() && self.hosts.lock().get(peer).is_some_and(|host| host.answered.is_none())
    }

    pub(super) fn has_some(&self) -> bool {
        self.silent.load(Ordering::Relaxed) > 0
    }

    /// Returns the delay before a probe; `None` if one is running.
    pub(super) fn insert(&self, peer: Peer, now: Instant) -> Option<Duration> {
        let mut hosts = self.hosts.lock();
        let is_recent =
            |host: &HostSilence| host.answered.is_none_or(|at| now.duration_since(at) < FORGOTTEN_AFTER);
        hosts.retain(|_, host| is_recent(host) || host.is_asked);
        let new = HostSilence { silences: 0, answered: Some(now), is_asked: false };
        let host = hosts.entry(peer).or_insert(new);
        let wait = FIRST_WAIT.saturating_mul(1 << host.silences.min(8)).min(LONGEST_WAIT);
        if host.answered.take().is_some() {
            host.silences += 1;
        }
        let was_asked = std::mem::replace(&mut host.is_asked, true);
        self.count(&hosts);
        (!was_asked).then_some(wait)
    }

    /// Called before each probe. True if the host answered meanwhile.
    pub(super) fn needs_no_question(&self, peer: &Peer) -> bool {
        let mut hosts = self.hosts.lock();
        let Some(host) = hosts.get_mut(peer) else { return true };
        host.is_asked = host.answered.is_none();
        !host.is_asked
    }

    pub(super) fn answered(&self, peer: &Peer, now: Instant) {
        let mut hosts = self.hosts.lock();
        if let Some(host) = hosts.get_mut(peer) {
            host.answered.get_or_insert(now);
        }
        self.count(&hosts);
    }

    pub(super) fn remove(&self, peer: &Peer) {
        let mut hosts = self.hosts.lock();
        hosts.remove(peer);
        self.count(&hosts);
    }

    fn count(&self, hosts: &HashMap<Peer, HostSilence>) {
        let silent = hosts.values().filter(|host| host.answered.is_none()).count();
        self.silent.store(silent, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn peer(port: u16) -> Peer {
        format!("10.0.0.1:{port} {}", "a".repeat(64)).parse().unwrap()
    }

    #[test]
    fn a_host_is_silent_from_the_first_note_until_it_has_answered() {
        let (hosts, now) = (SilentHosts::default(), Instant::now());
        assert!(!hosts.has_some());
        assert_eq!(hosts.insert(peer(1), now), Some(SECOND));
        assert_eq!(hosts.insert(peer(1), now), None, "it is asked already");
        assert!(hosts.contains(&peer(1)) && !hosts.contains(&peer(2)));
        hosts.insert(peer(2), now);
        assert!(!hosts.needs_no_question(&peer(1)));
        hosts.answered(&peer(1), now);
        assert!(!hosts.contains(&peer(1)) && hosts.contains(&peer(2)));
        hosts.remove(&peer(2));
        assert!(!hosts.has_some());
        hosts.answered(&peer(2), now);
        assert!(!hosts.has_some(), "it is not one of the cluster any more");
    }

    #[test]
    fn one_that_falls_silent_again_and_again_is_asked_later_each_time() {
        let (hosts, mut now) = (SilentHosts::default(), Instant::now());
        for expected in [1, 2, 4, 8, 16, 32, 32] {
            assert_eq!(hosts.insert(peer(1), now), Some(expected * SECOND));
            now += expected * SECOND;
            hosts.answered(&peer(1), now);
            assert!(hosts.needs_no_question(&peer(1)));
            now += 59 * SECOND;
        }
        now += SECOND;
        assert_eq!(hosts.insert(peer(1), now), Some(SECOND), "it has answered for a minute");
    }

    #[test]
    fn one_task_asks_however_often_it_answers_others_and_falls_silent() {
        let (hosts, now) = (SilentHosts::default(), Instant::now());
        assert!(hosts.insert(peer(1), now).is_some());
        for _ in 0..3 {
            hosts.answered(&peer(1), now);
            assert!(!hosts.contains(&peer(1)));
            assert_eq!(hosts.insert(peer(1), now), None);
            assert!(hosts.contains(&peer(1)) && !hosts.needs_no_question(&peer(1)));
        }
        hosts.answered(&peer(1), now);
        assert!(hosts.needs_no_question(&peer(1)));
        assert!(hosts.insert(peer(1), now).is_some());
    }
}
