//! When to look again: at once when an event is about what is waited for, else after a while.

use std::time::Duration;

use common::event::{ClusterEvent, ObjectKind};
use tokio::time::{Instant, sleep, timeout};

use super::Goal;
use crate::client::{Client, EventStream, EventsFrom};

/// Waiting works without hints; do not wait for them.
const OPEN_WITHIN: Duration = Duration::from_secs(2);
/// Events come in bursts; one look serves many.
const BURST: Duration = Duration::from_millis(100);
/// A service of many pods is costly to look at: rest so many times as long as the look took.
const REST: u32 = 4;

/// Events about what is waited for.
pub(super) struct Hints {
    stream: Option<EventStream>,
    goal: Goal,
}

impl Hints {
    /// Listens from now on, if that is possible.
    pub(super) async fn open(client: &Client, goal: &Goal) -> Self {
        let opened = timeout(OPEN_WITHIN, client.watch(&EventsFrom::Tail(0))).await;
        Self { stream: opened.ok().and_then(Result::ok), goal: goal.clone() }
    }

    /// Waits for a hint, at most for `pause`, at least as long as a look that took `spent` deserves.
    pub(super) async fn wait(&mut self, pause: Duration, spent: Duration) {
        let begun = Instant::now();
        drop(timeout(pause, self.next()).await);
        let least = BURST.max(spent * REST).min(pause);
        sleep(least.saturating_sub(begun.elapsed())).await;
    }

    async fn next(&mut self) {
        while let Some(stream) = &mut self.stream {
            match stream.next().await {
                Ok(event) if concerns(&self.goal, &event) => return,
                Ok(_) => {}
                Err(_) => self.stream = None,
            }
        }
        std::future::pending().await
    }
}

fn concerns(goal: &Goal, event: &ClusterEvent) -> bool {
    match goal {
        Goal::Ready { service, .. } | Goal::ServiceGone { service } => match event.kind {
            ObjectKind::Pod => event.name == *service,
            ObjectKind::Service => event.object == *service,
            ObjectKind::Node | ObjectKind::Queue | ObjectKind::Cluster => false,
        },
        Goal::PodGone { id } => event.kind == ObjectKind::Pod && event.object == id.as_str(),
    }
}
