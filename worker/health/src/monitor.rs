//! Probes all containers of a node on schedule. One task and one timer serve all checks; a check needs a task
//! only during its probe.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use daemon::clock::{BootInstant, Clock};
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::judge::ProbeOutcome;
use super::probe::Prober;
use super::schedule::{CheckId, CheckSchedule, Lane};
use super::{ContainerCheck, HealthChange};

/// Each is a process that the engine starts.
const MAX_COMMANDS: usize = 64;
/// Each is a file descriptor of this process.
const MAX_CONNECTIONS: usize = 512;
const IDLE: Duration = Duration::from_secs(3600);

pub struct HealthMonitor {
    clock: Arc<dyn Clock>,
    prober: Arc<dyn Prober>,
    schedule: Mutex<CheckSchedule>,
    added: Notify,
    permits: [Arc<Semaphore>; Lane::ALL.len()],
    changes: mpsc::UnboundedSender<HealthChange>,
}

struct EndedProbe {
    id: CheckId,
    outcome: ProbeOutcome,
    begun: BootInstant,
}

impl HealthMonitor {
    /// The receiver has the changes, in order.
    pub fn new(
        prober: Arc<dyn Prober>,
        clock: Arc<dyn Clock>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<HealthChange>) {
        let (changes, receiver) = mpsc::unbounded_channel();
        let permits = [MAX_COMMANDS, MAX_CONNECTIONS].map(|limit| Arc::new(Semaphore::new(limit)));
        let (schedule, added) = (Mutex::default(), Notify::new());
        (Arc::new(Self { clock, prober, schedule, added, permits, changes }), receiver)
    }

    /// Adding the same check again has no effect.
    pub fn set(&self, check: ContainerCheck) {
        self.schedule.lock().set(check, self.clock.now());
        self.added.notify_one();
    }

    /// Drops running probes and reports no further change.
    pub fn remove(&self, handle: &str) {
        self.schedule.lock().remove(handle);
    }

    pub fn is_empty(&self) -> bool {
        self.schedule.lock().is_empty()
    }

    pub fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        self.schedule.lock().retain(is_kept);
    }

    #[cfg(test)]
    pub(crate) fn get(&self, handle: &str, kind: super::CheckKind) -> Option<super::judge::HealthJudge> {
        self.schedule.lock().judge(handle, kind).cloned()
    }

    /// # Cancel safety
    /// Running probes end with it; their checks go on once they are set again after a removal.
    pub async fn run(self: &Arc<Self>) {
        let mut probes = JoinSet::new();
        loop {
            let wait = self.begin_due(&mut probes);
            tokio::select! {
                Some(ended) = probes.join_next() => {
                    // It was aborted if its check is gone.
                    if let Ok(ended) = ended {
                        self.take(ended);
                    }
                }
                () = self.added.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    fn begin_due(self: &Arc<Self>, probes: &mut JoinSet<EndedProbe>) -> Duration {
        let mut schedule = self.schedule.lock();
        let now = self.clock.now();
        let next = schedule.advance(now);
        for lane in Lane::ALL {
            while let Ok(permit) = self.permits[lane as usize].clone().try_acquire_owned() {
                let Some((id, check)) = schedule.next(lane) else { break };
                let monitor = self.clone();
                let probe = probes.spawn(async move {
                    // Released even if the probe is aborted.
                    let _permit = permit;
                    monitor.probe(id, &check).await
                });
                schedule.begun(id, probe);
            }
        }
        next.map_or(IDLE, |next| next.since(now))
    }

    async fn probe(&self, id: CheckId, check: &ContainerCheck) -> EndedProbe {
        let begun = self.clock.now();
        let probe = self.prober.probe(&check.handle, check.address, &check.method, check.timing.timeout);
        // A panic would leave the container without its check.
        let outcome = AssertUnwindSafe(probe).catch_unwind().await;
        let outcome = outcome.unwrap_or_else(|_| {
            tracing::error!(container = check.handle, "the probe of a container panicked; this is a bug");
            ProbeOutcome::Inconclusive("the probe failed because of a bug in kubeleet".to_owned())
        });
        EndedProbe { id, outcome, begun }
    }

    fn take(&self, EndedProbe { id, outcome, begun }: EndedProbe) {
        // Under the lock, so that nothing follows a removal.
        let mut schedule = self.schedule.lock();
        if let Some(change) = schedule.ended(id, outcome, begun, self.clock.now()) {
            let _ = self.changes.send(change);
        }
    }
}
