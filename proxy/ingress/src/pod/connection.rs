//! Connections to a pod, and their pool.
//!
//! A pool belongs to one start of a pod's containers, never to an address: the engine reuses addresses at
//! once. An HTTP/2 connection to another host serves one request at a time, because the gate there counts
//! requests; those to pods of this host are shared.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use gate::socket::{self, HeardSocket, Socket};
use gate::timer::Timer;
use gate::{Cut, Pass};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use model::network::ingress::HttpProtocol;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::unconstrained;
use tunnel::{KeptStream, NotAccepted};

use super::http2::{Http2, NextStream, SharedConnection, SharedConnections};
use super::request_to_pod::RequestToPod;
use super::thinned::{AnswerHead, Thinned};
use crate::long_heads::Surplus;
use crate::scanner::MessageHead;

/// Idle connections are reused for this long: servers close theirs after 5 s or later.
const MOST_IDLE: Duration = Duration::from_secs(4);
/// For requests that must not be sent twice: one is lost if the server closes the connection meanwhile.
const MOST_IDLE_UNREPEATABLE: Duration = Duration::from_secs(1);
/// A pod that leaves a connection open for this long after an answer counts as keeping it.
const STAYS_OPEN: Duration = Duration::from_millis(100);
/// A pod that closed a connection counts as closing all of them for this long.
const CLOSES_FOR: Duration = Duration::from_secs(60);
/// Interval of [`Pools::end_old`].
pub(crate) const IDLE_LOOK: Duration = Duration::from_secs(5);
const MOST_KEPT: usize = 256;

pub(crate) enum PodConnection {
    Http1(Http1),
    Http2(Http2),
}

type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// Progresses only while polled.
pub(crate) struct Http1 {
    sender: http1::SendRequest<RequestToPod>,
    driver: Option<Driver>,
    /// If the pod is on another host, whose gate is asked for each request.
    tunnel: Option<KeptStream>,
    kept: Kept,
    /// The lines of long heads that the parser does not get.
    surplus: Arc<Surplus>,
    has_answered_before: bool,
}

/// Reused by the next request on the connection.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) timer: Option<Timer>,
    /// The cut of the pod's gate, if it is on this host.
    pub(crate) cut: Option<Cut>,
}

impl PodConnection {
    /// By HTTP/1.
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(socket::connect(address).await?)?;
        Self::over(HeardSocket::from(socket), HttpProtocol::Http).await
    }

    pub(crate) async fn over<S>(stream: S, protocol: HttpProtocol) -> io::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match protocol {
            HttpProtocol::Http => {
                let mut builder = http1::Builder::new();
                builder.max_header_size(AnswerHead::MOST_BYTES);
                let surplus = Arc::<Surplus>::default();
                let io = TokioIo::new(Thinned::new(stream, surplus.clone()));
                let (sender, driver) = builder.handshake(io).await.map_err(io::Error::other)?;
                let driver: Option<Driver> = Some(Box::pin(driver.with_upgrades()));
                Ok(Self::Http1(Http1 {
                    sender,
                    driver,
                    tunnel: None,
                    kept: Kept::default(),
                    surplus,
                    has_answered_before: false,
                }))
            }
            HttpProtocol::H2c => Http2::over(stream).await.map(Self::Http2),
        }
    }

    pub(crate) async fn over_kept(stream: KeptStream, protocol: HttpProtocol) -> io::Result<Self> {
        let mut connection = Self::over(stream.clone(), protocol).await?;
        match &mut connection {
            Self::Http1(http1) => http1.tunnel = Some(stream),
            Self::Http2(http2) => http2.set_tunnel(stream),
        }
        Ok(connection)
    }

    /// Asks the other host's gate. Waits for the answer only if the request must not be sent twice.
    pub(crate) async fn begin(&mut self, is_repeatable: bool, within: Duration) -> Result<(), NotAccepted> {
        let Some(tunnel) = self.tunnel() else { return Ok(()) };
        if is_repeatable {
            tunnel.begin();
            return Ok(());
        }
        let begun = tokio::time::timeout(within, tunnel.begin_and_wait()).await;
        begun.unwrap_or(Err(NotAccepted::Unanswered))
    }

    /// Tells the other host that the request has ended. Returns true if the connection can be kept; always
    /// false for pods of this host, where [`Pools::keeps`] decides.
    pub(crate) fn end(&self, cx: &mut Context<'_>) -> bool {
        match self {
            // Unread bytes of the pod would be taken for the next answer.
            Self::Http1(Http1 { tunnel: Some(tunnel), .. }) => !tunnel.has_unread() && tunnel.end(cx),
            Self::Http2(http2) => http2.tunnel().is_some_and(|tunnel| tunnel.end(cx)),
            _ => false,
        }
    }

    pub(crate) fn tunnel(&self) -> Option<&KeptStream> {
        match self {
            Self::Http1(http1) => http1.tunnel.as_ref(),
            Self::Http2(http2) => http2.tunnel(),
        }
    }

    pub(crate) fn take_kept(&mut self) -> Kept {
        match self {
            Self::Http1(http1) => std::mem::take(&mut http1.kept),
            Self::Http2(_) => Kept::default(),
        }
    }

    pub(crate) fn keep(&mut self, kept: Kept) {
        if let Self::Http1(http1) = self {
            http1.kept = kept;
        }
    }

    /// Must not be called again before the answer has ended.
    pub(crate) async fn send(
        &mut self,
        request: Request<RequestToPod>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestToPod>>> {
        match self {
            PodConnection::Http2(http2) => http2.send(request).await,
            PodConnection::Http1(connection) => {
                let message = connection.surplus.begin();
                // Exempt from tokio's cooperative budget, whose wake-up would be lost without a waker.
                let answer = pin!(unconstrained(connection.sender.try_send_request(request)));
                let mut answer = drive_until(&mut connection.driver, answer).await;
                if let Ok(response) = &mut answer {
                    connection.surplus.complete_head(message, response.headers_mut());
                }
                answer
            }
        }
    }

    pub(crate) fn complete_trailers(&self, trailers: &mut HeaderMap) {
        if let PodConnection::Http1(Http1 { surplus, .. }) = self {
            surplus.complete_trailers(surplus.message(), trailers);
        }
    }

    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        if let PodConnection::Http1(connection) = self {
            poll_driver(&mut connection.driver, cx);
        }
    }

    pub(crate) fn detach(self) {
        if let PodConnection::Http1(Http1 { driver: Some(driver), .. }) = self {
            tokio::spawn(driver);
        }
    }

    fn poll_usable(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::Http1(http1) => {
                poll_driver(&mut http1.driver, cx);
                http1.driver.is_some() && http1.sender.is_ready()
            }
            Self::Http2(http2) => http2.is_usable(),
        }
    }

    fn is_shared(&self) -> bool {
        matches!(self, Self::Http2(http2) if http2.is_shared())
    }
}

