//! The claim loop: takes payloads from this node's queue and begins their starts.
//!
//! Restores invariant 2 (each payload is in exactly one place): payloads in the in-flight list (`rq`) may
//! lack a start after a lost reply or an ended session; the sweep finds them. Restores invariant 7: bad
//! payloads become dead letters, and one broken record does not delay the others. A payload is taken only
//! when its start can begin at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::control_loop::{Loop, Next};
use model::pod::payload::Payload;
use store::{ClaimReply, RejectedPod, StoreError, WorkQueue};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::session::context::SessionContext;
use crate::start::admission::{self, AdmittedJob};
use crate::start::pod_start;

const MAX_BATCH: usize = 64;
/// Then the queue is the problem and not Redis.
const SUSPICIOUS_FAILURES: u32 = 8;

pub(crate) struct ClaimLoop {
    context: Arc<SessionContext>,
    /// `None` after an error, which leaves the connection of a blocking pop unusable.
    queue: Option<WorkQueue>,
    next_sweep: Option<Instant>,
    swept: usize,
    pause: Duration,
}

impl Loop<StoreError> for ClaimLoop {
    const NAME: &'static str = "claim";

    async fn step(&mut self) -> Result<Next, StoreError> {
        if self.context.tasks.stopping().is_cancelled() {
            return Ok(Next::End);
        }
        tokio::select! {
            () = self.context.tasks.stopping().cancelled() => return Ok(Next::End),
            () = self.context.first_listing_done.cancelled() => {}
        }
        let taken = self.take().await;
        if taken.is_err() {
            self.queue = None;
            // A lost reply may have moved payloads to the in-flight list.
            self.context.wakeups.request_sweep();
        }
        taken
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        self.context.tasks.pause(self.pause).await;
        Ok(())
    }

    fn label(&self) -> String {
        format!("the claim loop of {}", self.context.worker.node)
    }

    /// The heartbeat loop logs that Redis is unavailable.
    fn is_logged(&self, error: &StoreError, failures: u32) -> bool {
        !error.is_transient()
            || error.is_out_of_memory()
            || (failures >= SUSPICIOUS_FAILURES && self.context.worker.is_leased())
    }

    async fn back_off(&mut self, pause: Duration) {
        self.context.tasks.pause(pause).await;
    }
}

impl ClaimLoop {
    pub(crate) fn new(context: Arc<SessionContext>) -> Self {
        Self { context, queue: None, next_sweep: None, swept: 0, pause: Duration::ZERO }
    }

    async fn take(&mut self) -> Result<Next, StoreError> {
        let context = &self.context;
        let timings = &context.worker.timings;
        let next_sweep = *self.next_sweep.get_or_insert_with(|| Instant::now() + timings.sweep_interval);
        let queue = match &mut self.queue {
            Some(queue) => queue,
            None => self.queue.insert(context.session.work_queue(timings.queue_block).await?),
        };
        if context.wakeups.take_sweep() || Instant::now() >= next_sweep {
            self.next_sweep = Some(Instant::now() + timings.sweep_interval);
            self.swept = self.swept.wrapping_add(sweep(context, self.swept).await?);
        }
        let permit = tokio::select! {
            () = context.tasks.stopping().cancelled() => return Ok(Next::End),
            permit = context.start_permits.clone().acquire_owned() => permit.expect("never closed"),
        };
        let first = tokio::select! {
            () = context.tasks.stopping().cancelled() => return Ok(Next::End),
            first = queue.next() => first,
        };
        let first = match first {
            Err(error) if error.is_out_of_memory() => {
                // The script works even when Redis refuses BRPOPLPUSH.
                drop(permit);
                begin_starts(context, take_more(context).await).await?;
                return Err(error);
            }
            first => first?,
        };
        context.worker.redis_log.succeeded();
        let Some(first) = first else {
            self.pause = Duration::ZERO;
            return Ok(Next::Rest);
        };
        let arrived = Instant::now();
        let mut taken = vec![(first, permit)];
        taken.extend(take_more(context).await);
        // A slow Redis is busy with other nodes. The taken payloads are safe in the in-flight list.
        if !context.tasks.pause(context.throttle.pause_between(arrived.elapsed())).await {
            return Ok(Next::End);
        }
        let begun = Instant::now();
        begin_starts(context, taken).await?;
        self.pause = context.throttle.pause_after(begun.elapsed());
        Ok(Next::Rest)
    }
}

