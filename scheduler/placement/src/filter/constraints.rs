//! Keeps pods away from nodes that their service's `placement` rules out.

use super::types::{NodeFilter, Reason};

pub(super) const SATISFIED: NodeFilter = NodeFilter {
    reason: Reason::CONSTRAINT,
    is_feasible: |candidate, requirements, _| {
        requirements.rules.as_ref().is_none_or(|rules| {
            rules.constraints.iter().all(|one| one.holds(&candidate.name, candidate.labels()))
        })
    },
    explain: |candidate, requirements, _, _| {
        let constraints = requirements.rules.iter().flat_map(|rules| &rules.constraints);
        let mut broken = constraints.filter(|one| !one.holds(&candidate.name, candidate.labels()));
        broken.next().map(|one| one.explain(candidate.labels())).unwrap_or_default()
    },
};
