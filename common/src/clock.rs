//! The clock that leases are measured on: monotonic, and counting suspend.
//!
//! No value of it ever reaches Redis (invariant 6); it only answers "how long ago, here, on this machine".

use std::time::Duration;

/// A point on this machine's boot-time clock. Comparable across processes of one boot, meaningless elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct BootInstant {
    /// Milliseconds since boot, suspend included.
    pub millis: u64,
}

impl BootInstant {
    /// This point plus a duration.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self { millis: self.millis.saturating_add(duration.as_millis() as u64) }
    }

    /// How long from `earlier` until this point; zero when it lies after.
    pub fn since(self, earlier: BootInstant) -> Duration {
        Duration::from_millis(self.millis.saturating_sub(earlier.millis))
    }
}

/// Where leases read the time. Tests hand in their own.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> BootInstant;
}

/// `CLOCK_BOOTTIME`: unlike `Instant` it goes on while the machine sleeps, so a laptop that wakes up after its
/// lease ran out knows that it did.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> BootInstant {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        BootInstant { millis: time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000 }
    }
}
