//! The clock of leases, and of all other deadlines that go on while the machine is suspended. It is
//! monotonic. Its values never reach Redis (invariant 6).

use std::time::Duration;

/// Comparable among processes of the same boot only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct BootInstant {
    pub millis: u64,
}

impl BootInstant {
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self { millis: self.millis.saturating_add(duration.as_millis() as u64) }
    }

    pub fn since(self, earlier: BootInstant) -> Duration {
        Duration::from_millis(self.millis.saturating_sub(earlier.millis))
    }
}

/// Tests use their own.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> BootInstant;
}

/// Counts during suspend: a resumed laptop notices that its lease has expired.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> BootInstant {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        BootInstant { millis: time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000 }
    }
}
