//! The link against real servers, which these tests start on free ports and kill again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a skipped test has to say so")]

mod away;
mod commands;
mod durable;
mod failover;
mod messages;
mod secure;
mod server;

use std::time::{Duration, Instant};

use super::super::error::StoreError;
use super::{Link, LinkHealth, LinkOptions};

/// Long enough for the slowest machine; a test that works takes a fraction of it.
const LIMIT: Duration = Duration::from_secs(20);

/// Repeats `check` until it gives something.
async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(value) = check().await {
            return value;
        }
        assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Impatient, so that the tests need not be patient.
fn options() -> LinkOptions {
    LinkOptions { response_timeout: Duration::from_secs(1), connect_timeout: Duration::from_millis(800) }
}

fn link(url: &str) -> Link {
    Link::new(url.parse().unwrap(), options())
}

/// Writes until it works.
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
        LinkHealth::Away { .. } => 0,
    }
}
