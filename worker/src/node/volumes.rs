//! The loop that manages this node's volumes: it removes local ones of gone pods, reports persistent and
//! shared ones, and removes volumes on request. It reads everything anew each time; the engine refuses to
//! remove a volume in use.

use std::sync::Arc;
use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::control_loop::{Loop, Next};
use daemon::log_limit::LogLimit;
use engine::{EngineVolume, RuntimeError, VolumeOwner};
use model::ids::VolumeName;
use model::service::volume::{Volume, VolumeClaim, VolumeState};
use store::VolumeReport;
use tokio::time::Instant;

use crate::session::context::SessionContext;
use crate::start::volume_claims;

const POLL_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct VolumeLoop {
    context: Arc<SessionContext>,
    seen_version: Option<u64>,
    due: Instant,
    has_volumes: bool,
    is_waiting: bool,
    redis_run: Option<String>,
    misplaced: LogLimit<VolumeName>,
}

impl Loop<RuntimeError> for VolumeLoop {
    const NAME: &'static str = "volumes";
    const BACKOFF: Backoff = Backoff::new(POLL_INTERVAL, Duration::from_secs(10));
    const LOGS_FAILURES: bool = false;

    async fn step(&mut self) -> Result<Next, RuntimeError> {
        let context = &self.context;
        // Before the first full listing the table lacks pods of earlier sessions.
        if !context.first_listing_done.is_cancelled() || !context.link.is_in_touch() {
            return Ok(Next::Rest);
        }
        let version = context.table.version();
        let is_due = Instant::now() >= self.due;
        let has_changed = self.has_volumes && self.seen_version != Some(version);
        if !(is_due || self.is_waiting || has_changed) {
            return Ok(Next::Rest);
        }
        let cluster = context.worker.identity.cluster();
        let mut own = context.worker.own_volumes().await?;
        // Not urgent: a shared volume is recorded when its first pod is assigned.
        let looks_at_shared = is_due || self.is_waiting;
        self.is_waiting = !remove_local(context, &own).await?;
        self.has_volumes = !own.is_empty();
        if looks_at_shared {
            own.extend(context.worker.shared.volumes(cluster.as_ref()).await);
        }
        if is_due || own.iter().any(|volume| claim_of(volume).is_some()) {
            let seen_run = self.redis_run.clone();
            self.is_waiting |= !self.report(&own).await?;
            // Pods wait for a report to a Redis run that was unknown at the listing.
            let interval = self.context.worker.timings.relist_interval;
            let is_complete = self.redis_run.is_some() && self.redis_run == seen_run;
            self.due = Instant::now() + if is_complete { interval } else { Duration::ZERO };
            if !is_complete && self.redis_run.is_some() {
                return Ok(Next::Again);
            }
        }
        self.seen_version = Some(version);
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), RuntimeError> {
        let interval = POLL_INTERVAL.min(self.context.worker.timings.relist_interval);
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = self.context.wakeups.volumes_requested() => self.due = Instant::now(),
        }
        Ok(())
    }
}

impl VolumeLoop {
    pub(crate) fn new(context: Arc<SessionContext>) -> Self {
        Self {
            context,
            seen_version: None,
            due: Instant::now(),
            has_volumes: false,
            is_waiting: false,
            redis_run: None,
            misplaced: LogLimit::of_retries(),
        }
    }

    async fn report(&mut self, own: &[EngineVolume]) -> Result<bool, RuntimeError> {
        let mut present = volume_claims::copies_of(own);
        volume_claims::note_mounted(&self.context, &mut present);
        let seen_run = self.redis_run.clone();
        self.redis_run = None;
        let dead_after = self.context.worker.config.timing.dead_after;
        let reply = self.context.session.report_volumes(&present, seen_run.as_deref(), dead_after).await;
        let report = self.context.classify("reporting volumes", reply).reply();
        let Some(VolumeReport { remove, elsewhere, redis_run, missing }) = report else { return Ok(true) };
        self.redis_run = Some(redis_run);
        for name in elsewhere {
            if self.misplaced.admit(name.clone()) {
                tracing::warn!(
                    node = %self.context.worker.node,
                    "this node has a copy of volume {name} that is not the volume, and is left alone: `kubeleet volume ls` \
                     shows it with the others"
                );
            }
        }
        let mut removed = Vec::new();
        for name in &remove {
            removed.extend(self.remove(name, own).await?);
        }
        let is_complete = removed.len() == remove.len();
        let missing: Vec<VolumeClaim> = missing.iter().filter_map(VolumeClaim::from_name).collect();
        if !removed.is_empty() || !missing.is_empty() {
            let reply = self.context.session.report_gone_volumes(&removed, &missing, dead_after).await;
            self.context.classify("reporting volumes", reply);
        }
        Ok(is_complete)
    }

    async fn remove(
        &self,
        name: &VolumeName,
        own: &[EngineVolume],
    ) -> Result<Option<VolumeClaim>, RuntimeError> {
        if let Some(claim) = VolumeClaim::from_name(name).filter(|claim| claim.scope.is_shared()) {
            return Ok(self.remove_shared(&claim).await.then_some(claim));
        }
        let mut of_name =
            own.iter().filter(|volume| claim_of(volume).is_some_and(|claim| claim.name == *name));
        if let Some(volume) = of_name.next() {
            let is_gone = self.context.worker.runtime.remove_volume(&volume.handle).await?;
            return Ok(claim_of(volume).filter(|_| is_gone).cloned());
        }
        // No pod of it ever started here, or a killed worker has removed it.
        let Ok(volume) = self.context.worker.store.volume(name).await else { return Ok(None) };
        // An abandoned copy has no record.
        Ok(volume.map(|volume| volume.claim).or_else(|| VolumeClaim::from_name(name)))
    }

    /// Another node may have removed the volume, and a new one of this name may be in use: the record is read
    /// again.
    async fn remove_shared(&self, claim: &VolumeClaim) -> bool {
        let worker = &self.context.worker;
        let is_asked = |volume: &Volume| {
            volume.state == VolumeState::Removing && volume.node.as_ref() == Some(&worker.node)
        };
        match worker.store.volume(&claim.name).await {
            Ok(volume) if !volume.as_ref().is_some_and(is_asked) => true,
            Ok(_) => match worker.store.may_be_mounted(claim).await {
                Ok(false) => worker.shared.remove(&claim.name, worker.identity.cluster().as_ref()).await,
                Ok(true) | Err(_) => false,
            },
            Err(_) => false,
        }
    }
}

fn claim_of(volume: &EngineVolume) -> Option<&VolumeClaim> {
    match &volume.owner {
        VolumeOwner::Replica(claim) => Some(claim),
        VolumeOwner::Pod(..) => None,
    }
}

/// Containers of ended pods are kept for their logs, and keep their volumes.
async fn remove_local(context: &SessionContext, own: &[EngineVolume]) -> Result<bool, RuntimeError> {
    let mut are_gone = true;
    for volume in own {
        let VolumeOwner::Pod(pod, assignment) = &volume.owner else { continue };
        if context.table.has(pod, assignment) {
            continue;
        }
        let is_gone = context.worker.runtime.remove_volume(&volume.handle).await?;
        if is_gone {
            tracing::debug!(node = %context.worker.node, %pod, volume = volume.handle, "removed a local volume");
        }
        are_gone &= is_gone;
    }
    Ok(are_gone)
}
