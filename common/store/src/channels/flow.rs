//! State shared by both loops of one side of a channel.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::error::ChannelError;
use model::stream::channel::WINDOW;

const REPORT_EVERY: u64 = WINDOW / 4;

pub(super) struct Flow {
    began: Instant,
    /// Bytes of frames sent, received, and read by the owner of this side.
    sent: AtomicU64,
    received: AtomicU64,
    read: AtomicU64,
    /// As last reported to the other side.
    reported: AtomicU64,
    report_due: Notify,
    peer_read: watch::Sender<u64>,
    last_entry: AtomicU64,
    /// In milliseconds after `began`.
    heard_at: AtomicU64,
    answered: CancellationToken,
    failure: OnceLock<ChannelError>,
}

impl Flow {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            read: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            report_due: Notify::new(),
            peer_read: watch::Sender::new(0),
            last_entry: AtomicU64::new(0),
            heard_at: AtomicU64::new(0),
            answered: CancellationToken::new(),
            failure: OnceLock::new(),
        }
    }

    pub(super) async fn reserve(&self, cost: u64) -> Result<(), ChannelError> {
        let mut peer_read = self.peer_read.subscribe();
        let has_room = peer_read.wait_for(|read| {
            self.failure.get().is_some() || self.sent.load(Ordering::Acquire) < read.saturating_add(WINDOW)
        });
        // Cannot fail: the sender is a field of self.
        drop(has_room.await);
        if self.failure.get().is_some() {
            return Err(self.failure());
        }
        self.sent.fetch_add(cost, Ordering::AcqRel);
        Ok(())
    }

    pub(super) fn record_peer_read(&self, bytes: u64) {
        self.peer_read.send_if_modified(|read| {
            let is_news = bytes > *read;
            *read = bytes.max(*read);
            is_news
        });
    }

    pub(super) fn record_received(&self, entry: u64, cost: u64) -> Result<(), ChannelError> {
        if entry != self.last_entry() + 1 {
            return Err(ChannelError::Lost);
        }
        self.last_entry.store(entry, Ordering::Release);
        self.answered.cancel();
        let millis = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard_at.store(millis, Ordering::Release);
        let received = self.received.fetch_add(cost, Ordering::AcqRel) + cost;
        match received.saturating_sub(self.read.load(Ordering::Acquire)) > 2 * WINDOW {
            true => Err(ChannelError::Overrun),
            false => Ok(()),
        }
    }

    pub(super) async fn answered(&self) {
        self.answered.cancelled().await;
    }

    pub(super) fn last_entry(&self) -> u64 {
        self.last_entry.load(Ordering::Acquire)
    }

    pub(super) fn silence(&self) -> Duration {
        let heard_at = Duration::from_millis(self.heard_at.load(Ordering::Acquire));
        self.began.elapsed().saturating_sub(heard_at)
    }

    pub(super) fn record_read(&self, cost: u64) {
        let read = self.read.fetch_add(cost, Ordering::AcqRel) + cost;
        if read.saturating_sub(self.reported.load(Ordering::Acquire)) >= REPORT_EVERY {
            self.report_due.notify_one();
        }
    }

    pub(super) async fn report_due(&self) {
        self.report_due.notified().await;
    }

    pub(super) fn report(&self) -> u64 {
        let read = self.read.load(Ordering::Acquire);
        self.reported.store(read, Ordering::Release);
        read
    }

    pub(super) fn fail(&self, error: ChannelError) {
        let _earlier = self.failure.set(error);
        self.peer_read.send_modify(|_| {});
    }

    pub(super) fn failure(&self) -> ChannelError {
        self.failure.get().cloned().unwrap_or(ChannelError::Closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sender_waits_while_a_window_is_unread() {
        let flow = Flow::new();
        assert!(flow.reserve(WINDOW).await.is_ok(), "the first frame fits however long it is");
        let waits = tokio::time::timeout(Duration::from_millis(20), flow.reserve(1)).await;
        assert!(waits.is_err(), "a window is unread");
        flow.record_peer_read(1);
        assert!(flow.reserve(1).await.is_ok());
        flow.fail(ChannelError::PeerGone);
        assert_eq!(flow.reserve(1).await, Err(ChannelError::PeerGone));
    }

    #[test]
    fn entries_that_are_missing_are_noticed() {
        let flow = Flow::new();
        assert_eq!(flow.record_received(1, 10), Ok(()));
        assert_eq!(flow.record_received(2, 10), Ok(()));
        assert_eq!(flow.record_received(4, 10), Err(ChannelError::Lost));
        assert_eq!(flow.record_received(3, 2 * WINDOW), Err(ChannelError::Overrun));
    }
}
