//! Classifies the engine's errors by the worker's reaction. Pure.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use bollard::errors::Error;

use crate::RuntimeError;

/// Its `Display` fits after "could not".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EngineCall {
    Ping,
    Version,
    Info,
    List,
    Inspect,
    InspectImage,
    Pull,
    Create,
    Start,
    Stop,
    Signal,
    Remove,
    Logs,
    Import,
    RemoveImage,
    CreateExec,
    StartExec,
    InspectExec,
    ResizeExec,
    Attach,
    Unpack,
    Archive,
    ListVolumes,
    RemoveVolume,
    InspectNetwork,
    CreateNetwork,
    RemoveNetwork,
}

impl EngineCall {
    pub(super) fn name(self) -> &'static str {
        self.name_and_text().0
    }

    fn name_and_text(self) -> (&'static str, &'static str) {
        match self {
            EngineCall::Ping => ("ping", "ping the engine"),
            EngineCall::Version => ("version", "read the engine's version"),
            EngineCall::Info => ("info", "read the engine's information"),
            EngineCall::List => ("list", "list containers"),
            EngineCall::Inspect => ("inspect", "inspect the container"),
            EngineCall::InspectImage => ("inspect_image", "inspect the image"),
            EngineCall::Pull => ("pull", "pull the image"),
            EngineCall::Create => ("create", "create the container"),
            EngineCall::Start => ("start", "start the container"),
            EngineCall::Stop => ("stop", "stop the container"),
            EngineCall::Signal => ("signal", "send a signal to the container"),
            EngineCall::Remove => ("remove", "remove the container"),
            EngineCall::Logs => ("logs", "read the container's logs"),
            EngineCall::Import => ("import", "import the image"),
            EngineCall::RemoveImage => ("remove_image", "remove the image"),
            EngineCall::CreateExec => ("create_exec", "prepare a command in the container"),
            EngineCall::StartExec => ("start_exec", "run a command in the container"),
            EngineCall::InspectExec => ("inspect_exec", "read how a command in the container ended"),
            EngineCall::ResizeExec => ("resize_exec", "resize the terminal of a command in the container"),
            EngineCall::Attach => ("attach", "attach to the container"),
            EngineCall::Unpack => ("unpack", "write files into the container"),
            EngineCall::Archive => ("archive", "read files of the container"),
            EngineCall::ListVolumes => ("list_volumes", "list volumes"),
            EngineCall::RemoveVolume => ("remove_volume", "remove the volume"),
            EngineCall::InspectNetwork => ("inspect_network", "inspect the pods' network"),
            EngineCall::CreateNetwork => ("create_network", "create the pods' network"),
            EngineCall::RemoveNetwork => ("remove_network", "remove the pods' network"),
        }
    }
}

impl fmt::Display for EngineCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name_and_text().1)
    }
}

#[derive(Debug)]
pub(super) struct EngineFailure {
    pub(super) status: Option<u16>,
    pub(super) error: RuntimeError,
    /// May contain secrets.
    pub(super) not_understood: Option<NotUnderstood>,
}

/// Its `Debug` hides the content.
pub(super) struct NotUnderstood(pub(super) String);

impl fmt::Debug for NotUnderstood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl From<RuntimeError> for EngineFailure {
    fn from(error: RuntimeError) -> Self {
        Self { status: None, error, not_understood: None }
    }
}

impl From<EngineFailure> for RuntimeError {
    fn from(failure: EngineFailure) -> Self {
        failure.error
    }
}

