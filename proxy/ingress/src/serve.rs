//! Serves HTTP on a client's connection.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use gate::listening::Listening;
use gate::shares::TakenPlace;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Version, http};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use routing::route::{HttpRoute, has_dot_segments};
use rustix::net::RecvFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::task::TaskTracker;

use model::network::ingress::HttpProtocol;

use super::answer::{AnswerBody, OwnAnswer, accepts_json};
use super::{https, measure, upgrade};
use crate::client::body::ClientBody;
use crate::client::deadlines::{ClientWait, RequestExecutor};
use crate::client::frames::Frames;
use crate::client::framing::{RequestHead, upgrade_protocols};
use crate::client::guarded::{ActiveRequest, ClientTimeouts, ConnectionState, Guarded};
use crate::headers::{self, ClientOrigin};
use crate::pod::exchange::{OutgoingRequest, exchange, set_target};
use crate::pod::from_pod::FromPod;
use crate::scanner::MessageHead;
use crate::shared::IngressShared;

const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const MOST_STREAMS: u32 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientScheme {
    Http,
    Https,
}

impl ClientScheme {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

struct ClientConnection {
    shared: Arc<IngressShared>,
    address: IpAddr,
    scheme: ClientScheme,
    is_trusted: bool,
    state: Arc<ConnectionState>,
    /// For the last request's host: usually all requests have the same.
    origin: Mutex<Arc<ClientOrigin>>,
    /// Set when this process accepts no more, after a take-over or at a shutdown: the next answer ends the
    /// connection.
    is_last: Arc<AtomicBool>,
    connections: TaskTracker,
    /// Counts the connection, even after an upgrade.
    place: Arc<TakenPlace>,
}

impl ClientConnection {
    fn origin(&self, host: &str) -> Arc<ClientOrigin> {
        let mut origin = self.origin.lock();
        if origin.host() != host {
            *origin = Arc::new(ClientOrigin::new(self.address, self.is_trusted, self.scheme.as_str(), host));
        }
        origin.clone()
    }
}

pub(super) async fn connection(
    shared: Arc<IngressShared>,
    stream: TcpStream,
    address: IpAddr,
    scheme: ClientScheme,
    place: TakenPlace,
    listening: Listening,
    connections: TaskTracker,
) {
    let _ = stream.set_nodelay(true);
    let within = shared.config.head_within;
    let opened = tokio::select! {
        opened = tokio::time::timeout(within, open(&shared, stream, scheme)) => opened,
        () = listening.until_shutdown() => return,
    };
    let (stream, is_http2) = match opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(opened) => opened,
        Err(error) => {
            if scheme == ClientScheme::Https {
                measure::failed_handshake();
            }
            tracing::debug!(%error, client = %address, "Client's connection did not begin");
            return;
        }
    };
    let timeouts = ClientTimeouts { head: within, idle: shared.config.idle };
    let state = Arc::new(ConnectionState::default());
    let is_trusted = shared.config.is_trusted(address);
    let origin = Mutex::new(Arc::new(ClientOrigin::new(address, is_trusted, scheme.as_str(), "")));
    let client = Arc::new(ClientConnection {
        shared,
        address,
        scheme,
        is_trusted,
        state: state.clone(),
        origin,
        is_last: Arc::default(),
        connections,
        place: Arc::new(place),
    });
    let frames = is_http2.then(|| Frames::after(HTTP2_PREFACE.len()));
    let io = TokioIo::new(Guarded::new(stream, state, frames, timeouts));
    let served = if is_http2 {
        serve_http2(client, io, listening).await
    } else {
        serve_http1(client, io, listening).await
    };
    if let Err(error) = served {
        tracing::debug!(%error, client = %address, "Client's connection ended");
    }
}

/// Also returns true if the client speaks HTTP/2.
async fn open(
    shared: &IngressShared,
    stream: TcpStream,
    scheme: ClientScheme,
) -> io::Result<(ClientStream, bool)> {
    match (scheme, &shared.https) {
        (ClientScheme::Http, _) => {
            let is_http2 = is_http2(&stream).await;
            Ok((Either::Left(stream), is_http2))
        }
        (ClientScheme::Https, Some(https)) => {
            let (stream, is_http2) = https.handshake(stream).await?;
            Ok((Either::Right(Box::new(stream)), is_http2))
        }
        (ClientScheme::Https, None) => Err(io::Error::other("HTTPS is off")),
    }
}

