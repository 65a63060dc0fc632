//! Addresses of callers that are no pod, as far as this process knows.
//!
//! Tests: gates::tests

use std::collections::HashMap;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// An address of the host is not waited for, and no other one again that stayed unknown: a container of
/// others.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(10);
const MAX_ADDRESSES: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct UnknownCallers(Mutex<HashMap<IpAddr, Instant>>);

impl UnknownCallers {
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        let is_known = self.0.lock().get(&address).is_some_and(|since| since.elapsed() < KEPT_FOR);
        let is_here = || UdpSocket::bind((address, 0)).is_ok();
        if !is_known && is_here() {
            self.add(address);
            return true;
        }
        is_known
    }

    pub(crate) fn add(&self, address: IpAddr) {
        let mut addresses = self.0.lock();
        if addresses.len() >= MAX_ADDRESSES {
            addresses.clear();
        }
        addresses.insert(address, Instant::now());
    }
}
