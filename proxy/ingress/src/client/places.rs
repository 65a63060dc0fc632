//! Counts the connections of ingress clients, in all and by address.

use std::net::IpAddr;
use std::sync::Arc;

use daemon::log_limit::LogLimit;
use gate::shares::{NoPlace, Shares, TakenPlace};
use model::network::address_range::client_network;

#[derive(Debug)]
pub(crate) struct Clients {
    most: usize,
    shares: Arc<Shares>,
    warned_of_all: LogLimit,
    warned_of_address: LogLimit,
}

impl Clients {
    pub(crate) fn new(most: usize) -> Self {
        let (warned_of_all, warned_of_address) = (LogLimit::default(), LogLimit::default());
        Self { most, shares: Shares::new(most), warned_of_all, warned_of_address }
    }

    pub(crate) fn enter(&self, address: IpAddr, most_of_address: usize) -> Option<TakenPlace> {
        let address = client_network(address);
        let taken = self.shares.take(address, most_of_address);
        match taken {
            Ok(_) => {}
            Err(NoPlace::All) => self.warn_of_all(),
            Err(NoPlace::OfClient) => self.warn_of_address(address, most_of_address),
        }
        taken.ok()
    }

    fn warn_of_all(&self) {
        if self.warned_of_all.admit(()) {
            tracing::warn!(
                "Ingress has {} connections and requests beside each other on those of HTTP/2, as many as it takes; \
                 further ones are refused. If they are wanted, \
                 raise the limit of open files (`ulimit -Hn`, LimitNOFILE=): it takes a third as many connections.",
                self.most
            );
        }
    }

    fn warn_of_address(&self, address: IpAddr, most: usize) {
        if self.warned_of_address.admit(()) {
            tracing::warn!(
                "Ingress has {most} connections of {address} and requests beside each other on those of HTTP/2, as many \
                 as one address (of IPv6: a /64 network) may have; further ones are refused. If it is a proxy before the ingress, name it in KUBELEET_TRUSTED_PROXIES; if many clients \
                 share it, raise KUBELEET_CLIENT_CONNECTIONS."
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_all_addresses_of_its_network() {
        let clients = Clients::new(3);
        let [one, other] = ["2001:db8::1", "2001:db8::2:0:0:1"].map(|address| address.parse().unwrap());
        let place = clients.enter(one, 1).unwrap();
        assert!(clients.enter(other, 1).is_none());
        drop(place);
        assert!(clients.enter(other, 1).is_some());
    }
}
