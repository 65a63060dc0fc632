//! A host port belongs to one pod of a node.

use super::types::{NodeFilter, Reason};

pub(super) const FREE: NodeFilter = NodeFilter {
    reason: Reason::HOST_PORT_TAKEN,
    is_feasible: |candidate, requirements, _| candidate.taken_port(&requirements.host_ports).is_none(),
    explain: |candidate, requirements, _, _| match candidate.taken_port(&requirements.host_ports) {
        Some((port, pod)) => format!("port {port} is taken by {pod}"),
        None => "a port is taken".to_owned(),
    },
};
