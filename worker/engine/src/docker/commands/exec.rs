//! Runs commands in containers. The engine's API cannot end one. So the same command is not started again
//! while it runs: a health check that hangs would fill the container with processes.

use std::collections::HashMap;
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecResults};
use futures_util::stream::{Stream, StreamExt};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use crate::RuntimeError;
use crate::docker::client::EngineClient;
use crate::docker::deadlines::READ;
use crate::docker::errors::{EngineCall, EngineFailure};
use crate::exec::{ExecResult, OutputTail};

/// The output ends shortly before the engine knows the exit code.
const FIRST_POLL: Duration = Duration::from_millis(5);
const LAST_POLL: Duration = Duration::from_millis(200);

type ExecKey = (String, Vec<String>);

/// Values are the engine's ids.
#[derive(Debug, Default)]
pub(crate) struct UnfinishedCommands(Mutex<HashMap<ExecKey, String>>);

impl UnfinishedCommands {
    pub(crate) fn forget(&self, handle: &str) {
        self.0.lock().retain(|(of, _), _| of != handle);
    }
}

/// # Cancel safety
/// The command goes on. The next call does not start it again while it runs.
pub(crate) async fn exec(
    client: &EngineClient,
    unfinished: &UnfinishedCommands,
    handle: &str,
    command: &[String],
    limit: Duration,
) -> Result<ExecResult, RuntimeError> {
    let key = (handle.to_owned(), command.to_vec());
    let before = unfinished.0.lock().get(&key).cloned();
    if let Some(id) = before {
        if is_running(client, &id).await? {
            let output = "the same command, started before, still runs".to_owned();
            return Ok(ExecResult { exit_code: None, output });
        }
        unfinished.0.lock().remove(&key);
    }
    let options = CreateExecOptions {
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        cmd: Some(command.to_vec()),
        ..Default::default()
    };
    let call = client.docker()?.create_exec(handle, options);
    let id = client.within(EngineCall::CreateExec, READ, call).await?.id;
    unfinished.0.lock().insert(key.clone(), id.clone());
    let result = run(client, &id, limit).await;
    if matches!(&result, Ok(ExecResult { exit_code: Some(_), .. })) {
        unfinished.0.lock().remove(&key);
    }
    result
}

/// The limit is the command's; calls to the engine have their own.
async fn run(client: &EngineClient, id: &str, limit: Duration) -> Result<ExecResult, RuntimeError> {
    let call = client.docker()?.start_exec(id, None);
    let started = client.within(EngineCall::StartExec, READ, call).await?;
    let end = Instant::now() + limit;
    let mut tail = OutputTail::default();
    if let StartExecResults::Attached { mut output, .. } = started {
        let _ended = timeout_at(end, read(client, &mut output, &mut tail)).await;
    }
    Ok(ExecResult { exit_code: exit_code(client, id, end).await?, output: tail.text() })
}

async fn read(
    client: &EngineClient,
    output: &mut (impl Stream<Item = Result<LogOutput, bollard::errors::Error>> + Unpin),
    tail: &mut OutputTail,
) {
    while let Some(part) = output.next().await {
        match part {
            Ok(part) => tail.push(&part.into_bytes()),
            Err(error) => {
                let error = EngineFailure::of(EngineCall::StartExec, client.shown(), &error).error;
                tracing::debug!(%error, "the output of a command could not be read to its end");
                return;
            }
        }
    }
}

async fn exit_code(client: &EngineClient, id: &str, end: Instant) -> Result<Option<i64>, RuntimeError> {
    let mut wait = FIRST_POLL;
    loop {
        let call = client.docker()?.inspect_exec(id);
        let answer = client.within(EngineCall::InspectExec, READ, call).await?;
        if let (Some(false), Some(code)) = (answer.running, answer.exit_code) {
            return Ok(Some(code));
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        sleep(wait.min(left)).await;
        wait = (wait * 2).min(LAST_POLL);
    }
}

async fn is_running(client: &EngineClient, id: &str) -> Result<bool, RuntimeError> {
    let call = client.docker()?.inspect_exec(id);
    match client.within(EngineCall::InspectExec, READ, call).await {
        Ok(answer) => Ok(answer.running.unwrap_or(false)),
        Err(failure) if failure.is_not_found() => Ok(false),
        Err(failure) => Err(failure.into()),
    }
}
