//! The errors of store operations, in words a person can act on.

/// An operation on the store failed.
///
/// After [`Unreachable`](Self::Unreachable) and [`Timeout`](Self::Timeout) it is unknown whether Redis
/// carried the operation out: it may be the reply that was lost. Every operation is therefore safe to repeat.
/// After the other variants nothing was changed.
///
/// `what` is the name of the command, never its arguments: those can contain secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no connection to a Redis master, or it broke while the command was in progress.
    #[error("Redis is unreachable ({why}); check KUBELEET_REDIS_URL and that Redis runs")]
    Unreachable {
        /// The command.
        what: String,
        /// The reason, as the network or the resolver gave it.
        why: String,
    },
    /// Redis did not answer in time.
    #[error("Redis did not answer {what} in time; it is overloaded, paused, or cut off by the network")]
    Timeout {
        /// The command.
        what: String,
    },
    /// A key has a type that kubeleet never uses for it: another program wrote it.
    #[error("a key in Redis has the wrong type: {detail}; inspect it with redis-cli, then DEL or RENAME it")]
    WrongType {
        /// Redis' own words.
        detail: String,
    },
    /// The server is not the master (any more); the next call goes to the new one.
    #[error("this Redis is a replica, not the master; a retry finds the new master")]
    NotMaster,
    /// Redis refused the command: the server's own error, code first (NOAUTH, NOPERM, OOM, NOREPLICAS, …).
    #[error("Redis refused: {0}")]
    Refused(String),
    /// The reply or the stored value is not what kubeleet writes.
    #[error("cannot read the reply of Redis when {what}: {why}")]
    Corrupt {
        /// The command or the record.
        what: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Codes of [`StoreError::Refused`] that go away without a change of the configuration.
const TRANSIENT_CODES: &[&str] = &[
    "LOADING",
    "NOREPLICAS",
    "MASTERDOWN",
    "BUSY",
    "TRYAGAIN",
    "OOM",
    "MISCONF",
    "CLUSTERDOWN",
    "NOSCRIPT",
    "UNBLOCKED",
];

impl StoreError {
    /// Returns whether the cause is one key in Redis rather than Redis itself. Other keys can still be read.
    pub fn is_broken_key(&self) -> bool {
        matches!(self, Self::WrongType { .. } | Self::Corrupt { .. })
    }

    /// Returns whether a later retry can help. If not, a person has to change something first.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::NotMaster => true,
            Self::Refused(text) => {
                TRANSIENT_CODES.contains(&code(text)) || text.starts_with("ERR max number of clients")
            }
            Self::WrongType { .. } | Self::Corrupt { .. } => false,
        }
    }

    /// Returns whether Redis refused to add anything because it uses all of its `maxmemory`.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Refused(text) if code(text) == "OOM")
    }
}

/// The code that an error of the server begins with.
fn code(text: &str) -> &str {
    text.split([' ', ':']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_a_retry_can_help_are_transient() {
        let refused = |text: &str| StoreError::Refused(text.into());
        let table = [
            (StoreError::NotMaster, true),
            (StoreError::Timeout { what: "PING".into() }, true),
            (StoreError::Unreachable { what: "PING".into(), why: "refused".into() }, true),
            (refused("LOADING Redis is loading the dataset in memory"), true),
            (refused("NOREPLICAS Not enough good replicas to write."), true),
            (refused("OOM command not allowed"), true),
            (refused("ERR max number of clients reached"), true),
            (refused("NOAUTH Authentication required."), false),
            (refused("NOPERM no permission"), false),
            (refused("ERR unknown command"), false),
            (StoreError::WrongType { detail: "x".into() }, false),
            (StoreError::Corrupt { what: "GET".into(), why: "x".into() }, false),
        ];
        for (error, transient) in table {
            assert_eq!(error.is_transient(), transient, "{error}");
            assert_eq!(error.is_out_of_memory(), error.to_string().contains("OOM"), "{error}");
        }
    }
}
