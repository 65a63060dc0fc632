//! Connections to a pod, and the pool in which they wait for the next request.
//!
//! A pool belongs to one start of a pod's containers, never to an address: the engine gives an address to the
//! next pod as soon as it is free. An HTTP/1.1 connection is driven by the request that uses it, without a
//! task of its own. All requests to a pod of this host share an HTTP/2 connection; one to a pod of another
//! host has one request after the other, for the gate there counts them. Each thread that serves has its own
//! connections.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gate::socket::{self, HeardSocket, Socket};
use gate::timer::Timer;
use gate::{Cut, Pass};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::network::ingress::HttpProtocol;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::unconstrained;
use tunnel::{KeptStream, NotAccepted};

use crate::client::body::ClientBody;

/// Connections that were idle for longer are not used: servers close theirs after 5 s and more.
const MOST_IDLE: Duration = Duration::from_secs(4);
/// The same for requests that must not be repeated: one that crosses with the server's close is lost.
const MOST_IDLE_UNREPEATABLE: Duration = Duration::from_secs(1);
/// A pod whose connection has stayed open for this long after an answer keeps its connections.
const STAYS_OPEN: Duration = Duration::from_millis(100);
/// For how long a pod is known to close its connections.
const CLOSES_FOR: Duration = Duration::from_secs(60);
/// How often those that were idle for longer are looked for.
pub(crate) const IDLE_LOOK: Duration = Duration::from_secs(5);
/// Idle connections that each thread keeps for each pod and port.
const MOST_KEPT: usize = 256;
/// HTTP/2 windows: what one stream, and what all streams of a connection, may send ahead.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// The longest head of an answer, and the longest trailers: errors of gRPC have details in them.
const MOST_HEAD_BYTES: usize = 256 * 1024;
/// The most lines of a head, also that of a request.
pub(crate) const MOST_HEADER_LINES: usize = 1000;

/// The body of a request on its way to a pod.
pub(crate) enum RequestToPod {
    Empty,
    Streamed(ClientBody, Arc<BodyProgress>),
}

/// How much of a request's body was sent.
#[derive(Debug, Default)]
pub(crate) struct BodyProgress {
    has_begun: AtomicBool,
    has_ended: AtomicBool,
    has_failed: AtomicBool,
}

impl BodyProgress {
    /// Returns whether the pod may have seen a part of the body.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Returns whether the client did not send a whole and valid body.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Returns whether the whole body was sent.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }
}

impl Body for RequestToPod {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            RequestToPod::Empty => Poll::Ready(None),
            RequestToPod::Streamed(body, progress) => {
                let frame = std::task::ready!(Pin::new(&mut *body).poll_frame(cx));
                progress.has_begun.store(true, Ordering::Relaxed);
                if matches!(frame, Some(Err(_))) {
                    progress.has_failed.store(true, Ordering::Relaxed);
                }
                if frame.is_none() || body.is_end_stream() {
                    progress.has_ended.store(true, Ordering::Relaxed);
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestToPod::Empty => true,
            RequestToPod::Streamed(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestToPod::Empty => SizeHint::with_exact(0),
            RequestToPod::Streamed(body, _) => body.size_hint(),
        }
    }
}

/// A connection to a pod.
pub(crate) enum PodConnection {
    Http1(Http1),
    Http2(Http2),
}

/// The future of the connection; its type has no name outside of the library.
type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// An HTTP/1.1 connection. It moves only while it is polled.
pub(crate) struct Http1 {
    sender: http1::SendRequest<RequestToPod>,
    /// `None` when the connection has ended.
    driver: Option<Driver>,
    /// Asks the gate between two requests, if the pod is on another host.
    tunnel: Option<KeptStream>,
    kept: Kept,
    has_answered_before: bool,
}

/// An HTTP/2 connection. A task moves it.
pub(crate) struct Http2 {
    sender: http2::SendRequest<RequestToPod>,
    /// As that of [`Http1`]. The connection is for one request at a time then.
    tunnel: Option<KeptStream>,
}

impl Drop for Http2 {
    fn drop(&mut self) {
        // Its task would wait for the next request to say goodbye.
        if let Some(tunnel) = &self.tunnel {
            tunnel.close();
        }
    }
}

/// What the requests of a connection use one after another.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) timer: Option<Timer>,
    /// That of the pod's gate, if it is on this host.
    pub(crate) cut: Option<Cut>,
}

