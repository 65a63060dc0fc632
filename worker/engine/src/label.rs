//! Label keys of containers and volumes. Fixed, because other programs read them.

/// Always `kubeleet`.
pub const ORCHESTRATOR: &str = "orchestrator";
pub const NODE: &str = "kubeleet.node";
pub const CLUSTER: &str = "kubeleet.cluster";
pub const POD: &str = "kubeleet.pod";
/// The pod's name if it belongs to no service.
pub const SERVICE: &str = "kubeleet.service";
pub const REPLICA: &str = "kubeleet.replica";
pub const VOLUME: &str = "kubeleet.volume";
/// `local` or `persistent`. Only volumes have it.
pub const VOLUME_KIND: &str = "kubeleet.volume-kind";
/// Intended capacity in bytes.
pub const SPACE: &str = "kubeleet.space";
/// Milliseconds at which this copy of a persistent volume was bound: of two copies the greater is younger.
pub const EPOCH: &str = "kubeleet.epoch";
pub const ASSIGNMENT: &str = "kubeleet.assignment";
/// `stop` or `keep`. Read by the fence, which cannot ask Redis.
pub const ON_DISCONNECT: &str = "kubeleet.on-disconnect";
/// Seconds between SIGTERM and SIGKILL. Read by the fence.
pub const GRACE: &str = "kubeleet.grace";
/// Absent from a pod's only container, and from a sandbox.
pub const CONTAINER: &str = "kubeleet.container";
