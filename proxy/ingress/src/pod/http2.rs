//! HTTP/2 connections to pods, and those that requests share.
//!
//! A pod limits the streams of a connection. Beyond that, hyper keeps a request back until another one ends,
//! without a word and a limit. So each connection counts its streams, and such a request gets another one.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use gate::socket::{self, HeardSocket, Socket};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tunnel::KeptStream;

use super::request_to_pod::RequestToPod;
use super::stream_count::{ConnectionCount, ConnectionPermit, OpenStream, StreamCount};
use super::thinned::AnswerHead;
use crate::scanner::MessageHead;

/// Flow-control windows.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

pub(crate) struct Http2 {
    sender: http2::SendRequest<RequestToPod>,
    /// If set, the connection serves one request at a time.
    tunnel: Option<KeptStream>,
    /// If requests share the connection.
    stream: Option<Arc<OpenStream>>,
}

impl Drop for Http2 {
    fn drop(&mut self) {
        // Otherwise its task would wait for the next request to send GOAWAY.
        if let Some(tunnel) = &self.tunnel {
            tunnel.close();
        }
    }
}

impl Http2 {
    pub(crate) async fn over<S>(stream: S) -> io::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, _) = handshake(stream).await?;
        Ok(Self { sender, tunnel: None, stream: None })
    }

    pub(crate) fn set_tunnel(&mut self, tunnel: KeptStream) {
        tunnel.is_read_by_a_task();
        self.tunnel = Some(tunnel);
    }

    pub(crate) fn tunnel(&self) -> Option<&KeptStream> {
        self.tunnel.as_ref()
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.stream.is_some()
    }

    pub(crate) fn is_usable(&self) -> bool {
        !self.sender.is_closed()
    }

    pub(crate) async fn send(
        &mut self,
        mut request: Request<RequestToPod>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestToPod>>> {
        if let Some(stream) = &self.stream {
            request.body_mut().hold_open(stream);
        }
        self.sender.try_send_request(request).await
    }
}

/// Returns the streams that the pod allows at present; `None` until its first settings.
type StreamLimit = Box<dyn Fn() -> Option<usize> + Send + Sync>;

/// More than settings can allow.
const NO_SETTINGS: usize = usize::MAX - 1;

async fn handshake<S>(stream: S) -> io::Result<(http2::SendRequest<RequestToPod>, StreamLimit)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    // No pings: gRPC servers end a connection with more than one in 5 min.
    builder.initial_stream_window_size(STREAM_WINDOW);
    builder.initial_connection_window_size(CONNECTION_WINDOW);
    builder.max_header_list_size(AnswerHead::MOST_BYTES as u32);
    builder.initial_max_send_streams(NO_SETTINGS);
    let (sender, driver) = builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let driver = Arc::new(Mutex::new(Some(driver)));
    let driven = driver.clone();
    tokio::spawn(poll_fn(move |cx| {
        let mut driver = driven.lock();
        if driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(cx).is_pending()) {
            return Poll::Pending;
        }
        // Otherwise it would look open.
        *driver = None;
        Poll::Ready(())
    }));
    let limit = move || driver.lock().as_ref().map_or(0, http2::Connection::current_max_send_streams);
    Ok((sender, Box::new(move || Some(limit()).filter(|limit| *limit != NO_SETTINGS))))
}

pub(crate) struct SharedConnection {
    sender: http2::SendRequest<RequestToPod>,
    limit: StreamLimit,
    streams: StreamCount,
    permit: ConnectionPermit,
    last_begun: Instant,
}

impl SharedConnection {
    pub(crate) async fn connect(address: SocketAddr, permit: ConnectionPermit) -> io::Result<Self> {
        let socket = Socket::new(socket::connect(address).await?)?;
        Self::over(HeardSocket::from(socket), permit).await
    }

    async fn over<S>(stream: S, permit: ConnectionPermit) -> io::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, limit) = handshake(stream).await?;
        Ok(Self { sender, limit, streams: StreamCount::default(), permit, last_begun: Instant::now() })
    }

    /// Until the pod has said how many streams it takes, it gets one.
    fn begin_if_room(&mut self) -> Option<Http2> {
        let limit = (self.limit)();
        if limit.is_some() {
            self.permit.has_begun();
        }
        (self.streams.get() < limit.unwrap_or(1)).then(|| self.begin())
    }

    fn begin(&mut self) -> Http2 {
        self.last_begun = Instant::now();
        Http2 { sender: self.sender.clone(), tunnel: None, stream: Some(self.streams.begin()) }
    }

    fn is_idle(&self, most_idle: Duration) -> bool {
        self.streams.get() == 0 && self.last_begun.elapsed() >= most_idle
    }
}

/// Those of one thread to one port of a pod.
#[derive(Default)]
pub(crate) struct SharedConnections {
    connections: Vec<SharedConnection>,
    count: ConnectionCount,
}

pub(crate) enum NextStream {
    On(Http2),
    /// The caller has to open a connection.
    NeedsConnection(ConnectionPermit),
    NoRoom,
}

impl SharedConnections {
    /// Fills the oldest connection first, so that the others become idle.
    pub(crate) fn next_stream(&mut self) -> NextStream {
        self.connections.retain(|connection| !connection.sender.is_closed());
        if let Some(connection) = self.connections.iter_mut().find_map(SharedConnection::begin_if_room) {
            return NextStream::On(connection);
        }
        self.count.permit().map_or(NextStream::NoRoom, NextStream::NeedsConnection)
    }

    /// Returns the connection for its first request.
    pub(crate) fn add(&mut self, mut connection: SharedConnection) -> Http2 {
        let first = connection.begin();
        self.connections.push(connection);
        first
    }

    /// Keeps one for the next request.
    pub(crate) fn take_idle(&mut self, most_idle: Duration) -> Vec<SharedConnection> {
        let others = 1.min(self.connections.len())..;
        self.connections.extract_if(others, |connection| connection.is_idle(most_idle)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_end_that_are_idle_except_for_one() {
        let mut connections = SharedConnections::default();
        let (mut pods, mut streams) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let (stream, pod) = tokio::io::duplex(4096);
            let permit = connections.count.permit().unwrap();
            streams.push(connections.add(SharedConnection::over(stream, permit).await.unwrap()));
            pods.push(pod);
        }
        streams.truncate(2);
        assert_eq!(connections.take_idle(Duration::from_secs(60)).len(), 0, "they may be used again soon");
        assert_eq!(connections.take_idle(Duration::ZERO).len(), 2);
        streams.clear();
        assert_eq!(connections.take_idle(Duration::ZERO).len(), 1);
        assert!(matches!(connections.next_stream(), NextStream::On(_)));
    }
}
