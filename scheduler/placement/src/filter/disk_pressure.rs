//! A node with a full disk gets no new pods: it has no space for their images and logs.

use super::types::{NodeFilter, Reason};

pub(super) const HAS_ROOM: NodeFilter = NodeFilter {
    reason: Reason("DiskPressure"),
    is_feasible: |candidate, _, _| candidate.has_disk,
    explain: |_, _, _, node| {
        format!("its disk is full: {}", node.disk_problem.as_deref().unwrap_or_default())
    },
};