impl PodConnection {
    /// Connects to the address.
    pub(crate) async fn connect(address: SocketAddr, protocol: HttpProtocol) -> io::Result<Self> {
        let socket = Socket::new(socket::connect(address).await?)?;
        Self::over(HeardSocket::from(socket), protocol).await
    }

    /// Begins to speak HTTP on a connection to a pod.
    pub(crate) async fn over<S>(stream: S, protocol: HttpProtocol) -> io::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(stream);
        match protocol {
            HttpProtocol::Http => {
                let mut builder = http1::Builder::new();
                builder.max_header_size(MOST_HEAD_BYTES).max_headers(MOST_HEADER_LINES);
                let (sender, driver) = builder.handshake(io).await.map_err(io::Error::other)?;
                let driver: Option<Driver> = Some(Box::pin(driver.with_upgrades()));
                Ok(Self::Http1(Http1 {
                    sender,
                    driver,
                    tunnel: None,
                    kept: Kept::default(),
                    has_answered_before: false,
                }))
            }
            HttpProtocol::H2c => {
                let mut builder = http2::Builder::new(TokioExecutor::new());
                // Without pings: servers of gRPC end a connection with more than one in 5 min. The connection
                // is kept alive by TCP.
                builder.initial_stream_window_size(STREAM_WINDOW);
                builder.initial_connection_window_size(CONNECTION_WINDOW);
                builder.max_header_list_size(MOST_HEAD_BYTES as u32);
                let (sender, driver) = builder.handshake(io).await.map_err(io::Error::other)?;
                // Ends with its last sender and stream.
                tokio::spawn(driver);
                Ok(Self::Http2(Http2 { sender, tunnel: None }))
            }
        }
    }

    /// Begins to speak HTTP on a connection through the tunnel whose first request was let in.
    pub(crate) async fn over_kept(stream: KeptStream, protocol: HttpProtocol) -> io::Result<Self> {
        let mut connection = Self::over(stream.clone(), protocol).await?;
        match &mut connection {
            Self::Http1(http1) => http1.tunnel = Some(stream),
            Self::Http2(http2) => {
                stream.is_read_by_a_task();
                http2.tunnel = Some(stream);
            }
        }
        Ok(connection)
    }

    /// Asks the gate of the other host to let a request in, if the connection goes through it. Waits `within`
    /// for the answer if the request may not be sent twice.
    ///
    /// # Errors
    /// If it does not, or the connection has ended.
    pub(crate) async fn begin(&mut self, is_repeatable: bool, within: Duration) -> Result<(), NotAccepted> {
        let Some(tunnel) = self.tunnel() else { return Ok(()) };
        if is_repeatable {
            tunnel.begin();
            return Ok(());
        }
        let begun = tokio::time::timeout(within, tunnel.begin_and_wait()).await;
        begun.unwrap_or(Err(NotAccepted::Unanswered))
    }

    /// Tells the gate of the other host that the request was answered. Returns whether the connection can be
    /// kept.
    pub(crate) fn end(&self, cx: &mut Context<'_>) -> bool {
        match self {
            // What the pod has said beyond its answer would be taken for the next one.
            Self::Http1(Http1 { tunnel: Some(tunnel), .. }) => !tunnel.has_unread() && tunnel.end(cx),
            Self::Http2(Http2 { tunnel: Some(tunnel), .. }) => tunnel.end(cx),
            _ => false,
        }
    }

    /// Returns the way to the gate of the other host, if the connection goes through it.
    pub(crate) fn tunnel(&self) -> Option<&KeptStream> {
        match self {
            Self::Http1(http1) => http1.tunnel.as_ref(),
            Self::Http2(http2) => http2.tunnel.as_ref(),
        }
    }

    /// Returns what the request before has left for this one.
    pub(crate) fn take_kept(&mut self) -> Kept {
        match self {
            Self::Http1(http1) => std::mem::take(&mut http1.kept),
            Self::Http2(_) => Kept::default(),
        }
    }

    /// Leaves something for the next request.
    pub(crate) fn keep(&mut self, kept: Kept) {
        if let Self::Http1(http1) = self {
            http1.kept = kept;
        }
    }

    /// Sends a request and returns the answer's head. Can be called once until the answer has ended.
    pub(crate) async fn send(
        &mut self,
        request: Request<RequestToPod>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestToPod>>> {
        match self {
            PodConnection::Http2(http2) => http2.sender.try_send_request(request).await,
            PodConnection::Http1(connection) => {
                // Without a waker it must not be told to wait for its turn, as tokio does after many polls.
                let answer = pin!(unconstrained(connection.sender.try_send_request(request)));
                drive_until(&mut connection.driver, answer).await
            }
        }
    }

    /// Moves the bytes of the connection.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        if let PodConnection::Http1(connection) = self {
            poll_driver(&mut connection.driver, cx);
        }
    }

    /// Lets the connection end by itself: it was upgraded.
    pub(crate) fn detach(self) {
        if let PodConnection::Http1(Http1 { driver: Some(driver), .. }) = self {
            tokio::spawn(driver);
        }
    }

    /// Returns whether another request can be sent.
    fn is_usable(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::Http1(http1) => {
                poll_driver(&mut http1.driver, cx);
                http1.driver.is_some() && http1.sender.is_ready()
            }
            Self::Http2(http2) => !http2.sender.is_closed(),
        }
    }

    /// Returns whether all requests can share it at the same time, and then another hold of it.
    pub(crate) fn shared(&self) -> Option<Self> {
        match self {
            Self::Http2(Http2 { sender, tunnel: None }) => {
                Some(Self::Http2(Http2 { sender: sender.clone(), tunnel: None }))
            }
            _ => None,
        }
    }
}

