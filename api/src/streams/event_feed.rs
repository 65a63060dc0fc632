//! Event feed: one reader per process for any number of clients.
//!
//! A client subscribes to the broadcast, reads missed events from Redis, then follows the broadcast and skips
//! known ids. One that lags behind reads from Redis again. So no event is missed or delivered twice.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use model::event::{ClusterEvent, EventPosition};
use store::{Store, StoreError};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;

const PAGE_SIZE: usize = 500;
/// A client that lags behind by more reads from Redis itself.
const BROADCAST_CAPACITY: usize = 1024;
const BUSY_POLL_INTERVAL: Duration = Duration::from_millis(50);
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(500);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct EventFeed {
    store: Store,
    sender: broadcast::Sender<FeedMessage>,
    shutdown: CancellationToken,
}

#[derive(Clone)]
enum FeedMessage {
    Event(Arc<ClusterEvent>),
    /// The reader starts here; each client reads earlier events itself.
    Reread,
}

impl EventFeed {
    pub(crate) fn new(store: Store, shutdown: CancellationToken) -> Self {
        Self { store, sender: broadcast::channel(BROADCAST_CAPACITY).0, shutdown }
    }

    /// Does not poll without clients.
    pub(crate) async fn run(&self) {
        let reading = self.read();
        self.shutdown.run_until_cancelled(reading).await;
    }

    async fn read(&self) {
        let mut last: Option<String> = None;
        let mut pause = IDLE_POLL_INTERVAL;
        loop {
            tokio::time::sleep(pause).await;
            if self.sender.receiver_count() == 0 {
                // The next client reads missed events itself.
                last = None;
                pause = IDLE_POLL_INTERVAL;
                continue;
            }
            pause = match self.poll(&mut last).await {
                Ok(0) => (pause * 2).min(IDLE_POLL_INTERVAL),
                Ok(_) => BUSY_POLL_INTERVAL,
                Err(_) => RETRY_INTERVAL,
            };
        }
    }

    /// After the first poll all clients read up to the end of the stream: the time of their last read is
    /// unknown.
    async fn poll(&self, last: &mut Option<String>) -> Result<usize, StoreError> {
        let Some(id) = last else {
            *last = Some(self.end().await?);
            self.broadcast(FeedMessage::Reread);
            return Ok(0);
        };
        let events = self.store.events_after(id, PAGE_SIZE).await?;
        if let Some(event) = events.last() {
            id.clone_from(&event.id);
        }
        let count = events.len();
        for event in events {
            self.broadcast(FeedMessage::Event(Arc::new(event)));
        }
        Ok(count)
    }

    fn broadcast(&self, message: FeedMessage) {
        // An error means that the last client has just left.
        drop(self.sender.send(message));
    }

    pub(crate) async fn end(&self) -> Result<String, StoreError> {
        let latest = self.store.last_events(1).await?.pop();
        Ok(latest.map_or_else(|| "0".to_owned(), |event| event.id))
    }

    /// Includes future events. Only the first read can fail.
    pub(crate) async fn after(
        &self,
        last: String,
    ) -> Result<impl Stream<Item = Arc<ClusterEvent>> + Send + use<>, StoreError> {
        let receiver = self.sender.subscribe();
        let mut reader =
            FeedReader { feed: self.clone(), receiver, last, ready: VecDeque::new(), behind: true };
        reader.catch_up().await?;
        let events = futures_util::stream::unfold(reader, |mut reader| async move {
            let event = reader.next().await?;
            Some((event, reader))
        });
        Ok(futures_util::StreamExt::take_until(events, self.shutdown.clone().cancelled_owned()))
    }
}

struct FeedReader {
    feed: EventFeed,
    receiver: broadcast::Receiver<FeedMessage>,
    last: String,
    ready: VecDeque<Arc<ClusterEvent>>,
    /// Redis may have events that the broadcast will not deliver.
    behind: bool,
}

impl FeedReader {
    async fn next(&mut self) -> Option<Arc<ClusterEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.last.clone_from(&event.id);
                return Some(event);
            }
            if self.behind {
                if self.catch_up().await.is_err() {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                continue;
            }
            match self.receiver.recv().await {
                Ok(FeedMessage::Event(event)) if event.position() > EventPosition::parse(&self.last) => {
                    self.ready.push_back(event)
                }
                Ok(FeedMessage::Event(_)) => {}
                Ok(FeedMessage::Reread) | Err(RecvError::Lagged(_)) => self.behind = true,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    async fn catch_up(&mut self) -> Result<(), StoreError> {
        let events = self.feed.store.events_after(&self.last, PAGE_SIZE).await?;
        self.behind = events.len() == PAGE_SIZE;
        self.ready.extend(events.into_iter().map(Arc::new));
        Ok(())
    }
}
