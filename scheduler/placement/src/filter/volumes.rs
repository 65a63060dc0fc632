//! A pod waits for the node with its volume's data: elsewhere the volume would be empty.

use super::types::{NodeFilter, Reason};
use crate::candidate::Candidate;
use crate::requirements::{BoundVolume, ContestedVolume, GivenUpCopy, Requirements, UnreportedVolume};

pub(super) const DATA_IS_HERE: NodeFilter = NodeFilter {
    reason: Reason::VOLUME_ELSEWHERE,
    is_feasible: |candidate, requirements, _| missing_volume(candidate, requirements).is_none(),
    explain: |candidate, requirements, _, _| match missing_volume(candidate, requirements) {
        Some(BoundVolume { name, node, is_removing: true, .. }) => {
            format!("volume {name} is being removed on {node}")
        }
        Some(BoundVolume { name, node, .. }) if *node == *candidate.name => {
            format!("its data is on the machine that had the name {node} before: volume {name}")
        }
        Some(BoundVolume { name, node, .. }) => format!("its data is on {node}: volume {name}"),
        None => "its data is on another node".to_owned(),
    },
};

/// After Redis lost records, the data may be on a node that is down.
pub(super) const PLACE_IS_KNOWN: NodeFilter = NodeFilter {
    reason: Reason::VOLUME_UNREPORTED,
    is_feasible: |_, requirements, _| unreported_volume(requirements).is_none(),
    explain: |_, requirements, _, _| {
        let Some(UnreportedVolume { name, nodes }) = unreported_volume(requirements) else {
            return "the place of its data is not known".to_owned();
        };
        let Some(first) = nodes.first() else { return "a node has not said what it has".to_owned() };
        let (where_it_is, flag) = match first.is_former {
            true => (format!("the machine that had the name {} before", first.name), " --former"),
            false => (first.name.to_string(), ""),
        };
        let more = nodes.len() - 1;
        let others = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!(
            "volume {name} may be on {where_it_is}{others}, not heard of since Redis was restarted or lost data: start \
             its worker, or `kubeleet node rm {}{flag}` if its data is given up",
            first.name
        )
    },
};

/// Only an operator knows which of several copies is wanted.
pub(super) const COPIES_AGREE: NodeFilter = NodeFilter {
    reason: Reason::VOLUME_CONFLICT,
    is_feasible: |_, requirements, _| contested_volume(requirements).is_none(),
    explain: |_, requirements, _, _| {
        let Some(ContestedVolume { name, nodes }) = contested_volume(requirements) else {
            return "its copies contradict each other".to_owned();
        };
        let nodes: Vec<&str> = nodes.iter().map(|node| node.as_str()).collect();
        format!(
            "volume {name} has copies on {}, and which one is wanted is not known: `kubeleet volume bind {name} NODE` chooses",
            nodes.join(" and ")
        )
    },
};

/// A new volume here would reuse the copy.
pub(super) const NOTHING_GIVEN_UP: NodeFilter = NodeFilter {
    reason: Reason::VOLUME_FORMER,
    is_feasible: |candidate, requirements, _| given_up_copy(candidate, requirements).is_none(),
    explain: |candidate, requirements, _, _| match given_up_copy(candidate, requirements) {
        Some(GivenUpCopy { name, node }) => format!(
            "{node} has data of volume {name} that was given up: `kubeleet volume bind {name} {node}` uses it, and \
             `kubeleet volume rm {name} --node {node}` removes it"
        ),
        None => "it has data that was given up".to_owned(),
    },
};

fn unreported_volume(requirements: &Requirements) -> Option<&UnreportedVolume> {
    requirements.volumes.as_ref()?.unreported.as_ref()
}

fn contested_volume(requirements: &Requirements) -> Option<&ContestedVolume> {
    requirements.volumes.as_ref()?.contested.as_ref()
}

fn given_up_copy<'a>(candidate: &Candidate, requirements: &'a Requirements) -> Option<&'a GivenUpCopy> {
    requirements.volumes.as_ref()?.given_up.iter().find(|copy| copy.node == *candidate.name)
}

fn missing_volume<'a>(candidate: &Candidate, requirements: &'a Requirements) -> Option<&'a BoundVolume> {
    let is_missing = |volume: &&BoundVolume| {
        let is_other_machine =
            volume.engine_id.is_some() && volume.engine_id.as_deref() != candidate.engine_id.as_deref();
        volume.is_removing || volume.node != *candidate.name || is_other_machine
    };
    requirements.volumes.as_ref()?.bound.iter().find(is_missing)
}