async fn take_more(context: &SessionContext) -> Vec<(Bytes, OwnedSemaphorePermit)> {
    let permits = free_permits(context, MAX_BATCH - 1);
    match context.session.pop_more(permits.len()).await {
        Ok(payloads) => payloads.into_iter().zip(permits).collect(),
        Err(error) => {
            context.worker.redis_log.failed(&error);
            context.wakeups.request_sweep();
            Vec::new()
        }
    }
}

fn free_permits(context: &SessionContext, max: usize) -> Vec<OwnedSemaphorePermit> {
    std::iter::from_fn(|| context.start_permits.clone().try_acquire_owned().ok()).take(max).collect()
}

/// Payloads that cannot be cleared stay the oldest, so each sweep begins elsewhere.
async fn sweep(context: &Arc<SessionContext>, swept: usize) -> Result<usize, StoreError> {
    let in_flight = context.session.in_flight().await?.into_iter();
    let mut left_over: Vec<Bytes> = in_flight.filter(|raw| !is_being_started(context, raw)).collect();
    if left_over.is_empty() {
        return Ok(0);
    }
    let begin_at = swept % left_over.len();
    left_over.rotate_left(begin_at);
    let permits = free_permits(context, left_over.len().min(MAX_BATCH));
    if permits.len() < left_over.len() {
        context.wakeups.request_sweep();
    }
    let count = permits.len();
    begin_starts(context, left_over.into_iter().zip(permits).collect()).await?;
    Ok(count)
}

/// Another text of a starting pod is handled after that start.
fn is_being_started(context: &SessionContext, raw: &Bytes) -> bool {
    context.table.is_starting_payload(raw)
        || Payload::parse(raw.clone()).is_ok_and(|payload| context.table.is_duplicate(&payload))
}

/// The others stay in the in-flight list for the sweep.
async fn begin_starts(
    context: &Arc<SessionContext>,
    taken: Vec<(Bytes, OwnedSemaphorePermit)>,
) -> Result<(), StoreError> {
    let batch = admission::admit(context, taken).await?;
    if batch.is_empty() { Ok(()) } else { claim_batch(context, batch).await }
}

async fn claim_batch(context: &Arc<SessionContext>, batch: Vec<AdmittedJob>) -> Result<(), StoreError> {
    match admission::claim(context, batch.iter().map(|admitted| &admitted.job)).await {
        Ok(Ok(ClaimReply::Claims(claims))) => {
            for (admitted, claim) in batch.into_iter().zip(claims) {
                context.tasks.spawn(pod_start::run(context.clone(), admitted, claim));
            }
            Ok(())
        }
        Ok(Ok(ClaimReply::Paused(remaining))) => {
            drop(batch);
            wait_after_failover(context, remaining).await;
            Ok(())
        }
        Ok(Err(_)) => {
            context.wakeups.request_heartbeat();
            Ok(())
        }
        Err(error) if error.is_transient() => Err(error),
        Err(error) => claim_one_by_one(context, batch, error).await,
    }
}

async fn wait_after_failover(context: &SessionContext, remaining: Duration) {
    let node = &context.worker.node;
    tracing::info!(%node, ?remaining, "the Redis master has changed: starting no pods for now");
    context.wakeups.request_sweep();
    tokio::select! {
        () = context.tasks.stopping().cancelled() => {}
        () = tokio::time::sleep(remaining) => {}
    }
}

/// If a key of this node is broken, all payloads wait for its repair.
async fn claim_one_by_one(
    context: &Arc<SessionContext>,
    batch: Vec<AdmittedJob>,
    error: StoreError,
) -> Result<(), StoreError> {
    if admission::claim(context, std::iter::empty()).await.is_err() {
        return Err(error);
    }
    if let [broken] = batch.as_slice() {
        let reason = format!("its record in Redis cannot be used: {error}");
        admission::reject(context, &broken.job.payload.raw, RejectedPod::Unreadable, &reason).await;
        return Ok(());
    }
    for admitted in batch {
        Box::pin(claim_batch(context, vec![admitted])).await?;
    }
    Ok(())
}
