//! Classifies errors of the Redis client: the caller's error, and what becomes of the connection. Pure.

use redis::{ErrorKind, RedisError};

use crate::error::StoreError;
use daemon::without_error_numbers;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LinkFault {
    pub(super) error: StoreError,
    pub(super) action: ConnectionAction,
}

/// In order of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectionAction {
    Keep,
    /// A failover may have replaced the server.
    Recheck,
    /// This connection is lost; others to the same server may be intact.
    Reconnect,
    /// Close all connections to the former one.
    NewMaster,
}

impl LinkFault {
    pub(super) fn of(what: &str, error: &RedisError) -> Self {
        let what = || what.to_owned();
        if let Some(errors) = server_errors(error) {
            let most_severe = errors.into_iter().map(Self::of_server).max_by_key(|fault| fault.action);
            return most_severe.unwrap_or_else(|| Self::refused(error.to_string(), ConnectionAction::Keep));
        }
        if error.is_timeout() {
            return Self { error: StoreError::Timeout { what: what() }, action: ConnectionAction::Reconnect };
        }
        match error.kind() {
            ErrorKind::AuthenticationFailed => Self::refused(
                "WRONGPASS Redis does not accept the user or password in the Redis URL",
                ConnectionAction::Reconnect,
            ),
            // After a protocol violation the client closes the connection.
            ErrorKind::UnexpectedReturnType | ErrorKind::Parse => Self {
                error: StoreError::Corrupt { what: what(), why: error.to_string() },
                action: ConnectionAction::Keep,
            },
            ErrorKind::InvalidClientConfig | ErrorKind::Client => {
                Self::refused(error.to_string(), ConnectionAction::Keep)
            }
            _ => Self::lost(what(), error.to_string()),
        }
    }

    pub(super) fn lost(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            error: StoreError::Unreachable { what: what.into(), why: without_error_numbers(&why.into()) },
            action: ConnectionAction::Reconnect,
        }
    }

    pub(super) fn not_master() -> Self {
        Self { error: StoreError::NotMaster, action: ConnectionAction::NewMaster }
    }

    fn of_server((code, detail): (String, String)) -> Self {
        let (code, detail) = inside_script(&code, &detail);
        let text = format!("{code} {detail}").trim_end().to_owned();
        let action = match code {
            // Answers of a replica; UNBLOCKED when the master becomes one.
            "READONLY" | "MASTERDOWN" | "UNBLOCKED" => return Self::not_master(),
            "WRONGTYPE" => {
                return Self {
                    error: StoreError::WrongType { detail: detail.to_owned() },
                    action: ConnectionAction::Keep,
                };
            }
            // It has restarted: another server may be the master by now.
            "LOADING" => ConnectionAction::Reconnect,
            "NOREPLICAS" => ConnectionAction::Recheck,
            _ => ConnectionAction::Keep,
        };
        Self::refused(text, action)
    }

    fn refused(text: impl Into<String>, action: ConnectionAction) -> Self {
        Self { error: StoreError::Refused(text.into()), action }
    }
}

/// A pipeline can have several.
fn server_errors(error: &RedisError) -> Option<Vec<(String, String)>> {
    if let Some(errors) = error.clone().into_server_errors() {
        let code_and_detail = |(_, error): &(usize, redis::ServerError)| {
            (error.code().to_owned(), error.details().unwrap_or_default().to_owned())
        };
        return Some(errors.iter().map(code_and_detail).collect());
    }
    match error.kind() {
        ErrorKind::Server(_) => {
            let code = error.code().unwrap_or("ERR").to_owned();
            Some(vec![(code, error.detail().map_or_else(|| error.to_string(), str::to_owned))])
        }
        _ => None,
    }
}

