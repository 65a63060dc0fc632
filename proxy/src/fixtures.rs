//! Pods for the tests of this crate.

use std::net::Ipv4Addr;

use common::handover::LocalPod;
use common::ids::{AssignmentId, PodId};

/// Returns an open pod on this host, with the assignment `of-<name>`.
pub(crate) fn local_pod(name: &str) -> LocalPod {
    LocalPod {
        pod: PodId::new(name).unwrap(),
        assignment: AssignmentId::new(format!("of-{name}")).unwrap(),
        start: 0,
        service: None,
        replica: 0,
        address: Ipv4Addr::LOCALHOST.into(),
        open: true,
    }
}