/// Moves the bytes of a connection until the answer has come, which waits for nothing else.
///
/// The driver and the answer are in one task. With the task's waker they would wake it for each other while
/// it runs, and each request would poll the client's whole connection once more for nothing. So the answer
/// never has the waker: it is polled after each poll of the driver. The driver has it only when all that is
/// left is to wait for the socket.
async fn drive_until<A: Future>(driver: &mut Option<Driver>, mut answer: Pin<&mut A>) -> A::Output {
    let mut has_waited = false;
    poll_fn(|cx| {
        let unwoken = &mut Context::from_waker(Waker::noop());
        // The first time only sends.
        if has_waited {
            poll_driver(driver, unwoken);
            if let Poll::Ready(answer) = answer.as_mut().poll(unwoken) {
                return Poll::Ready(answer);
            }
        }
        has_waited = true;
        poll_driver(driver, cx);
        answer.as_mut().poll(unwoken)
    })
    .await
}

fn poll_driver(driver: &mut Option<Driver>, cx: &mut Context<'_>) {
    // Its error reaches the request as well.
    if driver.as_mut().is_some_and(|driver| driver.as_mut().poll(cx).is_ready()) {
        *driver = None;
    }
}

/// The connections to one pod that can take another request.
#[derive(Default)]
pub(crate) struct Pools {
    pools: Mutex<Vec<Pool>>,
    /// An ablation: connections belong to an address, and not to a pod.
    #[cfg(test)]
    is_of_address: bool,
}

/// The connections of one thread to one port of one start of a pod.
struct Pool {
    key: PoolKey,
    idle: Vec<Idle>,
    /// The one that all requests share.
    shared: Option<PodConnection>,
    habit: KeepingHabit,
}

