//! Addresses of callers that are no pod, as far as this process knows.
//!
//! Tests: gates::tests

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// An address that stayed unknown is not waited for again: the host itself, or a container of others.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(10);
const MAX_ADDRESSES: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct UnknownCallers(Mutex<HashMap<IpAddr, Instant>>);

impl UnknownCallers {
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.0.lock().get(&address).is_some_and(|since| since.elapsed() < KEPT_FOR)
    }

    pub(crate) fn add(&self, address: IpAddr) {
        let mut addresses = self.0.lock();
        if addresses.len() >= MAX_ADDRESSES {
            addresses.clear();
        }
        addresses.insert(address, Instant::now());
    }
}
