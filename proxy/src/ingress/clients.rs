//! Counts the connections of clients: in all, and of each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::address_range::client_network;

use crate::rarely::Rarely;

/// The connections of all clients.
#[derive(Debug)]
pub(crate) struct Clients {
    /// The most in all.
    most: usize,
    counts: Mutex<Counts>,
    warned_of_all: Rarely,
    warned_of_address: Rarely,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    /// By address, or by the network of an IPv6 address.
    by_address: HashMap<IpAddr, usize>,
}

/// One counted connection of a client.
pub(crate) struct CountedConnection {
    clients: Arc<Clients>,
    address: IpAddr,
}

impl Clients {
    /// Counts connections, and takes this number of them at most.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let (warned_of_all, warned_of_address) = (Rarely::default(), Rarely::default());
        Arc::new(Self { most, counts: Mutex::default(), warned_of_all, warned_of_address })
    }

    /// Counts a connection until the place is dropped. `None` if there are too many, in all or of its
    /// address.
    pub(crate) fn enter(
        self: &Arc<Self>,
        address: IpAddr,
        most_of_address: usize,
    ) -> Option<CountedConnection> {
        let address = client_network(address);
        let mut counts = self.lock();
        if counts.all >= self.most {
            self.warn_of_all();
            return None;
        }
        let count = counts.by_address.entry(address).or_default();
        if *count >= most_of_address {
            self.warn_of_address(address, most_of_address);
            return None;
        }
        *count += 1;
        counts.all += 1;
        Some(CountedConnection { clients: self.clone(), address })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn warn_of_all(&self) {
        if self.warned_of_all.is_due() {
            tracing::warn!(
                "Ingress has {} connections and requests beside each other on those of HTTP/2, as many as it takes; \
                 further ones are refused. If they are wanted, \
                 raise the limit of open files (`ulimit -Hn`, LimitNOFILE=): it takes a third as many connections.",
                self.most
            );
        }
    }

    fn warn_of_address(&self, address: IpAddr, most: usize) {
        if self.warned_of_address.is_due() {
            tracing::warn!(
                "Ingress has {most} connections of {address} and requests beside each other on those of HTTP/2, as many \
                 as one address (of IPv6: a /64 network) may have; further ones are refused. If it is a proxy before the ingress, name it in KUBELEET_TRUSTED_PROXIES; if many clients \
                 share it, raise KUBELEET_CLIENT_CONNECTIONS."
            );
        }
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut counts = self.clients.lock();
        counts.all -= 1;
        if let Some(count) = counts.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_in_all_and_for_its_address_until_it_is_dropped() {
        let clients = Clients::new(3);
        let [first, second] = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse::<IpAddr>().unwrap());
        let place = clients.enter(first, 1).unwrap();
        assert!(clients.enter(first, 1).is_none());
        let others = [clients.enter(second, 2).unwrap(), clients.enter(second, 2).unwrap()];
        assert!(clients.enter("10.0.0.3".parse().unwrap(), 1).is_none(), "three in all");
        drop(place);
        assert!(clients.enter(second, 2).is_none() && clients.enter(first, 1).is_some());
        drop(others);
        let [one, other] = ["2001:db8::1", "2001:db8::2:0:0:1"].map(|address| address.parse().unwrap());
        let _place = clients.enter(one, 1).unwrap();
        assert!(clients.enter(other, 1).is_none(), "a client has all addresses of its network");
        drop(_place);
        assert!(clients.lock().by_address.is_empty() && clients.lock().all == 0);
    }
}
