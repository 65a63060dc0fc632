//! Connects the streams of this process with a channel: input, output, signals and the size of the terminal.

use std::io;
use std::os::fd::AsFd;

use bytes::BytesMut;
use client::{ChannelReceiver, ChannelSender, ClientError, PING_INTERVAL};
use model::stream::channel::{Frame, MAX_DATA};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::terminal;
use crate::commands::error::CommandError;
use crate::exit::Exit;

/// What is sent first: it does not wait behind input.
type Control = mpsc::UnboundedSender<Frame>;

/// How a channel is connected.
pub(crate) struct ChannelStreams {
    /// Whether standard input is passed on.
    pub(crate) stdin: bool,
    /// Whether the terminal is in raw mode: its size is passed on, and Ctrl-C is input.
    pub(crate) tty: bool,
    /// Whether Ctrl-C is sent to the program; otherwise it ends this command.
    pub(crate) forwards_interrupt: bool,
}

/// Passes everything on until the program in the pod ends. Returns its exit code.
///
/// # Errors
/// Why the channel ended early.
pub(crate) async fn run(
    (sender, mut receiver): (ChannelSender, ChannelReceiver),
    streams: &ChannelStreams,
) -> Result<Exit, CommandError> {
    let (control, controls) = mpsc::unbounded_channel();
    let (input, inputs) = mpsc::channel(2);
    // Sending has a task of its own: a program that does not read its input still writes its output.
    let sending = AbortOnDropHandle::new(tokio::spawn(send_all(sender, controls, inputs)));
    let stdin = streams.stdin.then(|| stream_of(io::stdin())).transpose()?;
    let _reading = stdin.map(|stdin| AbortOnDropHandle::new(tokio::spawn(read_input(input, stdin))));
    let result = tokio::select! {
        exit = receive_all(&mut receiver) => exit,
        exit = handle_signals(&control, streams) => exit,
    };
    let _its_end_is_known = control.send(Frame::Closed);
    drop(control);
    // What lies in the socket is sent; a peer that does not read is not waited for.
    let _sent = tokio::time::timeout(std::time::Duration::from_secs(1), sending).await;
    result
}

/// Returns a standard stream for use beside other work.
fn stream_of(stream: impl AsFd) -> io::Result<File> {
    Ok(File::from_std(stream.as_fd().try_clone_to_owned()?.into()))
}

/// Writes the output until the last frame.
async fn receive_all(receiver: &mut ChannelReceiver) -> Result<Exit, CommandError> {
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

/// Sends frames until the client has left. Those of `controls` come first.
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

/// Reads standard input to its end.
async fn read_input(input: mpsc::Sender<Frame>, mut stdin: File) {
    loop {
        let mut buffer = BytesMut::with_capacity(MAX_DATA);
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

/// Acts on signals until one ends this command.
async fn handle_signals(control: &Control, streams: &ChannelStreams) -> Result<Exit, CommandError> {
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
        // The second time the program has had its chance.
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
