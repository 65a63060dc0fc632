//! An external worker knows only name, uuid, image and replica of a pod, and would ignore other requirements.

use model::node::NodeKind;

use super::types::{NodeFilter, Reason};

pub(super) const IMAGE_ONLY: NodeFilter = NodeFilter {
    reason: Reason("NeedsMoreThanGuest"),
    is_feasible: |candidate, requirements, _| match candidate.kind {
        NodeKind::Kubeleet => true,
        NodeKind::External => requirements.needs_only_image,
    },
    explain: |_, _, _, _| "served by an external worker, which can only run plain images".to_owned(),
};
