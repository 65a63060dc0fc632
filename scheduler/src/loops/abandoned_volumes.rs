//! Removes volumes that have had no service for the time set by the operator.
//!
//! Passes count in Redis, never by a clock, whose jump would remove data. Nothing counts while no scheduler
//! runs, or a worker is on hold. After its record was lost, a volume counts only once its service was seen
//! again.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use daemon::control_loop::{Loop, Next};
use model::ids::{ServiceName, VolumeName};
use model::service::volume::{Volume, VolumeScope, VolumeState};
use store::{RemoveVolumeOutcome, Store, StoreError};

use crate::context::SchedulerContext;
use crate::loop_lease::{LeaseStanding, LoopLease};

const INTERVAL: Duration = Duration::from_secs(60);
/// A pass may be late, for example after a suspend.
const MOST_PER_PASS: Duration = Duration::from_secs(2 * 60);
const LAST_DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) struct AbandonedVolumeLoop {
    store: Store,
    lease: LoopLease,
    grace: Duration,
    counted_at: Instant,
}

impl Loop<StoreError> for AbandonedVolumeLoop {
    const NAME: &'static str = "abandoned_volumes";

    async fn step(&mut self) -> Result<Next, StoreError> {
        match self.lease.acquire().await? {
            LeaseStanding::Without => {}
            LeaseStanding::New => self.counted_at = Instant::now(),
            LeaseStanding::Kept => {
                let passed = self.counted_at.elapsed().min(MOST_PER_PASS);
                // A failed pass only prolongs the grace period.
                self.counted_at = Instant::now();
                remove_abandoned(&self.store, passed, self.grace).await?;
            }
        }
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(INTERVAL).await;
        Ok(())
    }
}

impl AbandonedVolumeLoop {
    pub(crate) fn new(context: &SchedulerContext, grace: Duration) -> Self {
        let store = context.store.clone();
        let lease = LoopLease::new(&store, &context.id, "abandoned_volumes", 4 * INTERVAL);
        Self { store, lease, grace, counted_at: Instant::now() }
    }
}

pub(crate) async fn remove_abandoned(
    store: &Store,
    passed: Duration,
    grace: Duration,
) -> Result<(), StoreError> {
    if !store.held_nodes().await?.is_empty() {
        return Ok(());
    }
    let volumes = store.volumes(&store.volume_names().await?).await?.found();
    // After the volumes: they are bound only for existing services. The list of names may be another
    // program's.
    let mut services: HashSet<ServiceName> =
        volumes.iter().map(|volume| volume.claim.service.clone()).collect();
    let named: Vec<ServiceName> = services.iter().cloned().collect();
    for missing in store.services(&named).await?.missing(&named) {
        services.remove(&missing);
    }
    let is_known = |volume: &&Volume| volume.is_recovered && services.contains(&volume.claim.service);
    let known: Vec<_> = volumes.iter().filter(is_known).map(|volume| volume.claim.name.clone()).collect();
    store.note_known_services(&known).await?;
    let abandoned: Vec<_> = volumes.iter().filter(|volume| is_abandoned(volume, &services)).collect();
    let names: Vec<_> = abandoned.iter().map(|volume| volume.claim.name.clone()).collect();
    for (name, without) in store.count_abandoned_volumes(&names, passed).await? {
        if without < grace {
            tell(&name, without, passed, grace);
            continue;
        }
        match store.remove_volume(&name).await? {
            RemoveVolumeOutcome::Removing | RemoveVolumeOutcome::Removed => {
                tracing::info!(volume = %name, "removed: its service has been gone for {}", humantime(without));
            }
            RemoveVolumeOutcome::Missing
            | RemoveVolumeOutcome::Used
            | RemoveVolumeOutcome::NoNode
            | RemoveVolumeOutcome::Conflict => {}
        }
    }
    Ok(())
}

/// Announces when a volume is first counted, and on its last day.
fn tell(name: &VolumeName, without: Duration, passed: Duration, grace: Duration) {
    let left = grace - without;
    let is_last_day = left <= LAST_DAY && left + passed > LAST_DAY;
    if without <= passed || is_last_day {
        tracing::warn!(
            volume = %name,
            "its service is gone: it is removed with its data in {} unless the service comes back; `kubeleet volume ls` \
             shows it",
            humantime(left)
        );
    }
}

/// Volumes of an app have no service and stay.
fn is_abandoned(volume: &Volume, services: &HashSet<ServiceName>) -> bool {
    volume.state == VolumeState::Bound
        && volume.claim.scope != VolumeScope::App
        && !volume.is_recovered
        && !services.contains(&volume.claim.service)
}

fn humantime(time: Duration) -> String {
    match time.as_secs() / 3600 {
        hours if hours < 48 => format!("{hours} h"),
        hours => format!("{} days", hours / 24),
    }
}
