//! The feed of events: one reader per process, however many clients listen.
//!
//! A client first takes its place in the broadcast, then reads from Redis what it missed, then goes on with what is
//! broadcast; ids tell it what it has already. A client that falls behind reads from Redis again, after the last id it
//! has. So nothing is missed and nothing comes twice, whatever the reader does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use common::event::{ClusterEvent, EventPlace};
use common::store::{Store, StoreError};
use futures_util::Stream;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;

/// Events read at a time.
const PAGE: usize = 500;
/// Events a client may be behind before it has to read on its own.
const KEPT: usize = 1024;
/// Between two looks while events come.
const BUSY: Duration = Duration::from_millis(50);
/// Between two looks when nothing has come for a while.
const IDLE: Duration = Duration::from_millis(500);
/// Between two tries while Redis is away.
const AWAY: Duration = Duration::from_secs(1);

/// Hands out events. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Feed {
    store: Store,
    sender: broadcast::Sender<Word>,
    shutdown: CancellationToken,
}

/// What the reader tells the clients.
#[derive(Clone)]
enum Word {
    /// This happened.
    Event(Arc<ClusterEvent>),
    /// The reader begins from here: what was before, each has to read on its own.
    Reread,
}

impl Feed {
    /// A feed whose streams end with `shutdown`. Nothing is read before [`Feed::run`].
    pub(crate) fn new(store: Store, shutdown: CancellationToken) -> Self {
        Self { store, sender: broadcast::channel(KEPT).0, shutdown }
    }

    /// Reads events for all clients until shutdown. Rests while nobody listens.
    pub(crate) async fn run(&self) {
        let reading = self.read();
        self.shutdown.run_until_cancelled(reading).await;
    }

    async fn read(&self) {
        let mut last: Option<String> = None;
        let mut pause = IDLE;
        loop {
            tokio::time::sleep(pause).await;
            if self.sender.receiver_count() == 0 {
                // Whoever comes next reads what it wants to know by itself.
                last = None;
                pause = IDLE;
                continue;
            }
            pause = match self.step(&mut last).await {
                Ok(0) => (pause * 2).min(IDLE),
                Ok(_) => BUSY,
                Err(_) => AWAY,
            };
        }
    }

    /// One look; gives how many events there were. The first one only finds the end, and sends all clients to read up
    /// to there by themselves: nobody knows how long ago each of them did.
    async fn step(&self, last: &mut Option<String>) -> Result<usize, StoreError> {
        let Some(id) = last else {
            *last = Some(self.end().await?);
            self.tell(Word::Reread);
            return Ok(0);
        };
        let events = self.store.events_after(id, PAGE).await?;
        if let Some(event) = events.last() {
            id.clone_from(&event.id);
        }
        let count = events.len();
        for event in events {
            self.tell(Word::Event(Arc::new(event)));
        }
        Ok(count)
    }

    fn tell(&self, word: Word) {
        // An error means that the last client just left.
        drop(self.sender.send(word));
    }

    /// Where the stream ends now.
    pub(crate) async fn end(&self) -> Result<String, StoreError> {
        let latest = self.store.last_events(1).await?.pop();
        Ok(latest.map_or_else(|| "0".to_owned(), |event| event.id))
    }

    /// All events after `last`, those to come included. Fails when the first look fails; later it waits for Redis.
    pub(crate) async fn after(
        &self,
        last: String,
    ) -> Result<impl Stream<Item = Arc<ClusterEvent>> + Send + use<>, StoreError> {
        let receiver = self.sender.subscribe();
        let mut reader = Reader { feed: self.clone(), receiver, last, ready: VecDeque::new(), behind: true };
        reader.catch_up().await?;
        let events = futures_util::stream::unfold(reader, |mut reader| async move {
            let event = reader.next().await?;
            Some((event, reader))
        });
        Ok(futures_util::StreamExt::take_until(events, self.shutdown.clone().cancelled_owned()))
    }
}

/// One client's place in the feed.
struct Reader {
    feed: Feed,
    receiver: broadcast::Receiver<Word>,
    last: String,
    ready: VecDeque<Arc<ClusterEvent>>,
    /// Whether Redis may have events after `last` that the broadcast will not bring.
    behind: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<Arc<ClusterEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.last.clone_from(&event.id);
                return Some(event);
            }
            if self.behind {
                if self.catch_up().await.is_err() {
                    tokio::time::sleep(AWAY).await;
                }
                continue;
            }
            match self.receiver.recv().await {
                Ok(Word::Event(event)) if event.place() > EventPlace::parse(&self.last) => {
                    self.ready.push_back(event)
                }
                Ok(Word::Event(_)) => {}
                Ok(Word::Reread) | Err(RecvError::Lagged(_)) => self.behind = true,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// Reads one page after the last id.
    async fn catch_up(&mut self) -> Result<(), StoreError> {
        let events = self.feed.store.events_after(&self.last, PAGE).await?;
        self.behind = events.len() == PAGE;
        self.ready.extend(events.into_iter().map(Arc::new));
        Ok(())
    }
}
