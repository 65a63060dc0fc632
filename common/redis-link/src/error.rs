//! The errors of store operations, with remedies.

use super::refusal::{RefusalCause, with_remedy};

/// A failed operation on the store.
///
/// After [`Unreachable`](Self::Unreachable) and [`Timeout`](Self::Timeout) Redis may have carried the
/// operation out: perhaps only the reply was lost. So every operation is safe to repeat. After the other
/// variants nothing has changed.
///
/// `what` is the command without its arguments, which can contain secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no connection to a master, or it broke during the command.
    #[error("Redis is unreachable ({why}); check KUBELEET_REDIS_URL and that Redis runs")]
    Unreachable {
        /// The command.
        what: String,
        /// The reason from the network or the resolver.
        why: String,
    },
    /// Redis did not answer in time.
    #[error("Redis did not answer {what} in time; it is overloaded, paused, or cut off by the network")]
    Timeout {
        /// The command.
        what: String,
    },
    /// A key of a type that kubeleet never uses for it: another program wrote it.
    #[error("a key in Redis has the wrong type: {detail}; inspect it with redis-cli, then DEL or RENAME it")]
    WrongType {
        /// Redis' own words.
        detail: String,
    },
    /// The server is no longer the master; the next call goes to the new one.
    #[error("this Redis is a replica, not the master; a retry finds the new master")]
    NotMaster,
    /// The server at the Redis URL is a replica.
    #[error("the Redis at {at} is a replica of {master} and takes no writes: {advice}")]
    Replica {
        /// Its address.
        at: String,
        /// The address of its master.
        master: String,
        /// The remedy.
        advice: String,
    },
    /// Redis answers, but took no write in time.
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
    /// kubeleet never writes such a reply or stored value.
    #[error("cannot read the reply of Redis when {what}: {why}")]
    Corrupt {
        /// The command or the record.
        what: String,
        /// The problem.
        why: String,
    },
}

/// Transient codes of [`StoreError::Refused`] about one command.
const TRANSIENT_CODES: &[&str] = &["MASTERDOWN", "NOSCRIPT", "UNBLOCKED"];

/// The results of [`StoreError::cause`].
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
    /// Returns true if one key is broken. Other keys are readable.
    pub fn is_broken_key(&self) -> bool {
        matches!(self, Self::WrongType { .. } | Self::Corrupt { .. })
    }

    /// Returns true if Redis as a whole is the cause: the operation can succeed later, and no object of
    /// kubeleet is broken. See also [`StoreError::needs_operator`].
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused(text) => RefusalCause::of(text).is_some() || TRANSIENT_CODES.contains(&code(text)),
            other => other.cause().is_some(),
        }
    }

    /// Returns true if a person must change the configuration of Redis or kubeleet before any command can
    /// succeed.
    pub fn needs_operator(&self) -> bool {
        let Self::Refused(text) = self else { return false };
        RefusalCause::of(text).map_or_else(|| !TRANSIENT_CODES.contains(&code(text)), |cause| !cause.passes())
    }

    /// Returns the cause if Redis as a whole is unusable, as a word of [`CAUSES`].
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

    /// Returns true if Redis refused a write because it uses all of its `maxmemory`.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Refused(text) if code(text) == "OOM")
    }
}

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
