//! What an engine's complaint means for the worker. Pure: a status, the engine's words and what was being done go in.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use bollard::errors::Error;

use crate::runtime::RuntimeError;

/// What was asked of the engine. Its `Display` fits after "could not".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    Ping,
    Version,
    List,
    Inspect,
    InspectImage,
    Pull,
    Create,
    Start,
    Stop,
    Remove,
    Logs,
    Import,
    RemoveImage,
}

impl Doing {
    /// The call, as failpoints name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Doing::Ping => "ping",
            Doing::Version => "version",
            Doing::List => "list",
            Doing::Inspect => "inspect",
            Doing::InspectImage => "inspect_image",
            Doing::Pull => "pull",
            Doing::Create => "create",
            Doing::Start => "start",
            Doing::Stop => "stop",
            Doing::Remove => "remove",
            Doing::Logs => "logs",
            Doing::Import => "import",
            Doing::RemoveImage => "remove_image",
        }
    }
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Doing::Ping => "ping it",
            Doing::Version => "ask its version",
            Doing::List => "list containers",
            Doing::Inspect => "inspect the container",
            Doing::InspectImage => "inspect the image",
            Doing::Pull => "pull the image",
            Doing::Create => "create the container",
            Doing::Start => "start the container",
            Doing::Stop => "stop the container",
            Doing::Remove => "remove the container",
            Doing::Logs => "read the container's logs",
            Doing::Import => "import the image",
            Doing::RemoveImage => "remove the image",
        })
    }
}

/// A call that failed: what it means, and for the few callers that look closer, the engine's status.
#[derive(Debug)]
pub(super) struct Fault {
    /// HTTP status, where the engine answered.
    pub(super) status: Option<u16>,
    /// What it means.
    pub(super) error: RuntimeError,
}

impl From<Fault> for RuntimeError {
    fn from(fault: Fault) -> Self {
        fault.error
    }
}

impl Fault {
    /// Sorts an error of the client library.
    pub(super) fn of(doing: Doing, host: &str, error: &Error) -> Self {
        match error {
            Error::DockerResponseServerError { status_code, message } => {
                Self { status: Some(*status_code), error: meaning(doing, *status_code, message.trim()) }
            }
            Error::DockerStreamError { error } => {
                Self { status: None, error: meaning(doing, 500, error.trim()) }
            }
            Error::JsonDataError { message, .. } => {
                let detail = format!("could not {doing}: its answer can not be read: {message}");
                Self { status: None, error: RuntimeError::Failed(detail) }
            }
            other => {
                let detail = format!("{host}: could not {doing}: {}{}", with_sources(other), advice(other));
                Self { status: None, error: RuntimeError::Engine(detail) }
            }
        }
    }

    /// A call that took longer than it may.
    pub(super) fn late(doing: Doing, host: &str, limit: Duration) -> Self {
        let detail = format!("{host}: could not {doing} within {} s", limit.as_secs());
        Self { status: None, error: RuntimeError::Engine(detail) }
    }

    /// A container of that name exists. Docker says so with 409, older Podman only in words.
    pub(super) fn name_is_taken(&self) -> bool {
        let in_words = |words: &str| words.contains("name") && words.contains("already in use");
        self.status == Some(409) || matches!(&self.error, RuntimeError::Failed(words) if in_words(words))
    }

    /// There is no such container or image.
    pub(super) fn is_not_found(&self) -> bool {
        self.status == Some(404)
    }
}

/// An engine's refusal, sorted by what the worker does about it.
fn meaning(doing: Doing, status: u16, words: &str) -> RuntimeError {
    let said = |words: &str| words.to_owned();
    // The command is not in the image, or is no program: the same request fails the same way again.
    let no_such_program =
        ["executable file not found", "exec format error"].iter().any(|t| words.contains(t));
    // Somebody else's port can become free.
    let port_in_use =
        ["port is already allocated", "address already in use"].iter().any(|t| words.contains(t));
    match (doing, status) {
        (Doing::Pull, _) => RuntimeError::Image(said(words)),
        (Doing::Create, 404) if words.to_ascii_lowercase().contains("image") => {
            RuntimeError::Image(said(words))
        }
        (Doing::Create, 404) => RuntimeError::Failed(said(words)),
        (_, 404) => RuntimeError::NotFound(said(words)),
        _ if port_in_use => RuntimeError::Failed(said(words)),
        (_, 400) => RuntimeError::Refused(said(words)),
        _ if no_such_program => RuntimeError::Refused(said(words)),
        (_, 503 | 504) => RuntimeError::Engine(format!("could not {doing}: {words}")),
        _ if words.contains("context deadline exceeded") => {
            RuntimeError::Engine(format!("could not {doing}: {words}"))
        }
        _ => RuntimeError::Failed(format!("could not {doing}: {words}")),
    }
}

/// The library's errors keep the reason (connection refused) in their sources.
fn with_sources(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let words = inner.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        source = inner.source();
    }
    text
}

fn advice(error: &Error) -> &'static str {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = source {
        match inner.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
            Some(std::io::ErrorKind::PermissionDenied) => {
                return " (this user may not open the socket: run as root or as a member of its group)";
            }
            Some(std::io::ErrorKind::ConnectionRefused) => {
                return " (is the engine running, is DOCKER_HOST right?)";
            }
            _ => source = inner.source(),
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_engines_words_mean() {
        use RuntimeError::{Engine, Failed, Image, NotFound, Refused};
        let kind = |error: &RuntimeError| match error {
            Image(_) => "image",
            Refused(_) => "refused",
            NotFound(_) => "not found",
            Engine(_) => "engine",
            Failed(_) => "failed",
        };
        let cases = [
            (Doing::Pull, 404, "pull access denied for x, repository does not exist", "image"),
            (Doing::Pull, 500, "Get https://registry/v2/: dial tcp: lookup registry: no such host", "image"),
            (Doing::Create, 404, "No such image: x:latest", "image"),
            (Doing::Create, 404, "network web not found", "failed"),
            (Doing::Create, 400, "Minimum memory limit allowed is 6MB", "refused"),
            (Doing::Create, 409, "Conflict. The container name \"/x\" is already in use", "failed"),
            (
                Doing::Start,
                400,
                "OCI runtime create failed: exec: \"x\": executable file not found",
                "refused",
            ),
            (Doing::Start, 500, "crun: executable file not found in $PATH", "refused"),
            (
                Doing::Start,
                500,
                "driver failed: Bind for 127.0.0.1:80 failed: port is already allocated",
                "failed",
            ),
            (Doing::Start, 404, "No such container: x", "not found"),
            (Doing::Stop, 500, "cannot stop container: x: tried to kill, did not exit", "failed"),
            (Doing::List, 503, "the daemon is shutting down", "engine"),
            (Doing::Start, 500, "context deadline exceeded", "engine"),
        ];
        for (doing, status, words, expected) in cases {
            assert_eq!(kind(&meaning(doing, status, words)), expected, "{doing:?} {status} {words}");
        }
    }

    #[test]
    fn the_engines_own_words_reach_the_reader() {
        let error = Error::DockerResponseServerError { status_code: 404, message: "No such image: x".into() };
        let fault = Fault::of(Doing::Create, "unix:///s", &error);
        assert!(fault.error.to_string().contains("No such image: x"));
        let podman = "creating container storage: the container name \"x\" is already in use by 12ab";
        let error = Error::DockerResponseServerError { status_code: 500, message: podman.into() };
        assert!(Fault::of(Doing::Create, "unix:///s", &error).name_is_taken());
    }
}
