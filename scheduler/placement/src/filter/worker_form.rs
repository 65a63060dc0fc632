//! Keeps pods with rules, ordinals, and pods of global services away from workers of the version before,
//! which cannot read their specifications. External workers read none.

use model::node::NodeKind;
use model::spec::FORM_WITH_RULES;

use super::types::{NodeFilter, Reason};

pub(super) const READS_IT: NodeFilter = NodeFilter {
    reason: Reason("WorkerTooOld"),
    is_feasible: |candidate, requirements, _| match &candidate.settings {
        Some(settings) if requirements.rules.is_some() || requirements.needs_newest_form => {
            candidate.kind == NodeKind::External || settings.forms >= FORM_WITH_RULES
        }
        _ => true,
    },
    explain: |_, _, _, _| "its worker cannot read the rules of the service; upgrade it".to_owned(),
};
