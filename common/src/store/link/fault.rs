//! What an error of the Redis client means for the caller, and for the connection it came over.
//!
//! Pure: everything the link does about a failure is decided here, by looking at the error alone.

use redis::{ErrorKind, RedisError};

use super::super::error::StoreError;

/// A failure, and what has to happen to the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) error: StoreError,
    pub(super) cure: Cure,
}

/// What a failure asks of the link, the mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cure {
    /// The server answered in good order: the connection is fine.
    Keep,
    /// The server answered, but may have been left behind by a failover: look again whether it is the master.
    Recheck,
    /// The connection can not be trusted any more.
    Reconnect,
    /// The server is not the master any more: every connection to it has to go.
    NewMaster,
}

impl Fault {
    /// Judges the error that `what` (the name of a command) met.
    pub(super) fn of(what: &str, error: &RedisError) -> Self {
        let what = || what.to_owned();
        if let Some(words) = server_words(error) {
            let worst = words.into_iter().map(Self::of_server).max_by_key(|fault| fault.cure);
            return worst.unwrap_or_else(|| Self::refused(error.to_string(), Cure::Keep));
        }
        if error.is_timeout() {
            return Self { error: StoreError::Timeout { what: what() }, cure: Cure::Reconnect };
        }
        match error.kind() {
            ErrorKind::AuthenticationFailed => Self::refused(
                "WRONGPASS the user or password in the Redis URL is not accepted",
                Cure::Reconnect,
            ),
            // Also what a broken protocol is called; then the client closes the connection and the next use tells.
            ErrorKind::UnexpectedReturnType | ErrorKind::Parse => {
                Self { error: StoreError::Corrupt { what: what(), why: error.to_string() }, cure: Cure::Keep }
            }
            ErrorKind::InvalidClientConfig | ErrorKind::Client => {
                Self::refused(error.to_string(), Cure::Keep)
            }
            _ => Self::lost(what(), error.to_string()),
        }
    }

    /// The connection broke.
    pub(super) fn lost(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { error: StoreError::Unreachable { what: what.into(), why: why.into() }, cure: Cure::Reconnect }
    }

    /// The server turned out not to be the master.
    pub(super) fn not_master() -> Self {
        Self { error: StoreError::NotMaster, cure: Cure::NewMaster }
    }

    fn of_server((code, detail): (String, String)) -> Self {
        let (code, detail) = inside_script(&code, &detail);
        let text = format!("{code} {detail}").trim_end().to_owned();
        let cure = match code {
            // MASTERDOWN is what a replica says; UNBLOCKED is said when a master becomes one.
            "READONLY" | "MASTERDOWN" | "UNBLOCKED" => return Self::not_master(),
            "WRONGTYPE" => {
                return Self { error: StoreError::WrongType { detail: detail.to_owned() }, cure: Cure::Keep };
            }
            "LOADING" => Cure::Reconnect,
            "NOREPLICAS" => Cure::Recheck,
            _ => Cure::Keep,
        };
        Self::refused(text, cure)
    }

    fn refused(text: impl Into<String>, cure: Cure) -> Self {
        Self { error: StoreError::Refused(text.into()), cure }
    }
}

/// Code and detail of each error the server sent; a pipeline can hold several.
fn server_words(error: &RedisError) -> Option<Vec<(String, String)>> {
    if let Some(errors) = error.clone().into_server_errors() {
        let words = |(_, error): &(usize, redis::ServerError)| {
            (error.code().to_owned(), error.details().unwrap_or_default().to_owned())
        };
        return Some(errors.iter().map(words).collect());
    }
    match error.kind() {
        // Made by the client itself while it set up the connection, from an answer of the server.
        ErrorKind::Server(_) => {
            let code = error.code().unwrap_or("ERR").to_owned();
            Some(vec![(code, error.detail().map_or_else(|| error.to_string(), str::to_owned))])
        }
        _ => None,
    }
}

/// Redis before 7 wraps an error met inside a script in an `ERR Error running script …: -CODE …`; this digs out the
/// code that says what happened.
fn inside_script<'a>(code: &'a str, detail: &'a str) -> (&'a str, &'a str) {
    if code != "ERR" || !detail.starts_with("Error running script") {
        return (code, detail);
    }
    let Some((_, inner)) = detail.split_once(": -") else { return (code, detail) };
    let (inner_code, rest) = inner.split_once(' ').unwrap_or((inner, ""));
    match !inner_code.is_empty() && inner_code.bytes().all(|byte| byte.is_ascii_uppercase()) {
        true => (inner_code, rest),
        false => (code, detail),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn from_wire(line: &str) -> Fault {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        Fault::of("SET", &value.extract_error().unwrap_err())
    }

    #[test]
    fn errors_of_the_server() {
        let old_script = "ERR Error running script (call to f_abc): @user_script:1: @user_script: 1: ";
        let table = [
            ("READONLY You can't write against a read only replica.".to_owned(), Cure::NewMaster, true),
            (
                "UNBLOCKED force unblock from blocking operation, instance state changed".into(),
                Cure::NewMaster,
                true,
            ),
            ("MASTERDOWN Link with MASTER is down".into(), Cure::NewMaster, true),
            (
                format!("{old_script}-READONLY You can't write against a read only replica."),
                Cure::NewMaster,
                true,
            ),
            ("LOADING Redis is loading the dataset in memory".into(), Cure::Reconnect, true),
            ("NOREPLICAS Not enough good replicas to write.".into(), Cure::Recheck, true),
            (format!("{old_script}-NOREPLICAS Not enough good replicas to write."), Cure::Recheck, true),
            ("OOM command not allowed when used memory > 'maxmemory'.".into(), Cure::Keep, true),
            ("WRONGTYPE Operation against a key holding the wrong kind of value".into(), Cure::Keep, false),
            (format!("{old_script}-WRONGTYPE Operation against a key"), Cure::Keep, false),
            ("NOAUTH Authentication required.".into(), Cure::Keep, false),
            ("NOPERM this user has no permissions".into(), Cure::Keep, false),
            ("ERR unknown command 'FOO'".into(), Cure::Keep, false),
        ];
        for (line, cure, transient) in table {
            let fault = from_wire(&line);
            assert_eq!((fault.cure, fault.error.is_transient()), (cure, transient), "{line}: {fault:?}");
        }
        assert!(matches!(from_wire("WRONGTYPE x").error, StoreError::WrongType { .. }));
        assert_eq!(
            from_wire("NOAUTH Authentication required.").error,
            StoreError::Refused("NOAUTH Authentication required.".into())
        );
    }

    #[test]
    fn errors_of_the_wire() {
        let io = |kind: std::io::ErrorKind| Fault::of("SET", &RedisError::from(std::io::Error::from(kind)));
        assert_eq!(io(std::io::ErrorKind::TimedOut).error, StoreError::Timeout { what: "SET".into() });
        assert_eq!(io(std::io::ErrorKind::TimedOut).cure, Cure::Reconnect);
        assert!(matches!(io(std::io::ErrorKind::BrokenPipe).error, StoreError::Unreachable { .. }));
        assert_eq!(io(std::io::ErrorKind::BrokenPipe).cure, Cure::Reconnect);
    }

    #[test]
    fn a_reply_of_another_shape_is_no_reason_to_reconnect() {
        let error = redis::from_redis_value::<u64>(redis::Value::BulkString(b"abc".to_vec())).unwrap_err();
        let fault = Fault::of("GET", &RedisError::from(error));
        assert_eq!(fault.cure, Cure::Keep);
        assert!(matches!(fault.error, StoreError::Corrupt { .. }));
    }
}
