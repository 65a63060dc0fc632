//! The loop that reports whether this node has the nodes' shared directory, which pods with shared volumes
//! need.

use std::sync::Arc;
use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::control_loop::{Loop, Next};
use model::ids::ClusterId;
use store::{SharedDirectoryReport, StoreError};

use crate::session::context::SessionContext;

pub(crate) struct DirectoryLoop {
    context: Arc<SessionContext>,
    has_reported: bool,
}

impl Loop<StoreError> for DirectoryLoop {
    const NAME: &'static str = "shared directory";
    const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));

    async fn step(&mut self) -> Result<Next, StoreError> {
        let worker = self.context.worker.clone();
        if !worker.shared.is_declared() {
            return Ok(Next::End);
        }
        // A worker knows its cluster from its registration on.
        let Some(cluster) = worker.identity.cluster() else { return Ok(Next::Rest) };
        let found = worker.shared.look(&cluster).await;
        let recorded = self.report(&cluster, &found).await;
        // The cluster has no directory yet: this one becomes it. An unanswered report does not say so.
        if recorded.is_none() && found == SharedDirectoryReport::WithoutId && self.has_reported {
            let given = worker.shared.give_id(&cluster).await;
            let found = match given {
                Ok(()) => worker.shared.look(&cluster).await,
                Err(why) => SharedDirectoryReport::Unusable(why),
            };
            self.report(&cluster, &found).await;
        }
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        let interval = self.context.worker.timings.relist_interval;
        // Until the report arrives, no pod with shared volumes is placed here.
        let wait = if self.has_reported { interval } else { interval.min(Duration::from_secs(1)) };
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

impl DirectoryLoop {
    pub(crate) fn new(context: Arc<SessionContext>) -> Self {
        Self { context, has_reported: false }
    }

    /// Returns the id of the cluster's directory; `None` if it has none, or if Redis did not answer.
    async fn report(&mut self, cluster: &ClusterId, found: &SharedDirectoryReport) -> Option<String> {
        let shared = &self.context.worker.shared;
        let known = shared.known(cluster);
        let reply = self.context.session.report_shared_directory(found, known.as_deref()).await;
        let reply = self.context.classify("reporting the shared directory", reply).reply();
        self.has_reported = reply.is_some();
        let recorded = reply??;
        shared.remember(cluster, &recorded);
        Some(recorded)
    }
}
