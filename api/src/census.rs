//! Counting pods: of one service for its status, of all for `/status` and `/metrics`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::ids::PodId;
use common::lifecycle::Phase;
use common::pod::PodRecord;
use common::service::{Service, ServiceState};
use common::store::{Store, StoreError};
use tokio::sync::Mutex;

use crate::dto::ServiceStatus;

/// How many records are read at a time: a million pods shall not stand in memory.
const CHUNK: usize = 1000;
/// The word the scheduler writes to a pod that fits no node.
const UNSCHEDULABLE: &str = "Unschedulable";

/// How many pods there are in each phase, of all services and pushed ones.
pub(crate) type Phases = BTreeMap<Phase, u64>;

/// The latest count of all pods. Whoever asks while one counts waits for that count.
#[derive(Default)]
pub(crate) struct Census {
    latest: Mutex<Option<Counted>>,
}

struct Counted {
    phases: Phases,
    at: Instant,
    took: Duration,
}

impl Counted {
    /// A large cluster is counted less often: counting shall not take more than a tenth of anybody's time.
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < (self.took * 10).clamp(Duration::from_millis(500), Duration::from_secs(60))
    }
}

impl Census {
    /// All pods by phase, a moment old at most.
    pub(crate) async fn phases(&self, store: &Store) -> Result<Phases, StoreError> {
        let mut latest = self.latest.lock().await;
        if let Some(counted) = latest.as_ref().filter(|counted| counted.is_fresh()) {
            return Ok(counted.phases.clone());
        }
        let started = Instant::now();
        let phases = count_all(store).await?;
        *latest = Some(Counted { phases: phases.clone(), at: Instant::now(), took: started.elapsed() });
        Ok(phases)
    }
}

async fn count_all(store: &Store) -> Result<Phases, StoreError> {
    let mut phases: Phases = Phase::ALL.into_iter().map(|phase| (phase, 0)).collect();
    let mut count = |record: PodRecord| *phases.entry(record.phase).or_default() += 1;
    for service in store.service_names().await? {
        let ids: Vec<PodId> = store.slots(&service).await?.into_iter().map(|(_, id)| id).collect();
        each(store, &ids, &mut count).await?;
    }
    each(store, &store.pushed_pods().await?, &mut count).await?;
    Ok(phases)
}

async fn each(store: &Store, ids: &[PodId], mut act: impl FnMut(PodRecord)) -> Result<(), StoreError> {
    for chunk in ids.chunks(CHUNK) {
        store.pods(chunk).await?.into_iter().flatten().for_each(&mut act);
    }
    Ok(())
}

/// How far the cluster is with a service.
pub(crate) async fn status(store: &Store, service: &Service) -> Result<ServiceStatus, StoreError> {
    let ids: Vec<PodId> = store.slots(&service.name).await?.into_iter().map(|(_, id)| id).collect();
    let mut tally = Tally::new(service);
    each(store, &ids, |record| tally.add(record)).await?;
    Ok(tally.finish(service))
}

/// The status of a service whose many pods are only now being made.
pub(crate) fn just_stored(service: &Service) -> ServiceStatus {
    let message = "its pods are being made and placed".to_owned();
    ServiceStatus { desired: u64::from(service.replicas), message, ..ServiceStatus::default() }
}

/// The status of a service that did not exist before, and so many of whose pods were made just now.
pub(crate) fn just_made(service: &Service, made: usize) -> ServiceStatus {
    let mut tally = Tally::new(service);
    tally.status.pending = made as u64;
    tally.finish(service)
}

/// Counts one service's pods.
struct Tally {
    generation: u64,
    status: ServiceStatus,
    /// Reason → how many pods give it, and the sentence of one of them.
    reasons: BTreeMap<String, (u64, String)>,
}

impl Tally {
    fn new(service: &Service) -> Self {
        let status = ServiceStatus { desired: u64::from(service.replicas), ..ServiceStatus::default() };
        Self { generation: service.generation, status, reasons: BTreeMap::new() }
    }

