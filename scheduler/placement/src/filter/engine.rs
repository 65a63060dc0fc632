//! A worker can run while its container engine does not: it reports the engine's problem with its heartbeat.

use super::types::{NodeFilter, Reason};

pub(super) const HEALTHY: NodeFilter = NodeFilter {
    reason: Reason("EngineUnhealthy"),
    is_feasible: |candidate, _, _| candidate.engine_healthy,
    explain: |_, _, _, node| {
        let problem = node.engine_problem.as_deref().filter(|problem| !problem.is_empty());
        format!("container engine is unhealthy: {}", problem.unwrap_or("no details reported"))
    },
};
