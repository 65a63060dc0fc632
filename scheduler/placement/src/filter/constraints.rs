//! Keeps pods away from nodes that their service's `placement` rules out.

use model::spec::NodeConstraint;

use super::types::{NodeFilter, Reason};
use crate::candidate::Candidate;
use crate::requirements::Requirements;

pub(super) const SATISFIED: NodeFilter = NodeFilter {
    reason: Reason::CONSTRAINT,
    is_feasible: |candidate, requirements, _| broken(candidate, requirements).is_none(),
    explain: |candidate, requirements, _, _| {
        broken(candidate, requirements).map(|one| one.explain(candidate.labels())).unwrap_or_default()
    },
};

fn broken<'a>(candidate: &Candidate, requirements: &'a Requirements) -> Option<&'a NodeConstraint> {
    requirements.rules.as_ref()?.broken_by(&candidate.name, candidate.labels())
}
