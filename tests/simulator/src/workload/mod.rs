//! Those who use the cluster: clients, requests to pods, and names that pods ask for.

pub(crate) mod addresses;
pub(crate) mod clients;
pub(crate) mod expected_state;
pub(crate) mod images;
pub(crate) mod proxies;