/// Whether the pod keeps its connections open after an answer that does not say otherwise. While that is not
/// known, requests that must not be repeated have connections of their own: some servers close each one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeepingHabit {
    Unknown,
    Keeps,
    Closes { since: Instant },
}

/// A connection between two requests.
struct Idle {
    connection: PodConnection,
    since: Instant,
}

/// What the connections of one pool have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolKey {
    /// Counts the starts of the pod's containers.
    pub(crate) start: u64,
    pub(crate) port: u16,
    pub(crate) protocol: HttpProtocol,
    /// The thread whose event loop has them.
    thread: ThreadId,
}

impl PoolKey {
    /// Returns the key of this thread's connections.
    pub(crate) fn new(start: u64, port: u16, protocol: HttpProtocol) -> Self {
        Self { start, port, protocol, thread: thread::current().id() }
    }

    /// The same for a pod of another host. The proxy there knows to which start a connection leads.
    pub(crate) fn of_other_host(port: u16, protocol: HttpProtocol) -> Self {
        Self::new(0, port, protocol)
    }
}

impl Pools {
    /// Connections that belong to an address, and not to a pod: what tests must notice.
    #[cfg(test)]
    pub(crate) fn of_address() -> Self {
        Self { is_of_address: true, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Pool>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a connection that is open, if there is one. Ends those to earlier starts.
    pub(crate) fn take(&self, key: PoolKey, is_repeatable: bool) -> Option<PodConnection> {
        let most_idle = if is_repeatable { MOST_IDLE } else { MOST_IDLE_UNREPEATABLE };
        loop {
            let mut idle = {
                let mut pools = self.lock();
                pools.retain(|pool| pool.key.start == key.start);
                let pool = pools.iter_mut().find(|pool| pool.key == key)?;
                let cx = &mut Context::from_waker(Waker::noop());
                pool.shared.take_if(|shared| !shared.is_usable(cx));
                if let Some(shared) = &pool.shared {
                    return shared.shared();
                }
                // By HTTP/2 a pod says that it closes.
                let may_close = key.protocol == HttpProtocol::Http;
                if !is_repeatable && may_close && !pool.has_habit_of_keeping(cx) {
                    return None;
                }
                pool.idle.pop()?
            };
            let is_recent = idle.since.elapsed() < most_idle;
            let is_usable = idle.connection.is_usable(&mut Context::from_waker(Waker::noop()));
            if is_recent && is_usable {
                return Some(idle.connection);
            }
            if !is_usable && idle.since.elapsed() < MOST_IDLE_UNREPEATABLE {
                self.note_closed(key);
            }
        }
    }

    /// Takes in that the pod has closed a connection which it had not said to close.
    pub(crate) fn note_closed(&self, key: PoolKey) {
        let mut pools = self.lock();
        if let Some(pool) = pools.iter_mut().find(|pool| pool.key == key) {
            pool.habit = KeepingHabit::Closes { since: Instant::now() };
        }
    }

    /// Keeps a connection for the next request, if it can take one.
    pub(crate) fn put(&self, key: PoolKey, mut connection: PodConnection, cx: &mut Context<'_>) {
        let is_ready = matches!(&connection, PodConnection::Http1(http1) if http1.sender.is_ready());
        if !is_ready && !connection.is_usable(cx) {
            return;
        }
        let mut pools = self.lock();
        let pool = pool(&mut pools, key);
        if let PodConnection::Http1(http1) = &mut connection
            && std::mem::replace(&mut http1.has_answered_before, true)
            && pool.habit == KeepingHabit::Unknown
        {
            pool.habit = KeepingHabit::Keeps;
        }
        if let Some(shared) = connection.shared() {
            pool.shared.get_or_insert(shared);
        } else if pool.idle.len() < MOST_KEPT {
            pool.idle.push(Idle { connection, since: Instant::now() });
        }
    }

    /// Returns whether a connection is worth keeping after a request.
    pub(crate) fn keeps(&self, pass: &Pass) -> bool {
        #[cfg(test)]
        if self.is_of_address {
            return true;
        }
        pass.is_open()
    }

    /// Ends connections that were idle for too long to be used: the pod has closed them, or is about to, and
    /// nothing else would learn of it before the next request takes one.
    pub(crate) fn end_old(&self) {
        let mut old = Vec::new();
        for pool in self.lock().iter_mut() {
            let recent = pool.idle.iter().position(|idle| idle.since.elapsed() < MOST_IDLE);
            old.extend(pool.idle.drain(..recent.unwrap_or(pool.idle.len())));
        }
        // Dropped without the lock.
        drop(old);
    }

    /// Ends all connections that no request uses.
    pub(crate) fn clear(&self) {
        #[cfg(test)]
        if self.is_of_address {
            return;
        }
        self.lock().clear();
    }
}

impl Pool {
    /// Returns whether the pod is known to keep its connections.
    fn has_habit_of_keeping(&mut self, cx: &mut Context<'_>) -> bool {
        if matches!(self.habit, KeepingHabit::Closes { since } if since.elapsed() >= CLOSES_FOR) {
            self.habit = KeepingHabit::Unknown;
        }
        if self.habit == KeepingHabit::Unknown
            && let Some(oldest) = self.idle.first_mut()
            && oldest.since.elapsed() >= STAYS_OPEN
            && oldest.connection.is_usable(cx)
        {
            self.habit = KeepingHabit::Keeps;
        }
        self.habit == KeepingHabit::Keeps
    }
}

fn pool(pools: &mut Vec<Pool>, key: PoolKey) -> &mut Pool {
    let index = pools.iter().position(|pool| pool.key == key).unwrap_or_else(|| {
        pools.push(Pool { key, idle: Vec::new(), shared: None, habit: KeepingHabit::Unknown });
        pools.len() - 1
    });
    &mut pools[index]
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Servers of gRPC end a connection with more than one ping in 5 min.
    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_by_http2_is_not_pinged() {
        let (stream, mut pod) = tokio::io::duplex(4096);
        let mut connection = PodConnection::over(stream, HttpProtocol::H2c).await.unwrap();
        let request = Request::get("http://a/").body(RequestToPod::Empty).unwrap();
        let answer = connection.send(request);
        let seen = async {
            let mut frames = Vec::new();
            pod.read_exact(&mut [0; 24]).await.unwrap();
            // Settings, and an hour in which nothing happens.
            pod.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
            let reading = async {
                loop {
                    let mut head = [0; 9];
                    pod.read_exact(&mut head).await.unwrap();
                    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                    pod.read_exact(&mut vec![0; length]).await.unwrap();
                    frames.push(head[3]);
                }
            };
            let _: Result<(), _> = tokio::time::timeout(Duration::from_secs(3600), reading).await;
            frames
        };
        tokio::select! {
            frames = seen => assert!(frames.contains(&1) && !frames.contains(&6), "{frames:?}"),
            _ = answer => panic!("there is no answer"),
        }
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn a_request_is_woken_by_its_answer_and_not_by_itself() {
        let (stream, mut pod) = tokio::io::duplex(4096);
        let mut connection = PodConnection::over(stream, HttpProtocol::Http).await.unwrap();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let cx = &mut Context::from_waker(&waker);
        let request = Request::builder().uri("/").header("host", "a").body(RequestToPod::Empty).unwrap();
        let mut sent = pin!(connection.send(request));
        assert!(sent.as_mut().poll(cx).is_pending());
        pod.read_exact(&mut [0; 16]).await.unwrap();
        pod.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        let Poll::Ready(Ok(response)) = sent.as_mut().poll(cx) else { panic!("the answer was not seen") };
        assert!(pin!(response.into_body()).poll_frame(cx).is_ready());
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "it has woken itself");
    }
}
