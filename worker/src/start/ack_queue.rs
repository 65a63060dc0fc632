//! The queue from the starts to the [acknowledgement loop](crate::start::ack).

use store::{Ack, AckItem};
use tokio::sync::{mpsc, oneshot};

const CAPACITY: usize = 256;

pub(crate) struct AckRequest {
    pub(crate) item: AckItem,
    pub(crate) reply: oneshot::Sender<Ack>,
}

pub(crate) struct AckQueue {
    requests: mpsc::Sender<AckRequest>,
}

impl AckQueue {
    pub(crate) fn new() -> (Self, mpsc::Receiver<AckRequest>) {
        let (requests, receiver) = mpsc::channel(CAPACITY);
        (Self { requests }, receiver)
    }

    /// `None` if the session is fenced, or the record is broken.
    pub(crate) async fn acknowledge(&self, item: AckItem) -> Option<Ack> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(AckRequest { item, reply }).await.ok()?;
        answer.await.ok()
    }
}
