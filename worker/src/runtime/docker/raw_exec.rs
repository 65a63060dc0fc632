//! Starts a command with a terminal over a connection of its own.
//!
//! The client library takes the first byte of what a terminal shows for a header if it is 0, 1 or 2, and then
//! waits for a length that never comes.

use std::pin::Pin;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, UPGRADE};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::client::{EngineAddress, EngineClient};
use super::deadlines::READ;
use super::errors::EngineCall;
use crate::runtime::{CommandInput, RuntimeError};

/// What comes out of a terminal.
type TerminalOutput = Pin<Box<dyn AsyncRead + Send>>;

/// Starts a command that was prepared with a terminal. Returns its output and input.
pub(super) async fn start(
    client: &EngineClient,
    id: &str,
) -> Result<(TerminalOutput, CommandInput), RuntimeError> {
    let call = async {
        match client.host() {
            EngineAddress::Unix(path) => {
                upgrade(UnixStream::connect(path).await.map_err(text)?, client, id).await
            }
            EngineAddress::Tcp(address) => {
                let stream = TcpStream::connect(address).await.map_err(text)?;
                stream.set_nodelay(true).map_err(text)?;
                upgrade(stream, client, id).await
            }
        }
    };
    match tokio::time::timeout(READ, call).await {
        Ok(started) => started.map_err(|why| {
            RuntimeError::Failed(format!("{}: could not {}: {why}", client.shown(), EngineCall::StartExec))
        }),
        Err(_) => Err(RuntimeError::Engine(format!(
            "{}: could not {} within {} s",
            client.shown(),
            EngineCall::StartExec,
            READ.as_secs()
        ))),
    }
}

async fn upgrade(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    client: &EngineClient,
    id: &str,
) -> Result<(TerminalOutput, CommandInput), String> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "the connection of a terminal ended");
        }
    });
    let body = Full::new(Bytes::from_static(br#"{"Detach":false,"Tty":true}"#));
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("/exec/{id}/start"))
        .header(HOST, client.authority())
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "tcp")
        .body(body)
        .map_err(text)?;
    let response = sender.send_request(request).await.map_err(text)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let status = response.status();
        let answer = response.into_body().collect().await.map_err(text)?.to_bytes();
        return Err(format!("{status}: {}", String::from_utf8_lossy(&answer).trim()));
    }
    let upgraded = hyper::upgrade::on(response).await.map_err(text)?;
    let (output, input) = tokio::io::split(TokioIo::new(upgraded));
    Ok((Box::pin(output), Box::pin(input)))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
