//! Probes a container once: with a request, a connection, or a command inside.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::system_error;
use engine::{ExecResult, Runtime, RuntimeError};
use futures_util::future::BoxFuture;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use model::spec::{HttpCheck, ProbeMethod};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::judge::ProbeOutcome;

const MAX_HEAD_BYTES: usize = 32 * 1024;
const MAX_QUOTE: usize = 200;
const NAME: &str = concat!("kubeleet/", env!("CARGO_PKG_VERSION"));

pub trait Prober: Send + Sync + 'static {
    fn probe<'a>(
        &'a self,
        handle: &'a str,
        address: Option<IpAddr>,
        method: &'a ProbeMethod,
        limit: Duration,
    ) -> BoxFuture<'a, ProbeOutcome>;
}

pub struct RuntimeProber(pub Arc<dyn Runtime>);

impl Prober for RuntimeProber {
    fn probe<'a>(
        &'a self,
        handle: &'a str,
        address: Option<IpAddr>,
        method: &'a ProbeMethod,
        limit: Duration,
    ) -> BoxFuture<'a, ProbeOutcome> {
        Box::pin(async move {
            match method {
                ProbeMethod::Command(command) => {
                    command_outcome(self.0.exec(handle, command, limit).await, limit)
                }
                ProbeMethod::Http(check) => match address {
                    Some(address) => http(SocketAddr::new(address, check.port), check, limit).await,
                    None => no_address(),
                },
                ProbeMethod::Tcp(check) => match address {
                    Some(address) => tcp(SocketAddr::new(address, check.port), limit).await,
                    None => no_address(),
                },
            }
        })
    }
}

fn no_address() -> ProbeOutcome {
    ProbeOutcome::Inconclusive("the container has no address that this node can reach".to_owned())
}

async fn http(address: SocketAddr, check: &HttpCheck, limit: Duration) -> ProbeOutcome {
    let what = format!("GET http://{address}{}", check.path);
    within(limit, &what, async {
        match request(address, check).await {
            Ok(status) if check.status.contains(status) => Ok(()),
            Ok(status) => Err(format!("{what} answered {status}, expected {}", check.status)),
            Err(reason) => Err(format!("{what}: {reason}")),
        }
    })
    .await
}

/// The body is not read: the connection ends with the head.
async fn request(address: SocketAddr, check: &HttpCheck) -> Result<u16, String> {
    let request = http_request(address, check)?;
    let stream = TcpStream::connect(address).await.map_err(|error| system_error(&error))?;
    let handshake = http1::Builder::new().max_buf_size(MAX_HEAD_BYTES).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| http_error(&error))?;
    let mut answer = std::pin::pin!(sender.send_request(request));
    let mut connection = std::pin::pin!(connection);
    let mut is_open = true;
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => {
                return answer.map(|answer| answer.status().as_u16()).map_err(|error| http_error(&error));
            }
            _ended = &mut connection, if is_open => is_open = false,
        }
    }
}

fn http_request(address: SocketAddr, check: &HttpCheck) -> Result<Request<Empty<Bytes>>, String> {
    let invalid = |error: &dyn std::error::Error| format!("the request cannot be written: {error}");
    let uri: Uri = check.path.parse().map_err(|error| invalid(&error))?;
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    for (name, value) in check.headers.iter() {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| invalid(&error))?;
        headers.insert(name, HeaderValue::from_str(value).map_err(|error| invalid(&error))?);
    }
    let host = HeaderValue::from_str(&address.to_string()).map_err(|error| invalid(&error))?;
    headers.entry(HOST).or_insert(host);
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(NAME));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(request)
}

/// hyper has the reason only in the source.
fn http_error(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {}", system_error(source)),
        None => error.to_string(),
    }
}

async fn tcp(address: SocketAddr, limit: Duration) -> ProbeOutcome {
    let what = format!("connecting to {address}");
    within(limit, &what, async {
        match TcpStream::connect(address).await {
            Ok(_connection) => Ok(()),
            Err(error) => Err(format!("{what}: {}", system_error(&error))),
        }
    })
    .await
}

