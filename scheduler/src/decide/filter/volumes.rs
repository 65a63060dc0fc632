//! The data of a persistent volume is on one node. A pod that needs it waits for that node: on any other one its
//! volume would be empty.

use super::{NodeFilter, Reason};
use crate::decide::candidate::Candidate;
use crate::decide::requirements::{BoundVolume, Requirements, UnreportedVolume};

pub(super) const DATA_IS_HERE: NodeFilter = NodeFilter {
    reason: Reason::VOLUME_ELSEWHERE,
    is_feasible: |candidate, requirements, _| missing_volume(candidate, requirements).is_none(),
    explain: |candidate, requirements, _, _| match missing_volume(candidate, requirements) {
        Some(BoundVolume { name, node, is_removing: false }) => {
            format!("its data is on {node}: volume {name}")
        }
        Some(BoundVolume { name, node, is_removing: true }) => {
            format!("volume {name} is being removed on {node}")
        }
        None => "its data is on another node".to_owned(),
    },
};

/// After Redis has lost records the data of a volume without one may be on a node that is down.
pub(super) const PLACE_IS_KNOWN: NodeFilter = NodeFilter {
    reason: Reason::VOLUME_UNREPORTED,
    is_feasible: |_, requirements, _| requirements.unreported_volume.is_none(),
    explain: |_, requirements, _, _| {
        let Some(UnreportedVolume { name, nodes }) = &requirements.unreported_volume else {
            return "the place of its data is not known".to_owned();
        };
        let (first, more) =
            (nodes.first().map_or("a node", |node| node.as_str()), nodes.len().saturating_sub(1));
        let others = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!(
            "volume {name} may be on {first}{others}, not heard of since Redis was restarted or lost data: start its \
             worker, or `kubeleet node rm {first}` if its data is given up"
        )
    },
};

fn missing_volume<'a>(candidate: &Candidate, requirements: &'a Requirements) -> Option<&'a BoundVolume> {
    let is_missing = |volume: &&BoundVolume| volume.is_removing || volume.node != *candidate.name;
    requirements.bound_volumes.iter().find(is_missing)
}
