//! A channel to a pod: frames in both directions, over a WebSocket.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use model::stream::channel::{Frame, MAX_FRAME_BYTES, Purpose, SUBPROTOCOL};
use reqwest::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use reqwest::{Method, StatusCode, Upgraded};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::error::ClientError;
use crate::http::Client;

/// The API pings every few seconds.
const API_TIMEOUT: Duration = Duration::from_secs(60);

type ChannelSocket = WebSocketStream<Upgraded>;

pub const PING_INTERVAL: Duration = Duration::from_secs(15);

pub struct ChannelSender {
    client: Client,
    operation: String,
    sink: SplitSink<ChannelSocket, Message>,
}

pub struct ChannelReceiver {
    client: Client,
    operation: String,
    stream: SplitStream<ChannelSocket>,
}

impl Client {
    pub async fn open_channel(
        &self,
        pod: &str,
        container: Option<&str>,
        purpose: &Purpose,
    ) -> Result<(ChannelSender, ChannelReceiver), ClientError> {
        let operation = format!("opening a channel to pod {pod}");
        let key = STANDARD.encode(random_key());
        let call = self.call(Method::GET, &["pod", pod, "channel"], operation.clone());
        let mut call = call
            .query("container", container)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL)
            .header(SEC_WEBSOCKET_KEY, &key);
        let response = call.send(None).await?;
        let accepted = response.headers().get(SEC_WEBSOCKET_ACCEPT).map(|value| value.as_bytes().to_vec());
        let is_ours = accepted.as_deref() == Some(derive_accept_key(key.as_bytes()).as_bytes());
        if response.status() != StatusCode::SWITCHING_PROTOCOLS || !is_ours {
            return Err(self.not_kubeleet(&operation, response.status().as_u16(), b"no WebSocket"));
        }
        let upgraded = response.upgrade().await.map_err(|e| self.request_failed(&operation, &e, true))?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_FRAME_BYTES))
            .max_frame_size(Some(MAX_FRAME_BYTES));
        let socket = WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await;
        let (sink, stream) = socket.split();
        let mut sender = ChannelSender { client: self.clone(), operation: operation.clone(), sink };
        let request = serde_json::to_string(purpose).expect("strings and numbers always serialize");
        sender.send_message(Message::text(request)).await?;
        Ok((sender, ChannelReceiver { client: self.clone(), operation, stream }))
    }
}

impl ChannelSender {
    /// # Cancel safety
    /// Not cancel safe: drop the channel after a dropped call.
    pub async fn send(&mut self, frame: &Frame) -> Result<(), ClientError> {
        self.send_message(Message::binary(frame.encode())).await
    }

    /// For a client that reads nothing for a while.
    pub async fn ping(&mut self) -> Result<(), ClientError> {
        self.send_message(Message::Ping(Bytes::new())).await
    }

    async fn send_message(&mut self, message: Message) -> Result<(), ClientError> {
        let sent = self.sink.send(message).await;
        sent.map_err(|error| self.client.stream_ended(&self.operation, error.to_string()))
    }
}

impl ChannelReceiver {
    /// Cancel safe.
    pub async fn next(&mut self) -> Result<Option<Frame>, ClientError> {
        let ended = |cause: String| self.client.stream_ended(&self.operation, cause);
        loop {
            let message = match tokio::time::timeout(API_TIMEOUT, self.stream.next()).await {
                Ok(Some(Ok(message))) => message,
                Ok(Some(Err(error))) => return Err(ended(error.to_string())),
                Ok(None) => return Ok(None),
                Err(_) => return Err(ended("it is silent".to_owned())),
            };
            match message {
                Message::Binary(bytes) => {
                    return Frame::decode(&bytes).map(Some).map_err(|error| ended(error.to_string()));
                }
                Message::Close(_) => return Ok(None),
                _ => {}
            }
        }
    }
}

/// They only have to differ between requests.
fn random_key() -> [u8; 16] {
    let mut bytes = [0; 16];
    // Without them a proxy could answer from a cache, which WebSockets forbid anyway.
    let _best_effort = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes
}
