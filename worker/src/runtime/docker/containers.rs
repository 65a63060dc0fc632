//! Making, starting, stopping: the calls that change something. Each may have been carried out although its answer was
//! lost, so each looks again after doubt.

use std::time::Duration;

use bollard::query_parameters::{
    CreateContainerOptionsBuilder, RemoveContainerOptionsBuilder, StopContainerOptionsBuilder,
};

use super::client::Client;
use super::create::create_body;
use super::errors::{Doing, Fault};
use super::view::{Inspected, inspected};
use super::{QUICK, SLOW};
use crate::runtime::{Container, ContainerRequest, ContainerState, Identity, RuntimeError, label};

/// What an engine may take for the stop beyond the grace period itself.
const STOP_MARGIN: Duration = Duration::from_secs(30);
/// How long somebody else's removal may take until ours counts as failed.
const REMOVAL: Duration = Duration::from_secs(30);

/// See [`crate::runtime::Runtime::run`].
pub(super) async fn run(client: &Client, request: &ContainerRequest) -> Result<Container, RuntimeError> {
    let name = request.identity.container_name();
    let deadline = tokio::time::Instant::now() + SLOW;
    while tokio::time::Instant::now() < deadline {
        match create(client, &name, request).await {
            // What we have just made is ours and not started: it need not be looked at.
            Ok(()) => {}
            Err(fault) if fault.name_is_taken() => match inspect(client, &name).await? {
                Some(found) => {
                    let container = adopt(&name, found, &request.identity)?;
                    if container.state != ContainerState::Created {
                        return Ok(container);
                    }
                }
                None => {
                    // The name is reserved before the container can be seen: somebody else's create is under way. Or
                    // it was removed between our two calls.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            Err(fault) => return Err(fault.into()),
        }
        if let Some(started) = start_created(client, &name, &request.identity).await? {
            return Ok(started);
        }
    }
    Err(RuntimeError::Failed(format!("the name {name} is taken, but there is no such container: try again")))
}

async fn create(client: &Client, name: &str, request: &ContainerRequest) -> Result<(), Fault> {
    let options = CreateContainerOptionsBuilder::default().name(name).build();
    let docker = client.docker().map_err(|error| Fault { status: None, error })?;
    let call = docker.create_container(Some(options), create_body(request));
    let answer = client.within(Doing::Create, SLOW, call).await?;
    for warning in answer.warnings {
        tracing::warn!(container = name, warning, "the engine made the container with a warning");
    }
    Ok(())
}

/// The holder of our name is ours when all that the hash in the name was made of says so.
fn adopt(name: &str, found: Inspected, identity: &Identity) -> Result<Container, RuntimeError> {
    let ours = [label::ORCHESTRATOR, label::NODE, label::POD, label::ASSIGNMENT];
    let wanted = identity.labels();
    if !ours.iter().all(|key| found.labels.get(*key) == wanted.get(key)) {
        let detail = format!("a container named {name} exists and is not this pod's: remove it by hand");
        return Err(RuntimeError::Failed(detail));
    }
    let detail = || RuntimeError::Failed(format!("container {name} is being removed: try again"));
    found.container.ok_or_else(detail)
}

/// Starts it. None when it is gone meanwhile. A container that can not be started is not left behind.
async fn start_created(
    client: &Client,
    name: &str,
    identity: &Identity,
) -> Result<Option<Container>, RuntimeError> {
    let failure = match client.within(Doing::Start, SLOW, client.docker()?.start_container(name, None)).await
    {
        Ok(()) => None,
        Err(fault) if fault.is_not_found() => return Ok(None),
        Err(fault) => Some(fault.error),
    };
    let found = match inspect(client, name).await {
        Ok(found) => found,
        Err(doubt) => return Err(failure.unwrap_or(doubt)),
    };
    let Some(container) = found.map(|found| adopt(name, found, identity)).transpose()? else {
        return Ok(None);
    };
    match failure {
        Some(error) if container.state == ContainerState::Created => {
            // In doubt it stays: the start may still be under way, and the next try finds it by its name.
            if !matches!(error, RuntimeError::Engine(_))
                && let Err(left) = remove(client, name).await
            {
                tracing::warn!(container = name, error = %left, "a container that did not start is left behind");
            }
            Err(error)
        }
        Some(_) | None => Ok(Some(container)),
    }
}

/// See [`crate::runtime::Runtime::restart`].
pub(super) async fn restart(client: &Client, handle: &str) -> Result<(), RuntimeError> {
    // Running already is answered with 304, which is success.
    let Err(fault) = client.within(Doing::Start, SLOW, client.docker()?.start_container(handle, None)).await
    else {
        return Ok(());
    };
    if is_running(client, handle).await? { Ok(()) } else { Err(fault.into()) }
}

/// See [`crate::runtime::Runtime::stop`].
pub(super) async fn stop(client: &Client, handle: &str, grace: Duration) -> Result<(), RuntimeError> {
    // The engine counts whole seconds, and zero means no grace at all.
    let seconds = grace.as_millis().div_ceil(1000);
    let options =
        StopContainerOptionsBuilder::default().t(i32::try_from(seconds).unwrap_or(i32::MAX)).build();
    let call = client.docker()?.stop_container(handle, Some(options));
    match client.within(Doing::Stop, grace + STOP_MARGIN, call).await {
        Ok(()) => {}
        Err(fault) if fault.is_not_found() => return Ok(()),
        Err(fault) => {
            if is_running(client, handle).await? {
                return Err(fault.into());
            }
        }
    }
    remove(client, handle).await
}

/// Removes it with its anonymous volumes, whatever it does. Gone already is success.
async fn remove(client: &Client, handle: &str) -> Result<(), RuntimeError> {
    let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
    let call = client.docker()?.remove_container(handle, Some(options));
    match client.within(Doing::Remove, SLOW, call).await {
        Ok(()) => Ok(()),
        Err(fault) if fault.is_not_found() => Ok(()),
        // "removal is already in progress"
        Err(fault) if fault.status == Some(409) => until_gone(client, handle, fault).await,
        Err(fault) => Err(fault.into()),
    }
}

async fn until_gone(client: &Client, handle: &str, fault: Fault) -> Result<(), RuntimeError> {
    let deadline = tokio::time::Instant::now() + REMOVAL;
    while tokio::time::Instant::now() < deadline {
        if inspect(client, handle).await?.is_none() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Err(fault.into())
}

async fn is_running(client: &Client, handle: &str) -> Result<bool, RuntimeError> {
    let container = inspect(client, handle).await?.and_then(|found| found.container);
    Ok(container.is_some_and(|container| container.state == ContainerState::Running))
}

/// None when there is no such container.
pub(super) async fn inspect(client: &Client, handle: &str) -> Result<Option<Inspected>, RuntimeError> {
    match client.within(Doing::Inspect, QUICK, client.docker()?.inspect_container(handle, None)).await {
        Ok(answer) => Ok(Some(inspected(answer))),
        Err(fault) if fault.is_not_found() => Ok(None),
        Err(fault) => Err(fault.into()),
    }
}
