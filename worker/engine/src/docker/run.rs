//! Creates and starts containers, once for each identity even if a call is repeated.

use std::time::Duration;

use bollard::models::ContainerCreateBody;
use bollard::query_parameters::CreateContainerOptionsBuilder;

use super::archive;
use super::client::EngineClient;
use super::commands::main_process::FirstConnections;
use super::containers::{inspect, remove};
use super::create::create_body;
use super::deadlines::WRITE;
use super::engine::DockerRuntime;
use super::errors::{EngineCall, EngineFailure};
use super::view::Inspected;
use crate::volume::new_folders;
use crate::{Container, ContainerRequest, ContainerState, Identity, RuntimeError, label};

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
            Ok(()) => {}
            Err(failure) if failure.is_name_taken() => match inspect(client, &name).await? {
                Some(found) => {
                    let container = verify_owner(&name, found, &request.identity)?;
                    if container.state != ContainerState::Created {
                        return Ok(container);
                    }
                }
                None => {
                    // Another create may be in progress, as the name is reserved first; or the container was
                    // removed between our calls.
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

/// Only labels prove ownership.
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

/// A container that cannot start is removed. `None` if it is gone.
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
            // After a timeout the start may still be in progress; the next attempt finds it by name.
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
