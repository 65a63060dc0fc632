//! Deadlines of HTTP/2 requests: only the request of a slow client is reset.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use gate::timer::Timer;
use hyper::rt::Executor;
use tokio::time::Instant;

/// Checks within the timeout: another task may begin a wait for the request's body.
const LOOKS: u32 = 4;

tokio::task_local! {
    static CLIENT_WAIT: Arc<ClientWait>;
}

#[derive(Debug)]
pub(crate) struct ClientWait {
    begun: Instant,
    /// Milliseconds after `begun`, plus one. 0 without a wait.
    for_body: AtomicU64,
    /// The same for room for the next part of the answer.
    for_room: AtomicU64,
    is_over: AtomicBool,
}

impl ClientWait {
    fn new() -> Self {
        Self {
            begun: Instant::now(),
            for_body: AtomicU64::new(0),
            for_room: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// `None` unless the current task's request is by HTTP/2.
    pub(crate) fn current() -> Option<Arc<Self>> {
        CLIENT_WAIT.try_with(Clone::clone).ok()
    }

    pub(crate) fn set_body_is_missing(&self, is_missing: bool) {
        self.set(&self.for_body, is_missing);
    }

    pub(crate) fn set_answer_is_handed_over(&self, is_handed_over: bool) {
        self.for_room.store(0, Ordering::Relaxed);
        self.set(&self.for_room, is_handed_over);
    }

    fn set(&self, since: &AtomicU64, waits: bool) {
        if !waits {
            since.store(0, Ordering::Relaxed);
        } else if since.load(Ordering::Relaxed) == 0 {
            since.store(self.begun.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn deadline(&self, within: Duration) -> Option<Instant> {
        let since = [&self.for_body, &self.for_room].map(|since| since.load(Ordering::Relaxed));
        let earliest = since.into_iter().filter(|since| *since > 0).min()?;
        Some(self.begun + Duration::from_millis(earliest - 1) + within)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestExecutor {
    /// Maximum inactivity of a client while something is due.
    pub(crate) within: Duration,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for RequestExecutor {
    fn execute(&self, request: F) {
        let wait = Arc::new(ClientWait::new());
        tokio::spawn(CLIENT_WAIT.scope(wait.clone(), until_deadline(request, wait, self.within)));
    }
}

async fn until_deadline(request: impl Future<Output = ()>, wait: Arc<ClientWait>, within: Duration) {
    let mut request = pin!(request);
    let mut timer = None;
    poll_fn(|cx| {
        if request.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let deadline = wait.deadline(within);
        let wake_at = deadline.unwrap_or_else(|| Instant::now() + within / LOOKS);
        let timer = timer.get_or_insert_with(|| Timer::new(wake_at));
        if timer.poll_until(wake_at, cx).is_pending() || deadline.is_none() {
            return Poll::Pending;
        }
        tracing::debug!("Request by HTTP/2 reset: its client took too long");
        wait.is_over.store(true, Ordering::Relaxed);
        Poll::Ready(())
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_secs(75);

    #[tokio::test(start_paused = true)]
    async fn a_request_ends_when_its_client_has_done_nothing_for_too_long() {
        for waits in [ClientWait::set_body_is_missing, ClientWait::set_answer_is_handed_over] {
            let wait = Arc::new(ClientWait::new());
            let mut running = pin!(until_deadline(std::future::pending(), wait.clone(), WITHIN));
            let mut runs = async |seconds| {
                tokio::time::timeout(Duration::from_secs(seconds), running.as_mut()).await.is_err()
            };
            // A pod may take any time.
            assert!(runs(1000).await);
            waits(&wait, true);
            assert!(runs(70).await);
            waits(&wait, false);
            waits(&wait, true);
            assert!(runs(70).await && !wait.is_over());
            assert!(!runs(30).await && wait.is_over());
        }
    }

    #[tokio::test]
    async fn a_request_that_was_answered_has_ended() {
        until_deadline(std::future::ready(()), Arc::new(ClientWait::new()), WITHIN).await;
        assert!(ClientWait::current().is_none());
    }
}
