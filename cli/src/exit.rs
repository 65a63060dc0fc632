//! Exit codes. Scripts rely on the numbers in `--help` and docs/reference/cli.md.

use std::process::ExitCode;

use client::ClientError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok,
    Error,
    Usage,
    NotFound,
    Conflict,
    /// The service does not fit the cluster, or the wait timed out and some pods fit no node.
    Unschedulable,
    TimedOut,
    /// The API requires a token, or rejected it.
    Unauthorized,
    Unreachable,
    /// The exit code of a job's container.
    Container(u8),
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Error => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Conflict => 4,
            Self::Unschedulable => 5,
            Self::TimedOut => 6,
            Self::Unauthorized => 7,
            Self::Unreachable => 8,
            Self::Container(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

pub(crate) trait ErrorExit {
    fn exit(&self) -> Exit;
}

impl ErrorExit for ClientError {
    fn exit(&self) -> Exit {
        match self {
            Self::InvalidAddress { .. } | Self::InvalidToken(_) => Exit::Usage,
            Self::Unreachable { .. } | Self::RequestFailed { .. } => Exit::Unreachable,
            Self::NotKubeleet { .. } => Exit::Error,
            Self::Problem { problem, .. } => match problem.status {
                401 | 403 => Exit::Unauthorized,
                404 => Exit::NotFound,
                409 if self.is_shortage() => Exit::Unschedulable,
                409 | 412 => Exit::Conflict,
                422 => Exit::Usage,
                503 | 504 => Exit::Unreachable,
                _ => Exit::Error,
            },
        }
    }
}

#[cfg(test)]
mod client_tests;

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
            (Exit::Container(77), 77),
        ];
        for (exit, number) in documented {
            assert_eq!(exit.code(), number, "{exit:?}");
        }
    }
}
