//! When processes began and ended, on the machine's boot clock: what tells whether two copies of a pod ran at a time.
//!
//! Beginnings are rounded down by the kernel (to 10 ms) and ends are noted a little late, so a gap is never shown larger
//! than it was.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use common::clock::{BootClock, Clock};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process whose end is waited for.
#[derive(Debug)]
pub struct Watched {
    end: Arc<OnceLock<u64>>,
}

impl Watched {
    /// Watches a process from now on.
    ///
    /// # Panics
    /// When there is none.
    pub fn process(pid: Pid) -> Self {
        let descriptor: OwnedFd = pidfd_open(pid, PidfdFlags::empty()).expect("the process is there");
        let end: Arc<OnceLock<u64>> = Arc::default();
        let noted = end.clone();
        std::thread::spawn(move || {
            while poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None).is_err() {}
            noted.get_or_init(|| BootClock.now().millis);
        });
        Self { end }
    }

    /// Milliseconds since boot at its end; none while it runs.
    pub fn ended(&self) -> Option<u64> {
        self.end.get().copied()
    }
}

/// Milliseconds since boot at a process' beginning; none when it is gone.
pub fn began(pid: Pid) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // After the name, which may hold anything, in brackets.
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    // Ended, and nobody has asked how.
    (*fields.first()? != "Z").then_some(())?;
    let ticks: u64 = fields.get(19)?.parse().ok()?;
    // USER_HZ, which programs see, is 100 on every Linux.
    Some(ticks * 10)
}

/// How long after the end of the old one the new one began; negative when they overlapped.
pub fn gap(ended: u64, began: u64) -> i64 {
    began as i64 - ended as i64
}

/// Waits until the process is gone.
pub async fn is_gone(pid: Pid, within: Duration) {
    crate::eventually(within, "the process ends", || async {
        crate::wait::that(began(pid).is_none(), || format!("{pid:?} is there"))
    })
    .await;
}
