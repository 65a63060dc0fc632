//! The loop that saves this node's pods ([`crate::backup::pod_backup`]): the workers are the backup of Redis.

use std::sync::Arc;
use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::control_loop::{Loop, Next};
use model::ids::{AssignmentId, PodId, ServiceName, SpecId};
use store::StoreError;
use tokio::time::Instant;

use crate::backup::pod_backup::Keep;
use crate::session::context::SessionContext;
use crate::support::change_log::ChangeLog;

const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct BackupLoop {
    context: Arc<SessionContext>,
    saved_version: Option<u64>,
    services_due: Instant,
    read: (Vec<ServiceName>, Vec<SpecId>),
    log: ChangeLog,
}

impl Loop<StoreError> for BackupLoop {
    const NAME: &'static str = "saved pods";
    const BACKOFF: Backoff = Backoff::new(INTERVAL, Duration::from_secs(10));
    const LOGS_FAILURES: bool = false;

    async fn step(&mut self) -> Result<Next, StoreError> {
        let (context, saved) = (&self.context, &self.context.worker.backup);
        if !saved.is_used() {
            return Ok(Next::End);
        }
        let version = context.table.version();
        let is_due = Instant::now() >= self.services_due;
        if is_due || self.saved_version != Some(version) {
            self.update();
            // Before Redis is asked, which may not answer.
            self.write().await;
            self.read_missing(is_due).await?;
            self.saved_version = Some(version);
        }
        self.write().await;
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(INTERVAL.min(self.context.worker.timings.relist_interval)).await;
        Ok(())
    }
}

impl BackupLoop {
    pub(crate) fn new(context: Arc<SessionContext>) -> Self {
        let log = ChangeLog::new(format!("saving the pods of {} to disk", context.worker.node));
        Self { context, saved_version: None, services_due: Instant::now(), read: Default::default(), log }
    }

    fn update(&self) {
        let context = &self.context;
        let node = &context.worker.node;
        // Before the first full listing the table lacks pods of earlier sessions.
        let is_complete = context.first_listing_done.is_cancelled();
        let keep = |pod: &PodId, assignment: &AssignmentId| {
            if !is_complete || context.held.contains_assignment(pod, assignment) {
                Keep::Yes
            } else if context.table.is_discarded(pod, assignment) {
                Keep::No
            } else {
                Keep::WithContainer
            }
        };
        let mut pods = context.table.to_save(node);
        pods.extend(context.worker.backup.ended(&context.table.ended()));
        context.worker.backup.update(pods, keep);
    }

    async fn read_missing(&mut self, is_due: bool) -> Result<(), StoreError> {
        let (store, saved) = (&self.context.worker.store, &self.context.worker.backup);
        self.read_records(is_due).await?;
        let needed = saved.needed();
        if !is_due && self.read == needed {
            return Ok(());
        }
        let services = store.saved_services(&needed.0).await?;
        let specs = store.spec_texts(&needed.1).await?;
        saved.add(services, specs);
        saved.set_nodes(store.nodes_with_volumes().await?);
        // An emptied Redis has none.
        if let Some(labels) = store.own_labels(&self.context.worker.node).await? {
            saved.set_own_labels(Some(labels));
        }
        self.services_due = Instant::now() + self.context.worker.timings.relist_interval;
        self.read = saved.needed();
        Ok(())
    }

    async fn read_records(&self, is_due: bool) -> Result<(), StoreError> {
        let saved = &self.context.worker.backup;
        let fenced = if is_due { saved.fenced() } else { Vec::new() };
        let pods: Vec<(PodId, AssignmentId)> = saved.undated().into_iter().chain(fenced).collect();
        if pods.is_empty() {
            return Ok(());
        }
        let ids: Vec<PodId> = pods.iter().map(|(pod, _)| pod.clone()).collect();
        let assignments = self.context.worker.store.assignments(&ids).await?;
        let mut recorded = Vec::new();
        for ((pod, assignment), found) in pods.into_iter().zip(assignments) {
            let Some((current, since)) = found else { continue };
            if current.as_ref() == Some(&assignment) {
                saved.set_since(&pod, &assignment, since);
            }
            recorded.push((pod, assignment));
        }
        saved.forget_fenced(&recorded);
        Ok(())
    }

    async fn write(&self) {
        let worker = &self.context.worker;
        let Some(cluster) = worker.identity.cluster() else { return };
        let Some((file, text)) = worker.backup.take_changes(&cluster) else { return };
        match file.write_on_thread(text.into_bytes()).await {
            Ok(()) => {
                self.log.succeeded();
                worker.problems.set("saved pods", None);
            }
            Err(error) => {
                let problem = format!("its pods cannot be saved to disk: {error}");
                worker.problems.set("saved pods", Some(problem));
                worker.backup.set_changed();
                self.log.failed(&error);
            }
        }
    }
}
