//! The accept loop. Opening a connection needs no token: so at the limit an idle connection is closed for a
//! new one, preferably one that never sent a request. Silent sockets never lock out active clients.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

/// For each request's head, including the first one on a connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// After a failure.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientAddress(pub(crate) IpAddr);

/// Open files of this process beside the connections of clients.
const OTHER_FILES: u64 = 128;

/// Returns `wanted`, or less if the process may open only `files` files.
pub(crate) fn most(wanted: usize, files: u64) -> usize {
    let possible = usize::try_from(files.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX).max(1);
    if possible < wanted {
        tracing::warn!(
            "This process may open {files} files, so it takes {possible} connections at a time and not {wanted}. Raise the \
             limit (`ulimit -Hn`, LimitNOFILE=), or lower KUBELEET_MAX_CONNECTIONS"
        );
    }
    wanted.min(possible)
}

pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    max_connections: usize,
    shutdown: CancellationToken,
) {
    let open = Arc::new(OpenConnections::default());
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        match accepted {
            Ok((socket, client)) => {
                if let Some(connection) = open.admit(max_connections) {
                    tasks.spawn(serve_one(socket, client, router.clone(), connection, shutdown.clone()));
                }
            }
            Err(error) => {
                tracing::debug!(%error, "a connection cannot be accepted");
                // Closing the longest idle connection frees a file.
                open.close_idlest();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

async fn serve_one(
    socket: TcpStream,
    client: SocketAddr,
    router: Router,
    connection: OpenConnection,
    shutdown: CancellationToken,
) {
    let _best_effort = socket.set_nodelay(true);
    let activity = Arc::clone(&connection.activity);
    let service = tower::service_fn(move |mut request: Request<Incoming>| {
        let (busy, router) = (Busy::new(&activity), router.clone());
        request.extensions_mut().insert(ClientAddress(client.ip()));
        async move { Ok::<_, Infallible>(held(router.oneshot(request.map(Body::new)).await, busy)) }
    });
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let served =
        builder.serve_connection_with_upgrades(TokioIo::new(socket), TowerToHyperService::new(service));
    let mut served = std::pin::pin!(served);
    tokio::select! {
        _ended = served.as_mut() => return,
        () = connection.close.cancelled() => return,
        () = shutdown.cancelled() => served.as_mut().graceful_shutdown(),
    }
    let _ended = served.await;
}

/// The connection is busy until the body is sent.
fn held(response: Result<Response, Infallible>, busy: Busy) -> Response {
    let response = response.unwrap_or_else(|never| match never {});
    response.map(|body| {
        Body::new(body.map_err(move |error| {
            let _until_the_body_ends = &busy;
            error
        }))
    })
}

#[derive(Default)]
struct OpenConnections {
    table: Mutex<ConnectionTable>,
    /// Orders connections and ends of requests.
    clock: Arc<AtomicU64>,
}

#[derive(Default)]
struct ConnectionTable {
    next: u64,
    open: BTreeMap<u64, Handle>,
}

struct Handle {
    activity: Arc<Activity>,
    close: CancellationToken,
}

struct Activity {
    requests: AtomicUsize,
    has_served: AtomicBool,
    /// The `clock` at the end of the last request.
    idle_since: AtomicU64,
    clock: Arc<AtomicU64>,
}

impl OpenConnections {
    /// At the limit, closes an idle connection; `None` if all are busy.
    fn admit(self: &Arc<Self>, max: usize) -> Option<OpenConnection> {
        let mut table = self.table.lock();
        if table.open.len() >= max && !table.close_idlest() {
            tracing::debug!("{max} connections are busy: a new one is closed");
            return None;
        }
        let id = table.next;
        table.next += 1;
        let activity = Arc::new(Activity {
            requests: AtomicUsize::new(0),
            has_served: AtomicBool::new(false),
            idle_since: AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed)),
            clock: Arc::clone(&self.clock),
        });
        let close = CancellationToken::new();
        table.open.insert(id, Handle { activity: Arc::clone(&activity), close: close.clone() });
        Some(OpenConnection { id, activity, close, all: Arc::clone(self) })
    }

    fn close_idlest(&self) {
        self.table.lock().close_idlest();
    }
}

impl ConnectionTable {
    /// Returns false if all are busy.
    fn close_idlest(&mut self) -> bool {
        let idle = self.open.iter().filter_map(|(id, handle)| Some((handle.activity.idle_rank()?, *id)));
        match idle.min().and_then(|(_, id)| self.open.remove(&id)) {
            Some(handle) => {
                handle.close.cancel();
                true
            }
            None => false,
        }
    }
}

impl Activity {
    /// The connection with the least rank is closed first. `None` if busy.
    fn idle_rank(&self) -> Option<(bool, u64)> {
        let is_idle = self.requests.load(Ordering::Acquire) == 0;
        let rank = (self.has_served.load(Ordering::Relaxed), self.idle_since.load(Ordering::Relaxed));
        is_idle.then_some(rank)
    }
}

struct OpenConnection {
    id: u64,
    activity: Arc<Activity>,
    close: CancellationToken,
    all: Arc<OpenConnections>,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.all.table.lock().open.remove(&self.id);
    }
}

struct Busy {
    activity: Arc<Activity>,
}

impl Busy {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.requests.fetch_add(1, Ordering::AcqRel);
        activity.has_served.store(true, Ordering::Relaxed);
        Self { activity: Arc::clone(activity) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let now = self.activity.clock.fetch_add(1, Ordering::Relaxed);
        self.activity.idle_since.store(now, Ordering::Relaxed);
        self.activity.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_rest_of_the_process() {
        for (wanted, files, expected) in
            [(1024, 65_536, 1024), (1024, 1024, 896), (1024, 100, 1), (8, 1024, 8), (1024, u64::MAX, 1024)]
        {
            assert_eq!(most(wanted, files), expected, "{wanted} of {files}");
        }
    }
}
