//! Preemption: pods of a lower priority are stopped for one that fits nowhere.
//!
//! Tests: scripts::preemption, scheduler::tests::preemption

use std::time::Duration;

use crate::reply::{unexpected, word};
use crate::scripts::{nomination_drop, preempt};
use crate::{Store, StoreError, keys};
use model::ids::{AssignmentId, Incarnation, NodeName, PodId, ServiceName};
use model::node::Resources;

/// All as it was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedPreemption {
    pub node: NodeName,
    pub incarnation: Incarnation,
    /// The seen revision of the waiting pod's service.
    pub revision: u64,
    /// Enough for the request, and none too many.
    pub victims: Vec<PreemptedPod>,
    /// The room is kept for the waiting pod for so long.
    pub kept: Duration,
}

/// A pod that is stopped for another one.
#[derive(Debug, Clone, PartialEq)]
pub struct PreemptedPod {
    pub pod: PodId,
    pub assignment: AssignmentId,
    pub service: ServiceName,
    /// The `step` of its service, from before its pods were counted.
    pub step: String,
    /// The revision of its service when its priority was read.
    pub revision: u64,
}

impl Store {
    /// Stops the victims and keeps their room for `pod`, a waiting one of the service `name`. Returns false
    /// if something is not as it was seen: nothing has changed.
    pub async fn preempt(
        &self,
        (pod, name): (&PodId, &ServiceName),
        request: Resources,
        dead_after: Duration,
        preemption: &PlannedPreemption,
        message: &str,
    ) -> Result<bool, StoreError> {
        let PlannedPreemption { node, incarnation, revision, victims, kept } = preemption;
        let mut call = preempt::Head {
            node_key: keys::node(node),
            stop_set: keys::stop(node),
            nominee_key: keys::pod(pod),
            its_service_key: keys::service(name),
            node,
            seen_incarnation: incarnation,
            nominee: pod,
            name,
            its_seen_revision: *revision,
            kept_ms: *kept,
            dead_after_ms: dead_after,
            message,
            resources: &request,
        }
        .call();
        for victim in victims {
            call.add(preempt::Pod {
                pod_key: keys::pod(&victim.pod),
                service_key: keys::service(&victim.service),
                ep_key: keys::endpoints(&victim.service),
                uuid: &victim.pod,
                seen_assignment: &victim.assignment,
                seen_step: &victim.step,
                seen_revision: victim.revision,
            });
        }
        is_done("preempting pods", &word("preempting pods", self.link.script(&call).await?)?)
    }

    /// Returns false if the node keeps no room for this pod.
    pub async fn drop_nomination(&self, node: &NodeName, pod: &PodId) -> Result<bool, StoreError> {
        let call = nomination_drop::Head { node_key: keys::node(node), nominee: pod }.call();
        let what = "giving up a nomination";
        is_done(what, &word(what, self.link.script(&call).await?)?)
    }
}

fn is_done(what: &str, answer: &str) -> Result<bool, StoreError> {
    match answer {
        "OK" => Ok(true),
        "CHANGED" => Ok(false),
        other => Err(unexpected(what, other)),
    }
}
