//! The claim loop: takes payloads from this node's queue and begins their starts. Invariants 2 and 7.
//!
//! A payload is taken only when a start can begin at once, so that rq stays short. Whatever is in rq and in nobody's
//! hands (a reply was lost, the engine of a former life was slower than it) is found by the sweep.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::ids::{PodName, ServiceName};
use common::node::Resources;
use common::payload::Payload;
use common::spec::PodSpec;
use common::store::{Answer, ClaimItem, ClaimReply, StoreError, WorkQueue};
use futures_util::FutureExt;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::Instant;

use crate::backoff::{Backoff, jittered};
use crate::life::Life;
use crate::table::Begun;
use crate::trouble::Trouble;
use crate::worker::ATTEMPTS_ALLOWED;
use crate::{policy, start};

/// How many payloads are claimed at a time.
const BATCH: usize = 64;
/// After so many failures in a row while heartbeats are answered it is not Redis that is away.
const SUSPICIOUS: u32 = 8;

/// A payload with all that is needed to start it.
pub(crate) struct Job {
    pub(crate) payload: Payload,
    pub(crate) service: Option<ServiceName>,
    /// None where it names a specification that is not there.
    pub(crate) spec: Option<Arc<PodSpec>>,
}

/// The right to work on one pod's payload. Dropping it gives it back.
pub(crate) struct Place {
    life: Arc<Life>,
    payload: Payload,
    /// Ask Redis again before going on.
    pub(crate) recheck: Arc<Notify>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.life.table.let_go(&self.payload.id) {
            self.life.sweep_soon();
        }
    }
}

/// A job in hand.
pub(crate) struct InHand {
    pub(crate) job: Job,
    pub(crate) place: Place,
    pub(crate) permit: OwnedSemaphorePermit,
}

/// Takes from the queue until the life ends.
pub(crate) async fn run(life: Arc<Life>) {
    tokio::select! {
        () = life.quit.cancelled() => {}
        () = life.verified.cancelled() => serve(&life).await,
    }
    // The other loops end when the life cuts them off; so does this one.
    std::future::pending::<()>().await;
}

async fn serve(life: &Arc<Life>) {
    let trouble = Trouble::of(format!("the queue of {}", life.worker.node));
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    let mut next_sweep = Instant::now() + life.worker.pace.sweep;
    let mut failures = 0;
    loop {
        let mut queue = None;
        let error = loop {
            match turn(life, &mut queue, &mut next_sweep).await {
                Ok(Turn::Went(took)) => {
                    trouble.worked();
                    backoff.reset();
                    failures = 0;
                    if !wait(life, life.courtesy.pause_after(took)).await {
                        return;
                    }
                }
                Ok(Turn::Quit) => return,
                Err(error) => break error,
            }
        };
        failures += 1;
        // That Redis is away is the heartbeat's to say; here it is said when only the queue does not work.
        if !error.is_transient() || (failures >= SUSPICIOUS && life.worker.is_leased()) {
            trouble.failed(&error);
        }
        // What Redis moved to rq while the answer was lost.
        life.sweep_soon();
        if !wait(life, jittered(backoff.next())).await {
            return;
        }
    }
}

/// False when nothing new shall be taken on.
async fn wait(life: &Life, pause: Duration) -> bool {
    // A timer rounds up to the next millisecond, nothing as well.
    if pause.is_zero() {
        return !life.quit.is_cancelled();
    }
    tokio::select! {
        () = life.quit.cancelled() => false,
        () = tokio::time::sleep(pause) => true,
    }
}

enum Turn {
    /// Nothing came, or what came was begun; then Redis took so long over it.
    Went(Duration),
    Quit,
}

