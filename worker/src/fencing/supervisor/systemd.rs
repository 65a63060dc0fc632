//! Notifications to the service manager (`Type=notify`, `WatchdogSec=`). Without one nothing happens.

use sd_notify::NotifyState;

/// What the service manager has been told so far.
#[derive(Default)]
pub(super) struct Systemd {
    last_status: String,
    is_ready: bool,
}

impl Systemd {
    /// The worker process runs, which completes the start of the unit. It may not have reached Redis yet: it
    /// retries for as long as that takes.
    pub(super) fn ready(&mut self) {
        if !self.is_ready {
            self.is_ready = true;
            notify(&[NotifyState::Ready]);
        }
    }

    /// The supervisor itself does not hang.
    pub(super) fn watchdog(&mut self, status: String) {
        if status == self.last_status {
            return notify(&[NotifyState::Watchdog]);
        }
        notify(&[NotifyState::Watchdog, NotifyState::Status(&status)]);
        self.last_status = status;
    }

    /// The supervisor was asked to end.
    pub(super) fn stopping(&mut self) {
        notify(&[NotifyState::Stopping]);
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager could not be notified");
    }
}