impl EngineFailure {
    pub(super) fn of(call: EngineCall, host: &str, error: &Error) -> Self {
        match error {
            Error::DockerResponseServerError { status_code, message } => {
                let error = sort(call, *status_code, message.trim());
                Self { status: Some(*status_code), ..error.into() }
            }
            Error::DockerStreamError { error } => sort(call, 500, error.trim()).into(),
            // The library's message quotes the answer, which can contain environment values.
            Error::JsonDataError { contents, column, .. } => {
                let detail = format!("could not {call}: the engine's answer cannot be read at byte {column}");
                let not_understood = Some(NotUnderstood(contents.clone()));
                Self { not_understood, ..RuntimeError::Failed(detail).into() }
            }
            other => {
                let detail = format!("{host}: could not {call}: {}{}", cause(other), advice(other));
                RuntimeError::Engine(detail).into()
            }
        }
    }

    pub(super) fn timed_out(call: EngineCall, host: &str, limit: Duration) -> Self {
        let detail = format!("{host}: could not {call} within {} s", limit.as_secs());
        RuntimeError::Engine(detail).into()
    }

    /// Docker answers 409, older Podman only with a message.
    pub(super) fn is_name_taken(&self) -> bool {
        let says_so = |message: &str| message.contains("name") && message.contains("already in use");
        self.status == Some(409) || matches!(&self.error, RuntimeError::Failed(message) if says_so(message))
    }

    pub(super) fn is_not_found(&self) -> bool {
        self.status == Some(404)
    }
}

fn sort(call: EngineCall, status: u16, message: &str) -> RuntimeError {
    let is_port_taken =
        ["port is already allocated", "address already in use"].iter().any(|text| message.contains(text));
    match (call, status) {
        (EngineCall::Pull, _) => RuntimeError::Image(pull_problem(message)),
        (EngineCall::Create, 404) if message.to_ascii_lowercase().contains("image") => {
            RuntimeError::Image(message.to_owned())
        }
        (EngineCall::Create, 404) => RuntimeError::Failed(message.to_owned()),
        // The container exists; the path does not.
        (EngineCall::Unpack | EngineCall::Archive, 404) if message.starts_with("Could not find the file") => {
            RuntimeError::Failed(without_container(message).to_owned())
        }
        (_, 404) => RuntimeError::NotFound(message.to_owned()),
        // Podman answers with status 500 for a paused container.
        (EngineCall::CreateExec | EngineCall::StartExec, _)
            if status == 409 || message.ends_with("container state improper") =>
        {
            RuntimeError::NotFound(message.to_owned())
        }
        _ if is_port_taken => RuntimeError::PortTaken(port_problem(message)),
        // Another image may be pushed under the same tag.
        (EngineCall::Start, 400 | 500) if is_about_command(message) => {
            RuntimeError::Failed(format!("the command cannot be started: {}", without_preface(message)))
        }
        // The engine runs on another machine, or does not see a containerized worker's files.
        (EngineCall::Create | EngineCall::Start, 400)
            if message.contains("bind source path does not exist") =>
        {
            let path = message.rsplit("does not exist: ").next().unwrap_or(message).trim();
            RuntimeError::Failed(format!(
                "the engine does not see {path}, which the worker has written for the container: they have to share that \
                 directory. If the worker is in a container, mount the host's directory there at the same path"
            ))
        }
        (_, 400) => RuntimeError::Refused(message.to_owned()),
        (_, 503 | 504) => RuntimeError::Engine(format!("could not {call}: {message}")),
        _ if message.contains("context deadline exceeded") => {
            RuntimeError::Engine(format!("could not {call}: {message}"))
        }
        _ => RuntimeError::Failed(format!("could not {call}: {message}")),
    }
}

fn port_problem(message: &str) -> String {
    let before = [" failed: port is already allocated", ": bind: address already in use"];
    let address =
        before.iter().find_map(|end| message.split(end).next().filter(|start| start.len() < message.len()));
    match address.and_then(|start| start.rsplit(' ').next()) {
        Some(address) if address.contains(':') => format!(
            "{address} is in use on this machine, by another program or by a pod of another worker of the machine: a \
             machine has each port once"
        ),
        _ => message.to_owned(),
    }
}

