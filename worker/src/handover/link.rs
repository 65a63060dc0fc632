//! The loop that speaks to the proxy of this host: who this worker is, all its pods, and then each change.
//!
//! Without a proxy it only looks once a second whether there is a socket. What it sends is computed after the
//! requests to close were noted: a gate that a stop has closed is never opened by a row from before.

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

/// How often the loop looks for a proxy.
const DIAL_INTERVAL: Duration = Duration::from_secs(1);
/// The first look after the proxy has gone: it may only be restarting.
const REDIAL_INTERVAL: Duration = Duration::from_millis(50);
/// How long a proxy may take to read what is sent to it.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// Changes within this time are sent together.
const GATHER: Duration = Duration::from_millis(5);
/// Rows also depend on what no change of the table tells of, as which pods are held.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The loop.
pub(crate) struct HandoverLoop {
    context: Arc<SessionContext>,
    /// How long to wait before the next look for a proxy.
    wait: Duration,
}

/// Why a connection to the proxy ended. It is dialled again; only that it is gone is worth a line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Lines(#[from] LinesCodecError),
    #[error("it does not read what it is sent")]
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
            // In `dev` both end at the same time. One that ends at once is not dialled without a pause.
            if self.context.tasks.stopping().is_cancelled() || begun.elapsed() < REDIAL_INTERVAL {
                break;
            }
            // Another process may have taken its place: until that is known, pods that are being stopped
            // wait.
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

    /// Speaks to the proxy until one of the two ends.
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

    /// Sends what the proxy does not know yet.
    async fn send_changes(
        &self,
        lines: &mut Lines<ProxyStream>,
        sent: &mut Option<Rows>,
    ) -> Result<(), LinkError> {
        let mut messages = Vec::new();
        // Before the first full look the table does not have what an earlier session started.
        if self.context.first_listing_done.is_cancelled() {
            let now = self.rows(sent.as_ref());
            messages = rows::messages(sent.as_ref(), &now);
            *sent = Some(now);
        }
        messages.extend(self.context.handover.unsent());
        send(lines, &messages).await
    }

    /// Returns the rows of all pods. A pod that was known and is not managed for a while stays as it was if
    /// it goes on: its payload came once more, or Redis has lost its record.
    fn rows(&self, sent: Option<&Rows>) -> Rows {
        let SessionContext { table, held, handover, worker, .. } = &*self.context;
        let (uses_host_network, is_leased) = (worker.runtime.uses_host_network(), worker.is_leased());
        let mut rows: Rows = table.map_managed(|managed| {
            // The fence has closed it, or is about to: no change of the pod may open it again.
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
        // A proxy of a later version may say more.
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
