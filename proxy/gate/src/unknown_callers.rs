//! Addresses of callers that are no pod, as far as this process knows.
//!
//! Tests: gates::tests

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// An address of the host is not waited for, and no other one again that stayed unknown: a container of
/// others.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(10);
const MAX_ADDRESSES: usize = 4096;
const ANY_PORT: u16 = 9;

#[derive(Debug, Default)]
pub(crate) struct UnknownCallers(Mutex<HashMap<IpAddr, Instant>>);

impl UnknownCallers {
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        let is_known = self.0.lock().get(&address).is_some_and(|since| since.elapsed() < KEPT_FOR);
        if !is_known && is_of_this_host(address) {
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

/// Then packets to it have it as their source as well; none is sent.
fn is_of_this_host(address: IpAddr) -> bool {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let source = || -> io::Result<SocketAddr> {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((address, ANY_PORT))?;
        socket.local_addr()
    };
    source().is_ok_and(|source| source.ip() == address)
}
