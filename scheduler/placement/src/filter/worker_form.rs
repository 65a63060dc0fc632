//! Keeps pods with rules or named resources, ordinals, and pods of global services away from workers of the
//! version before, which cannot read their specifications. External workers read none.

use model::node::NodeKind;
use model::spec::FORM_WITH_RULES;

use super::types::{NodeFilter, Reason};
use crate::requirements::Requirements;

pub(super) const READS_IT: NodeFilter = NodeFilter {
    reason: Reason("WorkerTooOld"),
    is_feasible: |candidate, requirements, _| match &candidate.settings {
        Some(settings) if needs_form(requirements) => {
            candidate.kind == NodeKind::External || settings.forms >= FORM_WITH_RULES
        }
        _ => true,
    },
    explain: |_, _, _, _| "its worker cannot read the rules of the service; upgrade it".to_owned(),
};

fn needs_form(requirements: &Requirements) -> bool {
    requirements.rules.as_ref().is_some_and(|rules| !rules.are_of_others())
        || requirements.needs_newest_form
        || requirements.named.is_some()
}
