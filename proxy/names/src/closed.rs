//! Addresses on other hosts that pods must not reach: the cluster's Redis, Sentinels, APIs and proxies, and
//! ranges of the operator. On their own host, pods reach no port at all.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use daemon::redis_url::RedisUrl;
use model::network::address_range::AddressRange;
use tokio::net::lookup_host;
use tokio::time::timeout;
use tunnel::PORT as TUNNEL_PORT;

pub type ClosedAddresses = BTreeSet<SocketAddrV4>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToClose {
    pub closed: ClosedAddresses,
    /// With all their ports.
    pub ranges: Vec<AddressRange>,
    /// Servers that cannot be resolved now. Closed addresses stay closed meanwhile.
    pub unknown: Vec<String>,
}

impl ToClose {
    /// Closed addresses that are not this program's `own` belong to other clusters' proxies.
    pub(super) fn beside(&self, now: &ClosedAddresses, own: &ClosedAddresses) -> ClosedAddresses {
        let is_kept = |address: &&SocketAddrV4| !self.unknown.is_empty() || !own.contains(address);
        now.iter().filter(is_kept).chain(&self.closed).copied().collect()
    }
}

const API_PORT: u16 = 7070;
/// Likely port of Redis on a Sentinel's host.
const REDIS_PORT: u16 = 6379;
const FOUND_WITHIN: Duration = Duration::from_secs(1);

pub async fn to_close(
    redis: &RedisUrl,
    ranges: &[AddressRange],
    proxies: impl IntoIterator<Item = SocketAddr>,
) -> ToClose {
    let (mut servers, mut unknown) = (Vec::new(), Vec::new());
    for server in redis.servers() {
        match timeout(FOUND_WITHIN, lookup_host(server)).await {
            Ok(Ok(found)) => servers.extend(found),
            Ok(Err(_)) | Err(_) => unknown.push(server.0.to_owned()),
        }
    }
    let closed = of_addresses(&servers, redis.has_sentinels(), proxies);
    ToClose { closed, ranges: ranges.to_vec(), unknown }
}

fn of_addresses(
    servers: &[SocketAddr],
    are_sentinels: bool,
    proxies: impl IntoIterator<Item = SocketAddr>,
) -> ClosedAddresses {
    let beside = [API_PORT, TUNNEL_PORT].into_iter().chain(are_sentinels.then_some(REDIS_PORT));
    let of_servers = servers.iter().flat_map(|server| {
        beside.clone().chain([server.port()]).map(|port| SocketAddr::new(server.ip(), port))
    });
    let of_proxies = proxies.into_iter().flat_map(|proxy| [proxy, SocketAddr::new(proxy.ip(), API_PORT)]);
    of_servers.chain(of_proxies).filter_map(reachable).collect()
}

/// A pod's packets to it could leave the host.
fn reachable(address: SocketAddr) -> Option<SocketAddrV4> {
    let is_of_no_host =
        |ip: Ipv4Addr| ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast();
    match address.ip() {
        IpAddr::V4(ip) if !is_of_no_host(ip) => Some(SocketAddrV4::new(ip, address.port())),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn shown(closed: &ClosedAddresses) -> Vec<String> {
        closed.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn redis_sentinels_apis_and_proxies_of_other_hosts_are_closed() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let of = |servers: &[&str], are_sentinels, proxies: &[&str]| {
            let servers: Vec<_> = servers.iter().map(|text| address(text)).collect();
            shown(&of_addresses(&servers, are_sentinels, proxies.iter().map(|text| address(text))))
        };
        assert_eq!(of(&["10.0.0.1:6380"], false, &[]), ["10.0.0.1:6380", "10.0.0.1:7070", "10.0.0.1:7079"]);
        assert_eq!(
            of(&["10.0.0.1:26379"], true, &["10.0.0.2:7000"]),
            [
                "10.0.0.1:6379",
                "10.0.0.1:7070",
                "10.0.0.1:7079",
                "10.0.0.1:26379",
                "10.0.0.2:7000",
                "10.0.0.2:7070"
            ]
        );
        assert_eq!(
            of(&["127.0.0.1:6379", "[fd00::1]:6379", "0.0.0.0:6379"], false, &["127.0.0.1:7079"]),
            [""; 0]
        );
    }

    #[tokio::test]
    async fn a_unix_socket_closes_nothing_and_a_name_without_an_address_is_told() {
        for url in ["unix:///run/redis.sock", "redis://127.0.0.1"] {
            assert_eq!(to_close(&url.parse().unwrap(), &[], []).await, ToClose::default(), "{url}");
        }
        let unknown = to_close(&"redis://no-such-host.invalid:6379".parse().unwrap(), &[], []).await;
        assert_eq!(unknown, ToClose { unknown: vec!["no-such-host.invalid".into()], ..ToClose::default() });
        let closed = to_close(&"redis://10.1.2.3".parse().unwrap(), &[], []).await.closed;
        assert!(shown(&closed).contains(&"10.1.2.3:6379".to_owned()), "{closed:?}");
    }

    #[test]
    fn each_program_opens_only_what_it_has_closed_and_nothing_while_a_name_has_no_address() {
        let closed = |hosts: &[u8]| -> ClosedAddresses {
            hosts.iter().map(|host| SocketAddrV4::new([10, 0, 0, *host].into(), 6379)).collect()
        };
        let beside = |wanted: &[u8], is_whole: bool, now: &[u8], own: &[u8]| {
            let unknown = if is_whole { vec![] } else { vec!["redis".to_owned()] };
            ToClose { closed: closed(wanted), unknown, ..ToClose::default() }
                .beside(&closed(now), &closed(own))
        };
        assert_eq!(beside(&[1, 2], true, &[], &[]), closed(&[1, 2]));
        assert_eq!(beside(&[2], true, &[1, 9], &[1]), closed(&[2, 9]));
        assert_eq!(beside(&[2], false, &[1, 9], &[1]), closed(&[1, 2, 9]));
        assert_eq!(beside(&[2], true, &[2], &[2]), closed(&[2]));
    }
}
