//! A process slot: what outlives the restarts of one process. All times are simulated milliseconds.

use super::process::Process;

/// See the module.
#[derive(Default)]
pub(super) struct ProcessSlot {
    /// None while it is down.
    pub(super) process: Option<Process>,
    pub(super) down_until: u64,
    /// It is not started, and has no machine either.
    pub(super) is_removed: bool,
    pub(super) paused_until: u64,
    pub(super) partitioned_until: u64,
    /// Whether the partition loses only replies: requests still reach Redis.
    pub(super) is_one_way_partition: bool,
    pub(super) suspended_until: u64,
    /// Since when and until when it is connected to another database than the cluster's.
    pub(super) elsewhere: Option<(u64, u64)>,
    /// How far its monotonic clock lags: it stands still while its host is suspended.
    pub(super) clock_lag: u64,
}

impl ProcessSlot {
    pub(super) fn is_paused(&self, now: u64) -> bool {
        now < self.paused_until
    }

    pub(super) fn is_partitioned(&self, now: u64) -> bool {
        now < self.partitioned_until
    }

    pub(super) fn is_suspended(&self, now: u64) -> bool {
        now < self.suspended_until
    }

    /// Ends every fault of the process except its downtime.
    pub(super) fn end_faults(&mut self) {
        self.partitioned_until = 0;
        self.paused_until = 0;
        self.suspended_until = 0;
    }
}
