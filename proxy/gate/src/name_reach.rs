//! The state of name resolution on this host, as reported to workers.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// `None` until it is known.
pub type KnownNameReach = Option<NameReach>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameReach {
    /// `None` if names resolve.
    pub problem: Option<String>,
    /// Of this host's resolver.
    pub gateways: BTreeSet<Ipv4Addr>,
}

impl NameReach {
    /// If the operator disabled names.
    pub fn off() -> Self {
        let problem = Some("KUBELEET_NAMES is off for the proxy of this host".to_owned());
        Self { problem, gateways: BTreeSet::new() }
    }
}
