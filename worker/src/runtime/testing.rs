//! What the runtimes' tests share.

use std::time::{Duration, Instant};

use common::ids::{AssignmentId, NodeName, PodId, PodName};
use common::spec::OnDisconnect;

use super::Identity;

/// Pod `web`, replica 3, no service, two seconds of grace.
pub(crate) fn identity(node: &str, pod: &str, assignment: &str) -> Identity {
    Identity {
        node: NodeName::new(node).expect("a node name"),
        pod: PodId::new(pod).expect("a pod id"),
        name: PodName::new("web").expect("a pod name"),
        service: None,
        replica: 3,
        assignment: AssignmentId::new(assignment).expect("an assignment id"),
        on_disconnect: OnDisconnect::Keep,
        grace: Duration::from_secs(2),
    }
}

/// Polls until the condition gives something, for at most 20 seconds.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, condition: impl Fn() -> F) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
