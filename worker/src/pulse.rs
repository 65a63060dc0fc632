//! The worker's sign of life to its guard ([`crate::guard`]), and how it notices that the guard is gone.
//!
//! Standard input of a guarded worker is one end of a pair of sockets. A byte each [`period`] says: I live, and I hold the
//! fence. The end of the stream says that there is no guard any more.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;
use std::pin::pin;
use std::time::Duration;

use common::config::Timing;
use tokio::net::UnixStream;
use tokio::time::MissedTickBehavior;

/// Where a worker's signs of life go.
#[derive(Debug)]
pub struct Pulse {
    guard: Option<UnixStream>,
}

/// Between two signs of life: several fit between the fence and the moment when the pods may start elsewhere.
pub(crate) fn period(timing: &Timing) -> Duration {
    let left = timing.dead_after.saturating_sub(timing.fence_after);
    (left / 8).clamp(Duration::from_millis(50), Duration::from_secs(1))
}

impl Pulse {
    /// To nobody: for a worker without a guard.
    pub fn none() -> Self {
        Self { guard: None }
    }

    /// To the guard at the other end of standard input. Called within the async runtime.
    ///
    /// # Errors
    /// When there is no guard: standard input is no socket.
    pub fn to_guard() -> io::Result<Self> {
        let stream = StdStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        Self::to(stream)
    }

    /// To the guard at the other end of this.
    pub(crate) fn to(stream: StdStream) -> io::Result<Self> {
        stream.peer_addr()?;
        stream.set_nonblocking(true)?;
        Ok(Self { guard: Some(UnixStream::from_std(stream)?) })
    }

    /// Does the work, and gives signs of life for as long as it is under way.
    pub(crate) async fn alongside<T>(&self, timing: &Timing, work: impl Future<Output = T>) -> T {
        let Some(guard) = &self.guard else { return work.await };
        let mut work = pin!(work);
        let mut ticks = tokio::time::interval(period(timing));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = until_gone(guard) => {
                    tracing::error!(
                        "the guard of this worker is gone. The worker goes on and holds the fence alone; start \
                         `kubeleet worker` again (systemd does), which takes over"
                    );
                    return work.await;
                }
                // Full when the guard does not read: then it is the guard that hangs.
                _ = ticks.tick() => drop(guard.try_write(b".")),
            }
        }
    }
}

/// The guard never writes: what can be read is the end.
async fn until_gone(guard: &UnixStream) {
    loop {
        if guard.readable().await.is_err() {
            return;
        }
        match guard.try_read(&mut [0; 16]) {
            Ok(0) => return,
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
            Ok(_) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::io::Read;

    use super::*;

    #[tokio::test]
    async fn it_beats_while_the_work_is_under_way_and_outlives_its_guard() {
        let (mut guard, worker) = StdStream::pair().unwrap();
        let pulse = Pulse::to(worker).unwrap();
        let seconds = Duration::from_secs;
        let timing = Timing { heartbeat: seconds(1), fence_after: seconds(2), dead_after: seconds(3) };
        pulse.alongside(&timing, tokio::time::sleep(Duration::from_millis(450))).await;
        let mut heard = [0; 64];
        let beats = guard.read(&mut heard).unwrap();
        assert!((2..=5).contains(&beats), "every 125 ms: {beats}");
        drop(guard);
        let work = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            7
        };
        assert_eq!(pulse.alongside(&timing, work).await, 7, "without a guard it goes on");
    }
}
