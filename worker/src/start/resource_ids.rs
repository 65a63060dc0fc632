//! The ids of named resources that a pod was given. Its containers get them only if no other container of the
//! node has one of them: what Redis has lost, or has given to another pod since, may still run here.

use engine::{Container, ContainerState, RuntimeError};
use model::ids::PodId;
use model::node::ResourceIds;

use crate::running::table::ManagedPod;
use crate::session::context::SessionContext;

#[derive(Debug)]
pub(crate) enum IdsObstacle {
    /// A container may end soon; if it does not, the schedulers place the pod again.
    Busy(String),
    /// The schedulers place the pod again.
    Lost(String),
    Engine(RuntimeError),
    /// Redis does not answer, or its record has changed since the claim.
    Redis,
}

pub(crate) async fn check(context: &SessionContext, managed: &mut ManagedPod) -> Result<(), IdsObstacle> {
    if managed.spec.resources.is_empty() {
        return Ok(());
    }
    let (worker, pod) = (&context.worker, &managed.payload.id);
    let record = match worker.store.pod(pod).await {
        Ok(record) => record.ok_or(IdsObstacle::Redis)?,
        Err(error) if error.is_transient() => {
            worker.redis_log.failed(&error);
            return Err(IdsObstacle::Redis);
        }
        Err(error) => return Err(IdsObstacle::Busy(format!("its record is broken: {error}"))),
    };
    if record.assignment.as_ref() != Some(&managed.assignment) {
        return Err(IdsObstacle::Redis);
    }
    let ids = record.resource_ids;
    if !managed.spec.resources.is_met_by(&ids) {
        let why = format!("its record has not the ids of {} that it needs", managed.spec.resources);
        return Err(IdsObstacle::Lost(why));
    }
    if let Some(id) = not_offered(&ids, &worker.config.resources) {
        let why = format!("{} does not declare {id} in KUBELEET_RESOURCES any more", worker.node);
        return Err(IdsObstacle::Lost(why));
    }
    let containers = worker.list().await.map_err(IdsObstacle::Engine)?;
    if let Some(other) = holder(&containers, pod, &ids) {
        let why = format!("{ids} is not free yet: a container of pod {} has it", other.pod);
        return Err(IdsObstacle::Busy(why));
    }
    managed.resource_ids = ids;
    Ok(())
}

fn not_offered(ids: &ResourceIds, offered: &ResourceIds) -> Option<String> {
    let offered: Vec<String> = offered.keys().collect();
    ids.keys().find(|id| !offered.contains(id))
}

/// Containers of the pod itself are of former assignments, and are gone before it starts.
fn holder<'a>(containers: &'a [Container], pod: &PodId, ids: &ResourceIds) -> Option<&'a Container> {
    let may_run = |state: ContainerState| state.may_run();
    containers.iter().find(|one| one.pod != *pod && may_run(one.state) && one.resources.has_common(ids))
}
