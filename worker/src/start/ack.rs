//! The acknowledgement loop: reports started pods to Redis, all waiting ones in one call.
//!
//! Restores invariant 2: their payload moves from the in-flight list (`rq`) to the running pods (`cs`).
//! Acknowledging is idempotent, so a batch is repeated until Redis answers.

use std::sync::Arc;
use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::control_loop::{Loop, Next};
use store::{AckItem, StoreError};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::session::context::SessionContext;
use crate::session::reply_class::ReplyClass;
use crate::start::ack_queue::AckRequest;

const MAX_BATCH: usize = 128;
/// Pods claimed together start within moments of each other.
const GATHER_TIME: Duration = Duration::from_millis(2);

pub(crate) struct AckLoop {
    context: Arc<SessionContext>,
    requests: mpsc::Receiver<AckRequest>,
    batch: Vec<AckRequest>,
    /// One after a broken record, which fails the whole call.
    per_call: usize,
    begun: Option<Instant>,
    pause: Option<Duration>,
}

impl Loop<StoreError> for AckLoop {
    const NAME: &'static str = "ack";
    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
    const LOGS_FAILURES: bool = false;

    /// Only a transient error sends the batch again.
    async fn step(&mut self) -> Result<Next, StoreError> {
        if self.batch.is_empty() {
            return Ok(Next::Rest);
        }
        let begun = *self.begun.get_or_insert_with(Instant::now);
        let count = self.per_call.min(self.batch.len());
        let items: Vec<AckItem> = self.batch[..count].iter().map(|request| request.item.clone()).collect();
        let reply = self.context.session.ack(&items).await;
        match self.context.classify("acknowledging pods", reply) {
            ReplyClass::Reply(acks) => {
                for (request, ack) in self.batch.drain(..count).zip(acks) {
                    let _start_ended = request.reply.send(ack);
                }
            }
            ReplyClass::Transient(error) => return Err(error),
            ReplyClass::Permanent(_) if count > 1 => self.per_call = 1,
            // Its start learns that it cannot be acknowledged.
            ReplyClass::Permanent(_) => drop(self.batch.drain(..count)),
            ReplyClass::Fenced => self.batch.clear(),
        }
        if !self.batch.is_empty() {
            return Ok(Next::Again);
        }
        self.pause = Some(self.context.throttle.pause_after(begun.elapsed()));
        self.begun = None;
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        if let Some(pause) = self.pause.take() {
            tokio::time::sleep(pause).await;
        }
        self.per_call = MAX_BATCH;
        if self.requests.recv_many(&mut self.batch, MAX_BATCH).await == 0 {
            return std::future::pending().await;
        }
        if self.batch.len() < MAX_BATCH {
            tokio::time::sleep(GATHER_TIME).await;
            while self.batch.len() < MAX_BATCH
                && let Ok(request) = self.requests.try_recv()
            {
                self.batch.push(request);
            }
        }
        Ok(())
    }
}

impl AckLoop {
    pub(crate) fn new(context: Arc<SessionContext>, requests: mpsc::Receiver<AckRequest>) -> Self {
        let batch = Vec::with_capacity(MAX_BATCH);
        Self { context, requests, batch, per_call: MAX_BATCH, begun: None, pause: None }
    }
}
