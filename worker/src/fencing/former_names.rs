//! Fences containers with other node names of this machine: after a node was renamed, no worker manages those
//! of its former name. Restores invariant 5 for them.
//!
//! A lease file shows that a worker of that name ran here. When its lease has expired, this does what that
//! worker would do.

use std::collections::HashMap;
use std::time::Duration;

use daemon::clock::BootInstant;
use engine::{ContainerState, RuntimeError, list_own};
use model::ids::NodeName;

use crate::backup::backup_containers;
use crate::fencing::fence::{self, FenceScope};
use crate::fencing::other_lease::OtherLease;
use crate::worker::Worker;

const INTERVAL: Duration = Duration::from_secs(1);

/// People remove the containers of a former name.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

struct FencedName {
    deadline: BootInstant,
    next_look: BootInstant,
    told: usize,
}

pub(crate) async fn watch(worker: &Worker) {
    let mut fenced: HashMap<NodeName, FencedName> = HashMap::new();
    loop {
        for other in worker.identity.other_leases() {
            let now = worker.now();
            if other.deadline > now {
                // Its worker is back.
                worker.problems.set(&subject(&other.node), None);
                continue;
            }
            let is_due = |known: &FencedName| known.deadline != other.deadline || known.next_look <= now;
            if !fenced.get(&other.node).is_none_or(is_due) {
                continue;
            }
            match fence_former(worker, &other).await {
                Ok(Some(left)) => {
                    let told = fenced.get(&other.node).map_or(0, |known| known.told);
                    if left == told || left == 0 || tell(worker, &other.node, left).await {
                        let (deadline, next_look) = (other.deadline, now.plus(LOOK_AGAIN));
                        fenced.insert(other.node, FencedName { deadline, next_look, told: left });
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(node = %other.node, %error, "its containers cannot be listed now")
                }
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The number of running containers, once nothing was left to stop.
async fn fence_former(worker: &Worker, other: &OtherLease) -> Result<Option<usize>, RuntimeError> {
    let (runtime, timing) = (&*worker.runtime, &worker.config.timing);
    let OtherLease { node, cluster, deadline } = other;
    let known = backup_containers::read(&worker.config.data_dir, node, runtime);
    let proxy = worker.proxy.as_deref();
    let scope = FenceScope { node, cluster: cluster.as_ref(), timing, proxy, saved: None };
    let found = fence::enforce(runtime, &scope, *deadline, &*worker.clock, &known).await?;
    if found > 0 {
        return Ok(None);
    }
    let mut left = list_own(runtime, node, cluster.as_ref()).await?;
    left.retain(|container| container.state == ContainerState::Running);
    worker.problems.set(&subject(node), (!left.is_empty()).then(|| problem(node, left.len())));
    Ok(Some(left.len()))
}

fn subject(former: &NodeName) -> String {
    format!("former name {former}")
}

fn problem(former: &NodeName, count: usize) -> String {
    format!(
        "{count} containers of the node name {former} run on this machine, and no worker of that name does: was this \
         node renamed? Their pods may run twice. Start a worker with that name again, or remove the containers: \
         docker rm -f $(docker ps -q --filter label=kubeleet.node={former})"
    )
}

/// Returns false if this node is not registered yet.
async fn tell(worker: &Worker, former: &NodeName, count: usize) -> bool {
    let node = &worker.node;
    match worker.store.report_former_containers(node, former, count).await {
        Ok(true) => {}
        Ok(false) => return false,
        // Not worth another scan each second.
        Err(error) => tracing::debug!(%error, "the event about containers of a former name is not recorded"),
    }
    tracing::warn!(
        %node, %former, count,
        "containers of another node name run on this machine, and its worker has no lease: was this node renamed? \
         They go on, and their pods move to other nodes. Start a worker with that name again, or remove them on the \
         engine: they have the label kubeleet.node={former}"
    );
    true
}
