//! A worker can be well while its container engine is not: it says so with its heartbeat.

use super::{Filter, Reason};

pub(super) const ENGINE: Filter = Filter {
    reason: Reason::EngineUnhealthy,
    passes: |candidate, _, _| candidate.engine_well,
    explain: |_, _, _, node| {
        let problem = node.engine_problem.as_deref().filter(|words| !words.is_empty());
        format!("its engine says: {}", problem.unwrap_or("(nothing)"))
    },
};
