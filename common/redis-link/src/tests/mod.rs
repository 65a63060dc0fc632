//! Tests of the link against real servers, which they start on free ports and kill.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a skipped test must say so")]

mod away;
mod commands;
mod durable;
mod failover;
mod messages;
mod secure;
mod transport;

use std::time::Duration;

use testkit::eventually;

use super::{Link, LinkHealth, LinkOptions};
use crate::error::StoreError;

/// A successful test takes a fraction of it.
const LIMIT: Duration = Duration::from_secs(20);

fn options() -> LinkOptions {
    LinkOptions { response_timeout: Duration::from_secs(1), connect_timeout: Duration::from_millis(800) }
}

fn link(url: &str) -> Link {
    Link::new(url.parse().unwrap(), options())
}

async fn eventually_set(link: &Link, key: &str, value: &str) {
    eventually("a write works again", async || set(link, key, value).await.ok()).await;
}

async fn set(link: &Link, key: &str, value: &str) -> Result<(), StoreError> {
    link.query(redis::cmd("SET").arg(key).arg(value)).await
}

async fn get(link: &Link, key: &str) -> Option<Vec<u8>> {
    link.query(redis::cmd("GET").arg(key)).await.unwrap()
}

fn generation(link: &Link) -> u64 {
    match &*link.health().borrow() {
        LinkHealth::Connected { generation, .. } => *generation,
        LinkHealth::Disconnected { .. } => 0,
    }
}
