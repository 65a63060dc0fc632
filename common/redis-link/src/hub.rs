//! Published messages, on one connection. They are hints, lost without a connection or with a slow reader,
//! who then gets one empty message and must read the state.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use parking_lot::Mutex;
use redis::aio::{PubSubSink, PubSubStream};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::dial::{Address, STABLE_AFTER, reconnect_backoff};
use super::fault::LinkFault;
use super::state::SharedState;
use super::transport::MessageHandler;

/// One empty message replaces more.
const MAX_UNREAD: usize = 64;
const MAX_SILENCE: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Hub {
    subscribers: Mutex<HashMap<String, Vec<Weak<Inbox>>>>,
    changed: Notify,
}

#[derive(Default)]
struct Inbox {
    messages: Mutex<VecDeque<Bytes>>,
    arrived: Notify,
}

impl Inbox {
    fn put(&self, message: Bytes) {
        let mut messages = self.messages.lock();
        if messages.len() >= MAX_UNREAD {
            messages.clear();
            messages.push_back(Bytes::new());
        } else {
            messages.push_back(message);
        }
        drop(messages);
        self.arrived.notify_one();
    }

    fn put_missed(&self) {
        *self.messages.lock() = VecDeque::from([Bytes::new()]);
        self.arrived.notify_one();
    }
}

pub struct Subscription {
    inbox: Arc<Inbox>,
    /// Keeps the connection open.
    _link: Arc<dyn Send + Sync>,
    hub: Arc<Hub>,
}

impl Subscription {
    /// An empty message means that some may have been missed: it comes first, after every reconnect, and in
    /// place of more than 64 unread ones.
    ///
    /// Cancel safe.
    pub async fn next(&mut self) -> Bytes {
        loop {
            if let Some(message) = self.inbox.messages.lock().pop_front() {
                return message;
            }
            self.inbox.arrived.notified().await;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // The hub must not find the inbox after the notification.
        drop(std::mem::take(&mut self.inbox));
        self.hub.changed.notify_one();
    }
}

impl Hub {
    pub(super) fn subscribe(self: &Arc<Self>, channel: &str, link: Arc<dyn Send + Sync>) -> Subscription {
        let inbox = Arc::new(Inbox::default());
        // If the link already listens, nothing else tells this subscriber to read the state.
        inbox.put_missed();
        self.subscribers.lock().entry(channel.to_owned()).or_default().push(Arc::downgrade(&inbox));
        self.changed.notify_one();
        Subscription { inbox, _link: link, hub: self.clone() }
    }

    fn subscribed_channels(&self) -> HashSet<String> {
        let mut subscribers = self.subscribers.lock();
        subscribers.retain(|_, inboxes| {
            inboxes.retain(|inbox| inbox.strong_count() > 0);
            !inboxes.is_empty()
        });
        subscribers.keys().cloned().collect()
    }

    pub(super) fn message_handler(self: &Arc<Self>) -> MessageHandler {
        let hub = Arc::downgrade(self);
        Box::new(move |channel, message| {
            let Some(hub) = hub.upgrade() else { return };
            if message.is_empty() {
                hub.for_each_subscriber(channel, Inbox::put_missed);
            } else {
                hub.for_each_subscriber(channel, |inbox| inbox.put(message.clone()));
            }
        })
    }

    fn for_each_subscriber(&self, channel: &str, action: impl Fn(&Inbox)) {
        let inboxes = self.subscribers.lock().get(channel).cloned().unwrap_or_default();
        inboxes.iter().filter_map(Weak::upgrade).for_each(|inbox| action(&inbox));
    }

    pub(super) async fn run(&self, shared: &SharedState) {
        let mut backoff = reconnect_backoff();
        let mut is_logged = false;
        loop {
            let master = shared.wait_for_master().await;
            let since = Instant::now();
            let fault = tokio::select! {
                fault = self.listen(shared, &master.address) => fault,
                () = shared.term_ended(master.term) => LinkFault::not_master(),
            };
            if !fault.error.needs_operator() || is_logged {
                tracing::debug!(error = %fault.error, "subscription to Redis interrupted; retrying");
            } else {
                tracing::warn!(
                    error = %fault.error,
                    "Redis refuses subscriptions; changes are noticed late, at the next poll"
                );
                is_logged = true;
            }
            shared.handle_dedicated_fault(master.term, &fault);
            if since.elapsed() >= STABLE_AFTER {
                backoff.reset();
                is_logged = false;
            }
            sleep(backoff.next()).await;
        }
    }

    async fn listen(&self, shared: &SharedState, master: &Address) -> LinkFault {
        match shared.dialer.subscribe_at_redis(master).await {
            Ok(connection) => {
                let (sink, messages) = connection.split();
                let listener = Listener {
                    hub: self,
                    sink,
                    channels: HashSet::new(),
                    response_timeout: shared.connect_timeout,
                };
                listener.run(messages).await
            }
            Err(fault) => fault,
        }
    }
}

struct Listener<'a> {
    hub: &'a Hub,
    sink: PubSubSink,
    /// Confirmed by the server.
    channels: HashSet<String>,
    response_timeout: Duration,
}

impl Listener<'_> {
    async fn run(mut self, mut messages: PubSubStream) -> LinkFault {
        if let Err(fault) = self.update_channels().await {
            return fault;
        }
        loop {
            let outcome = tokio::select! {
                () = self.hub.changed.notified() => self.update_channels().await,
                message = timeout(MAX_SILENCE, messages.next()) => match message {
                    Ok(Some(message)) => {
                        let payload = Bytes::copy_from_slice(message.get_payload_bytes());
                        let channel = message.get_channel_name();
                        self.hub.for_each_subscriber(channel, |inbox| inbox.put(payload.clone()));
                        Ok(())
                    }
                    Ok(None) => Err(LinkFault::lost("SUBSCRIBE", "the connection was closed")),
                    Err(_) => {
                        let pong = self.sink.ping::<redis::Value>();
                        reply_within(self.response_timeout, pong).await.map(drop)
                    }
                },
            };
            if let Err(fault) = outcome {
                return fault;
            }
        }
    }

    async fn update_channels(&mut self) -> Result<(), LinkFault> {
        let wanted = self.hub.subscribed_channels();
        let surplus: Vec<String> = self.channels.difference(&wanted).cloned().collect();
        if !surplus.is_empty() {
            reply_within(self.response_timeout, self.sink.unsubscribe(&surplus)).await?;
        }
        let missing: Vec<String> = wanted.difference(&self.channels).cloned().collect();
        if !missing.is_empty() {
            reply_within(self.response_timeout, self.sink.subscribe(&missing)).await?;
        }
        for channel in &missing {
            self.hub.for_each_subscriber(channel, Inbox::put_missed);
        }
        self.channels = wanted;
        Ok(())
    }
}

async fn reply_within<T>(
    limit: Duration,
    command: impl Future<Output = Result<T, redis::RedisError>>,
) -> Result<T, LinkFault> {
    match timeout(limit, command).await {
        Ok(reply) => reply.map_err(|error| LinkFault::of("SUBSCRIBE", &error)),
        Err(_) => Err(LinkFault::lost("SUBSCRIBE", "no answer")),
    }
}
