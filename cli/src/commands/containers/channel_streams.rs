//! Connects this process's streams with a channel.

use std::io;
use std::os::fd::AsFd;

use bytes::BytesMut;
use client::{ChannelReceiver, ChannelSender, ClientError, PING_INTERVAL};
use model::stream::channel::{Frame, MAX_DATA_BYTES, Purpose};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::terminal::{self, TerminalMode};
use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::objects::find_pod;
use crate::exit::Exit;

/// Sent before queued input.
type Control = mpsc::UnboundedSender<Frame>;

pub(crate) struct ChannelStreams {
    pub(crate) stdin: bool,
    /// The terminal's size is forwarded, and Ctrl-C is input.
    pub(crate) tty: bool,
    /// Ctrl-C goes to the program; otherwise it ends this command.
    pub(crate) forwards_interrupt: bool,
}

pub(crate) async fn open(
    pod: &str,
    container: Option<&str>,
    purpose: &Purpose,
    streams: &ChannelStreams,
    context: &Context<'_>,
) -> CommandResult {
    if streams.tty && !terminal::is_interactive() {
        return Err(CommandError::Usage(terminal::NONE.to_owned()));
    }
    let pod = find_pod::running_pod(context, pod).await?;
    let channel = context.client.open_channel(pod.uuid.as_str(), container, purpose).await?;
    let _raw = streams.tty.then(TerminalMode::raw).transpose()?;
    run(channel, streams).await
}

/// Returns the exit code of the program in the pod.
pub(crate) async fn run(
    (sender, mut receiver): (ChannelSender, ChannelReceiver),
    streams: &ChannelStreams,
) -> CommandResult {
    let (control, controls) = mpsc::unbounded_channel();
    let (input, inputs) = mpsc::channel(2);
    // Sending has its own task: a program that does not read its input still writes output.
    let sending = AbortOnDropHandle::new(tokio::spawn(send_all(sender, controls, inputs)));
    let stdin = streams.stdin.then(|| stream_of(io::stdin())).transpose()?;
    let _reading = stdin.map(|stdin| AbortOnDropHandle::new(tokio::spawn(read_input(input, stdin))));
    let result = tokio::select! {
        exit = receive_all(&mut receiver) => exit,
        exit = handle_signals(&control, streams) => exit,
    };
    let _its_end_is_known = control.send(Frame::Closed);
    drop(control);
    // Buffered data is sent, without waiting for a peer that does not read.
    let _sent = tokio::time::timeout(std::time::Duration::from_secs(1), sending).await;
    result
}

fn stream_of(stream: impl AsFd) -> io::Result<File> {
    Ok(File::from_std(stream.as_fd().try_clone_to_owned()?.into()))
}

async fn receive_all(receiver: &mut ChannelReceiver) -> CommandResult {
    let (mut stdout, mut stderr) = (stream_of(io::stdout())?, stream_of(io::stderr())?);
    while let Some(frame) = receiver.next().await? {
        match frame {
            Frame::Output(data) => {
                stdout.write_all(&data).await?;
                stdout.flush().await?;
            }
            Frame::ErrorOutput(data) => {
                stderr.write_all(&data).await?;
                stderr.flush().await?;
            }
            Frame::Exit(code) => return Ok(Exit::Container(code)),
            Frame::Failed(why) => return Err(CommandError::Other(why)),
            _ => {}
        }
    }
    Err(CommandError::Other("the API has ended the session".to_owned()))
}

/// `controls` go first.
async fn send_all(
    mut sender: ChannelSender,
    mut controls: mpsc::UnboundedReceiver<Frame>,
    mut inputs: mpsc::Receiver<Frame>,
) -> Result<(), ClientError> {
    let mut has_input = true;
    let mut ping = tokio::time::interval(PING_INTERVAL);
    loop {
        let frame = tokio::select! {
            biased;
            frame = controls.recv() => frame,
            frame = inputs.recv(), if has_input => match frame {
                Some(frame) => Some(frame),
                None => {
                    has_input = false;
                    continue;
                }
            },
            _ = ping.tick() => {
                sender.ping().await?;
                continue;
            }
        };
        match frame {
            Some(Frame::Closed) => return sender.send(&Frame::Closed).await,
            Some(frame) => sender.send(&frame).await?,
            None => return Ok(()),
        }
    }
}

async fn read_input(input: mpsc::Sender<Frame>, mut stdin: File) {
    loop {
        let mut buffer = BytesMut::with_capacity(MAX_DATA_BYTES);
        let frame = match stdin.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => Frame::EndOfInput,
            Ok(_) => Frame::Input(buffer.freeze()),
        };
        let is_end = frame == Frame::EndOfInput;
        if input.send(frame).await.is_err() || is_end {
            return;
        }
    }
}

async fn handle_signals(control: &Control, streams: &ChannelStreams) -> CommandResult {
    let listen = |kind: SignalKind| signal(kind).map_err(CommandError::Output);
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hang_up = listen(SignalKind::hangup())?;
    let mut resized = listen(SignalKind::window_change())?;
    let mut was_interrupted = false;
    loop {
        let number: u8 = tokio::select! {
            _ = resized.recv(), if streams.tty => {
                if let Some(size) = terminal::size() {
                    let _ended = control.send(Frame::Resize(size));
                }
                continue;
            }
            () = received(&mut interrupt) => 2,
            () = received(&mut terminate) => 15,
            () = received(&mut hang_up) => 1,
        };
        if number == 2 && streams.forwards_interrupt && !was_interrupted {
            was_interrupted = true;
            let _ended = control.send(Frame::Signal(number));
            continue;
        }
        return Ok(Exit::Container(128 + number));
    }
}

async fn received(signal: &mut Signal) {
    signal.recv().await;
}