    fn add(&mut self, record: PodRecord) {
        let status = &mut self.status;
        match record.phase {
            Phase::Pending => status.pending += 1,
            Phase::Assigned => status.assigned += 1,
            Phase::Running => status.running += 1,
            Phase::Stopping => status.stopping += 1,
            Phase::Succeeded => status.succeeded += 1,
            Phase::Failed => status.failed += 1,
            // Its slot is free in a moment.
            Phase::Stopped => {}
        }
        if record.phase == Phase::Running && record.generation == self.generation {
            status.updated += 1;
        }
        if record.phase == Phase::Pending && record.reason == UNSCHEDULABLE {
            status.unschedulable += 1;
        }
        let waits_to_go = matches!(record.phase, Phase::Stopping | Phase::Stopped | Phase::Succeeded);
        if !record.reason.is_empty() && !waits_to_go {
            let (count, message) = self.reasons.entry(record.reason).or_default();
            *count += 1;
            if message.is_empty() {
                *message = record.message;
            }
        }
    }

    fn finish(mut self, service: &Service) -> ServiceStatus {
        self.status.message = self.message(service);
        self.status
    }

    fn message(&self, service: &Service) -> String {
        let s = &self.status;
        let left = s.pending + s.assigned + s.running + s.stopping + s.succeeded + s.failed;
        if service.state == ServiceState::Deleting {
            return format!("it is being deleted; {left} of its pods are not gone yet");
        }
        let top = self.reasons.iter().max_by_key(|(_, (count, _))| *count);
        match top {
            Some((reason, (count, message))) if message.is_empty() => {
                format!("{count} of {} pods: {reason}", s.desired)
            }
            Some((reason, (count, message))) => format!("{count} of {} pods: {reason}: {message}", s.desired),
            None => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use common::ids::{PodName, ServiceName, SpecId};
    use common::spec::{ContainerSpec, OnDisconnect, PodSpec, Seconds};

    use super::*;

    fn service(replicas: u32) -> Service {
        let pod = PodSpec {
            containers: vec![ContainerSpec::of_image("nginx")],
            on_disconnect: OnDisconnect::Keep,
            stop_grace_period: Seconds::default(),
        };
        Service {
            name: ServiceName::new("web").unwrap(),
            state: ServiceState::Active,
            generation: 2,
            spec_id: SpecId::random(),
            replicas,
            labels: BTreeMap::new(),
            created_at: 0,
            updated_at: 0,
            pod,
        }
    }

    fn record(phase: Phase, generation: u64, reason: &str) -> PodRecord {
        PodRecord {
            id: PodId::random(),
            name: PodName::new("web").unwrap(),
            phase,
            replica: 0,
            image: "nginx".into(),
            service: Some(ServiceName::new("web").unwrap()),
            spec: None,
            generation,
            node: None,
            assignment: None,
            attempts: 0,
            restarts: 0,
            cpu_millis: 0,
            memory_bytes: 0,
            created_at: 0,
            since: 0,
            reason: reason.into(),
            message: if reason.is_empty() { String::new() } else { format!("because of {reason}") },
            exit_code: None,
            address: String::new(),
        }
    }

    fn tally(service: &Service, records: &[PodRecord]) -> ServiceStatus {
        let mut tally = Tally::new(service);
        records.iter().cloned().for_each(|record| tally.add(record));
        tally.finish(service)
    }

    #[test]
    fn a_rolling_service() {
        let records = [
            record(Phase::Running, 2, ""),
            record(Phase::Running, 1, ""),
            record(Phase::Stopping, 1, "Surplus"),
            record(Phase::Assigned, 2, ""),
        ];
        let status = tally(&service(3), &records);
        assert_eq!((status.running, status.updated, status.stopping, status.assigned), (2, 1, 1, 1));
        assert_eq!((status.desired, status.message.as_str()), (3, ""));
    }

    #[test]
    fn the_commonest_reason_is_told() {
        let records = [
            record(Phase::Pending, 2, "Unschedulable"),
            record(Phase::Pending, 2, "Unschedulable"),
            record(Phase::Running, 2, "CrashLoopBackOff"),
        ];
        let status = tally(&service(3), &records);
        assert_eq!(status.unschedulable, 2);
        assert_eq!(status.message, "2 of 3 pods: Unschedulable: because of Unschedulable");
    }

    #[test]
    fn a_service_that_goes_says_so() {
        let mut going = service(0);
        going.state = ServiceState::Deleting;
        let status = tally(&going, &[record(Phase::Stopping, 2, "")]);
        assert_eq!(status.message, "it is being deleted; 1 of its pods are not gone yet");
    }
}
