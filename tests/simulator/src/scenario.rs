//! The scenarios of a run: when faults occur.

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scenario {
    #[default]
    Random,
    /// A failover loses an assignment to a worker. That worker is paused until just before its lease expires,
    /// renews it, and is paused again before it has removed the pod.
    StaleRenewal,
    /// A worker is paused until its pod runs elsewhere, or it dies and leaves its container. Then a failover
    /// loses all of that, and the worker continues while the other one is paused.
    LeaseRevival,
    /// An engine takes long to start a pod. Meanwhile its worker is declared dead, and the pod runs
    /// elsewhere. A failover loses that, and the first worker has a lease again when its engine completes the
    /// start.
    LateStart,
    /// A failover puts back the payload of a running pod, and its worker starts it again under the same
    /// assignment. Then the container vanishes, which is reported twice: the first reply is lost.
    LateReport,
    /// A service is updated to an image whose containers end at once. Schedulers die while it is judged, and
    /// a failover may lose its rollback.
    BrokenUpdate,
    /// A `start-first` service is updated: to another image, perhaps back in the middle, or to a broken one.
    /// Schedulers die meanwhile, and a failover may lose their work.
    StartFirst,
    /// `StartFirst` with a health check. It always fails in the broken update, and at times in others.
    Health,
    /// Random faults on hosts with proxies, which die and stop as well.
    HandOver,
    /// Redis refuses the writes of the schedulers and one worker until the node is overdue. Or no worker
    /// reaches Redis for so long.
    Outage,
    /// The machine with a pod's data is cut off, and the pod gets a new volume elsewhere. The first machine
    /// comes back with its old copy. Then Redis forgets all volumes, while the newer machine is away.
    OldCopy,
    /// A cron creates jobs whose pods end, some with an error, while schedulers die, failovers lose writes,
    /// and the clocks of new masters are wrong.
    Jobs,
}

impl Scenario {
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
