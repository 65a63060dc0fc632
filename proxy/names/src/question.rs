//! Parses domain names into services, slots, ports and addresses. Pure.

use std::net::Ipv4Addr;

use hickory_proto::rr::Name;
use model::ids::ServiceName;
use model::network::address::{DOMAIN, PoolAddress};

/// A service may have its app's short name for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NameSubject {
    /// `kubeleet`.
    Domain,
    /// `web`, `web.kubeleet`.
    Service(ServiceName),
    /// `0.web.kubeleet`.
    Slot(ServiceName, u32),
    /// `all.web.kubeleet`.
    ReadySlots(ServiceName),
    /// `_8080._tcp.web.kubeleet`.
    Port(ServiceName, u16),
    /// `7.0.18.198.in-addr.arpa`; `None` for a reserved address of the pool.
    Address(Option<PoolAddress>),
    Nothing,
    Elsewhere,
}

pub(super) fn subject(name: &Name) -> NameSubject {
    let labels: Option<Vec<String>> =
        name.iter().map(|label| Some(std::str::from_utf8(label).ok()?.to_ascii_lowercase())).collect();
    // Labels that are not UTF-8 are never ours, but the upstream resolver may know them.
    let Some(labels) = labels else { return NameSubject::Elsewhere };
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    match labels[..] {
        [] => NameSubject::Elsewhere,
        [DOMAIN] => NameSubject::Domain,
        [service] => in_domain(&[service]),
        [ref within @ .., DOMAIN] => in_domain(within),
        [d, c, b, a, "in-addr", "arpa"] => reverse([a, b, c, d]),
        _ => NameSubject::Elsewhere,
    }
}

fn in_domain(labels: &[&str]) -> NameSubject {
    let subject = match *labels {
        [service] => service_name(service).map(NameSubject::Service),
        ["all", service] => service_name(service).map(NameSubject::ReadySlots),
        [slot, service] => {
            let slot = number::<u32>(slot);
            slot.and_then(|slot| Some(NameSubject::Slot(service_name(service)?, slot)))
        }
        [port, "_tcp", service] => {
            let port = port.strip_prefix('_').and_then(number::<u16>);
            port.and_then(|port| Some(NameSubject::Port(service_name(service)?, port)))
        }
        _ => None,
    };
    subject.unwrap_or(NameSubject::Nothing)
}

/// Programs from Compose files ask for names with underscores; their services have hyphens.
fn service_name(label: &str) -> Option<ServiceName> {
    ServiceName::new(label.replace('_', "-")).ok()
}

fn reverse(parts: [&str; 4]) -> NameSubject {
    let [Some(a), Some(b), Some(c), Some(d)] = parts.map(number::<u8>) else { return NameSubject::Elsewhere };
    match a {
        198 if b == 18 || b == 19 => NameSubject::Address(PoolAddress::from_ip(Ipv4Addr::new(a, b, c, d))),
        _ => NameSubject::Elsewhere,
    }
}

/// `00` and `+0` are other names.
fn number<T: std::str::FromStr + ToString>(text: &str) -> Option<T> {
    text.parse::<T>().ok().filter(|number| number.to_string() == text)
}
