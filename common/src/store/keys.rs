//! Every key name, spelled once. `docs/REDIS.md` lists type, writer and readers of each.

use crate::ids::{NodeName, PodId, SchedulerId, ServiceName, SpecId};

pub(crate) const EVENTS: &str = "events";
pub(crate) const META: &str = "meta";
pub(crate) const SQ: &str = "sq";
pub(crate) const DQ: &str = "dq";
pub(crate) const UQ: &str = "uq";
pub(crate) const UQ_AT: &str = "uq:at";
pub(crate) const UQ_WHY: &str = "uq:why";
pub(crate) const SERVICES: &str = "services";
pub(crate) const UNCONFIRMED: &str = "unconfirmed";
pub(crate) const PUSHED: &str = "pushed";
pub(crate) const NODES: &str = "nodes";
pub(crate) const BEATS: &str = "beats";
pub(crate) const SCHEDULERS: &str = "schedulers";

macro_rules! keys {
    ($($name:ident($type:ty) = $prefix:literal;)*) => {$(
        pub(crate) fn $name(of: &$type) -> String {
            format!(concat!($prefix, "{}"), of)
        }
    )*};
}

keys! {
    pq(NodeName) = "pq:";
    rq(NodeName) = "rq:";
    cs(NodeName) = "cs:";
    hb(NodeName) = "hb:";
    node(NodeName) = "node:";
    stop(NodeName) = "stop:";
    log_requests(NodeName) = "lr:";
    pod(PodId) = "pod:";
    service(ServiceName) = "service:";
    slots(ServiceName) = "slots:";
    spec(SpecId) = "spec:";
    in_flight(SchedulerId) = "fq:";
    lease(str) = "lease:";
    log(str) = "log:";
}

/// Where it stands that a pod is wanted: its service's slots, or the set of pushed pods.
pub(crate) fn wanted(service: Option<&ServiceName>) -> String {
    service.map_or_else(|| PUSHED.to_owned(), slots)
}

/// Channels. Messages are hints: whoever misses one rereads a little later.
pub mod channel {
    use crate::ids::NodeName;

    /// Room may have appeared.
    pub const SCHEDULER: &str = "wake:scheduler";
    /// A service changed; the message is its name.
    pub const RECONCILE: &str = "wake:reconcile";

    /// Something waits for this worker beside its queue.
    pub fn worker(node: &NodeName) -> String {
        format!("wake:{node}")
    }
}
