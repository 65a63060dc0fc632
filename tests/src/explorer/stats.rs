//! What happened, in numbers.

/// What happened in a run that found nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Calls made.
    pub calls: u64,
    /// Calls that did not reach Redis.
    pub cut: u64,
    /// Calls whose reply was lost.
    pub lost_replies: u64,
    /// Processes that died.
    pub crashes: u64,
    /// Hosts that died.
    pub host_crashes: u64,
    /// Processes that stood still for a while.
    pub pauses: u64,
    /// Processes that could not reach Redis for a while.
    pub partitions: u64,
    /// Failovers that lost writes.
    pub failovers: u64,
    /// Nodes declared dead.
    pub deaths: u64,
    /// Containers started.
    pub starts: u64,
    /// Pods whose payload reconcile had to put back.
    pub requeued: u64,
    /// Steps until everything rested.
    pub to_rest: u64,
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.cut += other.cut;
        self.lost_replies += other.lost_replies;
        self.crashes += other.crashes;
        self.host_crashes += other.host_crashes;
        self.pauses += other.pauses;
        self.partitions += other.partitions;
        self.failovers += other.failovers;
        self.deaths += other.deaths;
        self.starts += other.starts;
        self.requeued += other.requeued;
        self.to_rest = self.to_rest.max(other.to_rest);
    }
}
