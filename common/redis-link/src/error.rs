//! The errors of store operations, in words a person can act on.

use super::refusal::{RefusalCause, with_remedy};

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
    /// The server that the Redis URL leads to is a replica.
    #[error("the Redis at {at} is a replica of {master} and takes no writes: {advice}")]
    Replica {
        /// Its address.
        at: String,
        /// The address of its master.
        master: String,
        /// What to do.
        advice: String,
    },
    /// Redis answers, but has not carried out a write in time.
    #[error(
        "Redis answers reads, but took no write within {limit_ms} ms: it is paused (`CLIENT PAUSE … WRITE`; \
         `CLIENT UNPAUSE` ends that), or busy with another program"
    )]
    WritesPaused {
        /// The limit, in milliseconds.
        limit_ms: u64,
    },
    /// Redis refused the command: the server's own error, code first (NOAUTH, NOPERM, OOM, NOREPLICAS, …).
    #[error("Redis refused: {}", with_remedy(.0))]
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

/// Codes of [`StoreError::Refused`] about one command that go away by themselves.
const TRANSIENT_CODES: &[&str] = &["MASTERDOWN", "NOSCRIPT", "UNBLOCKED"];

/// The names of all causes for which Redis as a whole is of no use, see [`StoreError::cause`].
pub const CAUSES: [&str; 15] = [
    "unreachable",
    "timeout",
    "readonly",
    "paused",
    "noreplicas",
    "oom",
    "misconf",
    "noauth",
    "wrongpass",
    "noperm",
    "cluster",
    "database",
    "maxclients",
    "loading",
    "busy",
];

impl StoreError {
    /// Returns whether the cause is one key in Redis rather than Redis itself. Other keys can still be read.
    pub fn is_broken_key(&self) -> bool {
        matches!(self, Self::WrongType { .. } | Self::Corrupt { .. })
    }

    /// Returns whether the cause is Redis as a whole rather than this command: the same operation can succeed
    /// later, and no object of kubeleet is broken. See also [`StoreError::needs_operator`].
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused(text) => RefusalCause::of(text).is_some() || TRANSIENT_CODES.contains(&code(text)),
            other => other.cause().is_some(),
        }
    }

    /// Returns whether a person has to change the configuration, of Redis or of kubeleet, before any command
    /// can succeed.
    pub fn needs_operator(&self) -> bool {
        let Self::Refused(text) = self else { return false };
        RefusalCause::of(text).map_or_else(|| !TRANSIENT_CODES.contains(&code(text)), |cause| !cause.passes())
    }

    /// Returns why Redis as a whole is of no use, in one of the words of [`CAUSES`]; `None` if it may be of
    /// use.
    pub fn cause(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable { .. } => Some("unreachable"),
            Self::Timeout { .. } => Some("timeout"),
            Self::NotMaster | Self::Replica { .. } => Some("readonly"),
            Self::WritesPaused { .. } => Some("paused"),
            Self::Refused(text) => RefusalCause::of(text).map(RefusalCause::name),
            Self::WrongType { .. } | Self::Corrupt { .. } => None,
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
    fn errors_of_redis_as_a_whole_are_transient() {
        let refused = |text: &str| StoreError::Refused(text.into());
        let table = [
            (StoreError::NotMaster, true),
            (StoreError::Timeout { what: "PING".into() }, true),
            (StoreError::Unreachable { what: "PING".into(), why: "refused".into() }, true),
            (refused("LOADING Redis is loading the dataset in memory"), true),
            (refused("NOREPLICAS Not enough good replicas to write."), true),
            (refused("OOM command not allowed"), true),
            (refused("ERR max number of clients reached"), true),
            (refused("NOAUTH Authentication required."), true),
            (refused("NOPERM no permission"), true),
            (refused("ERR The user executing the script can't run this command or subcommand"), true),
            (refused("NOSCRIPT No matching script"), true),
            (refused("ERR unknown command"), false),
            (StoreError::WrongType { detail: "x".into() }, false),
            (StoreError::Corrupt { what: "GET".into(), why: "x".into() }, false),
        ];
        for (error, transient) in table {
            assert_eq!(error.is_transient(), transient, "{error}");
            assert_eq!(error.is_out_of_memory(), error.to_string().contains("OOM"), "{error}");
            assert!(error.cause().is_none_or(|cause| CAUSES.contains(&cause)), "{error}");
        }
    }
}
