//! Commands in containers that a person runs: with input, and perhaps with a terminal.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use model::stream::channel::TerminalSize;
use tokio::io::AsyncWrite;

use crate::RuntimeError;

/// A command to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRequest {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Whether it gets a terminal.
    pub tty: bool,
    /// Whether it gets an input.
    pub stdin: bool,
    /// The size of the terminal.
    pub size: Option<TerminalSize>,
}

/// What a command writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandOutput {
    /// To its standard output, or to its terminal.
    Standard(Bytes),
    /// To its standard error.
    Error(Bytes),
}

/// The input of a command. Shutting it down ends the input.
pub type CommandInput = Pin<Box<dyn AsyncWrite + Send>>;

/// A command that was started.
pub struct RunningCommand {
    /// Its input, if it has one.
    pub input: Option<CommandInput>,
    /// Whether its input is shut down when that of the client ends.
    pub ends_input: bool,
    /// Its output. It ends when the command has ended, or a moment earlier.
    pub output: BoxStream<'static, Result<CommandOutput, RuntimeError>>,
    /// The command itself.
    pub control: Box<dyn CommandControl>,
}

/// Controls a command that was started.
pub trait CommandControl: Send + Sync {
    /// Sets the size of its terminal.
    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<(), RuntimeError>>;

    /// Sends it a signal. Succeeds if it has ended.
    fn signal(&self, number: u8) -> BoxFuture<'_, Result<(), RuntimeError>>;

    /// Returns its exit code, 128 + n for signal n, once it has ended.
    fn exit_code(&self) -> BoxFuture<'_, Result<i64, RuntimeError>>;

    /// Ends it: it is asked to first, and killed a little later. Does nothing if it has ended.
    fn end(&self) -> BoxFuture<'_, ()>;
}
