//! Interactive commands in containers: with input, and optionally with a terminal.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use model::stream::channel::TerminalSize;
use tokio::io::AsyncWrite;

use crate::RuntimeError;

/// A command to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRequest {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// True if it gets a terminal.
    pub tty: bool,
    /// True if it gets an input.
    pub stdin: bool,
    /// The size of the terminal.
    pub size: Option<TerminalSize>,
}

/// Output of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandOutput {
    /// Standard output, or the terminal's output.
    Standard(Bytes),
    /// Standard error.
    Error(Bytes),
}

/// The input of a command. Shutdown ends the input.
pub type CommandInput = Pin<Box<dyn AsyncWrite + Send>>;

/// A started command.
pub struct RunningCommand {
    /// Its input, if it has one.
    pub input: Option<CommandInput>,
    /// True if its input is shut down when the client's ends.
    pub ends_input: bool,
    /// Its output, which ends with the command or shortly before.
    pub output: BoxStream<'static, Result<CommandOutput, RuntimeError>>,
    /// The command itself.
    pub control: Box<dyn CommandControl>,
}

/// Controls a started command.
pub trait CommandControl: Send + Sync {
    /// Sets the size of its terminal.
    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<(), RuntimeError>>;

    /// Sends it a signal. Succeeds if it has ended.
    fn signal(&self, number: u8) -> BoxFuture<'_, Result<(), RuntimeError>>;

    /// Waits for its end. Returns its exit code, 128 + n for signal n.
    fn exit_code(&self) -> BoxFuture<'_, Result<i64, RuntimeError>>;

    /// Asks it to end, and kills it a little later. Does nothing if it has ended.
    fn end(&self) -> BoxFuture<'_, ()>;
}
