//! Access to pods: addresses, endpoints, certificates, and the proxies.
//!
//! Tests: scripts::addresses, scripts::endpoints, scripts::following, scripts::routes,
//! scripts::certificates, scripts::host_ports

pub(crate) mod addresses;
pub(crate) mod certificates;
pub(crate) mod endpoints;
pub(crate) mod proxies;
