//! The scenarios of a run: when faults occur.

/// Decides when faults occur.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scenario {
    /// At random times.
    #[default]
    Random,
    /// A failover loses that a pod was assigned to a worker. That worker is paused until just before its
    /// lease expires, renews the lease, and is paused again before it has removed the pod.
    StaleRenewal,
    /// A worker is paused until it is declared dead and its pod runs elsewhere, or it dies and leaves its
    /// container behind. Then a failover loses all of that, and the worker goes on or is started again while
    /// the other one is paused.
    LeaseRevival,
    /// An engine takes long to start a pod. Meanwhile its worker is partitioned and declared dead, and the
    /// pod runs elsewhere. A failover loses all of that while the other worker is paused. When the first
    /// worker has a lease again, its engine completes the start.
    LateStart,
    /// A failover puts back the payload of a running pod, and its worker starts it again under the same
    /// assignment. At about that time the container vanishes. This is reported twice, because the first reply
    /// is lost.
    LateReport,
    /// A service is updated to an image whose containers end at once. Schedulers die while it is judged, and
    /// a failover may lose that it was rolled back.
    BrokenUpdate,
    /// A service whose pods start before those that they replace are stopped is updated: to another image,
    /// and perhaps back in the middle, or to one whose containers end at once. Schedulers die or stand still
    /// meanwhile, and a failover may lose what they did.
    StartFirst,
    /// The same with a health check. It always fails in the containers of the update that is broken; in
    /// others it fails for a while now and then.
    Health,
    /// Faults occur at random times on hosts that have proxies: requests enter the gates of pods, and proxies
    /// die and stand still as well.
    HandOver,
    /// Redis refuses the writes of the schedulers and of one worker for so long that the node is overdue; or
    /// no worker reaches Redis for so long, and they return one after the other.
    Outage,
    /// The machine with the data of a pod is cut off, the data is given up, and the pod gets a new volume on
    /// another machine. The first one comes back with its old copy. Then Redis loses all that it knew of
    /// volumes, while the machine with the new volume is away.
    OldCopy,
    /// A cron creates jobs whose pods end, some of them with an error. Schedulers die or stand still,
    /// failovers lose writes, and the clocks of new masters are wrong.
    Jobs,
}

impl Scenario {
    /// Every scenario.
    pub const ALL: [Scenario; 12] = [
        Scenario::Random,
        Scenario::StaleRenewal,
        Scenario::LeaseRevival,
        Scenario::LateStart,
        Scenario::LateReport,
        Scenario::BrokenUpdate,
        Scenario::StartFirst,
        Scenario::Health,
        Scenario::HandOver,
        Scenario::Outage,
        Scenario::OldCopy,
        Scenario::Jobs,
    ];
}
