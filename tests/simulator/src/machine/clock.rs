//! Simulated time, in milliseconds.

const START: u64 = 10_000_000;
/// Unix time of Redis' clock at simulated time zero.
const REDIS_EPOCH: u64 = 1_700_000_000_000;

pub(crate) struct SimulatedClock {
    pub(crate) now: u64,
    /// Lead over the simulated time, or lag if negative: each master has its own.
    pub(crate) redis_offset: i64,
    pub(crate) since_poll: u64,
}

impl SimulatedClock {
    pub(crate) fn new() -> Self {
        Self { now: START, redis_offset: 0, since_poll: 0 }
    }

    pub(crate) fn redis_now(&self) -> u64 {
        (REDIS_EPOCH + self.now).saturating_add_signed(self.redis_offset)
    }

    pub(crate) fn since_start(&self, time: u64) -> u64 {
        time.saturating_sub(START)
    }
}

/// In milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimingMillis {
    pub(crate) heartbeat: u64,
    pub(crate) fence: u64,
    pub(crate) dead: u64,
    /// Without declared deaths after a change of the master.
    pub(crate) failover_pause: u64,
}

impl TimingMillis {
    pub(crate) const DEFAULT: Self =
        Self { heartbeat: 5000, fence: 15_000, dead: 20_000, failover_pause: 30_000 };
    pub(crate) const SHORT: Self = Self { heartbeat: 1500, fence: 4500, dead: 6000, failover_pause: 9000 };
}