/// Without consuming the first bytes.
async fn is_http2(stream: &TcpStream) -> bool {
    let mut bytes = [0; HTTP2_PREFACE.len()];
    loop {
        let Ok(ready) = stream.ready(Interest::READABLE).await else { return false };
        let peeked = stream.try_io(Interest::READABLE, || {
            let (length, _) = rustix::net::recv(stream, &mut bytes, RecvFlags::PEEK)?;
            let is_part = (1..bytes.len()).contains(&length) && HTTP2_PREFACE.starts_with(&bytes[..length]);
            // Busy polling would let a slow client cost the proxy much.
            if is_part && !ready.is_read_closed() {
                Err(io::ErrorKind::WouldBlock.into())
            } else {
                Ok(length)
            }
        });
        match peeked {
            Ok(length) => return bytes[..length] == *HTTP2_PREFACE,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
    }
}

/// Boxed: a TLS session is ten times as large as a plain stream.
type ClientStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;
type Io = TokioIo<Guarded<ClientStream>>;

async fn serve_http1(client: Arc<ClientConnection>, io: Io, listening: Listening) -> hyper::Result<()> {
    let is_last = client.is_last.clone();
    let service = service_fn(|request| answer(client.clone(), Box::new(request)));
    let mut builder = http1::Builder::new();
    // `Guarded` has the timeouts. A half-closed connection counts as a gone client: otherwise the pod would
    // work in vain.
    builder.half_close(false).header_read_timeout(None);
    builder.max_header_size(RequestHead::MOST_BYTES);
    let mut connection = pin!(builder.serve_connection(io, service).with_upgrades());
    tokio::select! {
        biased;
        served = connection.as_mut() => return served,
        () = listening.until_stopped() => {}
    }
    // A request may be on its way. After a take-over there is time to answer it, and the answer ends the
    // connection. A shutdown waits only for a request that is being answered.
    is_last.store(true, Ordering::Relaxed);
    tokio::select! {
        biased;
        () = listening.until_shutdown() => connection.as_mut().graceful_shutdown(),
        served = connection.as_mut() => return served,
    }
    connection.await
}

async fn serve_http2(client: Arc<ClientConnection>, io: Io, listening: Listening) -> hyper::Result<()> {
    let (state, idle) = (client.state.clone(), client.shared.config.idle);
    let service = service_fn(|request| answer(client.clone(), Box::new(request)));
    let mut builder = http2::Builder::new(RequestExecutor { within: idle });
    builder.timer(TokioTimer::new()).max_concurrent_streams(MOST_STREAMS);
    builder.max_header_list_size(RequestHead::MOST_BYTES as u32);
    // A client that is gone is noticed after 9/10 of `idle`.
    builder.keep_alive_interval(idle * 2 / 5).keep_alive_timeout(idle / 2);
    let mut connection = pin!(builder.serve_connection(io, service));
    // Needs no waker: a poll of the connection sets it, just before.
    let until_idle = poll_fn(|_| if state.is_idle_for_too_long() { Poll::Ready(()) } else { Poll::Pending });
    tokio::select! {
        biased;
        served = connection.as_mut() => return served,
        () = listening.until_stopped() => {}
        () = until_idle => {}
    }
    // GOAWAY names the requests that were not taken: the client repeats them elsewhere.
    connection.as_mut().graceful_shutdown();
    connection.await
}

/// The request is boxed: otherwise each `async` function on the way would copy it into its own state, memory
/// that the CPU has not cached.
async fn answer(
    client: Arc<ClientConnection>,
    mut request: Box<Request<Incoming>>,
) -> Result<Response<AnswerBody>, Infallible> {
    let begun = Instant::now();
    // Lines taken out of a long head (see `long_heads`) are put back by the number of the message: HTTP/1
    // requests come in order, and HTTP/2 loses no lines.
    let message = client.state.surplus.begin();
    client.state.surplus.complete_head(message, request.headers_mut());
    let wait = ClientWait::current();
    let enter = || client.shared.enter(client.address);
    let active_request = ActiveRequest::begin(&client.state, enter);
    let log = AccessLog::begin(&client, &request, begun);
    let accepts_json = accepts_json(request.headers());
    let wants_upgrade = wants_upgrade(&request);
    let body = |body| ClientBody::new(body, client.state.clone(), message, wait.clone());
    let answered = match &active_request {
        Some(_) => routed(&client, Box::new(request.map(body)), wants_upgrade, begun).await,
        None => {
            // Dropping a `ClientBody` notes that it was not read.
            drop(request.map(body));
            Err(OwnAnswer::too_many())
        }
    };
    let mut response = answered.unwrap_or_else(|problem| problem.response(accepts_json));
    if wants_upgrade {
        client.state.decide_upgrade(response.status() == StatusCode::SWITCHING_PROTOCOLS);
    }
    if let Some(log) = log {
        log.write(response.status());
    }
    // HTTP/1: an answer by HTTP/2 does not end the connection.
    if wait.is_none() {
        end_connection_after(&client, &mut response);
    }
    Ok(response.map(|body| body.of_request(active_request, wait)))
}

fn end_connection_after(client: &ClientConnection, response: &mut Response<AnswerBody>) {
    client.state.note_answer(response.status());
    let is_last = client.is_last.load(Ordering::Relaxed) || client.state.has_unread_body();
    if is_last && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Must agree with the scanner, which withholds the next bytes until the answer.
fn wants_upgrade(request: &Request<Incoming>) -> bool {
    request.version() == Version::HTTP_11
        && request.headers().get_all(header::UPGRADE).iter().any(|value| {
            let mut protocols = upgrade_protocols(value.as_bytes());
            protocols.next().is_some()
        })
        && request.headers().get_all(header::CONNECTION).iter().any(|value| {
            let options = value.as_bytes().split(|byte| *byte == b',');
            options.into_iter().any(|option| option.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
        })
}

async fn routed(
    client: &ClientConnection,
    mut request: Box<Request<ClientBody>>,
    wants_upgrade: bool,
    begun: Instant,
) -> Result<Response<AnswerBody>, OwnAnswer> {
    let host = host(&request)?;
    let table = client.shared.table.borrow().clone();
    let path = request.uri().path();
    if request.method() == Method::CONNECT || !path.starts_with('/') {
        return Err(OwnAnswer::bad_request("The target must be a path."));
    }
    if table.routes.has_paths() && has_dot_segments(path) {
        return Err(OwnAnswer::bad_request("A path with `.` or `..` could lead to another route's path."));
    }
    if let Some(token) = path.strip_prefix(https::CHALLENGE_PATH)
        && let Some(answer) = Box::pin(https::challenge(
            client.shared.config.challenges.as_deref(),
            &table.routes,
            &host,
            token,
        ))
        .await
    {
        return Ok(answer);
    }
    let Some(route) = table.routes.http(&host, path) else {
        measure::unrouted();
        return Err(OwnAnswer::no_route(&host, path));
    };
    if let Some(tls) = route.tls
        && !is_by_https(client, request.headers())
    {
        let target = request.uri().path_and_query();
        let answer = https::redirect(client.shared.https.as_ref(), tls, &host, target);
        if let Some(service) = table.service(&route.service) {
            service.metrics.answered(status(&answer));
        }
        return answer;
    }
    let may_upgrade = wants_upgrade && route.protocol == HttpProtocol::Http;
    let upgrade = may_upgrade.then(|| headers::allowed_upgrade(request.headers(), &route.upgrade)).flatten();
    let on_upgrade = upgrade.is_some().then(|| hyper::upgrade::on(&mut *request));
    if route.protocol == HttpProtocol::H2c {
        request.body_mut().allow_silence();
    }
    let mut request = Box::new(OutgoingRequest::new(*request));
    prepare(client, &mut request.head, route, &host, upgrade);
    let answer = exchange(&client.shared, route, request, begun).await;
    if let Some(service) = table.service(&route.service) {
        service.metrics.answered(status(&answer));
        service.metrics.seconds.record(begun.elapsed());
    }
    deliver(client, answer?, on_upgrade)
}

fn status<B>(answer: &Result<Response<B>, OwnAnswer>) -> StatusCode {
    answer.as_ref().map_or_else(|problem| problem.status, Response::status)
}

/// To this proxy or a trusted one in front of it.
fn is_by_https(client: &ClientConnection, headers: &HeaderMap) -> bool {
    client.scheme == ClientScheme::Https || (client.is_trusted && headers::says_https(headers))
}

fn host<B>(request: &Request<B>) -> Result<String, OwnAnswer> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let named = match (hosts.next(), hosts.next()) {
        (None, _) => None,
        (Some(host), None) => {
            Some(host.to_str().map_err(|_| OwnAnswer::bad_request("The Host is not a name."))?)
        }
        _ => return Err(OwnAnswer::bad_request("There are two Hosts.")),
    };
    let authority = request.uri().authority().map(http::uri::Authority::as_str);
    match (authority, named) {
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
            Err(OwnAnswer::bad_request("The URL and the Host name different hosts."))
        }
        (authority, host) => {
            let host = authority.or(host).unwrap_or_default();
            // A user name would be taken for a part of the host.
            if host.contains('@') {
                Err(OwnAnswer::bad_request("The Host has a user name."))
            } else {
                Ok(host.to_owned())
            }
        }
    }
}

fn prepare(
    client: &ClientConnection,
    head: &mut http::request::Parts,
    route: &HttpRoute,
    host: &str,
    upgrade: Option<HeaderValue>,
) {
    headers::remove_hop_by_hop(&mut head.headers, route.protocol == HttpProtocol::H2c);
    // The proxy's own server answers it.
    head.headers.remove(header::EXPECT);
    if head.version == Version::HTTP_2 {
        headers::join_cookies(&mut head.headers);
    }
    headers::set_origin(&mut head.headers, &client.origin(host), rand::random);
    if let Some(protocol) = upgrade {
        head.headers.insert(header::UPGRADE, protocol);
        head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    }
    set_target(head, route.protocol, host);
}

fn deliver(
    client: &ClientConnection,
    mut response: Response<FromPod>,
    on_client: Option<OnUpgrade>,
) -> Result<Response<AnswerBody>, OwnAnswer> {
    let upgrade = response.headers().get(header::UPGRADE).cloned();
    headers::remove_hop_by_hop(response.headers_mut(), false);
    // The pod may speak HTTP/1.0; the client's connection has its own version.
    *response.version_mut() = Version::HTTP_11;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(response.map(AnswerBody::from_pod));
    }
    let Some(on_client) = on_client else {
        return Err(OwnAnswer::bad_gateway("The pod changed the protocol without being asked.".to_owned()));
    };
    let on_pod = hyper::upgrade::on(&mut response);
    let (mut head, body) = response.into_parts();
    if let Some(hold) = body.into_upgraded() {
        let place = client.place.clone();
        let is_websocket = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"websocket");
        let is_websocket = upgrade.as_ref().is_some_and(is_websocket);
        client.connections.spawn(async move {
            upgrade::pass_bytes(on_client, on_pod, is_websocket, hold).await;
            drop(place);
        });
    }
    insert_upgrade(&mut head.headers, upgrade);
    Ok(Response::from_parts(head, AnswerBody::empty()))
}

