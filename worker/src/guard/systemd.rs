//! What a service manager is told (`Type=notify`, `WatchdogSec=`). Nothing happens where there is none.

use sd_notify::NotifyState;

/// The guard's line to the service manager.
#[derive(Default)]
pub(super) struct Systemd {
    said: String,
    ready: bool,
}

impl Systemd {
    /// The worker lives: the unit is started. Not that it has reached Redis: for that it waits for as long as it takes.
    pub(super) fn ready(&mut self) {
        if !std::mem::replace(&mut self.ready, true) {
            tell(&[NotifyState::Ready]);
        }
    }

    /// The guard looks after the worker: it does not hang itself.
    pub(super) fn alive(&mut self, status: String) {
        if status == self.said {
            return tell(&[NotifyState::Watchdog]);
        }
        tell(&[NotifyState::Watchdog, NotifyState::Status(&status)]);
        self.said = status;
    }

    /// It was asked to end.
    pub(super) fn stopping(&mut self) {
        tell(&[NotifyState::Stopping]);
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager could not be told");
    }
}
