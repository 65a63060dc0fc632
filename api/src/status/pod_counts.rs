//! Counts pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_types::ServiceStatus;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use model::ids::{PodId, ServiceName, SpecId};
use model::pod::PodRecord;
use model::pod::image::{self, ImageContent};
use model::pod::lifecycle::Phase;
use model::pod::slot::Slot;
use model::service::{Service, ServiceState};
use parking_lot::Mutex;
use store::{RedisKey, Store, StoreError};

use super::kind_keys;
use crate::cluster::broken::BrokenKeys;

/// A million pods are never in memory together.
const CHUNK_SIZE: usize = 1000;
pub(crate) const UNSCHEDULABLE: &str = "Unschedulable";

pub(crate) type PhaseCounts = BTreeMap<Phase, u64>;

pub(crate) type Reasons = BTreeMap<String, (u64, PodExample)>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PodExample {
    pub(crate) name: String,
    pub(crate) message: String,
}

/// Other programs also write records.
const MAX_REASONS: usize = 20;

#[derive(Debug)]
pub(crate) struct PodCount {
    pub(crate) phases: PhaseCounts,
    pub(crate) not_ready: u64,
    pub(crate) reasons: Reasons,
    pub(crate) services: u64,
    /// With the number of their pods.
    pub(crate) without_record: Vec<(ServiceName, usize)>,
    pub(crate) broken: BrokenKeys,
    at: Instant,
    took: Duration,
}

impl PodCount {
    /// Counting a large cluster takes at most a tenth of the time.
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < (self.took * 10).clamp(Duration::from_millis(500), Duration::from_secs(60))
    }
}

type SharedCount = Shared<BoxFuture<'static, Result<Arc<PodCount>, StoreError>>>;

/// Requests that arrive during a count share its result.
#[derive(Default)]
pub(crate) struct PodCounts {
    latest: Mutex<Option<SharedCount>>,
}

impl PodCounts {
    pub(crate) async fn read(&self, store: &Store) -> Result<Arc<PodCount>, StoreError> {
        let count = {
            let mut latest = self.latest.lock();
            let usable = latest.take().filter(|count| match count.peek() {
                None => true,
                Some(counted) => counted.as_ref().is_ok_and(|counted| counted.is_fresh()),
            });
            latest.insert(usable.unwrap_or_else(|| start_count(store.clone()))).clone()
        };
        count.await
    }

    #[cfg(test)]
    pub(crate) fn forget(&self) {
        *self.latest.lock() = None;
    }

    #[cfg(test)]
    pub(crate) fn is_counted(&self) -> bool {
        let latest = self.latest.lock();
        latest.as_ref().is_some_and(|count| count.peek().is_some() || count.clone().now_or_never().is_some())
    }
}

/// In its own task: otherwise clients with a short timeout would never get the count of a large cluster.
fn start_count(store: Store) -> SharedCount {
    let task = tokio::spawn(async move { count_all(&store).await.map(Arc::new) });
    let aborted = |_| StoreError::Corrupt { what: "counting pods".into(), why: "the count failed".into() };
    async move { task.await.map_err(aborted)? }.boxed().shared()
}

async fn count_all(store: &Store) -> Result<PodCount, StoreError> {
    let started = Instant::now();
    let mut phases: PhaseCounts = Phase::ALL.into_iter().map(|phase| (phase, 0)).collect();
    let mut broken = BrokenKeys::default();
    let (mut not_ready, mut reasons) = (0, Reasons::new());
    let mut count = |record: PodRecord| {
        *phases.entry(record.phase).or_default() += 1;
        not_ready += u64::from(record.phase == Phase::Running && !record.is_ready());
        note_reason(&mut reasons, record);
    };
    let services = broken.take(store.service_names().await, RedisKey::Services)?;
    let mut missing = BTreeSet::new();
    for chunk in services.chunks(CHUNK_SIZE) {
        let loaded = store.services(chunk).await?;
        missing.extend(loaded.missing(chunk));
        let (readable, unreadable) = loaded.separate(chunk);
        broken.extend(unreadable.iter().map(|(name, error)| RedisKey::Service(name).broken(error)));
        for service in &readable {
            kind_keys::check(store, service, &mut broken).await?;
        }
    }
    let mut without_record = Vec::new();
    for service in &services {
        let slots = slots_of(store, service, &mut broken).await?;
        if missing.contains(service) && !slots.is_empty() {
            without_record.push((service.clone(), slots.len()));
        }
        for_each_pod(store, service, &slots, &mut broken, &mut count).await?;
    }
    let pushed = broken.take(store.pushed_pods().await, RedisKey::Pushed)?;
    let is_pushed = |_: &PodId, record: &PodRecord| record.service.is_none();
    for_each_record(store, &pushed, &mut broken, is_pushed, &mut count).await?;
    let (services, took) = (services.len() as u64, started.elapsed());
    Ok(PodCount { phases, not_ready, reasons, services, without_record, broken, at: Instant::now(), took })
}