fn pull_problem(message: &str) -> String {
    let Some((_, found)) = message.split_once("dial tcp: lookup ") else { return message.to_owned() };
    let host = found.split([' ', ':']).next().unwrap_or(found);
    let why = found.rsplit(": ").next().unwrap_or_default().trim();
    format!("the name {host} cannot be looked up (DNS) by the engine: {why}")
}

fn without_container(message: &str) -> &str {
    message.split(" in container ").next().unwrap_or(message)
}

/// Engines' networks fail with similar words.
fn is_about_command(message: &str) -> bool {
    let any = |words: &[&str]| words.iter().any(|word| message.contains(word));
    any(&["OCI ", "runc", "crun", "standard_init_linux"])
        && any(&["exec: ", "exec user process", "exec format error", "executable", ": stat "])
}

fn without_preface(message: &str) -> &str {
    let about_command = message.rfind("exec: ").map_or(message, |at| &message[at + "exec: ".len()..]);
    let without_name = about_command.trim_end().trim_start_matches("crun: ");
    let without_class = without_name.split(": OCI runtime attempted").next().unwrap_or(without_name);
    without_class.trim_end_matches(": unknown")
}

fn cause(error: &Error) -> String {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = source {
        if let Some(error) = inner.downcast_ref::<std::io::Error>()
            && error.raw_os_error().is_some()
        {
            return daemon::system_error(error).to_string();
        }
        source = inner.source();
    }
    with_sources(error)
}

