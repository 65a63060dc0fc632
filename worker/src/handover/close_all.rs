//! Closes the gates of pods that the fence stops, on a connection of its own: it acts without a session, and also in
//! the process of the supervisor.

use std::collections::HashSet;
use std::time::Duration;

use common::handover::{FromProxy, FromWorker, lines, to_line};
use common::ids::AssignmentId;
use futures_util::{SinkExt, StreamExt};
use tokio::time::Instant;

use super::socket::{ProxySocket, dial};
use crate::runtime::Container;

/// Of the time that there is, this is left for the proxy to cut and to answer.
const ANSWER_TIME: Duration = Duration::from_millis(200);
/// How long the answer is waited for if nothing waits for it: the containers are being stopped meanwhile.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Closes the gates of the pods of these containers and waits until nothing is in flight to them, at most for `within`.
/// Without a proxy it waits for nothing.
pub(crate) async fn close_all(socket: Option<&dyn ProxySocket>, containers: &[&Container], within: Duration) {
    let begun = Instant::now();
    if ask(socket, containers, within, within).await {
        let count = containers.len();
        tracing::info!(
            count,
            "the gates of containers were closed before their stop, in {:?}",
            begun.elapsed()
        );
    }
}

/// Closes the gates of the pods of these containers, which are being stopped: what is in flight to them is cut, and nothing
/// more is let in.
pub(crate) async fn cut_all(socket: Option<&dyn ProxySocket>, containers: &[&Container]) {
    ask(socket, containers, Duration::ZERO, AT_ONCE).await;
}

/// Has a proxy, if there is one, close gates and cut after `within`; waits for `max_wait` at most. Returns false if there
/// is none, or nothing to ask for.
async fn ask(
    socket: Option<&dyn ProxySocket>,
    containers: &[&Container],
    within: Duration,
    max_wait: Duration,
) -> bool {
    let Some(socket) = socket.filter(|_| !containers.is_empty() && !max_wait.is_zero()) else { return false };
    let all = async {
        // Another proxy process may have taken the place of the one that was asked.
        drained(socket, containers, within).await || drained(socket, containers, within).await
    };
    tokio::time::timeout(max_wait, all).await.unwrap_or(true)
}

/// Returns false if there is no proxy.
async fn drained(socket: &dyn ProxySocket, containers: &[&Container], within: Duration) -> bool {
    let Ok(stream) = dial(socket).await else { return false };
    let mut lines = lines(stream);
    let mut waiting: HashSet<AssignmentId> = HashSet::new();
    let within_ms = within.saturating_sub(ANSWER_TIME).as_millis() as u64;
    for container in containers {
        let (pod, assignment) = (container.pod.clone(), container.assignment.clone());
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