/// Sweeps if it is time, waits for a free place and for a payload, and begins what came. After an error the queue's
/// connection is dropped by the caller: what a blocking pop was about to give is in rq then.
async fn turn(
    life: &Arc<Life>,
    queue: &mut Option<WorkQueue>,
    next_sweep: &mut Instant,
) -> Result<Turn, StoreError> {
    let queue = match queue {
        Some(queue) => queue,
        None => queue.insert(life.session.work_queue(life.worker.pace.block).await?),
    };
    if life.takes_sweep() || Instant::now() >= *next_sweep {
        *next_sweep = Instant::now() + life.worker.pace.sweep;
        sweep(life).await?;
    }
    let permit = tokio::select! {
        () = life.quit.cancelled() => return Ok(Turn::Quit),
        permit = life.permits.clone().acquire_owned() => permit.expect("nobody closes it"),
    };
    let first = tokio::select! {
        () = life.quit.cancelled() => return Ok(Turn::Quit),
        first = queue.next() => first?,
    };
    life.worker.redis.worked();
    let Some(first) = first else { return Ok(Turn::Went(Duration::ZERO)) };
    let came = Instant::now();
    let mut taken = vec![(first, permit)];
    taken.extend(take_more(life).await);
    // A Redis that is slow over this has others to serve first: what was taken is safe in rq.
    if !wait(life, life.courtesy.pause_between(came.elapsed())).await {
        return Ok(Turn::Quit);
    }
    let begun = Instant::now();
    admit(life, taken).await?;
    Ok(Turn::Went(begun.elapsed()))
}

/// As many more payloads as there are free places.
async fn take_more(life: &Life) -> Vec<(Bytes, OwnedSemaphorePermit)> {
    let permits = free_permits(life, BATCH - 1);
    match life.session.take_more(permits.len()).await {
        Ok(payloads) => payloads.into_iter().zip(permits).collect(),
        Err(error) => {
            life.worker.redis.failed(&error);
            life.sweep_soon();
            Vec::new()
        }
    }
}

fn free_permits(life: &Life, most: usize) -> Vec<OwnedSemaphorePermit> {
    std::iter::from_fn(|| life.permits.clone().try_acquire_owned().ok()).take(most).collect()
}

/// Begins what stands in rq and is in nobody's hands, as far as there are free places.
async fn sweep(life: &Arc<Life>) -> Result<(), StoreError> {
    let left_over: Vec<Bytes> =
        life.session.starting().await?.into_iter().filter(|raw| !life.table.is_in_hand(raw)).collect();
    if left_over.is_empty() {
        return Ok(());
    }
    let permits = free_permits(life, left_over.len().min(BATCH));
    if permits.len() < left_over.len() {
        life.sweep_soon();
    }
    admit(life, left_over.into_iter().zip(permits).collect()).await
}

/// Sorts out what is no pod, and claims the rest in one call. Payloads not begun here stay in rq for the sweep.
async fn admit(life: &Arc<Life>, taken: Vec<(Bytes, OwnedSemaphorePermit)>) -> Result<(), StoreError> {
    let mut parsed = Vec::with_capacity(taken.len());
    for (raw, permit) in taken {
        match Payload::parse(raw.clone()) {
            Ok(payload) => parsed.push((raw, payload, permit)),
            Err(bad) => reject(life, &raw, None, &bad.to_string()).await,
        }
    }
    life.worker
        .store
        .read_pod_specs(parsed.iter().filter_map(|(_, payload, _)| payload.spec.as_ref()))
        .await?;
    let mut batch = Vec::with_capacity(parsed.len());
    for (raw, payload, permit) in parsed {
        let Begun::Mine(recheck) = life.table.begin(&payload) else { continue };
        let place = Place { life: life.clone(), payload: payload.clone(), recheck };
        match resolve(life, payload).await? {
            Ok(job) => batch.push(InHand { job, place, permit }),
            Err(reason) => reject(life, &raw, Some(&place.payload), &reason).await,
        }
    }
    if batch.is_empty() { Ok(()) } else { claim_batch(life, batch).await }
}

