//! Whether pods of this host reach services by name, as its workers are told.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// What workers are told. `None` until it is known.
pub type KnownNameReach = Option<NameReach>;

/// Whether pods of this host reach services by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameReach {
    /// Why they do not; `None` if they do.
    pub problem: Option<String>,
    /// The addresses of this host at which they ask.
    pub gateways: BTreeSet<Ipv4Addr>,
}

impl NameReach {
    /// What workers are told when the operator does not want names.
    pub fn off() -> Self {
        let problem = Some("KUBELEET_NAMES is off for the proxy of this host".to_owned());
        Self { problem, gateways: BTreeSet::new() }
    }
}
