//! Shared by the tests of the runtimes.

use std::sync::Arc;
use std::time::Duration;

use model::ids::{AssignmentId, ClusterId, NodeName, PodId, PodName};
use model::spec::OnDisconnect;

use crate::{Identity, NoLogins, RegistryLogins};

pub fn no_logins() -> Arc<dyn RegistryLogins> {
    Arc::new(NoLogins)
}

pub fn identity(node: &str, pod: &str, assignment: &str) -> Identity {
    Identity {
        node: NodeName::new(node).expect("a node name"),
        cluster: Some(ClusterId::new("c").expect("a cluster id")),
        pod: PodId::new(pod).expect("a pod id"),
        name: PodName::new("web").expect("a pod name"),
        service: None,
        replica: 3,
        assignment: AssignmentId::new(assignment).expect("an assignment id"),
        container: None,
        on_disconnect: OnDisconnect::Keep,
        grace: Duration::from_secs(2),
        resources: Default::default(),
    }
}
