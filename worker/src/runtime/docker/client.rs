//! The connection to an engine: where it is, and that no call to it outlives its deadline.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, Docker};
use common::failpoint::{self, Side};

use super::errors::{Doing, Fault};
use crate::runtime::RuntimeError;

const DEFAULT_HOST: &str = "unix:///var/run/docker.sock";

/// bollard's own limit, on the time to the first byte of an answer. Every call has a shorter deadline of its own, also
/// over the body; this one only has to be longer than the longest of them, a day's grace and a pull.
const FIRST_BYTE: u64 = 2 * 86_400;

/// Where an engine is, in the forms `DOCKER_HOST` has.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Unix(String),
    Tcp(String),
}

impl Host {
    fn parse(text: &str) -> Result<Self, RuntimeError> {
        if let Some(path) = text.strip_prefix("unix://") {
            return Ok(Self::Unix(path.to_owned()));
        }
        if text.starts_with('/') {
            return Ok(Self::Unix(text.to_owned()));
        }
        let Some(rest) = text.strip_prefix("tcp://").or_else(|| text.strip_prefix("http://")) else {
            let detail =
                format!("DOCKER_HOST {text:?} can not be used: write unix:///path or tcp://host:port");
            return Err(RuntimeError::Engine(detail));
        };
        let address = rest.trim_end_matches('/');
        // A colon inside the brackets of an IPv6 address is not a port.
        let has_port = address.rsplit(']').next().is_some_and(|tail| tail.contains(':'));
        Ok(Self::Tcp(if has_port { address.to_owned() } else { format!("{address}:2375") }))
    }
}

/// A client that connects when first used: an engine that comes up after the worker is found all the same.
#[derive(Debug)]
pub(super) struct Client {
    shown: String,
    host: Host,
    docker: OnceLock<Docker>,
}

impl Client {
    /// `None` means `DOCKER_HOST`, and the usual socket where that is not set either.
    pub(super) fn new(host: Option<&str>) -> Result<Self, RuntimeError> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let shown = host.map(str::to_owned).or_else(|| variable("DOCKER_HOST"));
        let shown = shown.unwrap_or_else(|| DEFAULT_HOST.to_owned());
        let host = Host::parse(&shown)?;
        if matches!(host, Host::Tcp(_)) && variable("DOCKER_TLS_VERIFY").is_some() {
            // Falling back to plain text would hand out what TLS was to protect.
            let detail =
                "DOCKER_TLS_VERIFY is set, but no TLS is spoken to engines here: use its unix socket";
            return Err(RuntimeError::Engine(format!("{shown}: {detail}")));
        }
        Ok(Self { shown, host, docker: OnceLock::new() })
    }

    /// The engine, with words on what to do when it is not there.
    pub(super) fn docker(&self) -> Result<&Docker, RuntimeError> {
        if let Some(docker) = self.docker.get() {
            return Ok(docker);
        }
        // Paths carry no version then, and each engine answers in its newest: that is the negotiation. Asking for
        // 1.41 by name would be refused by engines that have dropped it.
        let connected = match &self.host {
            Host::Unix(path) if !Path::new(path).exists() => {
                let detail =
                    format!("there is no socket {path}: is the engine running, is DOCKER_HOST right?");
                return Err(RuntimeError::Engine(detail));
            }
            Host::Unix(path) => Docker::connect_with_unix(path, FIRST_BYTE, API_DEFAULT_VERSION),
            Host::Tcp(address) => Docker::connect_with_http(address, FIRST_BYTE, API_DEFAULT_VERSION),
        };
        let docker = connected.map_err(|error| RuntimeError::Engine(format!("{}: {error}", self.shown)))?;
        Ok(self.docker.get_or_init(|| docker))
    }

    /// Carries out one call, and gives up waiting for it at its deadline. The engine may still do it then.
    pub(super) async fn within<T>(
        &self,
        doing: Doing,
        limit: Duration,
        call: impl Future<Output = Result<T, bollard::errors::Error>>,
    ) -> Result<T, Fault> {
        failpoint::pass("docker", doing.name(), Side::Before);
        let answer = tokio::time::timeout(limit, call).await;
        failpoint::pass("docker", doing.name(), Side::After);
        match answer {
            Ok(answer) => answer.map_err(|error| Fault::of(doing, &self.shown, &error)),
            Err(_) => Err(Fault::late(doing, &self.shown, limit)),
        }
    }

    /// The engine's address as it was given, for messages.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn hosts_as_docker_writes_them() {
        let cases = [
            ("unix:///run/podman/podman.sock", Host::Unix("/run/podman/podman.sock".into())),
            ("/var/run/docker.sock", Host::Unix("/var/run/docker.sock".into())),
            ("tcp://10.0.0.1:2376", Host::Tcp("10.0.0.1:2376".into())),
            ("tcp://engine/", Host::Tcp("engine:2375".into())),
            ("http://[::1]", Host::Tcp("[::1]:2375".into())),
            ("tcp://[::1]:99", Host::Tcp("[::1]:99".into())),
        ];
        for (text, host) in cases {
            assert_eq!(Host::parse(text).unwrap(), host, "{text}");
        }
        for bad in ["ssh://me@there", "npipe:////./pipe/docker_engine", "docker"] {
            assert!(matches!(Host::parse(bad), Err(RuntimeError::Engine(_))), "{bad}");
        }
    }

    #[test]
    fn a_missing_socket_says_what_to_look_at() {
        let client = Client::new(Some("unix:///nowhere/engine.sock")).unwrap();
        let error = client.docker().unwrap_err().to_string();
        assert!(error.contains("/nowhere/engine.sock") && error.contains("running"), "{error}");
    }
}
