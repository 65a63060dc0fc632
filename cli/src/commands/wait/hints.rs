//! Schedules polls: soon after an event about the goal, otherwise after the poll interval.

use std::time::Duration;

use client::{Client, EventStream, EventsFrom};
use tokio::time::{Instant, sleep, timeout};

use super::goal::Goal;

/// Waiting works without events, so opening their stream must not delay it.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2);
/// Events come in bursts, and one poll covers a whole burst.
const MIN_PAUSE: Duration = Duration::from_millis(100);
/// Polling a service with many pods is expensive for the API.
const PAUSE_PER_POLL_TIME: u32 = 4;

pub(super) struct Hints {
    stream: Option<EventStream>,
    goal: Goal,
}

impl Hints {
    pub(super) async fn open(client: &Client, goal: &Goal) -> Self {
        let opened = timeout(OPEN_TIMEOUT, client.watch(&EventsFrom::Tail(0))).await;
        Self { stream: opened.ok().and_then(Result::ok), goal: goal.clone() }
    }

    pub(super) async fn wait(&mut self, interval: Duration, poll_time: Duration) {
        let started = Instant::now();
        drop(timeout(interval, self.next()).await);
        let min_pause = MIN_PAUSE.max(poll_time * PAUSE_PER_POLL_TIME).min(interval);
        sleep(min_pause.saturating_sub(started.elapsed())).await;
    }

    async fn next(&mut self) {
        while let Some(stream) = &mut self.stream {
            match stream.next().await {
                Ok(event) if self.goal.concerns(&event) => return,
                Ok(_) => {}
                Err(_) => self.stream = None,
            }
        }
        std::future::pending().await
    }
}
