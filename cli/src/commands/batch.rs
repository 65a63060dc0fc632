//! Runs one action on several objects.

use output::stderr;

use super::error::CommandError;
use crate::exit::Exit;

/// Result of a batch. A failure does not stop the other objects; the exit code is that of the first failure.
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

    /// Returns the value of one action, or reports its error and returns `None`.
    ///
    /// # Errors
    /// Only `Output`: without a reader of the output the batch ends.
    pub(super) fn accept<T>(&mut self, result: Result<T, CommandError>) -> Result<Option<T>, CommandError> {
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
