//! The handle whose methods are the operations; each is in the file of its object.

use std::sync::Arc;

use crate::service::spec_cache::SpecCache;
use daemon::redis_url::RedisUrl;
use redis_link::{Link, LinkHealth, LinkOptions, StoreError, Subscription, Transport};

/// The state of the cluster in Redis. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Store {
    pub(crate) link: Link,
    pub(crate) specs: Arc<SpecCache>,
}

impl Store {
    /// Creates a store for the Redis behind this URL. It connects on first use.
    pub fn new(url: RedisUrl, options: LinkOptions) -> Self {
        Self { link: Link::new(url, options), specs: Arc::default() }
    }

    /// Creates a store whose commands go over `transport` instead of a network.
    pub fn with_transport(transport: Arc<dyn Transport>, url: RedisUrl, options: LinkOptions) -> Self {
        Self { link: Link::with_transport(transport, url, options), specs: Arc::default() }
    }

    /// Returns a channel with the health of the connection to Redis.
    pub fn health(&self) -> tokio::sync::watch::Receiver<LinkHealth> {
        self.link.health()
    }

    /// Checks that Redis answers.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.link.query(&redis::cmd("PING")).await
    }

    /// Subscribes to a [`channel`](crate::channel) of hints. They may be lost: callers must also read state
    /// by themselves.
    pub fn subscribe(&self, channel: &str) -> Subscription {
        self.link.subscribe(channel)
    }
}
