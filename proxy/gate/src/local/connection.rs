//! A connection of a worker, of its supervisor, or of the next proxy process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use model::ids::{AssignmentId, NodeName, PodId};
use model::network::handover::{FromProxy, FromWorker, Gateway, Lines, to_line};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::{self, AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::codec::LinesCodecError;

use crate::gates::Drained;
use crate::name_reach::KnownNameReach;
use crate::workers::{ConnectionId, NotSpeaker, Workers};

const MAX_SEND_WAIT: Duration = Duration::from_secs(5);
const MAX_DRAIN: Duration = Duration::from_secs(24 * 60 * 60);

/// Twenty times the duration of a save.
const MAX_SAVE_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error(transparent)]
    NotSpeaker(#[from] NotSpeaker),
    #[error("{0}")]
    Lines(#[from] LinesCodecError),
    #[error("it reads no answers")]
    NotReading,
}

type EndedDrain = (PodId, AssignmentId, Option<Drained>);

pub(super) struct LocalConnection<S> {
    id: ConnectionId,
    workers: Arc<Workers>,
    names: watch::Receiver<KnownNameReach>,
    lines: Lines<S>,
    node: Option<NodeName>,
    /// The next process reports for all nodes.
    is_of_next: bool,
    drains: JoinSet<EndedDrain>,
    handles: HashMap<AssignmentId, AbortHandle>,
    has_warned: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> LocalConnection<S> {
    pub(super) fn new(
        id: ConnectionId,
        workers: Arc<Workers>,
        names: watch::Receiver<KnownNameReach>,
        lines: Lines<S>,
    ) -> Self {
        let drains = JoinSet::new();
        let handles = HashMap::new();
        let (node, is_of_next, has_warned) = (None, false, false);
        Self { id, workers, names, lines, node, is_of_next, drains, handles, has_warned }
    }

    pub(super) fn of_next(self) -> Self {
        Self { is_of_next: true, ..self }
    }

    /// Returns the connection if the next process asks for the sockets on it.
    pub(super) async fn run(mut self) -> Option<Lines<S>> {
        let wants_sockets = self.serve().await.unwrap_or_else(|error| {
            let node = self.node.as_ref().map_or("", NodeName::as_str);
            tracing::warn!(node, "the connection of a worker is ended: {error}");
            false
        });
        if let Some(node) = &self.node {
            self.workers.disconnected(self.id, node);
        }
        wants_sockets.then_some(self.lines)
    }

    /// Returns true if the next process asks for the sockets.
    async fn serve(&mut self) -> Result<bool, ConnectionError> {
        loop {
            tokio::select! {
                line = self.lines.next() => match line {
                    Some(line) => {
                        if self.receive(&line?).await? {
                            return Ok(true);
                        }
                    }
                    None => return Ok(false),
                },
                // Only for workers: other clients ask once and end.
                Ok(()) = self.names.changed(), if self.node.is_some() => self.tell_names().await?,
                Some(ended) = self.drains.join_next_with_id() => {
                    // An error is a drain that was restarted, or aborted because the pod was reopened.
                    if let Ok((drain, ended)) = ended {
                        self.report(drain, ended).await?;
                    }
                }
            }
        }
    }

    /// Returns true if the next process asks for the sockets.
    async fn receive(&mut self, line: &str) -> Result<bool, ConnectionError> {
        let message = match serde_json::from_str(line) {
            Ok(message) => message,
            Err(error) => {
                self.warn_once(&error);
                return Ok(false);
            }
        };
        match message {
            FromWorker::Hello { node, incarnation } => {
                self.workers.hello(self.id, &node, incarnation);
                self.node = Some(node);
                self.names.mark_changed();
            }
            FromWorker::Network { gateway, on_demand } => {
                self.workers.add_gateway(Gateway { address: gateway, on_demand });
            }
            FromWorker::Pods { pods, more } => {
                pods.iter().filter(|pod| pod.open).for_each(|pod| self.abort_drain(&pod.assignment));
                self.workers.replace(self.id, self.speaker()?, pods, more)?;
            }
            FromWorker::Set { pod } => {
                if pod.open {
                    self.abort_drain(&pod.assignment);
                }
                if self.is_of_next {
                    self.workers.set_gate(pod);
                } else {
                    self.workers.set(self.id, self.speaker()?, pod)?;
                }
            }
            FromWorker::Remove { assignment, .. } if self.is_of_next => self.workers.remove_gate(&assignment),
            FromWorker::Remove { assignment, .. } => {
                self.workers.remove(self.id, self.speaker()?, &assignment)?;
            }
            FromWorker::Close { pod, assignment, within_ms } => {
                let within = Duration::from_millis(within_ms).min(MAX_DRAIN);
                self.close(pod, assignment, within).await?;
            }
            FromWorker::Ping => self.send(&FromProxy::Pong).await?,
            FromWorker::TakeOver => return Ok(true),
            FromWorker::Taken => {}
        }
        Ok(false)
    }

    fn speaker(&self) -> Result<&NodeName, NotSpeaker> {
        self.node.as_ref().ok_or(NotSpeaker)
    }

    /// A newer worker may send unknown messages.
    fn warn_once(&mut self, error: &serde_json::Error) {
        if !std::mem::replace(&mut self.has_warned, true) {
            let node = self.node.as_ref().map_or("", NodeName::as_str);
            tracing::warn!(node, "skipping an invalid message of a worker: {error}");
        }
    }

    async fn close(
        &mut self,
        pod: PodId,
        assignment: AssignmentId,
        within: Duration,
    ) -> Result<(), ConnectionError> {
        let (in_flight, before) = self.workers.close(&pod, &assignment, within);
        self.send(&FromProxy::Closed { pod: pod.clone(), assignment: assignment.clone(), in_flight }).await?;
        self.abort_drain(&assignment);
        let gates = self.workers.gates().clone();
        let saved = self.workers.until_saved();
        let key = assignment.clone();
        let drain = async move {
            let closed_at = Instant::now();
            let mut drained = gates.drained(&pod, &assignment, within).await;
            if let (Some(drained), Some(before)) = (&mut drained, before) {
                drained.cut += before.await.unwrap_or(0);
                drained.after = closed_at.elapsed();
            }
            // If this process dies now, the next one must not reopen the gate. A hanging disk must not delay
            // a stop.
            let _in_time = tokio::time::timeout(MAX_SAVE_WAIT, saved).await;
            (pod, assignment, drained)
        };
        self.handles.insert(key, self.drains.spawn(drain));
        Ok(())
    }

    fn abort_drain(&mut self, assignment: &AssignmentId) {
        if let Some(handle) = self.handles.remove(assignment) {
            handle.abort();
        }
    }

    async fn report(
        &mut self,
        drain: task::Id,
        (pod, assignment, drained): EndedDrain,
    ) -> Result<(), ConnectionError> {
        if self.handles.get(&assignment).is_none_or(|handle| handle.id() != drain) {
            return Ok(());
        }
        self.handles.remove(&assignment);
        let Some(Drained { after, cut }) = drained else { return Ok(()) };
        if cut > 0 {
            tracing::warn!(%pod, cut, "requests took longer than the pod's `drain` and were cut");
        }
        let after_ms = after.as_millis() as u64;
        self.send(&FromProxy::Drained { pod, assignment, after_ms, cut }).await
    }

    async fn tell_names(&mut self) -> Result<(), ConnectionError> {
        let Some(status) = self.names.borrow_and_update().clone() else { return Ok(()) };
        let gateways = status.gateways.into_iter().collect();
        self.send(&FromProxy::Names { problem: status.problem, gateways }).await
    }

    async fn send(&mut self, message: &FromProxy) -> Result<(), ConnectionError> {
        match tokio::time::timeout(MAX_SEND_WAIT, self.lines.send(to_line(message))).await {
            Ok(sent) => Ok(sent?),
            Err(_) => Err(ConnectionError::NotReading),
        }
    }
}
