//! A timer for deadlines that mostly move before they expire.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

/// Resets the tokio timer only for an earlier deadline or after it fired, so that moving deadlines are cheap.
pub struct Timer(Pin<Box<Sleep>>);

impl Timer {
    /// Creates a timer for a first deadline.
    pub fn new(deadline: Instant) -> Self {
        Self(Box::pin(tokio::time::sleep_until(deadline)))
    }

    /// Completes at the deadline, which may differ each time.
    ///
    /// # Cancel safety
    /// It can be called again with any deadline.
    pub async fn until(&mut self, deadline: Instant) {
        poll_fn(|cx| self.poll_until(deadline, cx)).await;
    }

    /// Ready once the timer's current deadline has passed.
    pub fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }

    /// As [`until`](Self::until), for callers that poll.
    pub fn poll_until(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.deadline() > deadline {
            self.0.as_mut().reset(deadline);
        }
        while self.0.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            self.0.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}
