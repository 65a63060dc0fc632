//! Notifications to the service manager (`Type=notify`, `WatchdogSec=`). Does nothing without one.

use sd_notify::NotifyState;

#[derive(Default)]
pub(super) struct Systemd {
    last_status: String,
    is_ready: bool,
}

impl Systemd {
    /// The worker may not have reached Redis yet, which it retries without limit.
    pub(super) fn ready(&mut self) {
        if !self.is_ready {
            self.is_ready = true;
            notify(&[NotifyState::Ready]);
        }
    }

    pub(super) fn watchdog(&mut self, status: String) {
        if status == self.last_status {
            return notify(&[NotifyState::Watchdog]);
        }
        notify(&[NotifyState::Watchdog, NotifyState::Status(&status)]);
        self.last_status = status;
    }

    pub(super) fn stopping(&mut self) {
        notify(&[NotifyState::Stopping]);
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager could not be notified");
    }
}
