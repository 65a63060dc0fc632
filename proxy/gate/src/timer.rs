//! A timer for deadlines that mostly move before they expire.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

/// Resets tokio's timer only for an earlier deadline or after it fired, so that moving deadlines are cheap.
pub struct Timer(Pin<Box<Sleep>>);

impl Timer {
    pub fn new(deadline: Instant) -> Self {
        Self(Box::pin(tokio::time::sleep_until(deadline)))
    }

    /// Cancel safe.
    pub async fn until(&mut self, deadline: Instant) {
        poll_fn(|cx| self.poll_until(deadline, cx)).await;
    }

    pub fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }

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
