//! Closes the gates of pods that the fence stops, or that belong to other nodes. The fence has no session,
//! and also acts in the supervisor's process.

use std::collections::HashSet;
use std::time::Duration;

use engine::{Container, RuntimeError};
use futures_util::future::BoxFuture;
use futures_util::{SinkExt, StreamExt};
use model::ids::AssignmentId;
use model::network::handover::{FromProxy, FromWorker, lines, to_line};
use model::spec::OnDisconnect;
use tokio::time::Instant;

use super::socket::{ProxySocket, dial};

/// Reserved for the proxy to cut and answer.
const ANSWER_TIME: Duration = Duration::from_millis(200);
/// Nothing waits for this answer.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Containers of `stop` pods are stopped at once: no request justifies running twice.
///
/// # Errors
/// The first error of `stop`, which is called for both kinds.
pub(crate) async fn drain_and_stop<'a>(
    socket: Option<&dyn ProxySocket>,
    containers: &[&Container],
    within: Duration,
    stop: impl Fn(Vec<Container>) -> BoxFuture<'a, Result<(), RuntimeError>>,
) -> Result<(), RuntimeError> {
    let (keep, never_twice): (Vec<&Container>, Vec<&Container>) =
        containers.iter().partition(|container| container.on_disconnect == OnDisconnect::Keep);
    let stop = |containers: &[&Container]| stop(containers.iter().copied().cloned().collect());
    let kept = async {
        close_all(socket, &keep, within).await;
        stop(&keep).await
    };
    let (kept, stopped, ()) = tokio::join!(kept, stop(&never_twice), cut_all(socket, &never_twice));
    stopped.and(kept)
}

/// True if nothing is in flight; false without a proxy.
pub(crate) async fn close_all(
    socket: Option<&dyn ProxySocket>,
    containers: &[&Container],
    within: Duration,
) -> bool {
    let (begun, count) = (Instant::now(), containers.len());
    let closed = ask(socket, containers, within, within).await;
    match closed {
        CloseOutcome::Drained => {
            let after = begun.elapsed();
            tracing::info!(count, "the gates of containers were closed before their stop, in {after:?}");
        }
        CloseOutcome::NoAnswer => tracing::warn!(
            count,
            "the proxy of this host has not said within {within:?} that requests to containers have ended: they are \
             stopped nevertheless"
        ),
        CloseOutcome::NoProxy => {}
    }
    closed == CloseOutcome::Drained
}

pub(crate) async fn cut_all(socket: Option<&dyn ProxySocket>, containers: &[&Container]) {
    ask(socket, containers, Duration::ZERO, AT_ONCE).await;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CloseOutcome {
    Drained,
    NoAnswer,
    NoProxy,
}

async fn ask(
    socket: Option<&dyn ProxySocket>,
    containers: &[&Container],
    within: Duration,
    max_wait: Duration,
) -> CloseOutcome {
    let Some(socket) = socket.filter(|_| !containers.is_empty() && !max_wait.is_zero()) else {
        return CloseOutcome::NoProxy;
    };
    let all = async {
        // Another proxy process may have replaced the first one.
        drained(socket, containers, within).await || drained(socket, containers, within).await
    };
    match tokio::time::timeout(max_wait, all).await {
        Ok(true) => CloseOutcome::Drained,
        Ok(false) => CloseOutcome::NoProxy,
        Err(_) => CloseOutcome::NoAnswer,
    }
}

async fn drained(socket: &dyn ProxySocket, containers: &[&Container], within: Duration) -> bool {
    let Ok(stream) = dial(socket).await else { return false };
    let mut lines = lines(stream);
    let mut waiting: HashSet<AssignmentId> = HashSet::new();
    let within_ms = within.saturating_sub(ANSWER_TIME).as_millis() as u64;
    for container in containers {
        let (pod, assignment) = container.key();
        if waiting.insert(assignment.clone()) {
            let close = to_line(&FromWorker::Close { pod, assignment, within_ms });
            if lines.feed(close).await.is_err() {
                return false;
            }
        }
    }
    if SinkExt::<String>::flush(&mut lines).await.is_err() {
        return false;
    }
    while !waiting.is_empty() {
        let Some(Ok(line)) = lines.next().await else { return false };
        if let Ok(FromProxy::Drained { assignment, .. }) = serde_json::from_str(&line) {
            waiting.remove(&assignment);
        }
    }
    true
}
