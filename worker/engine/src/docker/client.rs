//! The connection to an engine. Every call has a deadline.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, Docker};
use daemon::failpoint::{self, Side};

use super::errors::{EngineCall, EngineFailure};
use crate::RuntimeError;

const DEFAULT_HOST: &str = "unix:///var/run/docker.sock";

/// The timeout of bollard for the first byte of an answer, in seconds. Longer than the longest deadlines of
/// calls: a grace period of a day, and a pull.
const FIRST_BYTE_TIMEOUT: u64 = 2 * 86_400;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EngineAddress {
    Unix(String),
    Tcp(String),
}

impl EngineAddress {
    fn parse(text: &str) -> Result<Self, RuntimeError> {
        let path = text.strip_prefix("unix://").or_else(|| text.starts_with('/').then_some(text));
        let address = text.strip_prefix("tcp://").or_else(|| text.strip_prefix("http://"));
        let host = match (path, address) {
            (Some(path), _) => (!path.is_empty()).then(|| Self::Unix(path.to_owned())),
            (None, Some(address)) => with_port(address.trim_end_matches('/')).map(Self::Tcp),
            (None, None) => None,
        };
        host.ok_or_else(|| {
            let detail = format!("invalid DOCKER_HOST {text:?}: write unix:///path or tcp://host:port");
            RuntimeError::Engine(detail)
        })
    }
}

/// `None` for an invalid address; IPv6 needs brackets.
fn with_port(address: &str) -> Option<String> {
    let (host, rest) = match address.strip_prefix('[') {
        Some(inner) => inner.split_once(']')?,
        None => address.split_at(address.find(':').unwrap_or(address.len())),
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    match rest.strip_prefix(':') {
        _ if host.is_empty() => None,
        Some(port) => is_port(port).then(|| address.to_owned()),
        None => rest.is_empty().then(|| format!("{address}:2375")),
    }
}

/// Connects at its first call, so the engine may start after the worker.
#[derive(Debug)]
pub(super) struct EngineClient {
    shown: String,
    host: EngineAddress,
    docker: OnceLock<Docker>,
}

impl EngineClient {
    pub(super) fn socket(&self) -> Option<&Path> {
        match &self.host {
            EngineAddress::Unix(path) => Some(Path::new(path)),
            EngineAddress::Tcp(_) => None,
        }
    }

    pub(super) fn host(&self) -> &EngineAddress {
        &self.host
    }

    pub(super) fn authority(&self) -> &str {
        match &self.host {
            EngineAddress::Unix(_) => "docker",
            EngineAddress::Tcp(address) => address,
        }
    }

    pub(super) fn new(host: Option<&str>) -> Result<Self, RuntimeError> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let shown = host.map(str::to_owned).or_else(|| variable("DOCKER_HOST"));
        let shown = shown.unwrap_or_else(|| DEFAULT_HOST.to_owned());
        let host = EngineAddress::parse(&shown)?;
        if matches!(host, EngineAddress::Tcp(_)) && variable("DOCKER_TLS_VERIFY").is_some() {
            // Plain text would reveal what TLS should protect.
            let detail =
                "DOCKER_TLS_VERIFY is set, but TLS to engines is not supported: use the engine's unix socket";
            return Err(RuntimeError::Engine(format!("{shown}: {detail}")));
        }
        Ok(Self { shown, host, docker: OnceLock::new() })
    }

    pub(super) fn docker(&self) -> Result<&Docker, RuntimeError> {
        if let Some(docker) = self.docker.get() {
            return Ok(docker);
        }
        // Never reaches the engine: `Url::join` drops bollard's `/v1.53`. Engines then answer with their
        // newest API; a fixed version would be refused once they drop it.
        let connected = match &self.host {
            EngineAddress::Unix(path) if !Path::new(path).exists() => {
                let detail = format!(
                    "there is no socket {path}: check that the engine is running and DOCKER_HOST is right"
                );
                return Err(RuntimeError::Engine(detail));
            }
            EngineAddress::Unix(path) => {
                Docker::connect_with_unix(path, FIRST_BYTE_TIMEOUT, API_DEFAULT_VERSION)
            }
            EngineAddress::Tcp(address) => {
                Docker::connect_with_http(address, FIRST_BYTE_TIMEOUT, API_DEFAULT_VERSION)
            }
        };
        let docker = connected.map_err(|error| RuntimeError::Engine(format!("{}: {error}", self.shown)))?;
        Ok(self.docker.get_or_init(|| docker))
    }

    /// The engine may still carry out the call after the deadline.
    pub(super) async fn within<T>(
        &self,
        kind: EngineCall,
        limit: Duration,
        call: impl Future<Output = Result<T, bollard::errors::Error>>,
    ) -> Result<T, EngineFailure> {
        failpoint::check("docker", kind.name(), Side::Before);
        let answer = tokio::time::timeout(limit, call).await;
        failpoint::check("docker", kind.name(), Side::After);
        match answer {
            Ok(answer) => answer.map_err(|error| EngineFailure::of(kind, &self.shown, &error)),
            Err(_) => Err(EngineFailure::timed_out(kind, &self.shown, limit)),
        }
    }

    pub(super) fn shown(&self) -> &str {
        &self.shown
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn docker_host_forms_are_parsed() {
        let cases = [
            ("unix:///run/podman/podman.sock", EngineAddress::Unix("/run/podman/podman.sock".into())),
            ("/var/run/docker.sock", EngineAddress::Unix("/var/run/docker.sock".into())),
            ("tcp://10.0.0.1:2376", EngineAddress::Tcp("10.0.0.1:2376".into())),
            ("tcp://engine/", EngineAddress::Tcp("engine:2375".into())),
            ("http://[::1]", EngineAddress::Tcp("[::1]:2375".into())),
            ("tcp://[::1]:99", EngineAddress::Tcp("[::1]:99".into())),
        ];
        for (text, host) in cases {
            assert_eq!(EngineAddress::parse(text).unwrap(), host, "{text}");
        }
        for bad in [
            "ssh://me@there",
            "npipe:////./pipe/docker_engine",
            "docker",
            "unix://",
            "tcp://",
            "tcp:///",
            "tcp://:2375",
            "http://[]:2375",
            "tcp://::1",
            "tcp://fe80::1",
            "tcp://[::1",
            "tcp://[::1]2375",
            "tcp://engine:",
            "tcp://engine:docker",
        ] {
            assert!(matches!(EngineAddress::parse(bad), Err(RuntimeError::Engine(_))), "{bad}");
        }
    }

    #[test]
    fn a_missing_socket_error_says_what_to_check() {
        let client = EngineClient::new(Some("unix:///nowhere/engine.sock")).unwrap();
        let error = client.docker().unwrap_err().to_string();
        assert!(error.contains("/nowhere/engine.sock") && error.contains("running"), "{error}");
    }
}
