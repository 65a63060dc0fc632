//! The connection to the former process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use model::ids::{AssignmentId, PodId};
use model::network::handover::{FromProxy, FromWorker, Lines, LocalPod, to_line};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use crate::listening::Listening;

const MAX_SEND_WAIT: Duration = Duration::from_secs(5);

/// Its gates are kept in step with this process's.
#[derive(Debug, Clone)]
pub struct Former {
    messages: mpsc::UnboundedSender<FromWorker>,
    drains: Arc<Drains>,
    link: TaskTracker,
}

/// `None` after the process has ended.
type Drains = Mutex<Option<DrainWaiters>>;

type DrainWaiters = HashMap<AssignmentId, Vec<oneshot::Sender<u64>>>;

impl Former {
    pub(crate) fn connect(lines: Lines) -> Self {
        let (messages, receiver) = mpsc::unbounded_channel();
        let drains = Arc::new(Drains::new(Some(HashMap::new())));
        let link = TaskTracker::new();
        link.spawn(speak(lines, receiver, drains.clone()));
        Self { messages, drains, link }
    }

    pub async fn wait_for_end(self, listening: &Listening) {
        listening.wait_for_connections(&self.link).await;
    }

    pub(crate) fn set(&self, pod: LocalPod) {
        self.send(FromWorker::Set { pod });
    }

    pub(crate) fn remove(&self, pod: PodId, assignment: AssignmentId) {
        self.send(FromWorker::Remove { pod, assignment });
    }

    /// The receiver gets the number of cut requests, and an error if the process ends first.
    pub(crate) fn close(
        &self,
        pod: PodId,
        assignment: AssignmentId,
        within: Duration,
    ) -> oneshot::Receiver<u64> {
        let (sender, receiver) = oneshot::channel();
        if let Some(drains) = &mut *self.drains.lock() {
            // A worker and the fence may both wait, but a drain is reported only once.
            drains.entry(assignment.clone()).or_default().push(sender);
        }
        self.send(FromWorker::Close { pod, assignment, within_ms: within.as_millis() as u64 });
        receiver
    }

    fn send(&self, message: FromWorker) {
        let _ = self.messages.send(message);
    }
}

async fn speak(mut lines: Lines, mut messages: mpsc::UnboundedReceiver<FromWorker>, drains: Arc<Drains>) {
    loop {
        tokio::select! {
            line = lines.next() => {
                let Some(Ok(line)) = line else { break };
                // Another version may send unknown messages.
                if let Ok(FromProxy::Drained { assignment, cut, .. }) = serde_json::from_str(&line)
                    && let Some(waits) = drains.lock().as_mut().and_then(|drains| drains.remove(&assignment))
                {
                    for wait in waits {
                        let _ = wait.send(cut);
                    }
                }
            }
            message = messages.recv() => {
                let Some(message) = message else { break };
                let sent = tokio::time::timeout(MAX_SEND_WAIT, lines.send(to_line(&message))).await;
                if !matches!(sent, Ok(Ok(()))) {
                    break;
                }
            }
        }
    }
    tracing::info!("the proxy process before this one has ended");
    drains.lock().take();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use model::network::handover::lines;
    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn each_of_two_that_wait_for_a_drain_learns_of_its_end() {
        let (here, there) = UnixStream::pair().unwrap();
        let former = Former::connect(lines(here));
        let (pod, assignment) = (PodId::new("p").unwrap(), AssignmentId::new("a").unwrap());
        let closes = || former.close(pod.clone(), assignment.clone(), Duration::from_secs(60));
        let mut waits = [closes(), closes()];
        let mut there = lines(there);
        for _ in 0..2 {
            there.next().await.unwrap().unwrap();
        }
        for wait in &mut waits {
            assert!(futures_util::poll!(wait).is_pending());
        }
        let (after_ms, cut) = (1, 3);
        there.send(to_line(&FromProxy::Drained { pod, assignment, after_ms, cut })).await.unwrap();
        for wait in waits {
            assert_eq!(wait.await, Ok(3));
        }
    }
}
