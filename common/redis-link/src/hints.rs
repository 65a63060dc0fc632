//! Waits for a tick or for hints.

use std::time::Duration;

use futures_util::FutureExt;

use crate::hub::Subscription;

/// Returns all hints that have arrived.
pub async fn tick_or_hints(period: Duration, hints: &mut Subscription) -> Vec<bytes::Bytes> {
    let Ok(first) = tokio::time::timeout(period, hints.next()).await else { return Vec::new() };
    let mut arrived = vec![first];
    arrived.extend(pending_hints(hints));
    arrived
}

pub fn pending_hints(hints: &mut Subscription) -> Vec<bytes::Bytes> {
    std::iter::from_fn(|| hints.next().now_or_never()).collect()
}
