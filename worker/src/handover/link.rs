//! The loop that tells this host's proxy about this worker and its pods.
//!
//! It computes messages after recording requests to close, so an outdated row never opens a gate that a stop
//! has closed.

use std::sync::Arc;
use std::time::Duration;

use daemon::control_loop::{Loop, Next};
use futures_util::{SinkExt, StreamExt};
use model::network::handover::{FromWorker, Lines, lines, to_line};
use model::spec::OnDisconnect;
use tokio::time::Instant;
use tokio_util::codec::LinesCodecError;

use super::drain::LinkStatus;
use super::rows::{self, Rows};
use super::socket::{ProxyStream, dial};
use crate::session::context::SessionContext;

const DIAL_INTERVAL: Duration = Duration::from_secs(1);
/// The proxy may only be restarting.
const REDIAL_INTERVAL: Duration = Duration::from_millis(50);
const MAX_WAIT: Duration = Duration::from_secs(2);
const GATHER: Duration = Duration::from_millis(5);
/// For changes outside the table, such as held pods.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct HandoverLoop {
    context: Arc<SessionContext>,
    wait: Duration,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Lines(#[from] LinesCodecError),
    #[error("it does not read its messages")]
    Stuck,
}

impl Loop<LinkError> for HandoverLoop {
    const NAME: &'static str = "proxy";

    async fn step(&mut self) -> Result<Next, LinkError> {
        let handover = &self.context.handover;
        let Some(socket) = self.context.worker.proxy.clone() else { return Ok(Next::End) };
        let mut dialled = dial(&*socket).await;
        self.wait = DIAL_INTERVAL;
        let node = &self.context.worker.node;
        while let Ok(stream) = dialled {
            tracing::info!(%node, "connected to the proxy of this host");
            let begun = Instant::now();
            let ended = self.serve(stream).await;
            self.wait = REDIAL_INTERVAL;
            // In `dev` both end at the same time.
            if self.context.tasks.stopping().is_cancelled() || begun.elapsed() < REDIAL_INTERVAL {
                break;
            }
            // Another process may have replaced it: until that is known, pods being stopped wait.
            dialled = dial(&*socket).await;
            let goes_on =
                if dialled.is_ok() { "another takes its place" } else { "pods are stopped without it" };
            match ended {
                Ok(()) => tracing::warn!(%node, "the proxy of this host has gone: {goes_on}"),
                Err(error) => tracing::warn!(%node, %error, "the proxy of this host is lost: {goes_on}"),
            }
        }
        handover.set_status(LinkStatus::Absent);
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), LinkError> {
        tokio::select! {
            () = tokio::time::sleep(self.wait) => {}
            () = self.context.handover.wake.notified() => {}
        }
        Ok(())
    }
}

impl HandoverLoop {
    pub(crate) fn new(context: Arc<SessionContext>) -> Self {
        Self { context, wait: DIAL_INTERVAL }
    }

    async fn serve(&self, stream: ProxyStream) -> Result<(), LinkError> {
        let context = &self.context;
        let mut lines = lines(stream);
        let (node, incarnation) = (context.worker.node.clone(), context.session.incarnation().clone());
        send(&mut lines, &[FromWorker::Hello { node, incarnation }]).await?;
        context.handover.set_status(LinkStatus::Connected);
        let mut changes = context.table.changes();
        let mut sent = None;
        loop {
            self.send_changes(&mut lines, &mut sent).await?;
            tokio::select! {
                line = lines.next() => match line {
                    None => return Ok(()),
                    Some(line) => self.receive(&line?),
                },
                () = context.tasks.aborted().cancelled() => return Ok(()),
                _ = changes.changed() => tokio::time::sleep(GATHER).await,
                () = context.handover.wake.notified() => {}
                () = context.first_listing_done.cancelled(), if sent.is_none() => {}
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
            }
        }
    }

    async fn send_changes(
        &self,
        lines: &mut Lines<ProxyStream>,
        sent: &mut Option<Rows>,
    ) -> Result<(), LinkError> {
        let mut messages = Vec::new();
        // Before the first full listing the table lacks pods of earlier sessions.
        if self.context.first_listing_done.is_cancelled() {
            let now = self.rows(sent.as_ref());
            messages = rows::messages(sent.as_ref(), &now);
            *sent = Some(now);
        }
        messages.extend(self.context.handover.unsent());
        send(lines, &messages).await
    }

    /// A pod that is briefly not managed keeps its row: its payload arrived again, or Redis lost its record.
    fn rows(&self, sent: Option<&Rows>) -> Rows {
        let SessionContext { table, held, handover, worker, .. } = &*self.context;
        let (uses_host_network, is_leased) = (worker.runtime.uses_host_network(), worker.is_leased());
        let mut rows: Rows = table.map_managed(|managed| {
            // No change of the pod may open the gate again.
            let is_fenced = !is_leased && managed.spec.on_disconnect == OnDisconnect::Stop;
            let is_closing = is_fenced || handover.is_closing(&managed.assignment);
            let row = rows::row(managed, uses_host_network, is_closing)?;
            Some((row.assignment.clone(), row))
        });
        let goes_on = |pod, assignment| {
            table.is_starting_as(pod, assignment) || held.contains_assignment(pod, assignment)
        };
        for row in sent.into_iter().flat_map(Rows::values) {
            if !rows.contains_key(&row.assignment) && goes_on(&row.pod, &row.assignment) {
                rows.insert(row.assignment.clone(), row.clone());
            }
        }
        rows
    }

    fn receive(&self, line: &str) {
        if let Ok(answer) = serde_json::from_str(line) {
            self.context.handover.note(&answer);
        }
    }
}

async fn send(lines: &mut Lines<ProxyStream>, messages: &[FromWorker]) -> Result<(), LinkError> {
    let all = async {
        for message in messages {
            lines.feed(to_line(message)).await?;
        }
        SinkExt::<String>::flush(lines).await
    };
    match tokio::time::timeout(MAX_WAIT, all).await {
        Ok(sent) => Ok(sent?),
        Err(_) => Err(LinkError::Stuck),
    }
}
