//! A command in a container, or its main process with its input.

use std::time::Duration;

use bytes::Bytes;
use engine::{
    CommandControl, CommandInput, CommandOutput, CommandRequest, Container, ContainerState, RunningCommand,
    RuntimeError,
};
use futures_util::stream::{BoxStream, StreamExt};
use model::stream::channel::{Frame, Purpose, TerminalSize};
use store::{Channel, ChannelError, ChannelReader, ChannelWriter, Receipt};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use crate::answer::ends::{ChannelEnd, broken, state_of, worker_stops};
use crate::session::context::SessionContext;

const CONTAINER_LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// For the engine to close the connection of a command whose container has ended.
const ENGINE_MARGIN: Duration = Duration::from_secs(1);
const RESIZE_PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(300), Duration::from_secs(1)];
const KILLED: u8 = 137;

/// A piece counts as read once it was written.
type Input = mpsc::UnboundedSender<(Bytes, Receipt)>;

/// A client that leaves ends a command, but not a main process.
pub(super) async fn serve(
    context: &SessionContext,
    container: &Container,
    purpose: &Purpose,
    channel: &mut Channel,
) -> Result<ChannelEnd, String> {
    let runtime = &context.worker.runtime;
    let is_main = matches!(purpose, Purpose::Attach { .. });
    let started = match purpose {
        Purpose::Exec { command, tty, stdin, size } => {
            let request = CommandRequest { command: command.clone(), tty: *tty, stdin: *stdin, size: *size };
            runtime.start_command(&container.handle, &request).await
        }
        Purpose::Attach { size, .. } => runtime.attach(&container.handle, *size).await,
        _ => return Ok(None),
    };
    let RunningCommand { input, ends_input, output, control } = started.map_err(|error| error.to_string())?;
    // Ends the command even if this future is dropped.
    let mut command = CommandGuard { control: Some(control) };
    // A main process's output is read to its end.
    let end_of_container = async {
        match is_main {
            true => std::future::pending().await,
            false => end_of(context, container).await,
        }
    };
    let input = (input, ends_input);
    let stopped = match run(context, end_of_container, &command, input, output, channel).await {
        Ok(code) => {
            command.control = None;
            if !is_main {
                say_why(context, container, code, channel).await;
            }
            return Ok(Some(Frame::Exit(code)));
        }
        // Some engines report for ever that the command runs.
        Err(WaitStopped::Container(code)) => {
            command.control = None;
            tell_end(channel).await;
            return Ok(Some(Frame::Exit(code)));
        }
        Err(stopped) => stopped,
    };
    if let Some(control) = &command.control {
        control.end().await;
        command.control = None;
    }
    match stopped {
        WaitStopped::Client => Ok(None),
        WaitStopped::Container(code) => Ok(Some(Frame::Exit(code))),
        WaitStopped::Worker => Ok(Some(worker_stops(context))),
        WaitStopped::Channel(error) => Ok(broken(&error)),
        WaitStopped::Engine(error) => Err(error.to_string()),
    }
}

enum WaitStopped {
    Client,
    Container(u8),
    Worker,
    Channel(ChannelError),
    Engine(RuntimeError),
}

struct CommandGuard {
    control: Option<Box<dyn CommandControl>>,
}

impl Drop for CommandGuard {
    fn drop(&mut self) {
        if let Some(control) = self.control.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { control.end().await });
        }
    }
}

async fn run(
    context: &SessionContext,
    end_of_container: impl Future<Output = u8>,
    command: &CommandGuard,
    (input, ends_input): (Option<CommandInput>, bool),
    output: BoxStream<'static, Result<CommandOutput, RuntimeError>>,
    channel: &mut Channel,
) -> Result<u8, WaitStopped> {
    let Some(control) = command.control.as_deref() else { return Err(WaitStopped::Client) };
    let Channel { writer, reader } = channel;
    writer.send(Frame::Started).await.map_err(WaitStopped::Channel)?;
    let (pieces, mut waiting) = mpsc::unbounded_channel::<(Bytes, Receipt)>();
    let feed = async {
        if let Some(mut input) = input {
            while let Some((piece, receipt)) = waiting.recv().await {
                if input.write_all(&piece).await.is_err() || input.flush().await.is_err() {
                    break;
                }
                drop(receipt);
            }
            if ends_input {
                let _closed = input.shutdown().await;
            } else {
                while waiting.recv().await.is_some() {}
                // Dropping an input that stays open could end the connection.
                let () = std::future::pending().await;
            }
        }
        while waiting.recv().await.is_some() {}
        std::future::pending::<WaitStopped>().await
    };
    let work = async {
        copy_output(output, writer).await?;
        let code = control.exit_code().await.map_err(WaitStopped::Engine)?;
        Ok(u8::try_from(code).unwrap_or(u8::MAX))
    };
    tokio::select! {
        code = work => code,
        stopped = read_frames(reader, control, pieces) => Err(stopped),
        stopped = feed => Err(stopped),
        code = end_of_container => Err(WaitStopped::Container(code)),
        () = context.tasks.stopping().cancelled() => Err(WaitStopped::Worker),
    }
}

