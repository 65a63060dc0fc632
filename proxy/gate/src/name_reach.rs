//! The state of name resolution on this host.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// `None` until it is known.
pub type KnownNameReach = Option<NameReach>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameReach {
    /// `None` if names resolve.
    pub problem: Option<String>,
    pub gateways: BTreeSet<Ipv4Addr>,
}

impl NameReach {
    pub fn off() -> Self {
        let problem = Some("KUBELEET_NAMES is off for the proxy of this host".to_owned());
        Self { problem, gateways: BTreeSet::new() }
    }
}
