//! The handle whose methods are the operations; each is in the file of its object.

use std::sync::Arc;

use crate::service::spec_cache::SpecCache;
use daemon::redis_url::RedisUrl;
use redis_link::{Link, LinkHealth, LinkOptions, StoreError, Subscription, Transport};

/// Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Store {
    pub(crate) link: Link,
    pub(crate) specs: Arc<SpecCache>,
}

impl Store {
    /// It connects on first use.
    pub fn new(url: RedisUrl, options: LinkOptions) -> Self {
        Self { link: Link::new(url, options), specs: Arc::default() }
    }

    pub fn with_transport(transport: Arc<dyn Transport>, url: RedisUrl, options: LinkOptions) -> Self {
        Self { link: Link::with_transport(transport, url, options), specs: Arc::default() }
    }

    pub fn health(&self) -> tokio::sync::watch::Receiver<LinkHealth> {
        self.link.health()
    }

    pub async fn ping(&self) -> Result<(), StoreError> {
        self.link.query(&redis::cmd("PING")).await
    }

    /// Hints on a [`channel`](crate::channel) may be lost: callers must also read state themselves.
    pub fn subscribe(&self, channel: &str) -> Subscription {
        self.link.subscribe(channel)
    }
}
