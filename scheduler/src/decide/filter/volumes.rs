//! The data of a persistent volume is on one node. A pod that needs it waits for that node: on any other one its
//! volume would be empty.

use super::{NodeFilter, Reason};
use crate::decide::candidate::Candidate;
use crate::decide::requirements::{BoundVolume, Requirements};

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

fn missing_volume<'a>(candidate: &Candidate, requirements: &'a Requirements) -> Option<&'a BoundVolume> {
    let is_missing = |volume: &&BoundVolume| volume.is_removing || volume.node != *candidate.name;
    requirements.bound_volumes.iter().find(is_missing)
}