/// bollard has the reason only in the sources.
fn with_sources(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let reason = inner.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
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
            Some(std::io::ErrorKind::NotFound) => {
                return " (there is no such socket: is the engine running, and is DOCKER_HOST right?)";
            }
            Some(std::io::ErrorKind::ConnectionRefused) => {
                return " (check that the engine is running and DOCKER_HOST is right)";
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
    fn what_the_engine_says_becomes_what_a_person_needs() {
        let taken = "driver failed programming external connectivity on endpoint x (0a): Bind for 127.0.0.1:8081 failed: \
                     port is already allocated";
        let bound = "failed to bind host port for 0.0.0.0:80:172.17.0.2:80/tcp: listen tcp4 0.0.0.0:80: bind: address already \
                     in use";
        for (message, address) in [(taken, "127.0.0.1:8081 is in use"), (bound, "0.0.0.0:80 is in use")] {
            assert!(port_problem(message).starts_with(address), "{}", port_problem(message));
        }
        assert_eq!(port_problem("port is already allocated"), "port is already allocated");
        let lookup = "Get \"https://registry-1.docker.io/v2/\": dial tcp: lookup registry-1.docker.io on 127.0.0.1:53: read udp \
                      127.0.0.1:33067->127.0.0.1:53: i/o timeout";
        let expected = "the name registry-1.docker.io cannot be looked up (DNS) by the engine: i/o timeout";
        assert_eq!(pull_problem(lookup), expected);
        assert_eq!(pull_problem("manifest unknown"), "manifest unknown");
    }

    #[test]
    fn engine_errors_are_sorted() {
        use RuntimeError::{Engine, Failed, Image, NotFound, PortTaken, Refused};
        let kind = |error: &RuntimeError| match error {
            Image(_) => "image",
            Refused(_) => "refused",
            NotFound(_) => "not found",
            PortTaken(_) => "port taken",
            Engine(_) => "engine",
            Failed(_) => "failed",
        };
        let cases = [
            (EngineCall::Pull, 404, "pull access denied for x, repository does not exist", "image"),
            (
                EngineCall::Pull,
                500,
                "Get https://registry/v2/: dial tcp: lookup registry: no such host",
                "image",
            ),
            (EngineCall::Create, 404, "No such image: x:latest", "image"),
            (EngineCall::Create, 404, "network web not found", "failed"),
            (EngineCall::Create, 400, "Minimum memory limit allowed is 6MB", "refused"),
            (EngineCall::Create, 409, "Conflict. The container name \"/x\" is already in use", "failed"),
            (
                EngineCall::Start,
                400,
                "OCI runtime create failed: exec: \"x\": executable file not found",
                "failed",
            ),
            (EngineCall::Start, 500, "crun: executable file not found in $PATH", "failed"),
            (
                EngineCall::Start,
                400,
                "OCI runtime create failed: exec: \"/etc\": permission denied",
                "failed",
            ),
            (
                EngineCall::Start,
                400,
                "standard_init_linux.go:228: exec user process: exec format error",
                "failed",
            ),
            (EngineCall::Create, 400, "invalid exec option", "refused"),
            (
                EngineCall::Start,
                400,
                "failed to set up container networking: iptables: exec failed",
                "refused",
            ),
            (EngineCall::Create, 400, "invalid mount config: bind source path does not exist: /x", "failed"),
            (
                EngineCall::Start,
                500,
                "driver failed: Bind for 127.0.0.1:80 failed: port is already allocated",
                "port taken",
            ),
            (EngineCall::Start, 404, "No such container: x", "not found"),
            (EngineCall::Stop, 500, "cannot stop container: x: tried to kill, did not exit", "failed"),
            (EngineCall::CreateExec, 409, "Container 12ab is not running", "not found"),
            (
                EngineCall::CreateExec,
                500,
                "can only create exec sessions on running containers: container state improper",
                "not found",
            ),
            (EngineCall::List, 503, "the daemon is shutting down", "engine"),
            (EngineCall::Start, 500, "context deadline exceeded", "engine"),
        ];
        for (call, status, message, expected) in cases {
            assert_eq!(kind(&sort(call, status, message)), expected, "{call:?} {status} {message}");
        }
    }

    #[test]
    fn a_command_that_cannot_be_started_is_named_without_the_runtimes_preface() {
        let message = "OCI runtime create failed: runc create failed: unable to start container process: \
                       exec: \"x\": executable file not found in $PATH: unknown";
        let podman = "runc: runc create failed: unable to start container process: exec: \"x\": executable file not \
                      found in $PATH: OCI runtime attempted to invoke a command that was not found";
        let expected = "the command cannot be started: \"x\": executable file not found in $PATH";
        for (status, message) in [(400, message), (500, podman)] {
            assert_eq!(sort(EngineCall::Start, status, message), RuntimeError::Failed(expected.to_owned()));
        }
        let crun = "crun: executable file `x` not found in $PATH: No such file or directory: OCI runtime attempted to \
                    invoke a command that was not found";
        let expected = "the command cannot be started: executable file `x` not found in $PATH: No such file or directory";
        assert_eq!(sort(EngineCall::Start, 500, crun), RuntimeError::Failed(expected.to_owned()));
    }

    #[test]
    fn a_network_that_cannot_be_set_up_is_not_the_command() {
        for message in [
            "netavark: nftables error: unable to execute \"nft\": No such file or directory",
            "plugin type=\"bridge\" failed (add): failed to list chains: exec: \"iptables\": executable file not found \
             in $PATH",
        ] {
            let RuntimeError::Failed(said) = sort(EngineCall::Start, 500, message) else {
                panic!("{message}");
            };
            assert_eq!(said, format!("could not start the container: {message}"));
        }
    }

    #[test]
    fn errors_keep_the_engines_own_message() {
        let error = Error::DockerResponseServerError { status_code: 404, message: "No such image: x".into() };
        let failure = EngineFailure::of(EngineCall::Create, "unix:///s", &error);
        assert!(failure.error.to_string().contains("No such image: x"));
        let podman = "creating container storage: the container name \"x\" is already in use by 12ab";
        let error = Error::DockerResponseServerError { status_code: 500, message: podman.into() };
        assert!(EngineFailure::of(EngineCall::Create, "unix:///s", &error).is_name_taken());
    }
}
