//! Interactive commands in containers: with input, and optionally with a terminal.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use model::stream::channel::TerminalSize;
use tokio::io::AsyncWrite;

use crate::RuntimeError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRequest {
    pub command: Vec<String>,
    pub tty: bool,
    pub stdin: bool,
    pub size: Option<TerminalSize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandOutput {
    Standard(Bytes),
    Error(Bytes),
}

/// Shutdown ends the input.
pub type CommandInput = Pin<Box<dyn AsyncWrite + Send>>;

pub struct RunningCommand {
    pub input: Option<CommandInput>,
    /// The input is shut down when the client's ends.
    pub ends_input: bool,
    /// Ends with the command or shortly before.
    pub output: BoxStream<'static, Result<CommandOutput, RuntimeError>>,
    pub control: Box<dyn CommandControl>,
}

pub trait CommandControl: Send + Sync {
    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<(), RuntimeError>>;

    /// Succeeds if the command has ended.
    fn signal(&self, number: u8) -> BoxFuture<'_, Result<(), RuntimeError>>;

    /// Waits for the end; 128 + n for signal n.
    fn exit_code(&self) -> BoxFuture<'_, Result<i64, RuntimeError>>;

    fn end(&self) -> BoxFuture<'_, ()>;
}
