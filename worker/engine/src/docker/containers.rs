//! Reads and changes containers. A call may take effect although its answer was lost, so each checks the
//! container after a doubtful answer.

use std::path::PathBuf;
use std::time::Duration;

use bollard::query_parameters::{
    KillContainerOptionsBuilder, RemoveContainerOptionsBuilder, StopContainerOptionsBuilder,
};

use model::spec::StopSignal;

use super::client::EngineClient;
use super::deadlines::{READ, WRITE};
use super::errors::{EngineCall, EngineFailure};
use super::lenient;
use super::view::{Inspected, inspected};
use crate::{ContainerState, RuntimeError};

const STOP_MARGIN: Duration = Duration::from_secs(30);
/// Another client may have begun the removal.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn restart(client: &EngineClient, handle: &str) -> Result<(), RuntimeError> {
    let Err(failure) =
        client.within(EngineCall::Start, WRITE, client.docker()?.start_container(handle, None)).await
    else {
        return Ok(());
    };
    if is_running(client, handle).await? { Ok(()) } else { Err(failure.into()) }
}

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

pub(super) async fn stop(client: &EngineClient, handle: &str, grace: Duration) -> Result<(), RuntimeError> {
    halt(client, handle, grace).await?;
    remove(client, handle).await
}

pub(super) async fn halt(client: &EngineClient, handle: &str, grace: Duration) -> Result<(), RuntimeError> {
    // The engine counts whole seconds; zero means no grace.
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

pub(super) async fn signal(
    client: &EngineClient,
    handle: &str,
    signal: StopSignal,
) -> Result<(), RuntimeError> {
    let options = KillContainerOptionsBuilder::default().signal(&signal.to_string()).build();
    let call = client.docker()?.kill_container(handle, Some(options));
    match client.within(EngineCall::Signal, WRITE, call).await {
        Ok(()) => Ok(()),
        // 409: it does not run.
        Err(failure) if failure.is_not_found() || failure.status == Some(409) => Ok(()),
        Err(failure) => Err(failure.into()),
    }
}

/// Anonymous volumes go too. Succeeds if there is no such container.
pub(super) async fn remove(client: &EngineClient, handle: &str) -> Result<(), RuntimeError> {
    let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
    let call = client.docker()?.remove_container(handle, Some(options));
    match client.within(EngineCall::Remove, WRITE, call).await {
        Ok(()) => Ok(()),
        Err(failure) if failure.is_not_found() => Ok(()),
        // Another call is removing it.
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

pub(super) async fn inspect(client: &EngineClient, handle: &str) -> Result<Option<Inspected>, RuntimeError> {
    inspect_within(client, handle, READ).await
}

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
