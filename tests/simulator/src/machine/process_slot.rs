//! The state of a process across its restarts. All times are simulated milliseconds.

use crate::machine::process::SimulatedProcess;

#[derive(Default)]
pub(crate) struct ProcessSlot {
    pub(crate) process: Option<SimulatedProcess>,
    pub(crate) down_until: u64,
    /// It is not started and has no machine.
    pub(crate) is_removed: bool,
    pub(crate) paused_until: u64,
    pub(crate) partitioned_until: u64,
    /// The partition loses only replies: requests still reach Redis.
    pub(crate) is_one_way_partition: bool,
    pub(crate) suspended_until: u64,
    pub(crate) elsewhere: Option<(u64, u64)>,
    /// The clock stands still while the host is suspended.
    pub(crate) clock_lag: u64,
}

impl ProcessSlot {
    pub(crate) fn is_paused(&self, now: u64) -> bool {
        now < self.paused_until
    }

    pub(crate) fn is_partitioned(&self, now: u64) -> bool {
        now < self.partitioned_until
    }

    pub(crate) fn is_suspended(&self, now: u64) -> bool {
        now < self.suspended_until
    }

    pub(crate) fn end_faults(&mut self) {
        self.partitioned_until = 0;
        self.paused_until = 0;
        self.suspended_until = 0;
    }
}
