//! A cordoned node keeps its pods and gets no new ones.

use super::types::{NodeFilter, Reason};

pub(super) const SCHEDULABLE: NodeFilter = NodeFilter {
    reason: Reason("Cordoned"),
    is_feasible: |candidate, _, _| !candidate.cordoned,
    explain: |_, _, _, _| "gets no new pods until it is uncordoned".to_owned(),
};
