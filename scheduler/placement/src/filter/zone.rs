//! Keeps the ordinals of a stateful service in the zones that its rule has chosen.

use super::types::{NodeFilter, Reason};
use crate::candidate::Candidate;
use crate::requirements::{OrdinalZone, Requirements, ZoneChoice};

pub(super) const KNOWN: NodeFilter = NodeFilter {
    reason: Reason::NO_ZONE,
    is_feasible: |candidate, requirements, _| unknown(candidate, requirements).is_none(),
    explain: |candidate, requirements, _, _| match unknown(candidate, requirements) {
        Some(OrdinalZone { key, choice: ZoneChoice::TooFew { zones, wanted }, .. }) => {
            format!(
                "the service waits for {wanted} values of {key}, and nodes that could run it have {zones}"
            )
        }
        Some(OrdinalZone { key, .. }) => format!("has no label {key}, by which the service is stateful"),
        None => String::new(),
    },
};

pub(super) const OF_ORDINAL: NodeFilter = NodeFilter {
    reason: Reason::OTHER_ZONE,
    is_feasible: |candidate, requirements, _| other(candidate, requirements).is_none(),
    explain: |candidate, requirements, _, _| {
        let Some((OrdinalZone { key, .. }, of_node, own)) = other(candidate, requirements) else {
            return String::new();
        };
        format!("has {key}={of_node}, but its ordinal goes to {key}={own}")
    },
};

fn unknown<'a>(candidate: &Candidate, requirements: &'a Requirements) -> Option<&'a OrdinalZone> {
    let zone = requirements.zone.as_deref()?;
    let is_unknown = match zone.choice {
        ZoneChoice::Zone(_) => candidate.domain(&zone.key).is_none(),
        ZoneChoice::TooFew { .. } => true,
    };
    is_unknown.then_some(zone)
}

/// With the zone of the node, and that of the ordinal.
fn other<'a>(
    candidate: &'a Candidate,
    requirements: &'a Requirements,
) -> Option<(&'a OrdinalZone, &'a str, &'a str)> {
    let zone = requirements.zone.as_deref()?;
    let ZoneChoice::Zone(own) = &zone.choice else { return None };
    let of_node = candidate.domain(&zone.key).filter(|of_node| of_node != own)?;
    Some((zone, of_node, own))
}
