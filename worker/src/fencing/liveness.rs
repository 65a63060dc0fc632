//! The worker's signs of life to its supervisor process ([`crate::fencing::supervisor`]).
//!
//! Standard input of a supervised worker is one end of a socket pair. One byte each [`period`] means that the
//! worker enforces the fence; the end of the stream, that the supervisor is gone.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;
use std::pin::pin;
use std::time::Duration;

use model::node::timing::Timing;
use tokio::net::UnixStream;
use tokio::time::MissedTickBehavior;

#[derive(Debug)]
pub struct LivenessPipe {
    supervisor: Option<UnixStream>,
}

/// Several signs fit between the fence and the moment when pods may start elsewhere.
pub(crate) fn period(timing: &Timing) -> Duration {
    let remaining = timing.dead_after.saturating_sub(timing.fence_after);
    (remaining / 8).clamp(Duration::from_millis(50), Duration::from_secs(1))
}

impl LivenessPipe {
    pub fn none() -> Self {
        Self { supervisor: None }
    }

    /// Must be called within the async runtime.
    ///
    /// # Errors
    /// If standard input is not a socket.
    pub fn to_supervisor() -> io::Result<Self> {
        let stream = StdStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        Self::to(stream)
    }

    pub(crate) fn to(stream: StdStream) -> io::Result<Self> {
        stream.peer_addr()?;
        stream.set_nonblocking(true)?;
        Ok(Self { supervisor: Some(UnixStream::from_std(stream)?) })
    }

    pub(crate) async fn while_running<T>(&self, timing: &Timing, work: impl Future<Output = T>) -> T {
        let Some(supervisor) = &self.supervisor else { return work.await };
        let mut work = pin!(work);
        let mut ticks = tokio::time::interval(period(timing));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = until_closed(supervisor) => {
                    tracing::error!(
                        "the supervisor of this worker is gone. The worker goes on and enforces the fence by \
                         itself; start `kubeleet worker` again (systemd does), which takes over"
                    );
                    return work.await;
                }
                // A full buffer means that the supervisor hangs.
                _ = ticks.tick() => drop(supervisor.try_write(b".")),
            }
        }
    }
}

/// The supervisor never writes.
async fn until_closed(supervisor: &UnixStream) {
    loop {
        if supervisor.readable().await.is_err() {
            return;
        }
        match supervisor.try_read(&mut [0; 16]) {
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
    async fn signs_of_life_are_sent_while_work_runs_and_work_outlives_the_supervisor() {
        let (mut supervisor, worker) = StdStream::pair().unwrap();
        let pipe = LivenessPipe::to(worker).unwrap();
        let seconds = Duration::from_secs;
        let timing = Timing { heartbeat: seconds(1), fence_after: seconds(2), dead_after: seconds(3) };
        pipe.while_running(&timing, tokio::time::sleep(Duration::from_millis(450))).await;
        let mut received = [0; 64];
        let signs = supervisor.read(&mut received).unwrap();
        assert!((2..=5).contains(&signs), "every 125 ms: {signs}");
        drop(supervisor);
        let work = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            7
        };
        assert_eq!(pipe.while_running(&timing, work).await, 7, "without a supervisor the work goes on");
    }
}
