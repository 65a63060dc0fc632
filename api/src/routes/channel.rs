//! `/pod/{uuid}/channel`: exec, attach, port-forward and cp over a WebSocket. All data goes through Redis
//! (see [`model::stream::channel`]).

use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};
use axum::response::Response;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use model::ids::{ContainerName, NodeName, PodId, RequestId};
use model::pod::lifecycle::Phase;
use model::stream::channel::{Frame, MAX_FRAME_BYTES, Purpose, SUBPROTOCOL};
use serde::Deserialize;
use store::{Channel, ChannelError, ChannelOutcome, ChannelReader, ChannelWriter, ConnectRequest};
use utoipa::IntoParams;

use super::pods;
use crate::http::connections::ClientAddress;
use crate::http::params::{InPath, Params};
use crate::http::problem::{ApiProblem, ProblemKind};
use crate::state::AppState;
use crate::streams::open_streams::StreamGuard;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// A client counts as gone after this silence.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(45);
/// Commands may be long.
const MAX_REQUEST_BYTES: usize = 256 * 1024;
const CLIENT_LEFT: &str = "the client has left";

/// Selects the container.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ChannelOptions {
    /// The container, if the pod has several; without it the first one.
    container: Option<ContainerName>,
}

/// Opens a channel to a pod: a WebSocket with the protocol `v1.channel.kubeleet`.
///
/// The first message is text, JSON that says what is requested:
/// `{"exec":{"command":["sh"],"tty":true,"stdin":true}}`, `{"attach":{"stdin":true}}`,
/// `{"forward":{"port":80}}`, `{"copy_to":{"directory":"/srv"}}` or `{"copy_from":{"path":"/etc"}}`. All
/// others are binary: a byte for the type, and data. Each channel is an event.
#[utoipa::path(get, path = "/pod/{uuid}/channel", tag = "pod", params(InPath<PodId>, ChannelOptions), responses(
    (status = 101, description = "The WebSocket"),
    (status = 400, description = "The request is no WebSocket"),
    (status = 403, description = "The token may only read"),
    (status = 404, description = "There is no such pod"),
    (status = 409, description = "The pod does not run on a node"),
))]
pub(crate) async fn open_pod_channel(
    State(app): State<AppState>,
    client: Option<Extension<ClientAddress>>,
    InPath(pod): InPath<PodId>,
    Params(options): Params<ChannelOptions>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiProblem> {
    check_origin(&headers)?;
    let client = client.map(|Extension(client)| client);
    let guard = app.streams.begin(client)?;
    let record = pods::read(&app, &pod).await?;
    let node = record.node.filter(|_| !record.phase.is_terminal());
    let Some(node) = node.filter(|_| record.phase != Phase::Pending) else {
        let detail = format!("pod {pod} is {} and runs on no node", record.phase);
        return Err(ApiProblem::new(ProblemKind::PodNotAssigned, detail));
    };
    let upgrade = upgrade.map_err(|_| {
        let detail = "this route is a WebSocket: `kubeleet exec`, `attach`, `port-forward` and `cp` use it";
        ApiProblem::new(ProblemKind::BadRequest, detail)
    })?;
    let session = ClientSession { app, node, pod, container: options.container, client, _guard: guard };
    let upgrade = upgrade
        .protocols([SUBPROTOCOL])
        .max_message_size(MAX_REQUEST_BYTES)
        .max_frame_size(MAX_REQUEST_BYTES);
    let tasks = session.app.tasks.clone();
    Ok(upgrade.on_upgrade(move |socket| tasks.track_future(session.run(socket))))
}

/// Even with a token: a proxy may add it to the requests of other sites' pages.
fn check_origin(headers: &HeaderMap) -> Result<(), ApiProblem> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    match text(ORIGIN) {
        Some(origin) if origin.split_once("://").map(|(_, site)| site) != text(HOST) => {
            let detail = "web pages of other sites are not allowed to open channels";
            Err(ApiProblem::new(ProblemKind::CrossOrigin, detail))
        }
        _ => Ok(()),
    }
}

struct ClientSession {
    app: AppState,
    node: NodeName,
    pod: PodId,
    container: Option<ContainerName>,
    client: Option<ClientAddress>,
    _guard: StreamGuard,
}

impl ClientSession {
    async fn run(self, mut socket: WebSocket) {
        let served = match self.receive_request(&mut socket).await {
            Ok(request) => self.serve(&mut socket, &request).await,
            Err(why) => Err(why),
        };
        if let Err(why) = served {
            let failed = Message::Binary(Frame::Failed(why).encode());
            let _best_effort = socket.send(failed).await;
        }
        let normal = CloseFrame { code: close_code::NORMAL, reason: "".into() };
        let _best_effort = socket.send(Message::Close(Some(normal))).await;
    }

    async fn receive_request(&self, socket: &mut WebSocket) -> Result<ConnectRequest, String> {
        let message = tokio::time::timeout(REQUEST_TIMEOUT, socket.recv()).await;
        let text = match message {
            Ok(Some(Ok(Message::Text(text)))) => text,
            Ok(Some(Ok(_))) => return Err("the first message must be text".to_owned()),
            Ok(Some(Err(_)) | None) => return Err(CLIENT_LEFT.to_owned()),
            Err(_) => return Err("no request arrived".to_owned()),
        };
        // The library's message may quote a secret argument, so it goes only to the sender.
        let purpose: Purpose = serde_json::from_str(text.as_str())
            .map_err(|error| format!("the request cannot be read: {error}"))?;
        if let Some(problem) = purpose.problem() {
            return Err(problem);
        }
        Ok(ConnectRequest { pod: self.pod.clone(), container: self.container.clone(), purpose })
    }

