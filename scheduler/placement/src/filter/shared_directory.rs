//! On a node without the shared directory, or with another one, a shared volume would be empty.

use model::node::SharedVolumesState;

use super::types::{NodeFilter, Reason};

pub(super) const READY: NodeFilter = NodeFilter {
    reason: Reason::NO_SHARED_DIRECTORY,
    is_feasible: |candidate, requirements, _| {
        !requirements.needs_shared_directory || candidate.has_shared_directory
    },
    explain: |_, _, _, node| match &node.shared_volumes {
        Some(SharedVolumesState::Refused(why)) => why.clone(),
        Some(SharedVolumesState::Ready) | None => {
            "has no directory for shared volumes: start its worker with KUBELEET_SHARED_VOLUMES_DIR"
                .to_owned()
        }
    },
};
