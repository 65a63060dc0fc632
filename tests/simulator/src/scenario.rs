//! The scenarios of a run: when faults occur.

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scenario {
    #[default]
    Random,
    /// A failover loses an assignment to a worker, which is paused until just before its lease expires, and
    /// again before it has removed the pod.
    StaleRenewal,
    /// A worker is paused or dies until its pod runs elsewhere. A failover loses that, and the worker
    /// continues while the other one is paused.
    LeaseRevival,
    /// An engine takes long to start a pod. Meanwhile the pod runs elsewhere, and a failover loses that.
    LateStart,
    /// A failover puts back the payload of a running pod. Then the container vanishes, which is reported
    /// twice.
    LateReport,
    /// Containers of an update end at once. Schedulers die while it is judged, and a failover may lose its
    /// rollback.
    BrokenUpdate,
    /// A `start-first` service is updated, perhaps back in the middle. Schedulers die meanwhile, and a
    /// failover may lose their work.
    StartFirst,
    /// `StartFirst` with a health check, which always fails in the broken update.
    Health,
    /// Random faults on hosts with proxies, which die and stop as well.
    HandOver,
    /// Redis refuses the writes of some until a node is overdue, or no worker reaches Redis for so long.
    Outage,
    /// A pod gets a new volume elsewhere, and the first machine comes back with its old copy. Then Redis
    /// forgets all volumes.
    OldCopy,
    /// Random faults while operators relabel the nodes of services with a constraint.
    Rules,
    /// `Rules`, and no hint ever reaches a scheduler: pods that fit nowhere for a while are found by looks.
    Waking,
    /// Random faults on services that keep away from each other.
    Related,
    /// Random faults on stateful services.
    Ordinals,
    /// Random faults on global services while operators relabel, drain and uncordon nodes.
    Global,
    /// Random faults while operators drain nodes and uncordon them again.
    Drains,
    /// Random faults on services whose pods get ids of named resources.
    Resources,
    /// Random faults on services with priorities, on nodes that are too few while one is away.
    Preemption,
    /// Schedulers die, failovers lose writes, and the clocks of new masters are wrong.
    Jobs,
}

impl Scenario {
    pub const ALL: [Scenario; 20] = [
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
        Scenario::Rules,
        Scenario::Waking,
        Scenario::Related,
        Scenario::Ordinals,
        Scenario::Global,
        Scenario::Drains,
        Scenario::Resources,
        Scenario::Preemption,
        Scenario::Jobs,
    ];
}
