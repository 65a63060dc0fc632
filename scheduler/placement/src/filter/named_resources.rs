//! An id of a named resource belongs to one pod of a node.

use model::node::Node;

use super::types::{NodeFilter, Reason};
use crate::candidate::LackOfIds;

pub(super) const ENOUGH_IDS: NodeFilter = NodeFilter {
    reason: Reason::INSUFFICIENT_RESOURCE,
    is_feasible: |candidate, requirements, _| match &requirements.named {
        None => true,
        Some(named) => candidate.lack_of_ids(named).is_none(),
    },
    explain: |candidate, requirements, _, node| {
        let lack = requirements.named.as_deref().and_then(|named| candidate.lack_of_ids(named));
        lack.map_or_else(String::new, |lack| in_words(&lack, node))
    },
};

fn in_words(LackOfIds { name, needed, free }: &LackOfIds<'_>, node: &Node) -> String {
    match node.offered_ids().count(name) {
        0 => format!("needs {needed} {name}, and the node has none"),
        offered => format!("needs {needed} {name}, {free} of {offered} free"),
    }
}
