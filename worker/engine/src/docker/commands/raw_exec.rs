//! Terminals of commands and containers: bollard takes a first byte of 0, 1 or 2 for a frame header, and
//! waits for a length that never arrives.

use std::pin::Pin;

use bollard::errors::Error;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONNECTION, CONTENT_TYPE, UPGRADE};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncRead;

use crate::docker::client::EngineClient;
use crate::docker::deadlines::READ;
use crate::docker::errors::EngineCall;
use crate::docker::raw_request::{refusal, send};
use crate::{CommandInput, RuntimeError};

pub(crate) type TerminalOutput = Pin<Box<dyn AsyncRead + Send>>;

pub(crate) async fn start(
    client: &EngineClient,
    id: &str,
) -> Result<(TerminalOutput, CommandInput), RuntimeError> {
    let path = format!("/exec/{id}/start");
    connect(client, EngineCall::StartExec, &path, r#"{"Detach":false,"Tty":true}"#).await
}

pub(crate) async fn connect(
    client: &EngineClient,
    call: EngineCall,
    path: &str,
    body: &'static str,
) -> Result<(TerminalOutput, CommandInput), RuntimeError> {
    let upgraded = client.within(call, READ, upgrade(client, path, body)).await?;
    let (output, input) = tokio::io::split(TokioIo::new(upgraded));
    Ok((Box::pin(output), Box::pin(input)))
}

async fn upgrade(
    client: &EngineClient,
    path: &str,
    body: &'static str,
) -> Result<hyper::upgrade::Upgraded, Error> {
    let request = Request::post(path)
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "tcp")
        .body(Full::new(Bytes::from_static(body.as_bytes())))?;
    let response = send(client, request).await?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(hyper::upgrade::on(response).await?);
    }
    let status = response.status().as_u16();
    Err(refusal(status, &response.into_body().collect().await?.to_bytes()))
}
