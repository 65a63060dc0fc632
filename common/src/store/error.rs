//! What can go wrong between a verb of the store and Redis, in words a person can act on.

/// An operation on the store failed.
///
/// After [`Unreachable`](Self::Unreachable) and [`Timeout`](Self::Timeout) nobody knows whether Redis did it:
/// the reply may be what was lost. Every verb is therefore safe to repeat. After the other variants nothing was
/// changed.
///
/// `what` is the name of the command (never its arguments: those can hold secrets).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no connection to a Redis master, or it broke while the command was under way.
    #[error("Redis can not be reached for {what}: {why}; check KUBELEET_REDIS_URL and that Redis runs")]
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
    /// A key holds another type than kubeleet keeps there: someone else wrote it.
    #[error("a key in Redis has the wrong type: {detail}; look at it with redis-cli and DEL or rename it")]
    WrongType {
        /// Redis' own words.
        detail: String,
    },
    /// The server we talked to is not the master (any more); the next call goes to the new one.
    #[error("this Redis is a replica, not the master; trying again finds the new master")]
    NotMaster,
    /// Redis understood and said no: the server's own error, code first (NOAUTH, NOPERM, OOM, NOREPLICAS, …).
    #[error("Redis refused: {0}")]
    Refused(String),
    /// Redis answered with something that can not be read.
    #[error("the answer of Redis to {what} can not be read: {why}")]
    Corrupt {
        /// The command or the record.
        what: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Codes of [`StoreError::Refused`] that pass without anyone changing the configuration.
const PASSING: &[&str] = &[
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
    /// Whether trying the same again later can help. False means a person has to change something first.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::NotMaster => true,
            Self::Refused(text) => {
                let code = text.split([' ', ':']).next().unwrap_or_default();
                PASSING.contains(&code) || text.starts_with("ERR max number of clients")
            }
            Self::WrongType { .. } | Self::Corrupt { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_by_itself() {
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
        }
    }
}