/// The queue has the number of unschedulable pods.
fn note_reason(reasons: &mut Reasons, record: PodRecord) {
    if !is_ill(&record) || reasons.len() >= MAX_REASONS && !reasons.contains_key(&record.reason) {
        return;
    }
    let name = format!("{}-{}", record.name, record.replica);
    let example = PodExample { name, message: record.message };
    reasons.entry(record.reason).or_insert((0, example)).0 += 1;
}

fn is_ill(record: &PodRecord) -> bool {
    let is_ending = matches!(record.phase, Phase::Stopping | Phase::Stopped | Phase::Succeeded);
    !record.reason.is_empty() && !is_ending
}

async fn slots_of(
    store: &Store,
    service: &ServiceName,
    broken: &mut BrokenKeys,
) -> Result<Vec<(Slot, PodId)>, StoreError> {
    let slots = store.slots_and_broken(service).await;
    let (slots, invalid) = broken.take(slots, RedisKey::Slots(service))?;
    broken.extend(invalid);
    Ok(slots)
}

/// Skips void slots, whose pod's record names another slot.
async fn for_each_pod(
    store: &Store,
    service: &ServiceName,
    slots: &[(Slot, PodId)],
    broken: &mut BrokenKeys,
    act: impl FnMut(PodRecord),
) -> Result<(), StoreError> {
    let mut slots_of: BTreeMap<&PodId, Vec<Slot>> = BTreeMap::new();
    slots.iter().for_each(|(slot, id)| slots_of.entry(id).or_default().push(*slot));
    let ids: Vec<PodId> = slots_of.keys().map(|id| (*id).clone()).collect();
    let is_own =
        |id: &PodId, record: &PodRecord| slots_of[id].iter().any(|slot| record.is_of(service, *slot));
    for_each_record(store, &ids, broken, is_own, act).await
}

async fn for_each_record(
    store: &Store,
    ids: &[PodId],
    broken: &mut BrokenKeys,
    wanted: impl Fn(&PodId, &PodRecord) -> bool,
    mut act: impl FnMut(PodRecord),
) -> Result<(), StoreError> {
    for chunk in ids.chunks(CHUNK_SIZE) {
        for (id, record) in chunk.iter().zip(store.pods(chunk).await?) {
            match record {
                Ok(record) => record.into_iter().filter(|record| wanted(id, record)).for_each(&mut act),
                Err(error) => broken.push(RedisKey::Pod(id).broken(&error)),
            }
        }
    }
    Ok(())
}

pub(crate) async fn service_status(store: &Store, service: &Service) -> Result<ServiceStatus, StoreError> {
    let mut broken = BrokenKeys::default();
    let slots = slots_of(store, &service.name, &mut broken).await?;
    let mut counter = StatusCounter::new(service);
    for_each_pod(store, &service.name, &slots, &mut broken, |record| counter.add(record)).await?;
    let mut status = counter.finish(service);
    broken.append_to(&mut status.message);
    Ok(status)
}

pub(crate) fn status_before_creation(service: &Service) -> ServiceStatus {
    let message = "its pods are being created and placed".to_owned();
    let summary = "starting".to_owned();
    ServiceStatus { desired: u64::from(service.wanted_pods()), message, summary, ..ServiceStatus::default() }
}