/// Inconclusive if this process missed the deadline because the machine was busy or suspended.
async fn within(
    limit: Duration,
    what: &str,
    probe: impl Future<Output = Result<(), String>>,
) -> ProbeOutcome {
    let begun = Instant::now();
    match tokio::time::timeout(limit, probe).await {
        Ok(Ok(())) => ProbeOutcome::Passed,
        Ok(Err(why)) => ProbeOutcome::Failed(why),
        Err(_) if begun.elapsed() > limit + limit / 4 + Duration::from_millis(20) => {
            let late = shown((begun.elapsed() - limit).max(Duration::from_millis(1)));
            ProbeOutcome::Inconclusive(format!("{what}: this node was too busy to wait for it, by {late}"))
        }
        Err(_) => ProbeOutcome::Failed(format!("{what}: no answer within {}", shown(limit))),
    }
}

fn command_outcome(result: Result<ExecResult, RuntimeError>, limit: Duration) -> ProbeOutcome {
    match result {
        Ok(ExecResult { exit_code: Some(0), .. }) => ProbeOutcome::Passed,
        Ok(ExecResult { exit_code: Some(code), output }) => {
            ProbeOutcome::Failed(with_quote(format!("the command exited with {code}"), &output))
        }
        Ok(ExecResult { exit_code: None, output }) => {
            let detail = format!("the command did not end within {}", shown(limit));
            ProbeOutcome::Failed(with_quote(detail, &output))
        }
        Err(error @ (RuntimeError::Engine(_) | RuntimeError::NotFound(_))) => {
            ProbeOutcome::Inconclusive(error.to_string())
        }
        Err(error) => ProbeOutcome::Failed(error.to_string()),
    }
}

fn with_quote(detail: String, output: &str) -> String {
    let quote = quote(output);
    if quote.is_empty() { detail } else { format!("{detail}: {quote}") }
}

/// The first and the last line of a longer output: a usage text follows its error, and a stack precedes it.
fn quote(output: &str) -> String {
    let printable = output.replace(|c: char| c.is_control() && c != '\n', " ");
    let lines: Vec<&str> = printable.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let all = lines.join(" | ");
    match lines[..] {
        [first, .., last] if all.chars().count() > MAX_QUOTE => {
            let cut = |line: &str| line.chars().take(MAX_QUOTE / 2).collect::<String>();
            format!("{} … {}", cut(first), cut(last))
        }
        _ => all.chars().take(MAX_QUOTE).collect(),
    }
}

fn shown(duration: Duration) -> String {
    match duration.as_millis() {
        millis @ 0..1000 => format!("{millis} ms"),
        millis if millis % 1000 == 0 => format!("{} s", millis / 1000),
        _ => format!("{:.1} s", duration.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_wrote_is_told_in_one_line() {
        let limit = Duration::from_millis(1500);
        let outcome = |exit_code, output: &str| {
            command_outcome(Ok(ExecResult { exit_code, output: output.to_owned() }), limit)
        };
        assert_eq!(outcome(Some(0), "all is well"), ProbeOutcome::Passed);
        for (exit_code, output, expected) in [
            (Some(2), "first\nno\tresponse\x1b[0m\n\n", "the command exited with 2: first | no response [0m"),
            (Some(137), "", "the command exited with 137"),
            (None, "waiting", "the command did not end within 1.5 s: waiting"),
        ] {
            assert_eq!(outcome(exit_code, output), ProbeOutcome::Failed(expected.to_owned()));
        }
        let usage = format!("wget: unrecognized option: x\n\n{}", "\t-O FILE\tSave to FILE\n".repeat(20));
        let expected = "the command exited with 1: wget: unrecognized option: x … -O FILE Save to FILE";
        assert_eq!(outcome(Some(1), &usage), ProbeOutcome::Failed(expected.to_owned()));
        let ProbeOutcome::Failed(long) = outcome(Some(1), &"é".repeat(5000)) else { panic!("it failed") };
        assert!(long.chars().count() < 250, "{long}");
        for error in [RuntimeError::Engine("x".to_owned()), RuntimeError::NotFound("x".to_owned())] {
            assert!(matches!(command_outcome(Err(error), limit), ProbeOutcome::Inconclusive(_)));
        }
        let refused = command_outcome(Err(RuntimeError::Failed("no pids".to_owned())), limit);
        assert_eq!(refused, ProbeOutcome::Failed("no pids".to_owned()));
    }

    #[test]
    fn times_are_shown_for_people() {
        for (millis, expected) in [(10, "10 ms"), (999, "999 ms"), (2000, "2 s"), (1500, "1.5 s")] {
            assert_eq!(shown(Duration::from_millis(millis)), expected);
        }
    }
}
