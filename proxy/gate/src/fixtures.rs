//! Pods and processes for the tests of the proxy's crates.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use model::ids::{AssignmentId, NodeName, PodId};
use model::network::endpoint::{Endpoint, EndpointState};
use model::network::handover::LocalPod;
use tokio_util::sync::CancellationToken;

use crate::listening::Listening;

/// With the assignment `of-<name>`.
pub fn local_pod(name: &str) -> LocalPod {
    LocalPod {
        pod: PodId::new(name).unwrap(),
        assignment: AssignmentId::new(format!("of-{name}")).unwrap(),
        start: 0,
        service: None,
        replica: 0,
        address: Ipv4Addr::LOCALHOST.into(),
        open: true,
        ready: true,
        ended: false,
    }
}

pub fn endpoint(name: &str, state: EndpointState) -> Endpoint {
    let LocalPod { pod, assignment, replica, .. } = local_pod(name);
    Endpoint { pod, replica, node: NodeName::new("worker1").unwrap(), assignment, state }
}

pub fn follower_of(former: &Listening) -> Listening {
    let next = Listening::from(CancellationToken::new());
    for (name, socket) in former.live_sockets() {
        next.inherit(name, socket.as_fd().try_clone_to_owned().unwrap());
    }
    next
}
