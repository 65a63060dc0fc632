//! Sends the frames of this side, and regular reports of its reads.

use std::sync::Arc;
use std::time::Duration;

use redis::{Pipeline, pipe};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::error::ChannelError;
use super::flow::Flow;
use super::limits::{EXPIRE_SECONDS, PEER_TIMEOUT, QUEUE_LENGTH};
use crate::StoreError;
use model::stream::channel::Frame;
use redis_link::Link;

pub(super) const FIELD: &str = "f";
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
const RETRY_PAUSE: Duration = Duration::from_millis(100);

pub(super) struct OutgoingFrame {
    pub(super) frame: Frame,
    /// Completed once Redis has it.
    pub(super) done: Option<oneshot::Sender<()>>,
}

pub(super) struct Keys {
    pub(super) write: String,
    pub(super) read: String,
    pub(super) record: String,
}

pub(super) async fn run(link: Link, keys: Keys, flow: Arc<Flow>, mut queue: mpsc::Receiver<OutgoingFrame>) {
    let mut sender = Sender { link, keys, flow, last: 0 };
    let mut tick = interval(REPORT_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut waiting = Vec::new();
    let mut is_open = true;
    loop {
        let written = tokio::select! {
            biased;
            () = sender.flow.report_due() => sender.report().await,
            _ = tick.tick() => sender.report().await,
            count = queue.recv_many(&mut waiting, QUEUE_LENGTH), if is_open => {
                is_open = count > 0;
                sender.write(&waiting).await
            }
        };
        if let Err(error) = written {
            sender.flow.fail(error);
            return;
        }
        for done in waiting.drain(..).filter_map(|outgoing| outgoing.done) {
            // Its owner may have stopped waiting.
            let _told = done.send(());
        }
    }
}

struct Sender {
    link: Link,
    keys: Keys,
    flow: Arc<Flow>,
    last: u64,
}

impl Sender {
    /// Also trims read entries, and renews the expiry of the channel.
    async fn report(&mut self) -> Result<(), ChannelError> {
        if self.flow.silence() > PEER_TIMEOUT {
            return Err(ChannelError::PeerGone);
        }
        let mut pipe = pipe();
        pipe.atomic();
        let frames = [&Frame::Read(self.flow.report())];
        self.add(&mut pipe, frames.into_iter());
        let next = self.flow.last_entry() + 1;
        pipe.cmd("XTRIM").arg(&self.keys.read).arg("MINID").arg(format!("{next}-0")).ignore();
        pipe.cmd("EXPIRE").arg(&self.keys.record).arg(EXPIRE_SECONDS).ignore();
        self.execute(&pipe, 1).await
    }

    async fn write(&mut self, waiting: &[OutgoingFrame]) -> Result<(), ChannelError> {
        if waiting.is_empty() {
            return Ok(());
        }
        let mut pipe = pipe();
        pipe.atomic();
        self.add(&mut pipe, waiting.iter().map(|outgoing| &outgoing.frame));
        self.execute(&pipe, waiting.len() as u64).await
    }

    fn add<'a>(&self, pipe: &mut Pipeline, frames: impl Iterator<Item = &'a Frame>) {
        for (frame, number) in frames.zip(self.last + 1..) {
            let bytes = frame.encode();
            pipe.cmd("XADD").arg(&self.keys.write).arg(format!("{number}-0")).arg(FIELD).arg(&bytes[..]);
            pipe.ignore();
        }
        pipe.cmd("EXPIRE").arg(&self.keys.write).arg(EXPIRE_SECONDS).ignore();
    }

    /// Entries that exist are of an attempt whose reply was lost.
    async fn execute(&mut self, pipe: &Pipeline, entries: u64) -> Result<(), ChannelError> {
        let began = Instant::now();
        loop {
            match self.link.pipeline::<()>(pipe).await {
                Ok(()) => break,
                Err(StoreError::Refused(text)) if text.contains("equal or smaller") => break,
                Err(error) if error.is_transient() && began.elapsed() < PEER_TIMEOUT => {}
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        self.last += entries;
        Ok(())
    }
}
