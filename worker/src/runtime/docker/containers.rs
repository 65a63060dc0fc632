//! The calls that change containers. Each may have been carried out although its answer was lost, so each
//! checks the container after a doubtful answer.

use std::path::PathBuf;
use std::time::Duration;

use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, KillContainerOptionsBuilder, RemoveContainerOptionsBuilder,
    StopContainerOptionsBuilder,
};

use common::spec::StopSignal;

use super::DockerRuntime;
use super::archive;
use super::client::EngineClient;
use super::create::create_body;
use super::deadlines::{READ, WRITE};
use super::errors::{EngineCall, EngineFailure};
use super::lenient;
use super::main_process::FirstConnections;
use super::view::{Inspected, inspected};
use crate::runtime::volume::new_folders;
use crate::runtime::{Container, ContainerRequest, ContainerState, Identity, RuntimeError, label};

/// How much longer than the grace period a stop may take.
const STOP_MARGIN: Duration = Duration::from_secs(30);
/// How long a removal that another client has begun may take until ours counts as failed.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);

/// See [`crate::runtime::Runtime::run`].
pub(super) async fn run(
    docker: &DockerRuntime,
    request: &ContainerRequest,
) -> Result<Container, RuntimeError> {
    let client = &docker.client;
    let name = request.identity.container_name();
    let network = match &request.sandbox {
        Some(_) => None,
        None => docker.network.of_container(client, request.identity.cluster.as_ref()).await?,
    };
    let body = create_body(request, &docker.dropped_capabilities, network.as_ref());
    let deadline = tokio::time::Instant::now() + WRITE;
    while tokio::time::Instant::now() < deadline {
        match create(client, &name, body.clone()).await {
            // The new container is ours and not started: no inspection is needed.
            Ok(()) => {}
            Err(failure) if failure.is_name_taken() => match inspect(client, &name).await? {
                Some(found) => {
                    let container = verify_owner(&name, found, &request.identity)?;
                    if container.state != ContainerState::Created {
                        return Ok(container);
                    }
                }
                None => {
                    // An engine reserves the name before the container can be inspected: another create is
                    // under way. Or the container was removed between our two calls.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            Err(failure) => return Err(failure.into()),
        }
        for (path, owner) in new_folders(request) {
            archive::own_folder(client, &name, path, owner).await?;
        }
        let streams = FirstConnections::before_start(client, &name, &request.container).await?;
        if let Some(started) = start_created(client, &name, &request.identity).await? {
            docker.first_connections.keep(&started.handle, streams);
            return Ok(started);
        }
    }
    Err(RuntimeError::Failed(format!(
        "the container name {name} is taken, but there is no such container; this is retried"
    )))
}

async fn create(client: &EngineClient, name: &str, body: ContainerCreateBody) -> Result<(), EngineFailure> {
    let options = CreateContainerOptionsBuilder::default().name(name).build();
    let call = client.docker()?.create_container(Some(options), body);
    let answer = client.within(EngineCall::Create, WRITE, call).await?;
    for warning in answer.warnings {
        tracing::warn!(container = name, warning, "the engine created the container with a warning");
    }
    Ok(())
}

/// Checks that a container with our name has our labels. Labels, not the name, prove whose it is.
fn verify_owner(name: &str, found: Inspected, identity: &Identity) -> Result<Container, RuntimeError> {
    let ours = [label::ORCHESTRATOR, label::NODE, label::POD, label::ASSIGNMENT];
    let expected = identity.labels();
    if !ours.iter().all(|key| found.labels.get(*key) == expected.get(key)) {
        let detail = format!("a container named {name} exists and is not this pod's: remove it by hand");
        return Err(RuntimeError::Failed(detail));
    }
    let detail = || RuntimeError::Failed(format!("container {name} is being removed; this is retried"));
    found.container.ok_or_else(detail)
}

/// Starts a created container. Returns `None` if it has been removed meanwhile. A container that cannot be
/// started is removed.
async fn start_created(
    client: &EngineClient,
    name: &str,
    identity: &Identity,
) -> Result<Option<Container>, RuntimeError> {
    let failure =
        match client.within(EngineCall::Start, WRITE, client.docker()?.start_container(name, None)).await {
            Ok(()) => None,
            Err(failure) if failure.is_not_found() => return Ok(None),
            Err(failure) => Some(failure.error),
        };
    let found = match inspect(client, name).await {
        Ok(found) => found,
        Err(error) => return Err(failure.unwrap_or(error)),
    };
    let Some(container) = found.map(|found| verify_owner(name, found, identity)).transpose()? else {
        return Ok(None);
    };
    match failure {
        Some(error) if container.state == ContainerState::Created => {
            // After a timeout it stays: the start may still be under way, and the next try finds it by its
            // name.
            if !matches!(error, RuntimeError::Engine(_))
                && let Err(removal) = remove(client, name).await
            {
                let error = &removal;
                tracing::warn!(container = name, %error, "a container that did not start could not be removed");
            }
            Err(error)
        }
        Some(_) | None => Ok(Some(container)),
    }
}

/// See [`crate::runtime::Runtime::restart`].
pub(super) async fn restart(client: &EngineClient, handle: &str) -> Result<(), RuntimeError> {
    // An engine answers 304 if it runs already, which is success.
    let Err(failure) =
        client.within(EngineCall::Start, WRITE, client.docker()?.start_container(handle, None)).await
    else {
        return Ok(());
    };
    if is_running(client, handle).await? { Ok(()) } else { Err(failure.into()) }
}

/// Returns the paths of the host that a container has; none if there is no such container.
pub(super) async fn bind_sources(client: &EngineClient, handle: &str) -> Result<Vec<PathBuf>, RuntimeError> {
    let call = client.docker()?.inspect_container(handle, None);
    let found = match client.within(EngineCall::Inspect, READ, call).await {
        Ok(found) => found,
        Err(failure) if failure.is_not_found() => return Ok(Vec::new()),
        Err(failure) => return Err(failure.into()),
    };
    let mounts = found.mounts.unwrap_or_default().into_iter();
    let binds = mounts.filter(|mount| mount.typ.as_deref() == Some("bind"));
    Ok(binds.filter_map(|mount| mount.source).map(PathBuf::from).collect())
}

/// See [`crate::runtime::Runtime::stop`].
pub(super) async fn stop(client: &EngineClient, handle: &str, grace: Duration) -> Result<(), RuntimeError> {
    halt(client, handle, grace).await?;
    remove(client, handle).await
}

/// See [`crate::runtime::Runtime::halt`].
pub(super) async fn halt(client: &EngineClient, handle: &str, grace: Duration) -> Result<(), RuntimeError> {
    // The engine counts whole seconds, and zero means no grace at all.
    let seconds = grace.as_millis().div_ceil(1000);
    let options =
        StopContainerOptionsBuilder::default().t(i32::try_from(seconds).unwrap_or(i32::MAX)).build();
    let call = client.docker()?.stop_container(handle, Some(options));
    match client.within(EngineCall::Stop, grace + STOP_MARGIN, call).await {
        Ok(()) => Ok(()),
        Err(failure) if failure.is_not_found() => Ok(()),
        Err(failure) if is_running(client, handle).await? => Err(failure.into()),
        Err(_) => Ok(()),
    }
}

/// See [`crate::runtime::Runtime::signal`].
pub(super) async fn signal(
    client: &EngineClient,
    handle: &str,
    signal: StopSignal,
) -> Result<(), RuntimeError> {
    let options = KillContainerOptionsBuilder::default().signal(&signal.to_string()).build();
    let call = client.docker()?.kill_container(handle, Some(options));
    match client.within(EngineCall::Signal, WRITE, call).await {
        Ok(()) => Ok(()),
        // It does not exist, or does not run.
        Err(failure) if failure.is_not_found() || failure.status == Some(409) => Ok(()),
        Err(failure) => Err(failure.into()),
    }
}

/// Removes a container in any state with its anonymous volumes. Succeeds if it does not exist.
async fn remove(client: &EngineClient, handle: &str) -> Result<(), RuntimeError> {
    let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
    let call = client.docker()?.remove_container(handle, Some(options));
    match client.within(EngineCall::Remove, WRITE, call).await {
        Ok(()) => Ok(()),
        Err(failure) if failure.is_not_found() => Ok(()),
        // "removal is already in progress": by another call.
        Err(failure) if failure.status == Some(409) => wait_until_removed(client, handle, failure).await,
        Err(failure) => Err(failure.into()),
    }
}

async fn wait_until_removed(
    client: &EngineClient,
    handle: &str,
    failure: EngineFailure,
) -> Result<(), RuntimeError> {
    let deadline = tokio::time::Instant::now() + REMOVAL_TIMEOUT;
    while tokio::time::Instant::now() < deadline {
        if inspect(client, handle).await?.is_none() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Err(failure.into())
}

async fn is_running(client: &EngineClient, handle: &str) -> Result<bool, RuntimeError> {
    let container = inspect(client, handle).await?.and_then(|found| found.container);
    Ok(container.is_some_and(|container| {
        matches!(container.state, ContainerState::Running | ContainerState::Unknown)
    }))
}

/// Returns `None` if there is no such container.
pub(super) async fn inspect(client: &EngineClient, handle: &str) -> Result<Option<Inspected>, RuntimeError> {
    inspect_within(client, handle, READ).await
}

/// As [`inspect`], with a deadline of its own.
pub(super) async fn inspect_within(
    client: &EngineClient,
    handle: &str,
    limit: Duration,
) -> Result<Option<Inspected>, RuntimeError> {
    let call = client.docker()?.inspect_container(handle, None);
    match client.within(EngineCall::Inspect, limit, call).await {
        Ok(answer) => Ok(Some(inspected(answer))),
        Err(failure) if failure.is_not_found() => Ok(None),
        Err(failure) => match failure.not_understood.as_ref().and_then(lenient::inspection) {
            Some(found) => Ok(Some(found)),
            None => Err(failure.into()),
        },
    }
}
