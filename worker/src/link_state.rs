//! What one session knows of its link to Redis: whether it answers, and which master has confirmed this
//! node's pods.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::RedisMillis;
use common::clock::Clock;

/// The link to Redis, as the answers to heartbeats show it. A master is identified by the time at which it
/// took over.
pub(crate) struct LinkState {
    clock: Arc<dyn Clock>,
    fence_after: Duration,
    /// Until when Redis counts as reachable, in milliseconds on the boot clock.
    in_touch_until: AtomicU64,
    masters: Mutex<Masters>,
}

#[derive(Default)]
struct Masters {
    /// The master that answered last; `None` before the first heartbeat.
    current: Option<RedisMillis>,
    /// The master that has confirmed every pod here that must not run twice.
    confirmed_by: Option<RedisMillis>,
    /// Whether the current one may have lost what was reported.
    is_doubted: bool,
}

impl LinkState {
    /// The state right after registration, which was an answer of Redis.
    pub(crate) fn new(clock: Arc<dyn Clock>, fence_after: Duration) -> Self {
        let link = Self { clock, fence_after, in_touch_until: AtomicU64::new(0), masters: Mutex::default() };
        link.note_answer();
        link
    }

    /// Notes that Redis has answered now.
    pub(crate) fn note_answer(&self) {
        let until = self.clock.now().plus(self.fence_after);
        self.in_touch_until.store(until.millis, Ordering::Release);
    }

    /// Returns whether Redis has answered within the last `fence_after`.
    pub(crate) fn is_in_touch(&self) -> bool {
        self.clock.now().millis < self.in_touch_until.load(Ordering::Acquire)
    }

    /// Notes the master that answered. Returns true if another one had answered before.
    pub(crate) fn note_master(&self, changed_at: RedisMillis) -> bool {
        let mut masters = self.masters();
        let is_other = masters.current.replace(changed_at).is_some_and(|before| before != changed_at);
        masters.is_doubted |= is_other;
        is_other
    }

    /// The master may have lost what was reported.
    pub(crate) fn doubt(&self) {
        self.masters().is_doubted = true;
    }

    /// Returns whether the master may have lost what was reported. After this it is believed.
    pub(crate) fn take_doubt(&self) -> bool {
        std::mem::take(&mut self.masters().is_doubted)
    }

    /// Returns the master that answered last; `None` before the first heartbeat.
    pub(crate) fn master(&self) -> Option<RedisMillis> {
        self.masters().current
    }

    /// Notes which master has confirmed every pod here that must not run twice; `None` withdraws the
    /// confirmation.
    pub(crate) fn set_confirmed_by(&self, master: Option<RedisMillis>) {
        self.masters().confirmed_by = master;
    }

    /// Returns whether this master has confirmed every pod here that must not run twice. Another one may have
    /// lost the assignments, and may assign the pods to other nodes.
    pub(crate) fn is_confirmed_by(&self, changed_at: RedisMillis) -> bool {
        self.masters().confirmed_by == Some(changed_at)
    }

    /// Returns whether the master that answered last has confirmed them.
    pub(crate) fn is_confirmed(&self) -> bool {
        let masters = self.masters();
        masters.current.is_some() && masters.current == masters.confirmed_by
    }

    fn masters(&self) -> MutexGuard<'_, Masters> {
        self.masters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
