//! Requests that bollard cannot make, each on its own connection.

use bollard::errors::Error;
use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::client::{EngineAddress, EngineClient};

pub(super) async fn send<B>(client: &EngineClient, request: Request<B>) -> Result<Response<Incoming>, Error>
where
    B: Body + Send + 'static,
    B::Data: Buf + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match client.host() {
        EngineAddress::Unix(path) => send_over(UnixStream::connect(path).await?, client, request).await,
        EngineAddress::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            send_over(stream, client, request).await
        }
    }
}

async fn send_over<B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    client: &EngineClient,
    mut request: Request<B>,
) -> Result<Response<Incoming>, Error>
where
    B: Body + Send + 'static,
    B::Data: Buf + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let host = client.authority().parse().map_err(hyper::http::Error::from)?;
    request.headers_mut().insert(HOST, host);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to the engine ended");
        }
    });
    Ok(sender.send_request(request).await?)
}

pub(super) async fn body(response: Response<Incoming>) -> Result<Bytes, Error> {
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if status.is_success() { Ok(body) } else { Err(refusal(status.as_u16(), &body)) }
}

pub(super) fn refusal(status_code: u16, body: &[u8]) -> Error {
    #[derive(Deserialize)]
    struct Refusal {
        message: String,
    }
    let message = match serde_json::from_slice::<Refusal>(body) {
        Ok(Refusal { message }) => message,
        Err(_) => String::from_utf8_lossy(body).trim().to_owned(),
    };
    Error::DockerResponseServerError { status_code, message }
}
