//! How pods are reached: addresses, endpoints, certificates, and the proxies.

pub(crate) mod addresses;
pub(crate) mod certificates;
pub(crate) mod endpoints;
pub(crate) mod proxies;
