//! Label keys of containers. Fixed, because other programs read them.

/// Always `kubeleet`.
pub const ORCHESTRATOR: &str = "orchestrator";
/// The node whose worker created the container.
pub const NODE: &str = "kubeleet.node";
/// The cluster that the node belonged to. Containers without it are of a version before 0.2.
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
/// How many bytes a volume is meant to hold.
pub const SPACE: &str = "kubeleet.space";
/// When a persistent volume was bound for which this copy was created, in milliseconds: of two copies the one
/// with the greater number is younger. Absent from copies of a version before.
pub const EPOCH: &str = "kubeleet.epoch";
/// The assignment for which it was created.
pub const ASSIGNMENT: &str = "kubeleet.assignment";
/// `stop` or `keep`. The fence reads it, because it cannot ask Redis.
pub const ON_DISCONNECT: &str = "kubeleet.on-disconnect";
/// Seconds between SIGTERM and SIGKILL. The fence reads it.
pub const GRACE: &str = "kubeleet.grace";
/// The name of the container in its pod. Absent from the only container of a pod, and from a sandbox.
pub const CONTAINER: &str = "kubeleet.container";
