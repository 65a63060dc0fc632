//! Avoids nodes whose worker would refuse the pod's use of the host. Nodes with an unknown policy are tried.

use super::types::{NodeFilter, Reason};

pub(super) const ALLOWED: NodeFilter = NodeFilter {
    reason: Reason::NOT_ALLOWED,
    is_feasible: |candidate, requirements, _| match (&requirements.host, &candidate.settings) {
        (Some(request), Some(settings)) => settings.host.check(request).is_ok(),
        _ => true,
    },
    explain: |candidate, requirements, _, _| {
        let both = requirements.host.as_ref().zip(candidate.settings.as_ref());
        let refusal = both.and_then(|(request, settings)| settings.host.check(request).err());
        refusal.unwrap_or_else(|| "does not allow what the pod asks of its host".to_owned())
    },
};