/// Redis before 7 wraps an error in `ERR Error running script … @user_script:1: …`, with a minus before the
/// codes of refusals.
fn inside_script<'a>(code: &'a str, detail: &'a str) -> (&'a str, &'a str) {
    if code != "ERR" || !detail.starts_with("Error running script") {
        return (code, detail);
    }
    // An error of Redis itself (READONLY, NOREPLICAS, OOM) begins with a minus, and its line is named twice.
    let place = detail.rsplit_once("@user_script:");
    let Some((_, inner)) = place.and_then(|(_, rest)| rest.split_once(": ")) else { return (code, detail) };
    let inner = inner.strip_prefix('-').unwrap_or(inner);
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

    fn from_server(line: &str) -> LinkFault {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        LinkFault::of("SET", &value.extract_error().unwrap_err())
    }

    #[test]
    fn errors_of_the_server_are_classified() {
        let old_script = "ERR Error running script (call to f_abc): @user_script:1: @user_script: 1: ";
        let table = [
            (
                "READONLY You can't write against a read only replica.".to_owned(),
                ConnectionAction::NewMaster,
                true,
            ),
            (
                "UNBLOCKED force unblock from blocking operation, instance state changed".into(),
                ConnectionAction::NewMaster,
                true,
            ),
            ("MASTERDOWN Link with MASTER is down".into(), ConnectionAction::NewMaster, true),
            (
                format!("{old_script}-READONLY You can't write against a read only replica."),
                ConnectionAction::NewMaster,
                true,
            ),
            ("LOADING Redis is loading the dataset in memory".into(), ConnectionAction::Reconnect, true),
            ("NOREPLICAS Not enough good replicas to write.".into(), ConnectionAction::Recheck, true),
            (
                format!("{old_script}-NOREPLICAS Not enough good replicas to write."),
                ConnectionAction::Recheck,
                true,
            ),
            ("OOM command not allowed when used memory > 'maxmemory'.".into(), ConnectionAction::Keep, true),
            (
                "WRONGTYPE Operation against a key holding the wrong kind of value".into(),
                ConnectionAction::Keep,
                false,
            ),
            (format!("{old_script}-WRONGTYPE Operation against a key"), ConnectionAction::Keep, false),
            ("NOAUTH Authentication required.".into(), ConnectionAction::Keep, true),
            ("NOPERM this user has no permissions".into(), ConnectionAction::Keep, true),
            ("ERR unknown command 'FOO'".into(), ConnectionAction::Keep, false),
        ];
        for (line, action, transient) in table {
            let fault = from_server(&line);
            assert_eq!((fault.action, fault.error.is_transient()), (action, transient), "{line}: {fault:?}");
        }
        assert!(matches!(from_server("WRONGTYPE x").error, StoreError::WrongType { .. }));
        // As in 6.2.
        let old = "ERR Error running script (call to f_a1522a9e): @user_script:1: ";
        let wrong_type = from_server(&format!("{old}WRONGTYPE Operation against a key")).error;
        assert!(matches!(&wrong_type, StoreError::WrongType { .. }), "{wrong_type:?}");
        let full = from_server(&format!("{old}@user_script: 1: -OOM command not allowed")).error;
        assert_eq!(full, StoreError::Refused("OOM command not allowed".into()));
        let unknown = from_server(&format!("{old}@user_script: 1: Unknown Redis command called")).error;
        assert!(
            matches!(&unknown, StoreError::Refused(text) if text.starts_with("ERR Error")),
            "{unknown:?}"
        );
        assert_eq!(
            from_server("NOAUTH Authentication required.").error,
            StoreError::Refused("NOAUTH Authentication required.".into())
        );
    }

    #[test]
    fn errors_of_the_network_are_classified() {
        let io =
            |kind: std::io::ErrorKind| LinkFault::of("SET", &RedisError::from(std::io::Error::from(kind)));
        assert_eq!(io(std::io::ErrorKind::TimedOut).error, StoreError::Timeout { what: "SET".into() });
        assert_eq!(io(std::io::ErrorKind::TimedOut).action, ConnectionAction::Reconnect);
        assert!(matches!(io(std::io::ErrorKind::BrokenPipe).error, StoreError::Unreachable { .. }));
        assert_eq!(io(std::io::ErrorKind::BrokenPipe).action, ConnectionAction::Reconnect);
    }

    #[test]
    fn a_reply_of_an_unexpected_shape_keeps_the_connection() {
        let error = redis::from_redis_value::<u64>(redis::Value::BulkString(b"abc".to_vec())).unwrap_err();
        let fault = LinkFault::of("GET", &RedisError::from(error));
        assert_eq!(fault.action, ConnectionAction::Keep);
        assert!(matches!(fault.error, StoreError::Corrupt { .. }));
    }
}
