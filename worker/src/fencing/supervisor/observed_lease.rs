//! The worker's lease as read from the lease file.

use std::time::Duration;

use daemon::clock::{BootClock, BootInstant, Clock};
use daemon::config::Config;

use crate::fencing::lease_file::{self, SavedLease};

#[derive(Clone, Copy)]
pub(super) struct ObservedLease {
    pub(super) deadline: BootInstant,
}

impl ObservedLease {
    pub(super) fn read(config: &Config, boot_id: &str) -> Self {
        match lease_file::read(&lease_file::path(config), boot_id) {
            SavedLease::Lease(lease) => Self { deadline: lease.deadline },
            SavedLease::Unusable(_) => Self { deadline: BootInstant { millis: 0 } },
        }
    }

    pub(super) fn remaining(self) -> Option<Duration> {
        let now = BootClock.now();
        (now < self.deadline).then(|| self.deadline.since(now))
    }
}
