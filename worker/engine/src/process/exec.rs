//! Commands beside a pod's process: same folder, environment and limits. They are killed at their deadline,
//! and with the pod.

use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::folder::{Folder, PodState, Record};
use super::pods::{CALL_TIMEOUT, ProcessPods, exit_code};
use super::spawn;
use super::system::EXEC_MARKER;
use crate::RuntimeError;
use crate::exec::{ExecResult, OutputTail};

pub(super) const NOT_STARTED: i64 = 127;
/// A process left behind by the command may hold the output open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// # Cancel safety
/// Dropping the call kills the command.
pub(super) async fn exec(
    pods: &Arc<ProcessPods>,
    folder: Folder,
    words: &[String],
    limit: Duration,
) -> Result<ExecResult, RuntimeError> {
    let node = folder.node().to_owned();
    let words = words.to_vec();
    let started = pods.with_lock(&node, move |_| start(&folder, &words)).await?;
    match started {
        Ok((child, output)) => run(child, output, limit).await,
        Err(why) => Ok(ExecResult { exit_code: Some(NOT_STARTED), output: why }),
    }
}

struct ExecChild(Child);

impl ExecChild {
    fn kill_group(&self) {
        // The id stays reserved until the exit status is collected.
        let group = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(group) = group
            && let Err(error) = rustix::process::kill_process_group(group, Signal::KILL)
        {
            tracing::debug!(%error, "the processes of a command could not be killed");
        }
    }
}

impl Drop for ExecChild {
    fn drop(&mut self) {
        self.kill_group();
    }
}

pub(super) fn prepare(
    folder: &Folder,
    words: &[String],
) -> Result<(std::process::Command, Record), RuntimeError> {
    let not_running = || RuntimeError::NotFound(format!("process pod {} does not run", folder.handle));
    let record = folder.load().ok_or_else(not_running)?;
    if !matches!(&record.state, PodState::Running(process) if process.is_running()) {
        return Err(not_running());
    }
    let mut command = spawn::command(folder, &record, words)?;
    command.env(EXEC_MARKER, "1");
    Ok((command, record))
}

fn start(folder: &Folder, words: &[String]) -> Result<Result<(ExecChild, PipeReader), String>, RuntimeError> {
    let (mut command, record) = prepare(folder, words)?;
    let failed = |error: io::Error| RuntimeError::Failed(format!("process pod {}: {error}", folder.handle));
    let (output, writer) = io::pipe().map_err(failed)?;
    command.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
    let child = spawn_limited(command, &record, &words[0]).map_err(failed)?;
    Ok(child.map(|child| (ExecChild(child), output)))
}

/// The inner error is the program's fault.
pub(super) fn spawn_limited(
    command: std::process::Command,
    record: &Record,
    program: &str,
) -> io::Result<Result<Child, String>> {
    match Command::from(command).kill_on_drop(true).spawn() {
        Ok(child) => {
            spawn::limit(child.id(), record);
            Ok(Ok(child))
        }
        Err(error) => spawn::not_startable(program, &error).map(Err).ok_or(error),
    }
}

async fn run(mut child: ExecChild, output: PipeReader, limit: Duration) -> Result<ExecResult, RuntimeError> {
    let failed = |error: io::Error| RuntimeError::Failed(format!("could not wait for a command: {error}"));
    let mut output = Receiver::from_owned_fd(OwnedFd::from(output)).map_err(failed)?;
    let mut tail = OutputTail::default();
    let ended = {
        let mut reading = std::pin::pin!(read(&mut output, &mut tail));
        let mut waiting = std::pin::pin!(timeout(limit, child.0.wait()));
        let mut is_open = true;
        loop {
            tokio::select! {
                ended = &mut waiting => break ended,
                () = &mut reading, if is_open => is_open = false,
            }
        }
    };
    let exit_code = match ended {
        Ok(status) => Some(exit_code(status.map_err(failed)?)),
        Err(_) => {
            child.kill_group();
            let _late = timeout(CALL_TIMEOUT, child.0.wait()).await;
            None
        }
    };
    let _held_open = timeout(DRAIN_TIMEOUT, read(&mut output, &mut tail)).await;
    Ok(ExecResult { exit_code, output: tail.text() })
}

async fn read(output: &mut Receiver, tail: &mut OutputTail) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = output.read(&mut buffer).await {
        tail.push(&buffer[..length]);
    }
}