    async fn serve(&self, socket: &mut WebSocket, request: &ConnectRequest) -> Result<(), String> {
        let (store, id) = (&self.app.store, RequestId::random());
        let what = request.purpose.describe();
        let message = format!("{what}, by {}", self.who());
        let is_quiet = !self.record_forward(&request.purpose);
        let requested = store.request_channel(&self.node, &id, request, &message, is_quiet).await;
        let channel = match requested.map_err(|error| error.to_string())? {
            ChannelOutcome::Requested => store.client_channel(&id),
            ChannelOutcome::PodGone => {
                return Err(format!("pod {} is no longer on node {}", self.pod, self.node));
            }
            ChannelOutcome::Busy => {
                return Err(format!("the worker of node {} does not take its requests", self.node));
            }
        };
        let begun = Instant::now();
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, channel.reader.answered()).await;
        let result = match answered {
            Ok(()) => self.relay(socket, channel).await,
            Err(_) => {
                leave(channel).await;
                Err(format!("the worker of node {} does not answer: check that it runs", self.node))
            }
        };
        let seconds = begun.elapsed().as_secs();
        // The side that closes first records the event, often this one.
        let how = match &result {
            Ok(Some(last)) => request.purpose.describe_end(last),
            Ok(None) => CLIENT_LEFT.to_owned(),
            Err(why) => why.clone(),
        };
        let message = format!("{what} ended after {seconds} s: {how}");
        if let Err(error) = store.close_channel(&id, &self.pod, false, &message).await {
            tracing::debug!(%error, "a channel could not be closed; it expires");
        }
        result.map(drop)
    }

    /// `None` if the client left first.
    async fn relay(&self, socket: &mut WebSocket, channel: Channel) -> Result<Option<Frame>, String> {
        let Channel { mut writer, mut reader } = channel;
        let (mut to_client, mut from_client) = socket.split();
        let ended = tokio::select! {
            ended = send_to_client(&mut to_client, &mut reader) => ended,
            ended = receive_from_client(&mut from_client, &mut writer) => ended.map(|()| None),
            () = self.app.shutdown.cancelled() => Err("this API stops; connect to another one".to_owned()),
        };
        let _best_effort = writer.finish(Frame::Closed).await;
        ended
    }

    /// True for the first connection of one use, and for all but port-forwards: each is an event.
    fn record_forward(&self, purpose: &Purpose) -> bool {
        let Purpose::Forward { port } = purpose else { return true };
        let address = self.client.map(|ClientAddress(address)| address);
        self.app.forwards.record((self.pod.clone(), *port, address))
    }

    fn who(&self) -> String {
        let role = if self.app.config.token.is_some() { "the holder of the token" } else { "a local user" };
        match self.client {
            Some(ClientAddress(address)) => format!("{role} at {address}"),
            None => role.to_owned(),
        }
    }
}

/// `None` if the client stops receiving.
async fn send_to_client(
    to_client: &mut SplitSink<&mut WebSocket, Message>,
    reader: &mut ChannelReader,
) -> Result<Option<Frame>, String> {
    let mut ping = tokio::time::interval(PING_INTERVAL);
    loop {
        let (frame, receipt) = tokio::select! {
            received = reader.next() => received.map_err(|error| worker_gone(&error))?,
            _ = ping.tick() => {
                if to_client.send(Message::Ping(Bytes::new())).await.is_err() {
                    return Ok(None);
                }
                continue;
            }
        };
        let is_sent = to_client.send(Message::Binary(frame.encode())).await.is_ok();
        if frame.is_last() {
            return Ok(Some(frame));
        }
        if !is_sent {
            return Ok(None);
        }
        drop(receipt);
    }
}

fn worker_gone(error: &ChannelError) -> String {
    match error {
        ChannelError::PeerGone => "the worker has gone".to_owned(),
        other => other.to_string(),
    }
}

async fn receive_from_client(
    from_client: &mut SplitStream<&mut WebSocket>,
    writer: &mut ChannelWriter,
) -> Result<(), String> {
    loop {
        let message = match tokio::time::timeout(CLIENT_TIMEOUT, from_client.next()).await {
            Ok(Some(Ok(message))) => message,
            Ok(Some(Err(_)) | None) | Err(_) => return Ok(()),
        };
        let bytes = match message {
            Message::Binary(bytes) if bytes.len() <= MAX_FRAME_BYTES => bytes,
            Message::Binary(_) | Message::Text(_) => {
                return Err(format!(
                    "a message after the first must be binary, with at most {MAX_FRAME_BYTES} bytes"
                ));
            }
            Message::Close(_) => return Ok(()),
            Message::Ping(_) | Message::Pong(_) => continue,
        };
        let frame = Frame::decode(&bytes).map_err(|error| error.to_string())?;
        match frame {
            Frame::Closed => return Ok(()),
            Frame::Input(_) | Frame::Resize(_) | Frame::Signal(_) | Frame::EndOfInput => {
                writer.send(frame).await.map_err(|error| worker_gone(&error))?;
            }
            _ => {}
        }
    }
}

/// For a worker that is just accepting the request.
async fn leave(mut channel: Channel) {
    let finished = channel.writer.finish(Frame::Closed);
    let _best_effort = tokio::time::timeout(Duration::from_secs(1), finished).await;
}
