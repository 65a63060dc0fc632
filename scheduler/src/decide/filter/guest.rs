//! A guest is another program that serves a node's queues. It knows name, uuid, image and replica: a pod that needs
//! more would run there without it.

use common::node::NodeKind;

use super::{Filter, Reason};

pub(super) const GUEST: Filter = Filter {
    reason: Reason::NeedsMoreThanGuest,
    passes: |candidate, need, _| match candidate.kind {
        NodeKind::Kubeleet => true,
        NodeKind::Guest => need.only_an_image,
    },
    explain: |_, _, _, _| "served by another program, which can start plain images only".to_owned(),
};