/// What the pod is, or why it can not be one.
async fn resolve(life: &Life, payload: Payload) -> Result<Result<Job, String>, StoreError> {
    let Some(id) = &payload.spec else {
        return Ok(match payload.inline_spec() {
            Err(bad) => Err(bad.to_string()),
            Ok(inline) => match policy::refusal(&inline.unknown) {
                Some(reason) => Err(reason),
                None => Ok(Job { payload, service: None, spec: Some(Arc::new(inline.pod)) }),
            },
        });
    };
    let spec = match life.worker.store.pod_spec(id).await {
        Ok(spec) => spec,
        Err(error) if error.is_transient() => return Err(error),
        Err(error) => return Ok(Err(format!("its specification {id} can not be read: {error}"))),
    };
    Ok(Ok(Job { service: service_of(&payload.name), spec, payload }))
}

/// Pods of a service carry its name.
pub(crate) fn service_of(name: &PodName) -> Option<ServiceName> {
    ServiceName::new(name.as_str()).ok()
}

async fn claim_batch(life: &Arc<Life>, batch: Vec<InHand>) -> Result<(), StoreError> {
    match claim(life, batch.iter().map(|in_hand| &in_hand.job)).await {
        Ok(Ok(ClaimReply::Claims(claims))) => {
            for (in_hand, claim) in batch.into_iter().zip(claims) {
                life.spawn(start::run(life.clone(), in_hand, claim));
            }
            Ok(())
        }
        Ok(Ok(ClaimReply::Paused(left))) => {
            drop(batch);
            pause(life, left).await;
            Ok(())
        }
        Ok(Err(_)) => {
            // Only the heartbeat is told why, and ends this life.
            life.beat_now.notify_one();
            Ok(())
        }
        Err(error) if error.is_transient() => Err(error),
        Err(error) => one_by_one(life, batch, error).await,
    }
}

/// The master changed a moment ago: nothing starts for a while. What was taken stays in rq.
async fn pause(life: &Life, left: Duration) {
    tracing::info!(node = %life.worker.node, ?left, "Redis has another master: no starts for a while");
    life.sweep_soon();
    tokio::select! {
        () = life.quit.cancelled() => {}
        () = tokio::time::sleep(left) => {}
    }
}

/// Finds the payload whose record somebody broke, so that it does not hold up the others. When it is not a record but
/// a key of the node's own that is broken, all wait until a person has looked at it.
async fn one_by_one(life: &Arc<Life>, batch: Vec<InHand>, error: StoreError) -> Result<(), StoreError> {
    if claim(life, std::iter::empty()).await.is_err() {
        return Err(error);
    }
    if let [culprit] = batch.as_slice() {
        let reason = format!("its record in Redis can not be used: {error}");
        reject(life, &culprit.job.payload.raw, None, &reason).await;
        return Ok(());
    }
    for in_hand in batch {
        Box::pin(claim_batch(life, vec![in_hand])).await?;
    }
    Ok(())
}

/// Asks Redis what to do with these payloads.
pub(crate) async fn claim<'a>(life: &Life, jobs: impl Iterator<Item = &'a Job>) -> Answer<ClaimReply> {
    let items: Vec<ClaimItem> = jobs.map(Job::item).collect();
    life.session.claim(&items, ATTEMPTS_ALLOWED, life.worker.config.timing.fence_after).await
}

impl Job {
    fn item(&self) -> ClaimItem {
        let spec = self.spec.as_ref();
        let request = Resources {
            cpu_millis: spec.map_or(0, |spec| spec.cpu_millis()),
            memory_bytes: spec.map_or(0, |spec| spec.memory_bytes()),
            pods: 1,
        };
        ClaimItem { payload: self.payload.clone(), request, service: self.service.clone() }
    }
}

/// Moves a payload to the dead letters.
pub(crate) async fn reject(life: &Life, raw: &Bytes, payload: Option<&Payload>, reason: &str) {
    tracing::warn!(node = %life.worker.node, pod = ?payload.map(|p| &p.id), reason, "to the dead letters");
    metrics::counter!("kubeleet_pod_starts_total", "result" => "rejected").increment(1);
    let id = payload.map(|payload| &payload.id);
    life.insist("rejecting a payload", || life.session.reject(raw, id, reason).boxed()).await;
}
