//! Wake-ups: one connection per link listens to all channels anyone here wants to hear of.
//!
//! Messages are hints. While there is no connection they are lost, and a reader that is slow loses them too; in both
//! cases it gets one empty message instead, which says "look for yourself".

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::backoff::Backoff;
use super::fault::Fault;
use super::state::Shared;

/// Messages kept for a reader; more of them become one empty message.
const KEPT: usize = 64;
/// After so much silence the hub asks whether the server is still there.
const PATIENCE: Duration = Duration::from_secs(5);
/// A connection that held for so long was a good one: its loss is tried again at once.
const SETTLED: Duration = Duration::from_secs(5);

/// Who wants to hear of what.
#[derive(Default)]
pub(super) struct Hub {
    readers: Mutex<HashMap<String, Vec<Weak<Inbox>>>>,
    changed: Notify,
}

/// Messages for one reader.
#[derive(Default)]
struct Inbox {
    messages: Mutex<VecDeque<Bytes>>,
    arrived: Notify,
}

impl Inbox {
    fn put(&self, message: Bytes) {
        let mut messages = lock(&self.messages);
        if messages.len() >= KEPT {
            messages.clear();
            messages.push_back(Bytes::new());
        } else {
            messages.push_back(message);
        }
        drop(messages);
        self.arrived.notify_one();
    }

    /// Whatever waits here is old news compared with "look for yourself".
    fn wake(&self) {
        *lock(&self.messages) = VecDeque::from([Bytes::new()]);
        self.arrived.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One reader of one channel. Dropping it ends the subscription.
pub struct Subscription {
    inbox: Arc<Inbox>,
    /// Keeps the connection alive for as long as someone listens, and lets the hub know when nobody does.
    _link: super::Link,
    hub: Arc<Hub>,
}

impl Subscription {
    /// Waits for the next message and returns its payload.
    ///
    /// An empty payload means that messages may have been missed: it comes at first, when the subscription has taken
    /// effect, after every reconnect, and in place of what did not fit (more than 64 unread messages). The future may
    /// be dropped; no message is lost by that.
    pub async fn next(&mut self) -> Bytes {
        loop {
            if let Some(message) = lock(&self.inbox.messages).pop_front() {
                return message;
            }
            self.inbox.arrived.notified().await;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // First, so that the hub can not look before it is gone.
        drop(std::mem::take(&mut self.inbox));
        self.hub.changed.notify_one();
    }
}

impl Hub {
    pub(super) fn subscribe(self: &Arc<Self>, channel: &str, link: super::Link) -> Subscription {
        let inbox = Arc::new(Inbox::default());
        // Others may listen to this channel already; then nothing else would tell this reader to look.
        inbox.wake();
        lock(&self.readers).entry(channel.to_owned()).or_default().push(Arc::downgrade(&inbox));
        self.changed.notify_one();
        Subscription { inbox, _link: link, hub: self.clone() }
    }

    /// The channels somebody listens to; forgets the others.
    fn wanted(&self) -> HashSet<String> {
        let mut readers = lock(&self.readers);
        readers.retain(|_, inboxes| {
            inboxes.retain(|inbox| inbox.strong_count() > 0);
            !inboxes.is_empty()
        });
        readers.keys().cloned().collect()
    }

    /// For whoever hears messages in the hub's place.
    pub(super) fn ear(self: &Arc<Self>) -> super::Ear {
        let hub = Arc::downgrade(self);
        Box::new(move |channel, message| {
            if let Some(hub) = hub.upgrade() {
                hub.each(
                    channel,
                    |inbox| if message.is_empty() { inbox.wake() } else { inbox.put(message.clone()) },
                );
            }
        })
    }

    fn each(&self, channel: &str, tell: impl Fn(&Inbox)) {
        let inboxes = lock(&self.readers).get(channel).cloned().unwrap_or_default();
        inboxes.iter().filter_map(Weak::upgrade).for_each(|inbox| tell(&inbox));
    }

    /// Listens until it is dropped.
    pub(super) async fn run(&self, shared: &Shared) {
        let mut backoff = Backoff::default();
        let mut told = false;
        loop {
            // The keeper connects and reports; this only waits for it.
            let up = shared.up_at_last().await;
            let since = Instant::now();
            let ended = tokio::select! {
                fault = self.listen(shared, &up.master) => fault,
                () = shared.term_over(up.term) => Fault::not_master(),
            };
            if ended.error.is_transient() || told {
                tracing::debug!(error = %ended.error, "not hearing wake-ups for a moment");
            } else {
                // No harm but delay: every loop also looks for itself.
                tracing::warn!(error = %ended.error, "Redis does not let us hear wake-ups");
                told = true;
            }
            shared.act_on_own(up.term, &ended);
            if since.elapsed() >= SETTLED {
                backoff.reset();
                told = false;
            }
            sleep(backoff.next()).await;
        }
    }

    async fn listen(&self, shared: &Shared, master: &super::dial::Address) -> Fault {
        match shared.dialer.redis_messages(master).await {
            Ok(connection) => {
                let (sink, messages) = connection.split();
                let ears = Ears { hub: self, sink, heard: HashSet::new(), patience: shared.connect_timeout };
                ears.listen(messages).await
            }
            Err(fault) => fault,
        }
    }
}

/// One connection that listens.
struct Ears<'a> {
    hub: &'a Hub,
    sink: PubSubSink,
    /// Channels the server has confirmed.
    heard: HashSet<String>,
    patience: Duration,
}

impl Ears<'_> {
    async fn listen(mut self, mut messages: PubSubStream) -> Fault {
        if let Err(fault) = self.follow().await {
            return fault;
        }
        loop {
            let outcome = tokio::select! {
                () = self.hub.changed.notified() => self.follow().await,
                message = timeout(PATIENCE, messages.next()) => match message {
                    Ok(Some(message)) => {
                        let payload = Bytes::copy_from_slice(message.get_payload_bytes());
                        self.hub.each(message.get_channel_name(), |inbox| inbox.put(payload.clone()));
                        Ok(())
                    }
                    Ok(None) => Err(Fault::lost("SUBSCRIBE", "the connection was closed")),
                    Err(_) => answered(self.patience, self.sink.ping::<redis::Value>()).await.map(drop),
                },
            };
            if let Err(fault) = outcome {
                return fault;
            }
        }
    }

    /// Makes what the server sends what is wanted here.
    async fn follow(&mut self) -> Result<(), Fault> {
        let wanted = self.hub.wanted();
        let surplus: Vec<String> = self.heard.difference(&wanted).cloned().collect();
        if !surplus.is_empty() {
            answered(self.patience, self.sink.unsubscribe(&surplus)).await?;
        }
        let missing: Vec<String> = wanted.difference(&self.heard).cloned().collect();
        if !missing.is_empty() {
            answered(self.patience, self.sink.subscribe(&missing)).await?;
        }
        for channel in &missing {
            self.hub.each(channel, Inbox::wake);
        }
        self.heard = wanted;
        Ok(())
    }
}

async fn answered<T>(
    patience: Duration,
    command: impl Future<Output = Result<T, redis::RedisError>>,
) -> Result<T, Fault> {
    match timeout(patience, command).await {
        Ok(reply) => reply.map_err(|error| Fault::of("SUBSCRIBE", &error)),
        Err(_) => Err(Fault::lost("SUBSCRIBE", "no answer")),
    }
}
