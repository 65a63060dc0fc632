//! One action on several objects.

use client::{Client, ClientError};
use output::stderr;

use super::context::Context;
use super::error::{CommandError, CommandResult};
use super::objects::object_name::ObjectType;
use crate::exit::Exit;

/// A failure does not stop the other objects; the exit code is that of the first failure.
pub(super) struct BatchResult {
    exit: Exit,
}

impl BatchResult {
    pub(super) fn new() -> Self {
        Self { exit: Exit::Ok }
    }

    pub(super) fn record(&mut self, exit: Exit) {
        if self.exit == Exit::Ok {
            self.exit = exit;
        }
    }

    /// Only `Output` ends the batch: the output has no reader.
    pub(super) fn accept<T>(&mut self, result: CommandResult<T>) -> CommandResult<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(CommandError::Output(error)) => Err(CommandError::Output(error)),
            Err(error) => {
                stderr::error(&error.to_string());
                self.record(error.exit());
                Ok(None)
            }
        }
    }

    pub(super) fn exit(&self) -> Exit {
        self.exit
    }
}

/// The action returns the line for people; `result` is for scripts.
pub(super) async fn for_each(
    object_type: ObjectType,
    names: &[String],
    result: &str,
    action: impl AsyncFn(&Client, &str) -> Result<String, ClientError>,
    context: &mut Context<'_>,
) -> CommandResult {
    let mut batch = BatchResult::new();
    for name in names {
        let done = action(&context.client, name).await.map_err(CommandError::from);
        if let Some(line) = batch.accept(done)? {
            context.output.print_named_result(&format!("{}/{name}", object_type.as_str()), &line, result)?;
        }
    }
    Ok(batch.exit())
}
