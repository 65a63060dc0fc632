//! How a command ends: documented exit codes, and errors on standard error.

use std::io::Write;
use std::process::ExitCode;

use worker::WorkerError;
use worker::guard::GuardError;

use crate::settings::BadSettings;

/// The exit codes, as `--help` and docs/CLI.md list them. Scripts rely on the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It is done.
    Ok = 0,
    /// Something went wrong that has no code of its own.
    Error = 1,
    /// What was typed or configured makes no sense.
    Usage = 2,
    /// What was named does not exist.
    NotFound = 3,
    /// It exists already, is being deleted, or somebody else was faster.
    Conflict = 4,
    /// Waiting ended, and there are pods that fit no node.
    Unschedulable = 5,
    /// Waiting ended for another reason.
    TimedOut = 6,
    /// The API wants a token, or another one.
    Unauthorized = 7,
    /// The API, or Redis behind it, does not answer.
    Unreachable = 8,
}

impl Exit {
    /// How a daemon ends that can not begin, or not go on. The guard of a worker starts one again that ended with
    /// [`Exit::Error`], and no other.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        match error.downcast_ref::<WorkerError>() {
            Some(WorkerError::Replaced { .. }) => return Exit::Conflict,
            Some(
                WorkerError::StateDir { .. } | WorkerError::ProcessesNotAllowed | WorkerError::Runtime(_),
            ) => {
                return Exit::Usage;
            }
            Some(WorkerError::Name(_) | WorkerError::Broken { .. }) | None => {}
        }
        match error.downcast_ref::<GuardError>() {
            Some(GuardError::Taken { .. }) => Exit::Conflict,
            Some(GuardError::StateDir { .. }) => Exit::Usage,
            Some(GuardError::System(_)) => Exit::Error,
            None if error.is::<BadSettings>() => Exit::Usage,
            None => Exit::Error,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Says on standard error what went wrong.
pub(crate) fn complain(text: &str) {
    tell("\x1b[1;31merror\x1b[0m", text);
}

/// Says on standard error what one should know although it worked.
pub(crate) fn warn(text: &str) {
    tell("\x1b[1;33mwarning\x1b[0m", text);
}

/// Says something on standard error that is no data.
pub(crate) fn note(text: &str) {
    // Nobody is left to be told that standard error is closed.
    drop(writeln!(anstream::stderr(), "{text}"));
}

fn tell(head: &str, text: &str) {
    note(&format!("{head}: {text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_a_promise() {
        let promised = [
            (Exit::Ok, 0),
            (Exit::Error, 1),
            (Exit::Usage, 2),
            (Exit::NotFound, 3),
            (Exit::Conflict, 4),
            (Exit::Unschedulable, 5),
            (Exit::TimedOut, 6),
            (Exit::Unauthorized, 7),
            (Exit::Unreachable, 8),
        ];
        for (exit, number) in promised {
            assert_eq!(exit as u8, number, "{exit:?}");
        }
    }
}