pub(crate) fn status_while_shrinking(service: &Service) -> ServiceStatus {
    let message = "its surplus pods are being stopped".to_owned();
    ServiceStatus { message, summary: "scaling".to_owned(), ..status_before_creation(service) }
}

pub(crate) fn status_after_creation(service: &Service, created: usize) -> ServiceStatus {
    let mut counter = StatusCounter::new(service);
    counter.status.pending = created as u64;
    counter.finish(service)
}

struct StatusCounter {
    generation: u64,
    spec: SpecId,
    status: ServiceStatus,
    reasons: BTreeMap<String, (u64, String)>,
    /// For all pods of the generation.
    pinned: Vec<ImageContent>,
    /// Number of pods with other images, and an example.
    others: Option<(u64, String)>,
}

impl StatusCounter {
    fn new(service: &Service) -> Self {
        let status = ServiceStatus { desired: u64::from(service.wanted_pods()), ..ServiceStatus::default() };
        let (generation, spec) = (service.generation, service.spec_id.clone());
        let pinned = service.images.clone();
        Self { generation, spec, status, reasons: BTreeMap::new(), pinned, others: None }
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
            Phase::Stopped => {}
        }
        status.ready += u64::from(record.is_ready());
        // As in the scheduler: a pod with the current specification is not replaced.
        let is_current = record.generation == self.generation || record.spec.as_ref() == Some(&self.spec);
        if record.phase == Phase::Running && is_current {
            status.updated += 1;
        }
        if record.phase == Phase::Pending && record.reason == UNSCHEDULABLE {
            status.unschedulable += 1;
        }
        if is_current {
            self.compare_images(&record);
        }
        if is_ill(&record) {
            let (count, message) = self.reasons.entry(record.reason).or_default();
            *count += 1;
            if message.is_empty() {
                *message = record.message;
            }
        }
    }

    fn compare_images(&mut self, record: &PodRecord) {
        let Some(other) = image::differing(&record.images, &self.pinned) else { return };
        let node = record.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
        let example =
            format!("{}-{}{node} has {} as {}", record.name, record.replica, other.identity(), other.image);
        self.others.get_or_insert((0, example)).0 += 1;
    }

    fn image_warning(&self) -> String {
        let Some((count, example)) = &self.others else { return String::new() };
        let pinned: Vec<&str> = self.pinned.iter().map(ImageContent::identity).collect();
        format!(
            "{count} of its pods do not have the image of generation {}, which is {}: {example}; `kubeleet restart` \
             replaces them all",
            self.generation,
            pinned.join(" "),
        )
    }

    fn finish(mut self, service: &Service) -> ServiceStatus {
        if service.is_global() && service.state == ServiceState::Active && !service.members.are_known() {
            return status_before_creation(service);
        }
        self.status.image_warning = self.image_warning();
        self.status.message = self.message(service);
        self.status.summarize(service.state);
        self.status
    }

    fn message(&self, service: &Service) -> String {
        let s = &self.status;
        let remaining = s.pending + s.assigned + s.running + s.stopping + s.succeeded + s.failed;
        if service.state == ServiceState::Deleting {
            return format!("it is being deleted; {remaining} of its pods remain");
        }
        let top = self.reasons.iter().max_by_key(|(_, (count, _))| *count);
        let Some((reason, (count, message))) = top else { return String::new() };
        // A service being scaled down or updated has more pods than desired.
        let pods = match *count {
            count if count <= s.desired => format!("{count} of {} pods", s.desired),
            1 => "1 pod".to_owned(),
            count => format!("{count} pods"),
        };
        let message = if message.is_empty() { String::new() } else { format!(": {message}") };
        format!("{pods}: {reason}{message}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use testkit::fixtures;

    use super::*;

    fn service(replicas: u32) -> Service {
        Service { generation: 2, replicas, ..fixtures::service() }
    }

    fn record(phase: Phase, generation: u64, reason: &str) -> PodRecord {
        let message = if reason.is_empty() { String::new() } else { format!("because of {reason}") };
        let spec = SpecId::new(if generation == 2 { "spec" } else { "other" }).ok();
        PodRecord {
            generation,
            spec,
            reason: reason.into(),
            message,
            ..fixtures::pod_record("web", 0, phase)
        }
    }

    fn count(service: &Service, records: &[PodRecord]) -> ServiceStatus {
        let mut counter = StatusCounter::new(service);
        records.iter().cloned().for_each(|record| counter.add(record));
        counter.finish(service)
    }

    #[test]
    fn a_rolling_update_counts_both_generations() {
        let records = [
            record(Phase::Running, 2, ""),
            record(Phase::Running, 1, ""),
            record(Phase::Stopping, 1, "Surplus"),
            record(Phase::Assigned, 2, ""),
        ];
        let status = count(&service(3), &records);
        assert_eq!((status.running, status.updated, status.stopping, status.assigned), (2, 1, 1, 1));
        assert_eq!((status.desired, status.message.as_str()), (3, ""));
    }

    #[test]
    fn a_pod_of_an_earlier_generation_with_the_current_specification_is_updated() {
        let kept = PodRecord { generation: 1, ..record(Phase::Running, 2, "") };
        assert_eq!(count(&service(2), &[kept, record(Phase::Running, 1, "")]).updated, 1);
    }

    #[test]
    fn the_most_frequent_reason_is_the_message() {
        let records = [
            record(Phase::Pending, 2, "Unschedulable"),
            record(Phase::Pending, 2, "Unschedulable"),
            record(Phase::Running, 2, "CrashLoopBackOff"),
        ];
        let status = count(&service(3), &records);
        assert_eq!(status.unschedulable, 2);
        assert_eq!(status.message, "2 of 3 pods: Unschedulable: because of Unschedulable");
    }

    #[test]
    fn a_pod_that_crashes_again_and_again_is_not_ready() {
        let crashing = record(Phase::Running, 2, "CrashLoopBackOff");
        let table = [
            (vec![record(Phase::Running, 2, ""); 2], 2, "ready"),
            (vec![record(Phase::Running, 2, ""), crashing.clone()], 1, "degraded"),
            (vec![crashing; 2], 0, "degraded"),
            (vec![record(Phase::Running, 2, ""), record(Phase::Running, 1, "")], 2, "updating"),
            (vec![record(Phase::Running, 2, "")], 1, "starting"),
            (vec![record(Phase::Succeeded, 2, "Completed"); 2], 0, "succeeded"),
            (vec![record(Phase::Failed, 2, "Error"); 2], 0, "failed"),
        ];
        for (records, ready, summary) in table {
            let status = count(&service(2), &records);
            assert_eq!((status.ready, status.summary.as_str()), (ready, summary), "{records:?}");
        }
    }

    #[test]
    fn reasons_are_counted_with_an_example() {
        let mut reasons = Reasons::new();
        let records = [
            record(Phase::Running, 2, "CrashLoopBackOff"),
            record(Phase::Running, 2, "CrashLoopBackOff"),
            record(Phase::Pending, 2, "Unschedulable"),
            record(Phase::Stopping, 2, "Surplus"),
            record(Phase::Running, 2, ""),
        ];
        records.into_iter().for_each(|record| note_reason(&mut reasons, record));
        let example = PodExample { name: "web-0".into(), message: "because of CrashLoopBackOff".into() };
        let fits_nowhere = PodExample { name: "web-0".into(), message: "because of Unschedulable".into() };
        assert_eq!(
            reasons,
            Reasons::from([
                ("CrashLoopBackOff".to_owned(), (2, example)),
                (UNSCHEDULABLE.to_owned(), (1, fits_nowhere)),
            ])
        );
    }

    #[test]
    fn a_deleted_service_reports_its_remaining_pods() {
        let mut going = service(0);
        going.state = ServiceState::Deleting;
        let status = count(&going, &[record(Phase::Stopping, 2, "")]);
        assert_eq!(status.message, "it is being deleted; 1 of its pods remain");
    }
}
