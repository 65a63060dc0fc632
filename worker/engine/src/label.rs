//! Label keys of containers. Fixed, because other programs read them.

/// Always `kubeleet`.
pub const ORCHESTRATOR: &str = "orchestrator";
/// The node whose worker created the container.
pub const NODE: &str = "kubeleet.node";
/// The node's cluster.
pub const CLUSTER: &str = "kubeleet.cluster";
/// The pod's uuid.
pub const POD: &str = "kubeleet.pod";
/// The pod's service, or the pod's name if it belongs to none.
pub const SERVICE: &str = "kubeleet.service";
/// The index of the replica that a persistent volume belongs to.
pub const REPLICA: &str = "kubeleet.replica";
/// The name of a volume in its service; empty if it has none.
pub const VOLUME: &str = "kubeleet.volume";
/// `local` or `persistent`. Only volumes have it.
pub const VOLUME_KIND: &str = "kubeleet.volume-kind";
/// The intended capacity of a volume in bytes.
pub const SPACE: &str = "kubeleet.space";
/// When the persistent volume of this copy was bound, in milliseconds: of two copies the greater number is
/// younger.
pub const EPOCH: &str = "kubeleet.epoch";
/// The pod's assignment.
pub const ASSIGNMENT: &str = "kubeleet.assignment";
/// `stop` or `keep`. Read by the fence, which cannot ask Redis.
pub const ON_DISCONNECT: &str = "kubeleet.on-disconnect";
/// Seconds between SIGTERM and SIGKILL. Read by the fence.
pub const GRACE: &str = "kubeleet.grace";
/// The container's name in its pod. Absent from a pod's only container, and from a sandbox.
pub const CONTAINER: &str = "kubeleet.container";