/// Driver and answer share a task. With its waker they would wake the running task for each other, and poll
/// the client's connection in vain. So only the last poll of the driver gets it, to wait for the socket.
async fn drive_until<A: Future>(driver: &mut Option<Driver>, mut answer: Pin<&mut A>) -> A::Output {
    let mut has_waited = false;
    poll_fn(|cx| {
        let unwoken = &mut Context::from_waker(Waker::noop());
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
    if driver.as_mut().is_some_and(|driver| driver.as_mut().poll(cx).is_ready()) {
        *driver = None;
    }
}

#[derive(Default)]
pub(crate) struct Pools {
    pools: Mutex<Vec<Pool>>,
    /// An ablation: connections outlive the containers. The tests must detect it.
    #[cfg(test)]
    is_of_address: bool,
}

/// The connections of one thread to one port of one start of a pod.
struct Pool {
    key: PoolKey,
    idle: Vec<Idle>,
    shared: SharedConnections,
    habit: KeepingHabit,
}

/// While it is unknown, unrepeatable requests get new connections: some servers close each one without
/// notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeepingHabit {
    Unknown,
    Keeps,
    Closes { since: Instant },
}

struct Idle {
    connection: PodConnection,
    since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolKey {
    /// Number of the start of the containers: that of `LocalPod`, or 0 on another host.
    pub(crate) start: u64,
    pub(crate) port: u16,
    pub(crate) protocol: HttpProtocol,
    thread: ThreadId,
}

impl PoolKey {
    pub(crate) fn new(start: u64, port: u16, protocol: HttpProtocol) -> Self {
        Self { start, port, protocol, thread: thread::current().id() }
    }

    /// The proxy of another host tracks the container start of a connection.
    pub(crate) fn of_other_host(port: u16, protocol: HttpProtocol) -> Self {
        Self::new(0, port, protocol)
    }
}

impl Pools {
    #[cfg(test)]
    pub(crate) fn of_address() -> Self {
        Self { is_of_address: true, ..Self::default() }
    }

    /// Returns a connection for one request at a time; `None` if the caller has to open one. Ends connections
    /// to earlier starts of the containers.
    pub(crate) fn take(&self, key: PoolKey, is_repeatable: bool) -> Option<PodConnection> {
        let most_idle = if is_repeatable { MOST_IDLE } else { MOST_IDLE_UNREPEATABLE };
        loop {
            let mut idle = {
                let mut pools = self.pools.lock();
                pools.retain(|pool| pool.key.start == key.start);
                let pool = pools.iter_mut().find(|pool| pool.key == key)?;
                let cx = &mut Context::from_waker(Waker::noop());
                // By HTTP/1 servers close without notice; by HTTP/2 they announce it.
                let may_close = key.protocol == HttpProtocol::Http;
                if !is_repeatable && may_close && !pool.update_habit(cx) {
                    return None;
                }
                pool.idle.pop()?
            };
            let is_recent = idle.since.elapsed() < most_idle;
            let is_usable = idle.connection.poll_usable(&mut Context::from_waker(Waker::noop()));
            if is_recent && is_usable {
                return Some(idle.connection);
            }
            if !is_usable && idle.since.elapsed() < MOST_IDLE_UNREPEATABLE {
                self.note_closed(key);
            }
        }
    }

    /// The same for HTTP/2 connections that requests share.
    pub(crate) fn next_stream(&self, key: PoolKey) -> NextStream {
        let mut pools = self.pools.lock();
        pools.retain(|pool| pool.key.start == key.start);
        pool(&mut pools, key).shared.next_stream()
    }

    /// Returns the connection for its first request.
    pub(crate) fn share(&self, key: PoolKey, connection: SharedConnection) -> Http2 {
        pool(&mut self.pools.lock(), key).shared.add(connection)
    }

    pub(crate) fn note_closed(&self, key: PoolKey) {
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.iter_mut().find(|pool| pool.key == key) {
            pool.habit = KeepingHabit::Closes { since: Instant::now() };
        }
    }

    pub(crate) fn put(&self, key: PoolKey, mut connection: PodConnection, cx: &mut Context<'_>) {
        if connection.is_shared() {
            return;
        }
        let is_ready = matches!(&connection, PodConnection::Http1(http1) if http1.sender.is_ready());
        if !is_ready && !connection.poll_usable(cx) {
            return;
        }
        let mut pools = self.pools.lock();
        let pool = pool(&mut pools, key);
        if let PodConnection::Http1(http1) = &mut connection
            && std::mem::replace(&mut http1.has_answered_before, true)
            && pool.habit == KeepingHabit::Unknown
        {
            pool.habit = KeepingHabit::Keeps;
        }
        if pool.idle.len() < MOST_KEPT {
            pool.idle.push(Idle { connection, since: Instant::now() });
        }
    }

    /// For pods of this host. A server that stops waits for idle connections: none is kept after its gate has
    /// closed.
    pub(crate) fn keeps(&self, pass: &Pass) -> bool {
        #[cfg(test)]
        if self.is_of_address {
            return true;
        }
        pass.is_open()
    }

    /// Ends connections that were idle for too long. Otherwise only the next request would notice that the
    /// pod closed them.
    pub(crate) fn end_old(&self) {
        let (mut old, mut old_shared) = (Vec::new(), Vec::new());
        for pool in self.pools.lock().iter_mut() {
            let recent = pool.idle.iter().position(|idle| idle.since.elapsed() < MOST_IDLE);
            old.extend(pool.idle.drain(..recent.unwrap_or(pool.idle.len())));
            old_shared.extend(pool.shared.take_idle(MOST_IDLE));
        }
        // Dropped without the lock.
        drop((old, old_shared));
    }

    pub(crate) fn clear(&self) {
        #[cfg(test)]
        if self.is_of_address {
            return;
        }
        self.pools.lock().clear();
    }
}

impl Pool {
    /// Learns from the age of idle connections.
    fn update_habit(&mut self, cx: &mut Context<'_>) -> bool {
        if matches!(self.habit, KeepingHabit::Closes { since } if since.elapsed() >= CLOSES_FOR) {
            self.habit = KeepingHabit::Unknown;
        }
        if self.habit == KeepingHabit::Unknown
            && let Some(oldest) = self.idle.first_mut()
            && oldest.since.elapsed() >= STAYS_OPEN
            && oldest.connection.poll_usable(cx)
        {
            self.habit = KeepingHabit::Keeps;
        }
        self.habit == KeepingHabit::Keeps
    }
}

fn pool(pools: &mut Vec<Pool>, key: PoolKey) -> &mut Pool {
    let index = pools.iter().position(|pool| pool.key == key).unwrap_or_else(|| {
        let (idle, shared) = (Vec::new(), SharedConnections::default());
        pools.push(Pool { key, idle, shared, habit: KeepingHabit::Unknown });
        pools.len() - 1
    });
    &mut pools[index]
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use hyper::body::Body;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_by_http2_is_not_pinged() {
        let (stream, mut pod) = tokio::io::duplex(4096);
        let mut connection = PodConnection::over(stream, HttpProtocol::H2c).await.unwrap();
        let request = Request::get("http://a/").body(RequestToPod::Empty).unwrap();
        let answer = connection.send(request);
        let seen = async {
            let mut frames = Vec::new();
            pod.read_exact(&mut [0; 24]).await.unwrap();
            // Settings, then an hour of silence.
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
