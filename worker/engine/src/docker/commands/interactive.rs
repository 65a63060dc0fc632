//! Interactive commands in a container. The engine cannot end a command, so its process is signalled
//! directly; a worker with its own PID namespace cannot do that.

use std::fs;
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use bollard::query_parameters::ResizeExecOptionsBuilder;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, Stream, StreamExt, TryStreamExt};
use model::stream::channel::TerminalSize;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::time::{sleep, timeout};
use tokio_util::io::ReaderStream;

use super::raw_exec::{self, TerminalOutput};
use crate::docker::client::EngineClient;
use crate::docker::deadlines::READ;
use crate::docker::errors::{EngineCall, EngineFailure};
use crate::{CommandControl, CommandOutput, CommandRequest, RunningCommand, RuntimeError};

/// The output ends shortly before the engine knows the exit code.
const FIRST_POLL: Duration = Duration::from_millis(2);
const LAST_POLL: Duration = Duration::from_secs(1);
/// Time for the engine to report the process.
const KNOWN_WITHIN: Duration = Duration::from_secs(1);
const END_GRACE: Duration = Duration::from_secs(2);
/// Programs use neither colours nor cursor on an unknown terminal.
const TERMINAL: &str = "TERM=xterm-256color";

pub(crate) async fn start(
    client: &std::sync::Arc<EngineClient>,
    handle: &str,
    request: &CommandRequest,
) -> Result<RunningCommand, RuntimeError> {
    let options = CreateExecOptions {
        attach_stdin: Some(request.stdin),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(request.tty),
        env: request.tty.then(|| vec![TERMINAL.to_owned()]),
        cmd: Some(request.command.clone()),
        ..Default::default()
    };
    let call = client.docker()?.create_exec(handle, options);
    let id = client.within(EngineCall::CreateExec, READ, call).await?.id;
    let control = DockerCommand { client: client.clone(), id, container: handle.to_owned() };
    match request.tty {
        true => start_in_terminal(control, request).await,
        false => start_plain(control, request).await,
    }
}

async fn start_in_terminal(
    control: DockerCommand,
    request: &CommandRequest,
) -> Result<RunningCommand, RuntimeError> {
    let (output, input) = raw_exec::start(&control.client, &control.id).await?;
    if let Some(size) = request.size
        && let Err(error) = control.resize(size).await
    {
        tracing::debug!(%error, "the size of a new terminal could not be set");
    }
    let output = terminal_output(&control.client, output);
    let input = request.stdin.then_some(input);
    Ok(RunningCommand { input, ends_input: true, output, control: Box::new(control) })
}

pub(crate) fn terminal_output(
    client: &EngineClient,
    output: TerminalOutput,
) -> BoxStream<'static, Result<CommandOutput, RuntimeError>> {
    let host = client.shown().to_owned();
    let output = ReaderStream::new(output).map_ok(CommandOutput::Standard);
    output.map_err(move |error| RuntimeError::Engine(format!("{host}: {error}"))).boxed()
}

async fn start_plain(
    control: DockerCommand,
    request: &CommandRequest,
) -> Result<RunningCommand, RuntimeError> {
    let client = control.client.clone();
    let options = StartExecOptions { detach: false, tty: false, output_capacity: Some(32 * 1024) };
    let call = client.docker()?.start_exec(&control.id, Some(options));
    let started = client.within(EngineCall::StartExec, READ, call).await?;
    let StartExecResults::Attached { output, input } = started else {
        return Err(RuntimeError::Failed("the engine has started the command without its output".to_owned()));
    };
    let output = plain_output(&client, EngineCall::StartExec, output);
    let input = request.stdin.then_some(input);
    Ok(RunningCommand { input, ends_input: true, output, control: Box::new(control) })
}

pub(crate) fn plain_output(
    client: &EngineClient,
    call: EngineCall,
    output: impl Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send + 'static,
) -> BoxStream<'static, Result<CommandOutput, RuntimeError>> {
    let host = client.shown().to_owned();
    let output = output.map(move |part| match part {
        Ok(LogOutput::StdErr { message }) => Ok(CommandOutput::Error(message)),
        Ok(other) => Ok(CommandOutput::Standard(other.into_bytes())),
        Err(error) => Err(EngineFailure::of(call, &host, &error).error),
    });
    output.boxed()
}

struct DockerCommand {
    client: std::sync::Arc<EngineClient>,
    id: String,
    container: String,
}

impl DockerCommand {
    async fn inspect(&self) -> Result<(Option<i64>, Option<i64>), RuntimeError> {
        let call = self.client.docker()?.inspect_exec(&self.id);
        let answer = self.client.within(EngineCall::InspectExec, READ, call).await?;
        let exit_code = (answer.running == Some(false)).then_some(answer.exit_code).flatten();
        Ok((exit_code, answer.pid))
    }

    async fn inspect_until<T>(
        &self,
        enough: impl Fn(Option<i64>, Option<i64>) -> Option<T>,
    ) -> Result<T, RuntimeError> {
        let mut wait = FIRST_POLL;
        loop {
            let (exit_code, pid) = self.inspect().await?;
            if let Some(found) = enough(exit_code, pid) {
                return Ok(found);
            }
            sleep(wait).await;
            wait = (wait * 2).min(LAST_POLL);
        }
    }

    async fn signal_group(&self, signal: Signal) -> Result<(), RuntimeError> {
        let known = self.inspect_until(|exit_code, pid| {
            (exit_code.is_some() || pid.is_some_and(|pid| pid > 0)).then_some((exit_code, pid))
        });
        let (exit_code, pid) = timeout(KNOWN_WITHIN, known).await.unwrap_or(Ok((None, None)))?;
        if exit_code.is_some() {
            return Ok(());
        }
        let pid = pid.and_then(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 1).and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|pid| is_in_container(*pid, &self.container)) else {
            let why = "this worker does not see the engine's processes, so it cannot signal the command";
            return Err(RuntimeError::Refused(why.to_owned()));
        };
        match kill_process_group(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(RuntimeError::Failed(format!("the command could not be signalled: {error}"))),
        }
    }
}

impl CommandControl for DockerCommand {
    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<(), RuntimeError>> {
        Box::pin(async move {
            let options = ResizeExecOptionsBuilder::default()
                .h(i32::from(size.rows))
                .w(i32::from(size.columns))
                .build();
            let call = self.client.docker()?.resize_exec(&self.id, options);
            Ok(self.client.within(EngineCall::ResizeExec, READ, call).await?)
        })
    }

    fn signal(&self, number: u8) -> BoxFuture<'_, Result<(), RuntimeError>> {
        Box::pin(async move {
            let Some(signal) = Signal::from_named_raw(i32::from(number)) else {
                return Err(RuntimeError::Refused(format!("{number} is no signal that can be sent")));
            };
            self.signal_group(signal).await
        })
    }

    fn exit_code(&self) -> BoxFuture<'_, Result<i64, RuntimeError>> {
        Box::pin(self.inspect_until(|exit_code, _| exit_code))
    }

    fn end(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            for signal in [Signal::HUP, Signal::KILL] {
                if let Err(error) = self.signal_group(signal).await {
                    tracing::warn!(container = self.container, %error, "a command may run on without its client");
                    return;
                }
                let ended = timeout(END_GRACE, self.exit_code()).await;
                if ended.is_ok() {
                    return;
                }
            }
        })
    }
}

/// A worker in its own container may see another process with the same id.
fn is_in_container(pid: Pid, container: &str) -> bool {
    let cgroup = fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_nonzero()));
    cgroup.is_ok_and(|text| text.contains(container))
}
