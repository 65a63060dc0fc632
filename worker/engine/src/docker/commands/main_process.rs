//! Input, output and terminal of a container's main process.
//!
//! The log holds only complete lines, so a late client would miss a prompt. If the input belongs to the first
//! client, the worker attaches before the start and hands that connection over.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bollard::query_parameters::{
    AttachContainerOptionsBuilder, KillContainerOptionsBuilder, ResizeContainerTTYOptionsBuilder,
};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use model::spec::ContainerSpec;
use model::stream::channel::TerminalSize;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::{interactive, raw_exec};
use crate::docker::client::EngineClient;
use crate::docker::containers;
use crate::docker::deadlines::{READ, WRITE};
use crate::docker::errors::EngineCall;
use crate::{CommandControl, CommandInput, CommandOutput, ContainerState, RunningCommand, RuntimeError};

/// The input ends if no client attaches until then.
const FIRST_CLIENT_TIMEOUT: Duration = Duration::from_secs(60);
const END_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

type Streams = (BoxStream<'static, Result<CommandOutput, RuntimeError>>, CommandInput);

/// By handle, until the first client attaches.
#[derive(Clone, Default)]
pub(crate) struct FirstConnections(Arc<Mutex<HashMap<String, Streams>>>);

impl FirstConnections {
    pub(crate) async fn before_start(
        client: &EngineClient,
        name: &str,
        container: &ContainerSpec,
    ) -> Result<Option<Streams>, RuntimeError> {
        match container.stdin_once {
            true => connect(client, name, container.tty).await.map(Some),
            false => Ok(None),
        }
    }

    pub(crate) fn keep(&self, handle: &str, streams: Option<Streams>) {
        let Some(streams) = streams else { return };
        let (connections, handle) = (self.clone(), handle.to_owned());
        connections.0.lock().insert(handle.clone(), streams);
        tokio::spawn(async move {
            sleep(FIRST_CLIENT_TIMEOUT).await;
            connections.0.lock().remove(&handle);
        });
    }

    pub(crate) async fn attach(
        &self,
        client: &Arc<EngineClient>,
        handle: &str,
        size: Option<TerminalSize>,
    ) -> Result<RunningCommand, RuntimeError> {
        let found = containers::inspect(client, handle).await?;
        let found = found.ok_or_else(|| RuntimeError::NotFound(format!("container {handle}")))?;
        if !found.has_stdin {
            let why = "its container has no standard input: set `stdin_open`, or leave out -i";
            return Err(RuntimeError::Refused(why.to_owned()));
        }
        let kept = self.0.lock().remove(handle);
        let (output, input) = match kept {
            Some(streams) => streams,
            None => connect(client, handle, found.has_terminal).await?,
        };
        let control = MainProcess { client: client.clone(), container: handle.to_owned() };
        if let Some(size) = size.filter(|_| found.has_terminal)
            && let Err(error) = control.resize(size).await
        {
            tracing::debug!(%error, "the size of a terminal could not be set");
        }
        // The engine takes an end of input as the end of the connection.
        let ends_input = found.is_stdin_once && !found.has_terminal;
        Ok(RunningCommand { input: Some(input), ends_input, output, control: Box::new(control) })
    }
}

async fn connect(client: &EngineClient, container: &str, tty: bool) -> Result<Streams, RuntimeError> {
    if tty {
        let path = format!("/containers/{container}/attach?stream=1&stdin=1&stdout=1&stderr=1");
        let (output, input) = raw_exec::connect(client, EngineCall::Attach, &path, "").await?;
        return Ok((interactive::terminal_output(client, output), input));
    }
    let options =
        AttachContainerOptionsBuilder::default().stream(true).stdin(true).stdout(true).stderr(true).build();
    let call = client.docker()?.attach_container(container, Some(options));
    let attached = client.within(EngineCall::Attach, READ, call).await?;
    Ok((interactive::plain_output(client, EngineCall::Attach, attached.output), attached.input))
}

struct MainProcess {
    client: Arc<EngineClient>,
    container: String,
}

impl CommandControl for MainProcess {
    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<(), RuntimeError>> {
        Box::pin(async move {
            let options = ResizeContainerTTYOptionsBuilder::default()
                .h(i32::from(size.rows))
                .w(i32::from(size.columns))
                .build();
            let call = self.client.docker()?.resize_container_tty(&self.container, options);
            Ok(self.client.within(EngineCall::ResizeExec, READ, call).await?)
        })
    }

    fn signal(&self, number: u8) -> BoxFuture<'_, Result<(), RuntimeError>> {
        Box::pin(async move {
            let options = KillContainerOptionsBuilder::default().signal(&number.to_string()).build();
            let call = self.client.docker()?.kill_container(&self.container, Some(options));
            Ok(self.client.within(EngineCall::Signal, WRITE, call).await?)
        })
    }

    fn exit_code(&self) -> BoxFuture<'_, Result<i64, RuntimeError>> {
        Box::pin(async move {
            let deadline = Instant::now() + END_TIMEOUT;
            loop {
                let found = containers::inspect(&self.client, &self.container).await?;
                let state = found.and_then(|found| found.container).map(|container| container.state);
                match state {
                    Some(ContainerState::Exited { code, .. }) => return Ok(code),
                    None => return Err(RuntimeError::Failed("the container is gone".to_owned())),
                    Some(_) if Instant::now() >= deadline => {
                        let why = "detached: the container runs on";
                        return Err(RuntimeError::Failed(why.to_owned()));
                    }
                    Some(_) => sleep(POLL_INTERVAL).await,
                }
            }
        })
    }

    fn end(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
