//! Finds the container for a request from outside.

use engine::{Container, ContainerState, RuntimeError};
use model::ids::{ContainerName, PodId};

use crate::session::context::SessionContext;

/// By default the specification's first container, under the current assignment; else a running one; else
/// any.
pub(super) async fn container_of(
    context: &SessionContext,
    pod: &PodId,
    name: Option<&ContainerName>,
) -> Result<Container, RuntimeError> {
    let containers = context.worker.list().await?;
    let managed = context.table.get(pod);
    let first = managed.as_ref().filter(|managed| managed.has_several());
    let first = first.and_then(|managed| managed.spec.containers.first()?.name.clone());
    let current = managed.map(|managed| managed.assignment);
    let is_asked_for = |container: &Container| {
        container.pod == *pod && name.is_none_or(|name| container.name.as_ref() == Some(name))
    };
    let found = containers.into_iter().filter(is_asked_for).max_by_key(|container| {
        let is_current = Some(&container.assignment) == current.as_ref();
        (is_current, first.is_some() && container.name == first, container.state == ContainerState::Running)
    });
    found.ok_or_else(|| {
        let node = &context.worker.node;
        let what = name.map_or_else(|| "none".to_owned(), |name| format!("none named {name}"));
        RuntimeError::NotFound(format!("pod {pod} has {what} on {node}; it has not been started, or is gone"))
    })
}
