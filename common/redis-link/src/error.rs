//! The errors of store operations, with remedies.

use super::refusal::{RefusalCause, with_remedy};

/// After [`Unreachable`](Self::Unreachable), [`Timeout`](Self::Timeout), [`NotMaster`](Self::NotMaster) and
/// [`Corrupt`](Self::Corrupt) Redis may have carried the operation out, so every operation is safe to repeat.
/// A command or script that it refuses has changed nothing; others of the same pipeline may have.
///
/// `what` is the operation, script or command without its arguments: they can be secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("Redis is unreachable ({why}); check KUBELEET_REDIS_URL and that Redis runs")]
    Unreachable {
        what: String,
        /// From the network or the resolver.
        why: String,
    },
    #[error("Redis did not answer {what} in time; it is overloaded, paused, or cut off by the network")]
    Timeout {
        /// The command.
        what: String,
    },
    /// Another program wrote the key.
    #[error("a key in Redis has the wrong type: {detail}; inspect it with redis-cli, then DEL or RENAME it")]
    WrongType {
        /// Redis' own words.
        detail: String,
    },
    #[error("this Redis is a replica, not the master; a retry finds the new master")]
    NotMaster,
    #[error("the Redis at {at} is a replica of {master} and takes no writes: {advice}")]
    Replica {
        at: String,
        master: String,
        /// The remedy.
        advice: String,
    },
    #[error(
        "Redis answers reads, but took no write within {limit_ms} ms: it is paused (`CLIENT PAUSE … WRITE`; \
         `CLIENT UNPAUSE` ends that), or busy with another program"
    )]
    WritesPaused {
        /// Milliseconds.
        limit_ms: u64,
    },
    /// The server's error, code first (NOAUTH, NOPERM, OOM, NOREPLICAS, …).
    #[error("Redis refused: {}", with_remedy(.0))]
    Refused(String),
    /// No script of kubeleet replies so, and kubeleet writes no such value.
    #[error("cannot read the reply of Redis when {what}: {why}")]
    Corrupt {
        /// The command or the record.
        what: String,
        why: String,
    },
}

const TRANSIENT_CODES: &[&str] = &["MASTERDOWN", "NOSCRIPT", "UNBLOCKED"];

/// All words of [`StoreError::cause`].
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
    /// Other keys are readable.
    pub fn is_broken_key(&self) -> bool {
        matches!(self, Self::WrongType { .. } | Self::Corrupt { .. })
    }

    /// The operation can succeed later, and no object of kubeleet is broken.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused(text) => RefusalCause::of(text).is_some() || TRANSIENT_CODES.contains(&code(text)),
            other => other.cause().is_some(),
        }
    }

    /// A refusal that does not pass by itself: the configuration must be changed.
    pub fn needs_operator(&self) -> bool {
        let Self::Refused(text) = self else { return false };
        RefusalCause::of(text).map_or_else(|| !TRANSIENT_CODES.contains(&code(text)), |cause| !cause.passes())
    }

    /// A word of [`CAUSES`].
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
