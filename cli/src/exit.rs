//! Exit codes. `--help` and docs/reference/cli.md list them, and scripts rely on the numbers.

use std::process::ExitCode;

/// How a command or daemon ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Ok = 0,
    /// An error that has no code of its own.
    Error = 1,
    /// Invalid arguments or invalid configuration.
    Usage = 2,
    /// The named object does not exist.
    NotFound = 3,
    /// The object exists already, is being deleted, or was changed concurrently.
    Conflict = 4,
    /// The wait timed out, and some pods fit no node.
    Unschedulable = 5,
    /// The wait timed out for another reason.
    TimedOut = 6,
    /// The API requires a token, or rejected the one that was sent.
    Unauthorized = 7,
    /// The API, or Redis behind it, does not answer.
    Unreachable = 8,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_have_the_documented_numbers() {
        let documented = [
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
        for (exit, number) in documented {
            assert_eq!(exit as u8, number, "{exit:?}");
        }
    }
}
