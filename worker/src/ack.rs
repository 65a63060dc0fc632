//! Acknowledgements, in batches: all that wait go in one call. Invariant 2.
//!
//! Acknowledging twice is acknowledging once, so a batch is sent until it is answered.

use std::sync::Arc;
use std::time::Duration;

use common::store::{Ack, AckItem};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::backoff::{Backoff, jittered};
use crate::life::{Heard, Life};

/// How many go in one call.
const BATCH: usize = 128;
/// Pods that were claimed together are up within moments of each other: so long the first waits for the others.
const GATHER: Duration = Duration::from_millis(2);

/// A pod that runs, and who wants to know what Redis says to it.
pub(crate) struct AckRequest {
    item: AckItem,
    reply: oneshot::Sender<Ack>,
}

/// Sends acknowledgements until the life ends.
pub(crate) async fn run(life: Arc<Life>, mut requests: mpsc::Receiver<AckRequest>) {
    let mut batch = Vec::with_capacity(BATCH);
    while requests.recv_many(&mut batch, BATCH).await > 0 {
        if batch.len() < BATCH {
            tokio::time::sleep(GATHER).await;
            while batch.len() < BATCH
                && let Ok(request) = requests.try_recv()
            {
                batch.push(request);
            }
        }
        let begun = Instant::now();
        send(&life, std::mem::take(&mut batch)).await;
        tokio::time::sleep(life.courtesy.pause_after(begun.elapsed())).await;
    }
}

/// Says that a pod runs. None when Redis can not take it, for this life may not write, or somebody broke its record.
pub(crate) async fn acknowledge(life: &Life, item: AckItem) -> Option<Ack> {
    let (reply, answer) = oneshot::channel();
    life.acks.send(AckRequest { item, reply }).await.ok()?;
    answer.await.ok()
}

async fn send(life: &Life, batch: Vec<AckRequest>) {
    let items: Vec<AckItem> = batch.iter().map(|request| request.item.clone()).collect();
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
    let acks = loop {
        match life.heard("acknowledging pods", life.session.ack(&items).await) {
            Heard::Answer(acks) => break acks,
            Heard::Again => tokio::time::sleep(jittered(backoff.next())).await,
            Heard::Fenced => return,
            // One broken record must not hold up the others.
            Heard::Hopeless if batch.len() > 1 => {
                for request in batch {
                    Box::pin(send(life, vec![request])).await;
                }
                return;
            }
            Heard::Hopeless => return,
        }
    };
    for (request, ack) in batch.into_iter().zip(acks) {
        // Who does not wait any more will ask again.
        let _nobody_waits = request.reply.send(ack);
    }
}
