//! A timer for deadlines that mostly change before they are reached.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

/// Moved only when it has to be earlier, or has run out, so that a deadline for each request costs no more
/// than a look.
pub struct Timer(Pin<Box<Sleep>>);

impl Timer {
    /// A timer that runs out at the deadline first.
    pub fn new(deadline: Instant) -> Self {
        Self(Box::pin(tokio::time::sleep_until(deadline)))
    }

    /// Completes at the deadline, which may be another one each time.
    ///
    /// # Cancel safety
    /// It can be called again with any deadline.
    pub async fn until(&mut self, deadline: Instant) {
        poll_fn(|cx| self.poll_until(deadline, cx)).await;
    }

    /// Returns whether the deadline of its beginning has come.
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
