//! Interactive commands beside a pod's process. A terminal would need a process of ours between fork and
//! exec.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use model::stream::channel::TerminalSize;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;
use tokio::sync::watch;
use tokio_util::io::ReaderStream;

use super::exec::{NOT_STARTED, prepare, spawn_limited};
use super::folder::Folder;
use super::pods::{ProcessPods, exit_code};
use crate::{CommandControl, CommandOutput, CommandRequest, RunningCommand, RuntimeError};

const END_GRACE: Duration = Duration::from_secs(2);
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

pub(super) async fn start(
    pods: &Arc<ProcessPods>,
    folder: Folder,
    request: &CommandRequest,
) -> Result<RunningCommand, RuntimeError> {
    if request.tty {
        let why = "the process runtime of this node gives no terminals: run the command without -t";
        return Err(RuntimeError::Refused(why.to_owned()));
    }
    let (node, request) = (folder.node().to_owned(), request.clone());
    // Under the lock the pod neither ends nor restarts.
    let spawned = pods.with_lock(&node, move |_| spawn_piped(&folder, &request)).await?;
    match spawned {
        Ok(child) => running(child),
        Err(why) => Ok(not_started(why)),
    }
}

fn spawn_piped(folder: &Folder, request: &CommandRequest) -> Result<Result<Child, String>, RuntimeError> {
    let (mut command, record) = prepare(folder, &request.command)?;
    let stdin = if request.stdin { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn_limited(command, &record, &request.command[0]).map_err(|error| failed(&error))
}

fn failed(error: &io::Error) -> RuntimeError {
    RuntimeError::Failed(format!("the command failed: {error}"))
}

fn running(mut child: Child) -> Result<RunningCommand, RuntimeError> {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let input = child.stdin.take().map(|input| Box::pin(input) as _);
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(RuntimeError::Failed("the command was started without its output".to_owned()));
    };
    let (ended, end) = watch::channel(None);
    tokio::spawn(async move {
        let status =
            child.wait().await.as_ref().map_or(NOT_STARTED, |status: &ExitStatus| exit_code(*status));
        ended.send_replace(Some(status));
    });
    let standard = ReaderStream::new(stdout).map_ok(CommandOutput::Standard);
    let errors = ReaderStream::new(stderr).map_ok(CommandOutput::Error);
    let control = ProcessCommand { group, end };
    let mut is_over = control.end.clone();
    let over = async move {
        drop(is_over.wait_for(Option::is_some).await);
        tokio::time::sleep(DRAIN_TIMEOUT).await;
    };
    let output = stream::select(standard, errors).map_err(|error| failed(&error));
    let output = output.take_until(Box::pin(over)).boxed();
    Ok(RunningCommand { input, ends_input: true, output, control: Box::new(control) })
}

fn not_started(why: String) -> RunningCommand {
    let (_, end) = watch::channel(Some(NOT_STARTED));
    let why = CommandOutput::Error(format!("{why}\n").into());
    let output = stream::iter([Ok(why)]).boxed();
    RunningCommand {
        input: None,
        ends_input: true,
        output,
        control: Box::new(ProcessCommand { group: None, end }),
    }
}

struct ProcessCommand {
    group: Option<Pid>,
    end: watch::Receiver<Option<i64>>,
}

impl ProcessCommand {
    /// The id stays reserved until the exit status is collected.
    fn signal_group(&self, signal: Signal) -> Result<(), RuntimeError> {
        let Some(group) = self.group.filter(|_| self.end.borrow().is_none()) else { return Ok(()) };
        match kill_process_group(group, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(failed(&error.into())),
        }
    }
}

impl CommandControl for ProcessCommand {
    fn resize(&self, _size: TerminalSize) -> BoxFuture<'_, Result<(), RuntimeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn signal(&self, number: u8) -> BoxFuture<'_, Result<(), RuntimeError>> {
        let signal = Signal::from_named_raw(i32::from(number));
        let refused = || RuntimeError::Refused(format!("{number} is no signal that can be sent"));
        Box::pin(std::future::ready(signal.ok_or_else(refused).and_then(|signal| self.signal_group(signal))))
    }

    fn exit_code(&self) -> BoxFuture<'_, Result<i64, RuntimeError>> {
        let mut end = self.end.clone();
        Box::pin(async move {
            let code = end.wait_for(Option::is_some).await.ok().and_then(|code| *code);
            code.ok_or_else(|| RuntimeError::Failed("how the command has ended is not known".to_owned()))
        })
    }

    fn end(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            for signal in [Signal::HUP, Signal::KILL] {
                if let Err(error) = self.signal_group(signal) {
                    tracing::warn!(%error, "a command may run on without its client");
                }
                if tokio::time::timeout(END_GRACE, self.exit_code()).await.is_ok() {
                    return;
                }
            }
        })
    }
}
