//! Current usage of pods and nodes, measured while a client asks.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{NodeName, PodId, ServiceName};
use crate::node::Psi;

/// Usage of processes. A part that cannot be measured is null.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Usage {
    /// Thousandths of a core, on average since the measurement before.
    pub cpu_millis: Option<u64>,
    /// Thousandths of the time in which its CPU limit held it up.
    pub cpu_throttled_millis: Option<u64>,
    /// Bytes of memory that it may have.
    pub memory_limit_bytes: Option<u64>,
    /// Bytes of memory without the file cache that the kernel can take back (the working set).
    pub memory_bytes: Option<u64>,
    /// Bytes read from block devices in a second.
    pub read_bytes_per_second: Option<u64>,
    /// Bytes written to block devices in a second.
    pub write_bytes_per_second: Option<u64>,
    /// Pressure, if the kernel reports it.
    pub psi: Option<Psi>,
}

impl Usage {
    /// Keeps the higher pressure; a missing part is taken from the other.
    pub fn plus(self, other: Usage) -> Usage {
        let add = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        Usage {
            cpu_millis: add(self.cpu_millis, other.cpu_millis),
            cpu_throttled_millis: add(self.cpu_throttled_millis, other.cpu_throttled_millis),
            memory_limit_bytes: add(self.memory_limit_bytes, other.memory_limit_bytes),
            memory_bytes: add(self.memory_bytes, other.memory_bytes),
            read_bytes_per_second: add(self.read_bytes_per_second, other.read_bytes_per_second),
            write_bytes_per_second: add(self.write_bytes_per_second, other.write_bytes_per_second),
            psi: match (self.psi, other.psi) {
                (Some(a), Some(b)) => Some(highest(a, b)),
                (a, b) => a.or(b),
            },
        }
    }
}

fn highest(a: Psi, b: Psi) -> Psi {
    Psi {
        cpu_some: a.cpu_some.max(b.cpu_some),
        memory_some: a.memory_some.max(b.memory_some),
        memory_full: a.memory_full.max(b.memory_full),
        io_some: a.io_some.max(b.io_some),
        io_full: a.io_full.max(b.io_full),
    }
}

/// Usage of a pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PodUsage {
    /// Uuid of the pod.
    pub uuid: PodId,
    /// Its name with its index, such as `web-0`.
    pub name: String,
    /// Its service; null for a pod that was pushed to a queue.
    pub service: Option<ServiceName>,
    /// The sum of its containers.
    #[serde(default)]
    pub usage: Usage,
}

/// Usage of a machine, also outside of pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct MachineUsage {
    /// Usage of its processes.
    pub usage: Usage,
    /// Thousandths of a core that it has.
    pub cpu_total_millis: u64,
    /// Bytes of memory that it has.
    pub memory_total_bytes: u64,
    /// Processes that ran or waited for a CPU, on average over 1, 5 and 15 minutes.
    pub load: Option<[f32; 3]>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageReport {
    pub machine: MachineUsage,
    pub pods: Vec<PodUsage>,
}

/// Usage of a pod, and its node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PodUsageView {
    /// Node that the pod runs on.
    pub node: NodeName,
    /// The pod.
    #[serde(flatten)]
    pub pod: PodUsage,
}

/// Usage of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeUsageView {
    /// Name of the node.
    pub name: NodeName,
    /// Its machine.
    #[serde(flatten)]
    pub machine: MachineUsage,
    /// Number of pods that run there.
    pub pods: u64,
}

/// Usage of the nodes of the cluster and the pods on them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterUsageView {
    /// The nodes, by name.
    pub nodes: Vec<NodeUsageView>,
    /// The pods, by name.
    pub pods: Vec<PodUsageView>,
    /// Live nodes that have not measured: external workers, and those that are late.
    pub missing: Vec<NodeName>,
}

/// The disk space of a node that could be freed, and that was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct GarbageView {
    /// Name of the node.
    pub node: Option<NodeName>,
    /// Size of the disk that has its containers; 0 if it cannot be measured.
    pub disk_total_bytes: u64,
    /// The free part of it.
    pub disk_available_bytes: u64,
    /// Number of logs of removed containers that are kept.
    pub kept_logs: u64,
    /// Bytes that they have.
    pub kept_log_bytes: u64,
    /// Images that no pod of the node uses and to which no service can be undone, the longest unused first.
    pub images: Vec<String>,
    /// Images that nothing needs and that stay, because they came from no registry and cannot be pulled
    /// again.
    #[serde(default)]
    pub unpullable_images: Vec<String>,
    /// Those of them that were removed.
    pub removed: Vec<String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_sum_keeps_what_only_one_part_has() {
        let psi = |cpu_some, io_full| Some(Psi { cpu_some, io_full, ..Psi::default() });
        let a = Usage { cpu_millis: Some(5), memory_bytes: Some(7), psi: psi(1.0, 4.0), ..Usage::default() };
        let b = Usage {
            cpu_millis: Some(6),
            read_bytes_per_second: Some(2),
            psi: psi(3.0, 2.0),
            ..Usage::default()
        };
        let sum = Usage {
            cpu_millis: Some(11),
            memory_bytes: Some(7),
            read_bytes_per_second: Some(2),
            psi: psi(3.0, 4.0),
            ..Usage::default()
        };
        assert_eq!((a.plus(b), b.plus(a)), (sum, sum));
    }

    #[test]
    fn a_report_of_another_version_is_read() {
        let report: UsageReport = serde_json::from_str(r#"{"machine":{"new":1},"later":[]}"#).unwrap();
        assert_eq!(report, UsageReport::default());
    }
}
