//! Reads the endpoints of a service in pages, at the speed of Redis.

use std::time::Duration;

use model::ids::ServiceName;
use store::{EndpointReading, EndpointVersion, FollowedEndpoints, ReadingStep, StoreError};
use tokio::time::{Instant, sleep};

use crate::read_limit::ReadLimit;
use crate::shared::FollowerShared;

/// The pause after a page, in latencies of Redis: so few of many readers are answered at a time, and
/// heartbeats wait only for them.
const PAUSE_PER_ANSWER: u32 = 4;
const MAX_PAUSE: Duration = Duration::from_millis(500);

pub(crate) enum ReadOutcome {
    Read,
    /// Another proxy builds the set, or it was rebuilt meanwhile.
    Again,
}

pub(crate) async fn read_endpoints(
    shared: &FollowerShared,
    service: &ServiceName,
    limit: &ReadLimit,
) -> Result<ReadOutcome, StoreError> {
    limit.wait().await;
    let before = shared.known.lock().sets.get(service).and_then(|set| set.version().cloned());
    match shared.store.follow_endpoints(service, before.as_ref()).await? {
        FollowedEndpoints::Same => Ok(ReadOutcome::Read),
        FollowedEndpoints::BeingMade => Ok(ReadOutcome::Again),
        FollowedEndpoints::Changed(reading) => {
            read_pages(shared, service, before.as_ref(), reading, limit).await
        }
    }
}

pub(crate) async fn read_pages(
    shared: &FollowerShared,
    service: &ServiceName,
    before: Option<&EndpointVersion>,
    mut reading: EndpointReading,
    limit: &ReadLimit,
) -> Result<ReadOutcome, StoreError> {
    loop {
        let begun = Instant::now();
        let step = reading.step().await?;
        let pause = (begun.elapsed() * PAUSE_PER_ANSWER).min(MAX_PAUSE);
        match step {
            // Other proxies wait for the set that this one builds.
            ReadingStep::Made => sleep(pause).await,
            ReadingStep::Read => {
                sleep(pause).await;
                limit.wait().await;
            }
            ReadingStep::Again => return Ok(ReadOutcome::Again),
            ReadingStep::Done(version, endpoints) => {
                // The service may have lost its route meanwhile.
                if shared.is_followed(service) {
                    let mut known = shared.known.lock();
                    known.sets.entry(service.clone()).or_default().take_read(before, version, endpoints);
                    shared.changed.notify_one();
                }
                return Ok(ReadOutcome::Read);
            }
        }
    }
}
