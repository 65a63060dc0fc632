//! Label keys of containers, volumes and the pod network. Fixed, because other programs read them.

/// Always `kubeleet`.
pub const ORCHESTRATOR: &str = "orchestrator";
pub const NODE: &str = "kubeleet.node";
pub const CLUSTER: &str = "kubeleet.cluster";
pub const POD: &str = "kubeleet.pod";
/// The pod's name if it belongs to no service.
pub const SERVICE: &str = "kubeleet.service";
/// Only persistent volumes have it.
pub const REPLICA: &str = "kubeleet.replica";
/// Name of the volume in the specification. Only volumes have it.
pub const VOLUME: &str = "kubeleet.volume";
/// `local` or `persistent`. Only volumes have it.
pub const VOLUME_KIND: &str = "kubeleet.volume-kind";
/// Intended capacity of a volume in bytes.
pub const SPACE: &str = "kubeleet.space";
/// Milliseconds at which this copy of a persistent volume was bound: of two copies the greater is younger.
pub const EPOCH: &str = "kubeleet.epoch";
pub const ASSIGNMENT: &str = "kubeleet.assignment";
/// `stop` or `keep`. Read by the fence, which cannot ask Redis.
pub const ON_DISCONNECT: &str = "kubeleet.on-disconnect";
/// Seconds between the container's stop signal and SIGKILL. Read by the fence.
pub const GRACE: &str = "kubeleet.grace";
/// Absent from a pod's only container, and from a sandbox.
pub const CONTAINER: &str = "kubeleet.container";
/// Ids of named resources of its pod: `gpu/0 gpu/1`. Absent if it has none.
pub const RESOURCES: &str = "kubeleet.resources";