/// Some versions leave the connection of a terminal open for ever. Polls this worker's table, which is cheap.
async fn end_of(context: &SessionContext, container: &Container) -> u8 {
    let seen = || {
        let managed = context.table.get(&container.pod)?;
        let is_same = managed.assignment == container.assignment;
        let found = managed.containers.into_iter().find(|one| one.handle.as_ref() == Some(&container.handle));
        found.filter(|_| is_same)
    };
    let Some(first) = seen() else { return std::future::pending().await };
    loop {
        tokio::time::sleep(CONTAINER_LOOK_INTERVAL).await;
        let now = seen();
        if now.as_ref().is_none_or(|now| now.restart_at.is_some() || now.restarts != first.restarts) {
            tokio::time::sleep(ENGINE_MARGIN).await;
            let code = now.and_then(|now| now.exit_code);
            return code.and_then(|code| u8::try_from(code).ok()).unwrap_or(KILLED);
        }
    }
}

async fn copy_output(
    mut output: BoxStream<'static, Result<CommandOutput, RuntimeError>>,
    writer: &mut ChannelWriter,
) -> Result<(), WaitStopped> {
    while let Some(part) = output.next().await {
        let sent = match part.map_err(WaitStopped::Engine)? {
            CommandOutput::Standard(data) => writer.send_data(data, Frame::Output).await,
            CommandOutput::Error(data) => writer.send_data(data, Frame::ErrorOutput).await,
        };
        sent.map_err(WaitStopped::Channel)?;
    }
    Ok(())
}

async fn read_frames(reader: &mut ChannelReader, control: &dyn CommandControl, input: Input) -> WaitStopped {
    let mut input = Some(input);
    loop {
        let (frame, receipt) = match reader.next().await {
            Ok(received) => received,
            Err(error) => return WaitStopped::Channel(error),
        };
        let done = match frame {
            Frame::Input(data) => {
                if let Some(input) = &input {
                    let _ended = input.send((data, receipt));
                }
                Ok(())
            }
            Frame::EndOfInput => {
                input = None;
                Ok(())
            }
            Frame::Resize(size) => resize(control, size).await,
            Frame::Signal(number) => control.signal(number).await,
            Frame::Closed => return WaitStopped::Client,
            _ => Ok(()),
        };
        if let Err(error) = done {
            tracing::debug!(%error, "a request of the client to its command failed");
        }
    }
}

/// The client sends the size once, and a busy engine may refuse it.
async fn resize(control: &dyn CommandControl, size: TerminalSize) -> Result<(), RuntimeError> {
    for pause in RESIZE_PAUSES {
        let Err(error) = control.resize(size).await else { return Ok(()) };
        tracing::debug!(%error, "the size of a terminal could not be set yet");
        tokio::time::sleep(pause).await;
    }
    control.resize(size).await
}

async fn say_why(context: &SessionContext, container: &Container, code: u8, channel: &mut Channel) {
    // The engine may still report the container as running.
    let looks = match code {
        0 => 0,
        KILLED => 10,
        _ => 1,
    };
    for look in 0..looks {
        if look > 0 {
            tokio::time::sleep(ENGINE_MARGIN / 10).await;
        }
        let state = state_of(context, container).await;
        if !matches!(state, Some(ContainerState::Running | ContainerState::Unknown)) {
            return tell_end(channel).await;
        }
    }
}

async fn tell_end(channel: &mut Channel) {
    let text = Bytes::from_static(b"\r\nkubeleet: the container has ended\r\n");
    let _best_effort = channel.writer.send(Frame::ErrorOutput(text)).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::BoxFuture;

    use super::*;

    struct Busy {
        failures: u32,
        asked: AtomicU32,
    }

    impl CommandControl for Busy {
        fn resize(&self, _size: TerminalSize) -> BoxFuture<'_, Result<(), RuntimeError>> {
            let is_busy = self.asked.fetch_add(1, Ordering::Relaxed) < self.failures;
            let answer = if is_busy { Err(RuntimeError::Engine("busy".to_owned())) } else { Ok(()) };
            Box::pin(async { answer })
        }

        fn signal(&self, _number: u8) -> BoxFuture<'_, Result<(), RuntimeError>> {
            Box::pin(async { Ok(()) })
        }

        fn exit_code(&self) -> BoxFuture<'_, Result<i64, RuntimeError>> {
            Box::pin(async { Ok(0) })
        }

        fn end(&self) -> BoxFuture<'_, ()> {
            Box::pin(async {})
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_size_is_set_once_the_engine_is_not_busy_any_more() {
        for (failures, expected) in [(0, Ok(1)), (1, Ok(2)), (3, Ok(4)), (4, Err(4))] {
            let busy = Busy { failures, asked: AtomicU32::new(0) };
            let is_set = resize(&busy, TerminalSize { columns: 80, rows: 24 }).await.is_ok();
            let asked = busy.asked.load(Ordering::Relaxed);
            assert_eq!(if is_set { Ok(asked) } else { Err(asked) }, expected, "{failures} failures");
        }
    }
}