fn insert_upgrade(headers: &mut HeaderMap, upgrade: Option<HeaderValue>) {
    if let Some(protocol) = upgrade {
        headers.insert(header::UPGRADE, protocol);
    }
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
}

/// At level `debug` of the target `access`.
struct AccessLog {
    client: IpAddr,
    method: Method,
    host: String,
    path: String,
    begun: Instant,
}

impl AccessLog {
    fn begin(client: &ClientConnection, request: &Request<Incoming>, begun: Instant) -> Option<Self> {
        tracing::enabled!(target: "access", tracing::Level::DEBUG).then(|| Self {
            client: client.address,
            method: request.method().clone(),
            host: host(request).unwrap_or_default(),
            // Omits the query, which may contain secrets.
            path: request.uri().path().to_owned(),
            begun,
        })
    }

    fn write(self, status: StatusCode) {
        tracing::debug!(
            target: "access", client = %self.client, method = %self.method, host = self.host,
            path = self.path, status = status.as_u16(), ms = self.begun.elapsed().as_millis() as u64,
            "Request"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::time::sleep;

    use super::*;

    const PAUSE: Duration = Duration::from_millis(10);

    async fn look(pieces: &[&[u8]]) -> (bool, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let send = async {
            for piece in pieces {
                client.write_all(piece).await.unwrap();
                sleep(PAUSE).await;
            }
            client.shutdown().await.unwrap();
        };
        let mut polls = 0;
        let mut looking = pin!(is_http2(&stream));
        let looking = poll_fn(|cx| {
            polls += 1;
            looking.as_mut().poll(cx)
        });
        let mut tasks = futures_util::stream::FuturesUnordered::new();
        tasks.push(looking);
        let (found, ()) = tokio::join!(futures_util::StreamExt::next(&mut tasks), send);
        drop(tasks);
        (found.unwrap(), polls)
    }

    #[tokio::test]
    async fn http2_is_recognized_also_when_it_begins_a_byte_at_a_time() {
        let bytes: Vec<&[u8]> = HTTP2_PREFACE.chunks(1).collect();
        let within = Duration::from_secs(5);
        let looking = tokio::time::timeout(within, look(&bytes));
        assert!(looking.await.unwrap().0);
        for pieces in [&[b"GET / HTTP/1.1\r\n".as_slice()][..], &[b"P", b"OST /"], &[b"PRI"], &[]] {
            let looking = tokio::time::timeout(within, look(pieces));
            assert!(!looking.await.unwrap().0, "{pieces:?}");
        }
    }

    #[tokio::test]
    async fn a_client_that_is_silent_after_a_part_of_the_preface_is_not_looked_at_again_and_again() {
        let mut pieces: Vec<&[u8]> = vec![b""; 50];
        pieces[0] = b"PR";
        let (_, polls) = look(&pieces).await;
        assert!(polls <= 5, "{polls} times");
    }
}
