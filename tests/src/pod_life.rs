//! Starts and ends of processes on the machine's boot clock. The kernel rounds starts down (to 10 ms) and
//! ends are noticed late, so a gap is never too large.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use daemon::clock::{BootClock, Clock};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use testkit::eventually::{check, eventually_within};

use crate::processes::stat_fields;

#[derive(Debug)]
pub struct Watched {
    end: Arc<OnceLock<u64>>,
}

impl Watched {
    pub fn process(pid: Pid) -> Self {
        let descriptor: OwnedFd = pidfd_open(pid, PidfdFlags::empty()).expect("the process is there");
        let end: Arc<OnceLock<u64>> = Arc::default();
        let recorded = end.clone();
        std::thread::spawn(move || {
            while poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None).is_err() {}
            recorded.get_or_init(|| BootClock.now().millis);
        });
        Self { end }
    }

    /// In milliseconds since boot.
    pub fn ended(&self) -> Option<u64> {
        self.end.get().copied()
    }
}

/// In milliseconds since boot.
pub fn started(pid: Pid) -> Option<u64> {
    let fields = stat_fields(pid.as_raw_nonzero().get().cast_unsigned())?;
    // A zombie has ended.
    (fields.first()? != "Z").then_some(())?;
    let ticks: u64 = fields.get(19)?.parse().ok()?;
    // USER_HZ is 100 on every Linux.
    Some(ticks * 10)
}

/// In milliseconds; negative if they overlapped.
pub fn gap(ended: u64, started: u64) -> i64 {
    started as i64 - ended as i64
}

pub async fn wait_until_gone(pid: Pid, within: Duration) {
    eventually_within(within, "the process ends", || async {
        check(started(pid).is_none(), || format!("{pid:?} is there"))
    })
    .await;
}
